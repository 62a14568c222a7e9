"""A toy engine family: the first replica of a group leads for ever, and the others copy.

This folder adds an engine to Coterie without a change to any file outside it. It is the template
for a real one: each module is one side of the product, and `registry.py` puts all of them into the
registries under one key, `toy`.

| Module | Side |
|---|---|
| `engine.py` | the engine itself: a bottom layer that keeps a history, without I/O |
| `service_side.py` | how it is configured, founded, started, hosted and reached by clients |
| `simulation_side.py` | replicas on simulated machines, load, healing, and what must hold |
| `pipeline_side.py` | what is checked from its journals |
| `registry.py` | the registries it is put into, and taken out of again |

`test_*.py` show that it works on every side; `docs/extending/engine-family.md` tells the story.

The protocol, in one breath: the leader takes commands, gives them the next positions and sends
them to all; who has stored them says how far it has got; what a majority has stored is
authoritative, and only that is executed. Messages may be lost: the leader sends again, after a
while, what somebody lacks. There is one view, so nothing is ever rolled back. What it does not do
is why it is a toy: without its leader a group stands still, and a leader whose disk is lost takes
the group with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.clock import milliseconds
from coterie.kernel.decoding import Decoder
from coterie.kernel.engine import Checkpoint, Role, Run, Standing, Status, Version
from coterie.kernel.errors import BadMessage, Refused
from coterie.kernel.records import EntriesAccepted, PrimaryAccepted, Settled, Started
from coterie.kernel.replica import Replica
from coterie.kernel.views import Member, ViewId
from coterie.objects import ObjectHost
from coterie.replication.layer import EngineLayer, EngineTop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.kernel.layers import Context
    from coterie.kernel.transfer import TakeSnapshot
    from coterie.objects import Definition, HostSettings
    from coterie.objects.fronts import Front

NAME = "toy"
RESEND = milliseconds(50)
COPIED = Standing.declare("COPIED", 254)
"""What an answer of the toy may claim: a majority has copied it, and it stands for ever."""
WAITING_MAX = 10_000
"""So many entries may wait for a majority before further ones are refused."""


class Copy(msgspec.Struct, tag=1, frozen=True, array_like=True):
    """From the leader: entries, and up to which position they are authoritative."""

    runs: list[Run]
    settled: int


class Stored(msgspec.Struct, tag=2, frozen=True, array_like=True):
    """To the leader: everything up to this position is stored here."""

    position: int


_decoder: Decoder[Copy | Stored] = Decoder(Copy | Stored)


class Copying(EngineLayer):
    """One replica; it is the bottom, the only layer, and keeps the history."""

    name = "TOY"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.me = context.me
        self.leader = context.configuration.members[0]
        self.only_view = ViewId(1, self.leader, 1)
        self.has_left = False
        self.highest = self.only_view.number
        self.is_zombie = False
        self.runs: list[Run] = []
        """All entries above the state it began with."""
        self.position = 0
        self.settled = 0
        self._first = 0
        """The number of this life's last entry."""
        self._stored: dict[str, int] = {}
        self._members: dict[str, Member] = {self.me.id: self.me}
        """Those heard of, in their latest lives."""

    @property
    def is_leader(self) -> bool:
        """Whether it is this replica that takes commands."""
        return self.me.id == self.leader

    @property
    def version(self) -> Version:
        """How advanced the history is."""
        return Version(self.only_view, self.position)

    # ---- what the process calls (`coterie.kernel.replica.Bottom`)

    def start(self) -> None:
        """Begin with what earlier lives left."""
        context, past = self.context, self.context.past
        self.is_zombie = past is not None and past.is_zombie
        self._report(
            Started,
            stack=self.name,
            configuration=context.configuration,
            is_zombie=self.is_zombie,
        )
        if past is not None and not self.is_zombie:
            if past.chunks:
                self.above.restore(past.chunks, past.position)
            self.position = self.settled = past.position
            for run in past.runs:
                self._keep(run)
            self._settle(past.settled, is_known=True)
        self._report(PrimaryAccepted, view=self.only_view, members=(self.me,), version=self.version)
        self._tell_status()
        self._again()

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        """Read a message."""
        return _decoder.decode(message)

    def receive(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- as the kernel says
        """Take a message."""
        if sender.id not in self.context.configuration.members:
            raise BadMessage("only replicas of the group copy from each other")
        known = self._members.get(sender.id)
        if known is None or sender.incarnation >= known.incarnation:
            self._members[sender.id] = sender
        if known != sender:
            self._tell_status()
        match message:
            case Copy() if sender.id == self.leader and not self.is_leader:
                self._on_copy(message)
            case Stored(position=position) if self.is_leader:
                self._stored[sender.id] = min(position, self.position)
                self._settle(self._majority_has())
            case _:
                raise BadMessage("a message for another replica")

    def reachability_changed(self, restarted: Sequence[str]) -> None:
        """Learn whom the failure detector believes in now."""
        for id in restarted:
            self._stored.pop(id, None)  # its disk may be another one
        self._tell_status()

    # ---- what the host calls

    def propose(self, payloads: Sequence[bytes]) -> None:
        """Give commands the next positions."""
        if not self.is_leader:
            raise Refused(f"only {self.leader} takes updates in this group")
        if self.position - self.settled > WAITING_MAX:
            raise Refused("too few replicas keep up: try again later")
        position = self.position + 1
        run = Run(self.only_view, position, position, self.me, self._first + 1, list(payloads))
        self._first += len(run.payloads)
        self._accept(run)
        self.context.send(self._others, Copy([run], self.settled))
        self._settle(self._majority_has())

    def hurry(self) -> None:
        """Nothing is put off here."""

    def leave(self) -> None:
        """Nobody has to be told."""
        self.has_left = True

    # ---- its history (`coterie.kernel.engine.HistoryKeeper`)

    def checkpoint(self) -> Checkpoint:
        """Give the authoritative part of the history as a state."""
        origins = {run.origin: run.first + len(run.payloads) - 1 for run in self._up_to_settled()}
        return Checkpoint(
            self.settled, self.version, self.above.snapshot(), tuple(sorted(origins.items()))
        )

    def recover(self) -> None:
        """Refuse: what the leader does not know nobody can make up."""
        raise Refused("a toy group goes on when its first replica is back with its folder")

    # ---- copying

    @property
    def _others(self) -> list[str]:
        return [id for id in self.context.configuration.members if id != self.me.id]

    def _on_copy(self, message: Copy) -> None:
        for run in message.runs:
            if run.position <= self.position + 1 <= run.last_position:
                self._accept(run.after(self.position))
        self._settle(min(message.settled, self.position))
        self.context.send([self.leader], Stored(self.position))

    def _again(self) -> None:
        """Send again what somebody lacks, as far as is known here."""
        if self.is_leader:
            for id in self._others:
                stored = self._stored.get(id, 0)
                lacking = [run.after(stored) for run in self.runs if run.last_position > stored]
                if lacking or stored < self.settled or id not in self._stored:
                    self.context.send([id], Copy(lacking, self.settled))
        else:
            self.context.send([self.leader], Stored(self.position))
        self.context.set_timer("toy again", RESEND, self._again)

    def _keep(self, run: Run) -> None:
        assert run.position == self.position + 1, "entries follow each other"
        self.runs.append(run)
        self.position = run.last_position

    def _accept(self, run: Run) -> None:
        self._keep(run)
        self._report(EntriesAccepted, run=run)

    def _majority_has(self) -> int:
        """Give the position up to which a majority has stored everything."""
        stored = sorted([self.position, *self._stored.values()], reverse=True)
        needed = self.context.configuration.majority
        return stored[needed - 1] if len(stored) >= needed else self.settled

    def _settle(self, position: int, *, is_known: bool = False) -> None:
        """Have everything up to *position* executed; *is_known* where the journal has it."""
        if position <= self.settled:
            return
        ready = [
            run.after(self.settled).up_to(position)
            for run in self.runs
            if run.last_position > self.settled and run.position <= position
        ]
        self.settled = position
        if not is_known:
            self._report(Settled, position=position)
        self.above.deliver_runs(ready, COPIED)
        self.above.settle(position)
        if self.is_leader and not is_known:
            self.context.send(self._others, Copy([], position))

    def _up_to_settled(self) -> list[Run]:
        return [run.up_to(self.settled) for run in self.runs if run.position <= self.settled]

    # ---- what it says of itself

    def _tell_status(self) -> None:
        reached = [
            member
            for id, member in self._members.items()
            if id == self.me.id or self.context.reaches(id)
        ]
        ids = frozenset(member.id for member in reached)
        if self.is_zombie:
            role = Role.MINORITY
        elif self.is_leader:
            is_led = self.context.configuration.is_quorum(ids)
            role = Role.PRIMARY if is_led else Role.MINORITY
        else:
            role = Role.BACKUP if self.leader in ids else Role.MINORITY
        self.above.status_changed(
            Status(
                role=role,
                view=self.only_view,
                members=tuple(sorted(reached)),
                position=self.position,
                settled=self.settled,
                is_zombie=self.is_zombie,
                leader=self._members.get(self.leader),
            )
        )

    def _report(self, kind: type, **fields: object) -> None:
        context = self.context
        context.report(kind(group=context.group, member=self.me, at=context.now, **fields))


def make_toy(  # noqa: PLR0913 -- all by name
    definition: Definition,
    stack: str,
    context: Context,
    front: Front,
    *,
    settings: HostSettings,
    clock: Callable[[], int],
    take_snapshot: TakeSnapshot,
) -> tuple[Replica, ObjectHost]:
    """Put a replica and the host that executes its object together."""
    del stack
    host = ObjectHost(
        definition,
        context,
        front=front,
        clock=clock,
        is_ordered=True,
        settings=settings,
        take_snapshot=take_snapshot,
    )
    engine = Copying(context)
    host.engine = engine
    return Replica(context, EngineTop(context, host), [engine], engine, history=engine), host
