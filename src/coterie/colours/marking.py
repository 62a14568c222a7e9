"""How a server creates and receives actions, and marks them red, yellow, green and white.

An action is recorded and red at its creator when it is created, and multicast once, safe; if that
does not reach everybody, the next exchange spreads it. So it is never multicast again, and the red
cut drops what comes twice.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

from coterie.colours.messages import (
    CONTROL,
    PREFIX_BYTES,
    GreenLine,
    decode_action,
    encode_actions,
)
from coterie.colours.server import ReplicationServer
from coterie.colours.states import ServerState
from coterie.kernel.components import Action, ActionId
from coterie.kernel.decoding import COUNT_MAX
from coterie.kernel.errors import BacklogFull, PayloadTooLarge
from coterie.kernel.past_lives import number_of
from coterie.kernel.records import ActionsGreen, ActionsKnown, GreenLines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.kernel.engine import Run
    from coterie.kernel.layers import Batch, Context
    from coterie.kernel.views import Member, ReplicaId

LINE_EVERY = 64
"""A member of the primary component says how far it is after so many green actions."""
KNOWN_AT_ONCE = 256
"""How many actions one record of the journal holds, at most."""

S = ServerState


class Marking(ReplicationServer):
    """The colours of actions."""

    casts_safe = True
    """Whether actions and `Cpc` wait until all members have them: everything rests on it."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._waiting: deque[Sequence[bytes]] = deque()
        self._waiting_bytes = 0
        self._created = 0
        """The index of the last action created here in this life."""
        self._early: list[Action] = []
        """Actions that came while those before them were being fetched."""
        self._early_bytes = 0
        self._received: dict[ActionId, Action] = {}
        """Actions on record that have no place yet: they came, and are not delivered."""
        self._received_cut: dict[Member, int] = {}
        """For every creator, up to which index they have come in this view."""
        self._number = 0
        """How many actions the present primary component has made green."""
        self._announced = 0
        """Up to where others were told that actions are green here."""

    # ---- creating

    def propose(self, payloads: Sequence[bytes]) -> None:
        settings = self.context.settings
        size = sum(map(len, payloads))
        largest = max(map(len, payloads), default=0) + PREFIX_BYTES
        if largest > settings.payload_bytes_max:
            raise PayloadTooLarge(
                f"an action of {largest} bytes is over the limit of {settings.payload_bytes_max} "
                "(payload_bytes_max): send it in parts"
            )
        if self._waiting and self._waiting_bytes + size > settings.backlog_bytes:
            raise BacklogFull(
                f"{self._waiting_bytes} bytes of requests wait already (backlog_bytes is "
                f"{settings.backlog_bytes}): wait for answers, then ask again"
            )
        if self.state is S.NON_PRIM and self.queue.bytes + size > settings.red_bytes_max:
            raise BacklogFull(
                f"{self.queue.bytes} bytes of actions are red here (red_bytes_max is "
                f"{settings.red_bytes_max}), and no primary component is in touch to order them: "
                "wait for one, or ask a replica that is in it"
            )
        self._waiting.append(payloads)
        self._waiting_bytes += size

    @property
    def has_waiting_casts(self) -> bool:
        return self._may_create and bool(self._waiting)

    @property
    def _may_create(self) -> bool:
        # Whoever follows others waits for the next view: in this one only those create actions who
        # have installed the component, and who is in doubt concludes from one that somebody has.
        is_outside = self.is_zombie or self.is_given_up or self.follows
        return self.state.takes_actions and not is_outside

    def finish_turn(self) -> None:
        self._send_control()
        while self._waiting and self._may_create and not (self._unsent or self.below.is_stopped):
            commands = self._waiting[0]
            time = self.queue.time
            actions = [
                Action(self.me, self._created + offset, min(time + offset, COUNT_MAX), command)
                for offset, command in enumerate(commands, start=1)
            ]
            try:
                self.below.cast(encode_actions(actions), safe=self.casts_safe)
            except BacklogFull:
                return
            self._waiting.popleft()
            self._waiting_bytes -= sum(map(len, commands))
            self._created += len(actions)
            self._learn(actions)
        self._show()

    # ---- received

    def received_batches(self, batches: list[Batch]) -> None:
        """Put actions on record before they are acknowledged.

        So what is delivered safe, and green, is on the record of all members: with `sync = "turn"`,
        on all their disks. They are red here once they are delivered, and not before: whoever
        installs a component makes green what is red at all of its members.
        """
        if self.is_given_up:
            return
        new: list[Action] = []
        for batch in batches:
            if batch.mark == CONTROL or batch.sender == self.me:
                continue
            creator = batch.sender
            there = number_of(self.queue.red_cut, creator)
            cut = max(there, self._received_cut.get(creator, 0))
            for payload in batch.payloads:
                action = decode_action(creator, payload)
                if action is not None and action.index == cut + 1:
                    cut += 1
                    new.append(action)
            self._received_cut[creator] = cut
        for action in new:
            self._received[action.id] = action
        for known in parts(new):
            self._report(ActionsKnown, actions=known)

    def _on_record(self) -> Iterable[Action]:
        return self._received.values()

    def _keep_received(self) -> None:
        """The view is over: what came in it and was not delivered is red, as it is on record."""
        rest = list(self._received.values())
        self._learn(rest)
        self._received.clear()
        self._received_cut.clear()

    # ---- red

    def _learn(self, actions: Iterable[Action]) -> list[Action]:
        """Mark actions red that are new here, on record; give those that have no predecessor."""
        new: list[Action] = []
        gaps: list[Action] = []
        for action in actions:
            if self.takes(action):
                if self.queue.learn(action) and self._received.pop(action.id, None) is None:
                    new.append(action)
            elif not self.queue.has_seen(action):
                gaps.append(action)
        for known in parts(new):
            self._report(ActionsKnown, actions=known)
        return gaps

    def takes(self, action: Action) -> bool:
        """Say whether an action is the next one of its creator."""
        return self.queue.follows(action)

    def _mark_red(self, actions: list[Action]) -> None:
        gaps = self._learn(actions)
        if gaps and self.state is S.EXCHANGE_ACTIONS:
            # Its creator holds the union already, and we shall, too.
            self._early_bytes += sum(len(action.command) for action in gaps)
            if self._early_bytes <= self.context.settings.backlog_bytes:
                self._early += gaps
                return
        if gaps:
            self.context.count("colours.gaps", len(gaps))

    def _on_hole(self, actions: list[Action]) -> None:
        """What comes behind a hole was made green by nobody."""
        self._mark_red(actions)

    # ---- yellow

    def _mark_yellow(self, actions: list[Action]) -> None:
        self._learn(actions)
        for action in actions:
            if action.id in self.queue and action.id not in self.queue.yellow:
                self.queue.mark_yellow(action.id)

    # ---- green

    def _mark_green_now(self, actions: list[Action]) -> None:
        self._learn(actions)
        self._mark_green(self._in_turn(actions))
        if self.green_end - self._announced >= LINE_EVERY and not self.below.is_stopped:
            self._announced = self.green_end
            self._cast(GreenLine(self.green_end))

    def _in_turn(self, actions: list[Action]) -> list[ActionId]:
        """Give the actions that are the next of their creators in the global order.

        A primary component has all actions before the next one, and all of them are green. Where it
        is not so somebody makes numbers up: all hear that at the same place of the order, and all
        leave the action out.
        """
        ends: dict[Member, int] = {}
        found: list[ActionId] = []
        for action in actions:
            end = ends.get(action.creator, number_of(self.queue.log.contained, action.creator))
            if action.index == end + 1 and action.id in self.queue:
                ends[action.creator] = action.index
                found.append(action.id)
            elif action.index > end:
                self.context.count("colours.gaps")
        return found

    def _mark_green(self, ids: Sequence[ActionId]) -> None:
        """Give actions the next places in the global order."""
        if not ids:
            return
        runs = self.queue.mark_green(ids, self.prim.attempt, self._number + 1)
        self._number += len(ids)
        self._are_green(runs)

    def _are_green(self, runs: list[Run]) -> None:
        for run in runs:
            self._report(
                ActionsGreen,
                view=run.view,
                number=run.number,
                position=run.position,
                actions=[ActionId(run.origin, run.first + n) for n in range(len(run.payloads))],
                digests=[crc32(payload) for payload in run.payloads],
            )
        self._showing.add_green(runs)
        self._after_green()

    def _after_green(self) -> None:
        """Learn that actions became green."""

    # ---- white

    def _on_line(self, sender: Member, position: int) -> None:
        self._merge_lines({sender.id: position, self.me.id: self.green_end})

    def _merge_lines(self, lines: dict[ReplicaId, int]) -> None:
        """Learn how far others are; what is green everywhere is white, and can be discarded."""
        merged = {
            each: max(self.lines.get(each, 0), lines.get(each, 0))
            for each in self.queue.log.configuration.everyone
        }
        if merged != self.lines:
            self.lines = merged
            known = tuple(sorted(merged.items()))
            self._report(GreenLines, lines=known, white=self.white_end)
        gone = self.queue.log.discard(min(self.white_end, self.green_end))
        if gone:
            self.context.count("colours.discarded", gone)


def parts(actions: list[Action], count: int = KNOWN_AT_ONCE) -> Iterable[list[Action]]:
    """Cut actions into lists that one record can hold."""
    rest = iter(actions)
    while part := list(islice(rest, count)):
        yield part
