"""PRIMARY: one history, a sequence of entries (**objects** section 4, appendix A).

How a view becomes primary is in `forming.py`. Here its messages are ordered, so everyone decides,
and everyone finds the view confirmed, at the same place of the order; each entry that follows has
the next position.

The initial history of a view is the most advanced one among its counted members. A version names
the last *confirmed* view and the length of the history. Entries exist only in confirmed views, and
a majority accepted each such view, on record, before it was confirmed; so a later confirmed view
contains a member that knows the earlier one, has a higher id, and the higher version is the one
that contains all authoritative entries. A view accepted by a few before a partition raises no
version and can outrank nothing (this is where the paper's version numbers go wrong).

A member takes an entry into its history, then acknowledges it. What a majority has acknowledged
(by name: the view it was ordered in, and the position) is authoritative: settled.

Without SAFE above, entries go up when they are ordered (*optimistic*), `settle` follows, and
`roll_back` when another history wins.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from coterie.kernel.engine import Role, Run, Standing, Version
from coterie.kernel.errors import BacklogFull, BadMessage
from coterie.kernel.layers import Service
from coterie.kernel.records import EntriesAccepted, HistoryAdopted, RolledBack, Settled
from coterie.replication.forming import FormingViews, Phase
from coterie.replication.messages import (
    AckEntries,
    Credentials,
    Entries,
    FetchChunk,
    FetchEntries,
    OtherHistory,
    SettledUpTo,
    StateChunk,
    StateOffer,
)
from coterie.replication.transfer import Transfer
from coterie.replication.vectors import last_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.layers import Batch, Context
    from coterie.kernel.views import Member, View


ANNOUNCE = "primary announce"
"""The name of the timer for telling what is settled, when there is nothing else to tell."""


class PrimaryViews(FormingViews[Transfer]):
    """The layer that keeps the history."""

    name = "PRIMARY"
    needs = FormingViews.needs | {Service.TOTAL_ORDER}
    gives = FormingViews.gives | {Service.TOTAL_ORDER}
    is_ordered = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._hurries = False
        self._has_cast = False
        """Whether something was cast in the running turn."""
        self._waiting: deque[Sequence[bytes]] = deque()
        self._waiting_bytes = 0
        # Our own entries that may have to be proposed again: first number, payloads.
        self._pending: deque[tuple[int, Sequence[bytes]]] = deque()
        self._begin_view()

    def _begin_view(self) -> None:
        super()._begin_view()
        self._acks: dict[Member, int] = {}
        self._ack_to: list[Member] = []
        self._announced = 0
        self._ordered_to = 0
        self._tail: list[Run] = []
        self._tail_bytes = 0

    # ---- what the host asks for

    def propose(self, payloads: Sequence[bytes]) -> None:
        size = sum(map(len, payloads))
        limit = self.context.settings.backlog_bytes
        if self._waiting and self._waiting_bytes + size > limit:
            raise BacklogFull(
                f"{self._waiting_bytes} bytes of proposals wait already (backlog_bytes is {limit}):"
                " wait for answers, then ask again"
            )
        self._waiting.append(payloads)
        self._waiting_bytes += size

    def hurry(self) -> None:
        self._hurries = True

    # ---- forming a primary view

    def view(self, view: View) -> None:
        self.context.cancel_timer("primary ack")
        self.context.cancel_timer(ANNOUNCE)
        super().view(view)

    def _my_credentials(self) -> Credentials:
        log = self.log
        return Credentials(
            self._view.id, log.version, log.settled, self.is_zombie, is_by_hand=self.is_by_hand
        )

    def _begin_forming(self, counted: list[Member]) -> None:
        """The most advanced history is the initial one."""
        initial = self._initial = max(self._credentials[member].version for member in counted)
        self._ordered_to = initial.position
        mine = self._credentials[self.me]
        if self.counts(mine) and mine.version == initial:
            self._accept()
            return
        donors = [member for member in counted if self._credentials[member].version == initial]
        # Learners begin with different donors.
        turn = self._view.rank(self.me) % len(donors)
        donors = donors[turn:] + donors[:turn]
        log = self.log
        transfer = Transfer(donors, log.settled, initial.position, log.mark(log.settled))
        if log.settled > initial.position:
            # Possible only where an operator has accepted the loss of what we have.
            transfer.start_over()
        self._start_transfer(transfer)

    def _accept(self) -> None:
        self._acks[self.me] = self.log.end
        super()._accept()

    def _on_accept(self, sender: Member) -> None:
        self._acks[sender] = max(self._acks.get(sender, 0), self._initial.position)
        super()._on_accept(sender)
        self._settle_what_a_majority_has()

    def _enter_confirmed(self) -> None:
        log = self.log
        # A transfer may have brought entries of this very view.
        log.version = Version(self._view.id, log.end)
        self._report_confirmed()
        tail, self._tail = self._tail, []
        self._take([run.after(log.end) for run in tail if run.last_position > log.end])
        self._tell_status()
        self._settle_what_a_majority_has()
        if not self._is_ending:
            self._propose_again()

    # ---- entries

    def _on_entries(self, batch: Batch) -> None:
        if self._phase is not Phase.CONFIRMED:
            run = Run(self._view.id, batch.number, 0, batch.sender, batch.first, batch.payloads)
            self.above.deliver_runs([run], Standing.NON_PRIMARY)
            return
        position = self._ordered_to + 1
        run = Run(self._view.id, batch.number, position, batch.sender, batch.first, batch.payloads)
        self._ordered_to = run.last_position
        if self._has_accepted:
            end = self.log.end
            if position > end:
                self._take([run], batch.size)
            elif run.last_position > end:
                # A state taken over was ahead of what had been ordered here.
                self._take([run.after(end)])
        else:
            self._keep_for_after_transfer(run, batch.size)

    def _take(self, runs: list[Run], size: int | None = None) -> None:
        """Take entries into the history, on record, then hand them up."""
        if not runs:
            return
        log = self.log
        for run in runs:
            log.append(run, size)
            self._report(EntriesAccepted, run=run)
            if run.origin == self.me and not self._hurries:
                self._no_longer_pending(last_number(run))
            if run.origin not in self._ack_to:
                self._ack_to.append(run.origin)
        if self._phase is Phase.CONFIRMED:
            log.version = Version(self._view.id, log.end)
            self._acks[self.me] = log.end
        self.above.deliver_runs(runs, Standing.OPTIMISTIC)
        if self._view.configuration.majority == 1:
            self._settle_what_a_majority_has()  # no other acknowledgement will come

    def _keep_for_after_transfer(self, run: Run, size: int) -> None:
        """Entries go on while we learn; what is too much to keep will be fetched instead."""
        self._tail.append(run)
        self._tail_bytes += size
        if self._tail_bytes > self.context.settings.backlog_bytes and self._transfer is not None:
            self._tail = []
            self._tail_bytes = 0
            self._transfer.up_to = max(self._transfer.up_to, run.last_position)

    def _no_longer_pending(self, number: int) -> None:
        pending = self._pending
        while pending and pending[0][0] <= number:
            first, payloads = pending.popleft()
            if first + len(payloads) - 1 > number:
                rest = number - first + 1
                pending.appendleft((number + 1, payloads[rest:]))
                return

    def _propose_again(self) -> None:
        """In a new primary view, propose what did not make it into the history."""
        contained = self.log.contained.get(self.me, 0)
        keep: deque[tuple[int, Sequence[bytes]]] = deque()
        again: list[Sequence[bytes]] = []
        for first, payloads in self._pending:
            inside = max(0, min(len(payloads), contained - first + 1))
            if inside:
                keep.append((first, payloads[:inside]))
            if inside < len(payloads):
                again.append(payloads[inside:])
        self._pending = keep
        for payloads in reversed(again):
            self._waiting.appendleft(payloads)
            self._waiting_bytes += sum(map(len, payloads))

    # ---- settling

    def _settle_what_a_majority_has(self) -> None:
        """Find what a majority of the configuration has acknowledged in this view."""
        if self._phase is not Phase.CONFIRMED or not self._has_accepted:
            return
        configuration = self._view.configuration
        members, majority, get = configuration.members, configuration.majority, self._acks.get
        acks = [get(member, 0) for member in self._accepted_by if member.id in members]
        if len(acks) >= majority:
            acks.sort(reverse=True)
            self._settle(acks[majority - 1])

    def _settle(self, position: int) -> None:
        log = self.log
        position = min(position, log.end)
        if position <= log.settled:
            return
        if self._hurries:
            mine = 0
            for run in log.above(log.settled):
                if run.position > position:
                    break
                if run.origin == self.me:
                    mine = last_number(run.up_to(position))
            self._no_longer_pending(mine)
        log.settle(position)
        self._report(Settled, position=position)
        self.above.settle(position)

    def _on_ack(self, sender: Member, message: AckEntries) -> None:
        if message.position > self._acks.get(sender, 0):
            self._acks[sender] = message.position
            self._settle_what_a_majority_has()
        if message.wants_answer and self._has_accepted:
            self._send(SettledUpTo(self.log.settled), sender)
            self._send(AckEntries(self.log.end, wants_answer=False), sender)

    def finish_turn(self) -> None:
        if self._waiting and self.role is Role.PRIMARY and not self.below.is_stopped:
            self._cast_waiting()

    def end_turn(self) -> None:
        # Not earlier: a sequencer orders at the end of its turn, and whoever proposed what it
        # ordered has a majority of three with the acknowledgement that comes with the order.
        if self.role is not Role.PRIMARY or self.below.is_stopped:
            return
        waiting = self._ack_to
        speaks = self._has_cast or (bool(waiting) and waiting != [self.me])
        self._has_cast = False
        if waiting:
            self._acknowledge()
        if self.log.settled > self._announced and self._view.members[0] == self.me:
            self._announce_settled(speaks=speaks)

    def _cast_waiting(self) -> None:
        while self._waiting:
            payloads = self._waiting[0]
            try:
                first = self.below.cast(payloads)
            except BacklogFull:
                return
            self._waiting.popleft()
            self._waiting_bytes -= sum(map(len, payloads))
            self._pending.append((first, payloads))
            self._has_cast = True

    def _acknowledge(self) -> None:
        """Tell the first member, and those who wait for their entries, what we have."""
        if not self._hurries:
            self._watch_settling()
            return
        waiting, self._ack_to = self._ack_to, []
        members = self._view.members
        told = [
            member
            for member in members
            if member != self.me and (member in waiting or member == members[0])
        ]
        if told:
            self._send(AckEntries(self.log.end, wants_answer=False), *told)
        self._watch_settling()

    def _announce_settled(self, *, speaks: bool) -> None:
        """The first member hears from everyone, so it tells everyone.

        Who proposed an entry hears from everyone itself, so nobody is in a hurry for this: it goes
        with the next thing to be said, or after a short while. Said at once it would cost every
        member a turn for every call, and the caller's answer would wait for the frames.
        """
        if self._hurries and not speaks:
            if not self.context.timer_is_set(ANNOUNCE):
                wait = self.context.settings.announce_delay
                self.context.set_timer(ANNOUNCE, wait, self._announce_now)
            return
        self._announce_now()

    def _announce_now(self) -> None:
        self.context.cancel_timer(ANNOUNCE)
        if self.role is not Role.PRIMARY or self.log.settled <= self._announced:
            return
        self._announced = self.log.settled
        self._send(SettledUpTo(self.log.settled), *self._view.members[1:])

    def _watch_settling(self) -> None:
        if not self.context.timer_is_set("primary ack"):
            settings = self.context.settings
            wait = settings.advertise_interval if self._hurries else settings.ack_delay
            self.context.set_timer("primary ack", wait, self._acknowledge_again)

    def _acknowledge_again(self) -> None:
        """While something is not settled here, tell all what we have and ask what they have."""
        self._ack_to = []
        if self.role is Role.PRIMARY and self.log.settled < self.log.end:
            others = [member for member in self._view.members if member != self.me]
            self._send(AckEntries(self.log.end, wants_answer=True), *others)
            self._watch_settling()

    # ---- transfer

    def receive_direct(self, sender: Member, body: bytes) -> None:
        message = self._decode_direct(body)
        match message:
            case AckEntries():
                self._on_ack(sender, message)
            case SettledUpTo(position=position):
                if self.role is Role.PRIMARY:
                    self._settle(position)
            case FetchEntries():
                if self._has_accepted:
                    self._send(self._donor.answer(message), sender)
            case FetchChunk():
                self._donate(sender, message)
            case Entries() | StateOffer() | StateChunk():
                self._on_transfer(message)
            case OtherHistory(after=after):
                self._on_other_history(after)
            case _:
                raise BadMessage("an ordered message that came directly")

    def _on_transfer(self, message: Entries | StateOffer | StateChunk) -> None:
        transfer = self._transfer
        if transfer is None or self._is_ending:
            return
        if transfer.take(message):
            self._go_on_with_transfer()

    def _on_other_history(self, after: int) -> None:
        """What we call settled is not: an operator has accepted its loss."""
        transfer = self._transfer
        if transfer is not None and not self._is_ending and after == transfer.after:
            self.context.count("primary.histories_given_up")
            transfer.start_over()
            self._go_on_with_transfer()

    def _adopt(self, transfer: Transfer) -> None:
        """Everything is here: make it our history, then accept the view."""
        log = self.log
        offer = transfer.state.offer
        if offer is not None:
            kept = log.settled if transfer.keeps_own else 0
        elif transfer.runs:
            kept = log.agrees_with(transfer.runs)
        else:
            kept = self._initial.position
        self._report(
            HistoryAdopted,
            view=self._view.id,
            source=transfer.donor,
            version=self._initial,
            kept=kept,
            restored=offer.position if offer is not None else 0,
        )
        if offer is not None:
            log.reset(offer.position, dict(offer.origins))
            self.above.restore(transfer.state.chunks(), offer.position)
            self._no_longer_pending(log.contained.get(self.me, 0))
        elif kept < log.end:
            log.cut_off(kept)
            self._report(RolledBack, position=kept)
            self.above.roll_back(kept)
        log.version = self._initial
        self._take([run.after(log.end) for run in transfer.runs if run.last_position > log.end])
        self._accept()

    @property
    def has_waiting_casts(self) -> bool:
        return self.role is Role.PRIMARY and bool(self._waiting)
