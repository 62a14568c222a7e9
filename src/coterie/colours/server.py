"""A replication server of **transis**: what it must remember, and what it tells the rest.

The persistent fields are the slides' own: the actions queue, the red cut, the green lines, the last
primary component, whether it is *vulnerable*, and which actions are *yellow*. `Promises` is the
part of them that must be on disk before anything rests on it; the turn sees to that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from coterie.colours.messages import CONTROL, encode
from coterie.colours.queue import ActionsQueue
from coterie.colours.showing import Showing
from coterie.colours.states import ServerState
from coterie.kernel.components import (
    Promises,
    ServerMemory,
    Vulnerable,
    Word,
    Yellow,
    no_component,
)
from coterie.kernel.configuration import ChunksAfter, first_chunk, take_off
from coterie.kernel.decoding import Decoder
from coterie.kernel.engine import Checkpoint, Chunks, Role, Status, Version
from coterie.kernel.errors import BacklogFull
from coterie.kernel.records import StateEntered
from coterie.kernel.views import NO_VIEW, ChangedConfiguration, View
from coterie.replication.layer import EngineLayer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from coterie.colours.messages import Control, Direct
    from coterie.kernel.components import Action
    from coterie.kernel.layers import Context, Side
    from coterie.kernel.views import Member, ReplicaId


class _AliveValue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What merge partners know of each other beforehand."""

    is_primary: bool
    index: int
    configuration: ChangedConfiguration | None = None


_encoder = msgspec.msgpack.Encoder()
_alive_decoder = Decoder(_AliveValue)

S = ServerState


class ReplicationServer(EngineLayer):
    """What is the same in all states."""

    queue_kind = ActionsQueue

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.me = context.me
        self.queue = self.queue_kind(
            bytes_max=context.settings.history_bytes, configuration=context.configuration
        )
        self.state = S.NON_PRIM
        self.prim = no_component(context.configuration.members)
        """The last primary component that is known here."""
        self.vulnerable: Vulnerable | None = None
        self.yellow_is_valid = True
        """Whether what is yellow here is all that may be green elsewhere, as far as we go."""
        self.is_zombie = False
        """Whether the disk was lost, and we have not been in a primary component since."""
        self.words: tuple[Word, ...] = ()
        """The words of operators on which what is green here rests."""
        self.follows = False
        """Whether others begin a component in this view, and we have what they begin with."""
        self.was_left_out = False
        """Whether others began a component in the view before without waiting for us."""
        self.is_given_up = False
        """Whether an operator gave up what is green here, and the others have gone on."""
        self.lines: dict[ReplicaId, int] = {}
        """For every replica, how many actions are known to be green there."""
        self._showing = Showing(self.queue)
        self._view = View(NO_VIEW, (self.me,), (NO_VIEW,), (b"",), context.configuration)
        self._unsent: deque[tuple[bytes, bool]] = deque()
        """Control messages that the layer below had no room for."""
        self._told: object = None
        """What the host knows of our role."""
        self.why = ""
        """Why we are in the present state, where there is a choice."""

    # ---- earlier lives

    def assembled(self) -> None:
        past = self.context.past
        if past is None:
            return
        self.is_zombie = past.is_zombie
        memory, queue = past.more, self.queue
        if not isinstance(memory, ServerMemory):
            return
        self._remember(memory.promises)
        if past.position:
            configuration, chunks = take_off(past.chunks)
            queue.reset(past.position, dict(past.origins), configuration)
            self.above.restore(chunks, past.position)
            self._showing.restored(past.position)
        for run in past.runs:
            queue.take_green(run)
            self._showing.add_green([run])
        for action in memory.actions:
            queue.learn(action)
        queue.time = max(queue.time, memory.time)
        self.lines = dict(memory.lines)
        yellow = memory.promises.yellow
        self.yellow_is_valid = yellow is not None
        if yellow is not None:
            queue.set_yellow(yellow.above(queue.log.end).actions)
        self.context.acquaint(queue.log.configuration)
        self._show()

    def _remember(self, promises: Promises) -> None:
        self.prim = promises.prim
        self.vulnerable = promises.vulnerable
        self.words = promises.words

    # ---- what others ask

    @property
    def version(self) -> Version:
        """How advanced the history is."""
        return Version(self.prim.attempt, self.queue.log.end)

    @property
    def position(self) -> int:
        """The position of the last green action here."""
        return self.queue.log.end

    @property
    def settled(self) -> int:
        """Up to which position the history is authoritative: all of it is."""
        return self.queue.log.end

    @property
    def green_end(self) -> int:
        """How many actions are green here."""
        return self.queue.log.end

    @property
    def white_end(self) -> int:
        """How many actions are known to be green everywhere."""
        return min(self.lines.get(each, 0) for each in self.queue.log.configuration.everyone)

    @property
    def yellow(self) -> Yellow | None:
        """What may be green elsewhere; None if that cannot be said."""
        if not self.yellow_is_valid:
            return None
        return Yellow(self.queue.log.end, tuple(self.queue.yellow))

    @property
    def promises(self) -> Promises:
        """What must be on disk before anything rests on it."""
        return Promises(self.prim, self.vulnerable, self.yellow, self.is_zombie, self.words)

    @property
    def has_forgotten(self) -> bool:
        """Whether the machine was lost in a primary component, with what was not synced."""
        return self.vulnerable is not None and self.me.id not in self.vulnerable.seen

    @property
    def role(self) -> Role:
        """What this replica may do at present."""
        if self.state is S.REG_PRIM:
            return Role.PRIMARY
        if self.state is S.NON_PRIM and not (self.is_zombie or self.is_given_up or self.follows):
            return Role.NON_PRIMARY
        return Role.FORMING

    def is_with(self, replicas: Collection[ReplicaId]) -> bool:
        """Say whether exactly these are in the configuration."""
        return {member.id for member in self._view.members} == set(replicas)

    def checkpoint(self) -> Checkpoint:
        """Give all that is known here, the state of the object behind the rest."""
        queue = self.queue
        origins = tuple(sorted(queue.log.contained.items()))
        memory = ServerMemory(
            self.promises,
            queue.log.end,
            origins,
            (*queue.shown(), *self._on_record()),
            tuple(sorted(self.lines.items())),
            queue.time,
            self._view.id.number,
        )
        chunks = ChunksAfter(_encoder.encode(memory), self._state())
        return Checkpoint(queue.log.end, self.version, chunks, origins)

    def _on_record(self) -> Iterable[Action]:
        """Give the actions that are on record and have no colour yet."""
        return ()

    def _state(self) -> Chunks:
        """Give the state after the last green action, with the configuration that it led to."""
        first = first_chunk(self.queue.log.configuration)
        state = self.above.snapshot()
        return state if first is None else ChunksAfter(first, state)

    # ---- merging

    def flush_value(self) -> bytes:
        return b""

    def stability_rose(self) -> None:
        pass

    def alive_value(self) -> bytes:
        now = self.queue.log.configuration
        news = now if isinstance(now, ChangedConfiguration) else None
        return _encoder.encode(_AliveValue(self.state is S.REG_PRIM, self.prim.index, news))

    def alive_heard(self, value: bytes) -> None:
        news = _alive_decoder.decode(value).configuration
        if news is not None and self.me.id in news.everyone:
            self.context.acquaint(news)

    def proposes_merge(self, ours: Side, theirs: Side) -> bool | None:
        """The primary component proposes, or the larger side, so that its members come first."""

        def rank(side: Side) -> tuple[bool, int, int]:
            value = _alive_decoder.decode(side.value)
            return (value.is_primary, value.index, len(side.members))

        mine, other = rank(ours), rank(theirs)
        return mine > other if mine != other else ours.contact < theirs.contact

    # ---- for subclasses

    def _enter(self, state: ServerState, reason: str = "") -> None:
        self.state, self.why = state, reason
        self._report(StateEntered, view=self._view.id, state=state.value, reason=reason)

    def _show(self) -> None:
        """Have the host know what has changed, at the end of whatever changed it."""
        shows_red = self.state is not S.REG_PRIM
        self._showing.show(self.above, view=self._view.id, shows_red=shows_red)
        self._tell_status()

    def _tell_status(self) -> None:
        news = (self.role, self._view.id, self.is_zombie, self.queue.log.configuration.number)
        if news == self._told:
            return
        self._told = news
        self.above.status_changed(
            Status(
                role=self.role,
                view=self._view.id,
                members=self._view.members,
                position=self.green_end,
                settled=self.green_end,
                is_zombie=self.is_zombie,
                configuration=self.queue.log.configuration,
            )
        )

    def _force(self, kind: type, **fields: object) -> None:
        """Report what must be on disk before anything of this turn leaves."""
        self._report(kind, view=self._view.id, promises=self.promises, **fields)

    def _cast(self, message: Control, *, safe: bool = False) -> None:
        self._unsent.append((encode(message), safe))
        self._send_control()

    def _send_control(self) -> None:
        """Multicast control messages, in order, as far as there is room for them now."""
        while self._unsent:
            payload, safe = self._unsent[0]
            try:
                self.below.cast([payload], safe=safe, mark=CONTROL)
            except BacklogFull:
                return
            self._unsent.popleft()

    def _send(self, message: Direct, member: Member) -> None:
        self.below.send_direct([member], encode(message))

    def _report(self, kind: type, **fields: object) -> None:
        context = self.context
        context.report(kind(group=context.group, member=self.me, at=context.now, **fields))
