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

Members change by entries (`members.py`). An entry settles by a quorum of the configuration in force
at it, or with an entry behind it.

Without SAFE above, entries go up when they are ordered (*optimistic*), `settle` follows, and
`roll_back` when another history wins.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from coterie.kernel.configuration import changed, take_off
from coterie.kernel.engine import Role, Run, Standing, Version
from coterie.kernel.errors import BacklogFull, BadMessage
from coterie.kernel.layers import Batch, Service
from coterie.kernel.records import (
    Delivery,
    EntriesAccepted,
    HistoryAdopted,
    RolledBack,
    Settled,
)
from coterie.replication.confirming import ANEW, CONFIRM, ConfirmingReads
from coterie.replication.forming import FormingViews, Phase
from coterie.replication.members import RECONFIGURE
from coterie.replication.messages import (
    AckEntries,
    Confirm,
    Confirmed,
    Credentials,
    Entries,
    FetchChunk,
    FetchEntries,
    ForAbove,
    OtherHistory,
    SettledUpTo,
    StateChunk,
    StateOffer,
)
from coterie.replication.transfer import Transfer
from coterie.replication.vectors import last_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coterie.kernel.layers import Context
    from coterie.kernel.views import Member, ReplicaId, View
    from coterie.replication.messages import PrimaryMessage


ANNOUNCE = "primary announce"
"""The name of the timer for telling what is settled, when there is nothing else to tell."""

ANNOUNCE_ENTRIES = 16
"""So many entries that are settled are told at once: one entry may be hundreds of calls, and who
hears of them executes them before it acknowledges what comes next."""


class PrimaryViews(ConfirmingReads):
    """The layer that keeps the history."""

    name = "PRIMARY"
    needs = FormingViews.needs | {Service.TOTAL_ORDER}
    gives = FormingViews.gives | {Service.TOTAL_ORDER}
    is_ordered = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._hurries = False
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
        self.context.cancel_timer(CONFIRM)
        self.context.cancel_timer(ANEW)
        super().view(view)

    def _my_credentials(self) -> Credentials:
        log = self.log
        return Credentials(
            self._view.id,
            log.version,
            log.settled,
            self.is_zombie,
            is_by_hand=self.is_by_hand,
            configuration=changed(log.configuration),
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
        is_newcomer = not log.configuration.number
        if log.settled > initial.position or is_newcomer:
            # The one is possible only where an operator has accepted the loss of what we have. The
            # other begins with a state: how the first members counted is in no entry.
            transfer.start_over()
        self._start_transfer(transfer)

    def _accept(self) -> None:
        self._acks[self.me] = self.log.end
        super()._accept()

    def _on_accept(self, sender: Member) -> None:
        self._acks[sender] = max(self._acks.get(sender, 0), self._initial.position)
        super()._on_accept(sender)
        self._settle_what_a_majority_has()
        self._advance_configuration()

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
            self._advance_configuration()

    # ---- entries

    def _on_entries(self, batch: Batch) -> None:
        if self._phase is not Phase.CONFIRMED:
            run = Run(self._view.id, batch.number, 0, batch.sender, batch.first, batch.payloads)
            self.above.deliver_runs([run], Standing.NON_PRIMARY)
            return
        if batch.mark == RECONFIGURE and len(batch.payloads) > 1:
            for single in _one_by_one(batch):
                self._on_entries(single)
            return
        position = self._ordered_to + 1
        run = Run(self._view.id, batch.number, position, batch.sender, batch.first, batch.payloads)
        last = self._ordered_to = position + len(batch.payloads) - 1
        if self._has_accepted:
            end = self.log.end
            if position > end:
                self._take([run], batch.size)
            elif last > end:
                # A state taken over was ahead of what had been ordered here.
                self._take([run.after(end)])
        else:
            self._keep_for_after_transfer(run, batch.size)

    def _take(self, runs: list[Run], size: int | None = None) -> None:
        """Take entries into the history, on record, then hand them up."""
        if not runs:
            return
        log, context, me = self.log, self.context, self.me
        group, now = context.group, context.now
        for run in runs:
            log.append(run, size)
            context.report(EntriesAccepted(group=group, member=me, at=now, run=run))
            origin = run.origin
            if origin == me and not self._hurries:
                self._no_longer_pending(last_number(run))
            if origin not in self._ack_to:
                self._ack_to.append(origin)
        if self._phase is Phase.CONFIRMED:
            log.version = Version(self._view.id, log.end)
            self._acks[self.me] = log.end
        self.above.deliver_runs(runs, Standing.OPTIMISTIC)
        if self.log.configuration.majority == 1:
            self._settle_what_a_majority_has()  # no other acknowledgement will come

    # ---- the common case (`coterie.bypass`)

    def takes_next(self) -> bool:
        """Say whether the next batch of entries follows what is in our history."""
        log = self.log
        return (
            self._phase is Phase.CONFIRMED
            and self._has_accepted
            and self._ordered_to == log.end
            and len(log.configurations[-1][1].members) > 1
        )

    def accept_next(self, batch: Batch) -> Run:
        """Do what `deliver`, `_on_entries` and `_take` do; give what is to be handed up."""
        self._delivered[Delivery.REGULAR].add(batch)
        log, context, me = self.log, self.context, self.me
        payloads, origin, view = batch.payloads, batch.sender, batch.view
        run = Run(view, batch.number, log.end + 1, origin, batch.first, payloads)
        log.append(run, batch.size)
        end = self._ordered_to = self._acks[me] = log.end
        log.version = Version(view, end)
        context.report(EntriesAccepted(group=context.group, member=me, at=context.now, run=run))
        if origin == me and not self._hurries:
            self._no_longer_pending(batch.first + len(payloads) - 1)
        if origin not in self._ack_to:
            self._ack_to.append(origin)
        return run

    def next_to_cast(self) -> Sequence[bytes] | None:
        """Give what is to be cast in this turn: None if nothing, empty if it is not simple."""
        waiting = self._waiting
        if not waiting or self._phase is not Phase.CONFIRMED or not self._has_accepted:
            return None
        if len(waiting) > 1 or not self.takes_next():
            return ()
        return waiting[0]

    def cast_next(self, payloads: Sequence[bytes]) -> int:
        """Let go of what is cast now, as `_cast_waiting` does; give its first number."""
        self._waiting.clear()
        self._waiting_bytes = 0
        first = self.context.number_messages(len(payloads))
        self._pending.append((first, payloads))
        self._has_cast = True
        return first

    def acknowledged(self, sender: Member, position: int) -> None:
        """Learn that a member has our entries up to a position."""
        if position > self._acks.get(sender, 0):
            self._acks[sender] = position
            log = self.log
            if log.settled < log.end:
                self._settle_what_a_majority_has()

    def hear_settled(self, position: int) -> None:
        """Learn what the first member says is authoritative."""
        if self.role is Role.PRIMARY:
            self._settle(position)

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
        """Find what a quorum of the configuration in force has acknowledged in this view."""
        if self._phase is not Phase.CONFIRMED or not self._has_accepted:
            return
        end = self.log.end
        for position, configuration in reversed(self.log.configurations):  # nearly always one
            held = self._held_by(configuration.members)
            if configuration.before:
                held = min(held, self._held_by(configuration.before))
            if held >= position:
                self._settle(min(held, end))
                return
            end = position - 1

    def _held_by(self, members: tuple[ReplicaId, ...]) -> int:
        """Give the position up to which a majority has everything; -1 where there is none."""
        get = self._acks.get
        acks = [get(member, 0) for member in self._accepted_by if member.id in members]
        majority = len(members) // 2 + 1
        if len(acks) < majority:
            return -1
        acks.sort(reverse=True)
        return acks[majority - 1]

    def _settle(self, position: int) -> None:
        log = self.log
        position = min(position, log.end)
        if position <= log.settled:
            return
        if self._hurries and self._pending:
            self._no_longer_pending(self._settled_of_mine(position))
        before = log.settled_configuration
        settling = [each for each in log.configurations[1:] if each[0] <= position]
        log.settle(position)
        context = self.context
        context.report(
            Settled(group=context.group, member=self.me, at=context.now, position=position)
        )
        for place, configuration in settling:
            self._report_configuration(place, configuration)
        self.above.settle(position)
        if log.settled_configuration is not before:
            self._configuration_settled()
        if self._answered:
            self._look_at_answered()

    def _settled_of_mine(self, position: int) -> int:
        """Give the number of our last entry up to *position*; 0 if it was settled before."""
        log = self.log
        if position == log.end:
            return log.contained.get(self.me, 0)  # all that are here, as nearly always
        mine = 0
        for run in log.above(log.settled):
            if run.position > position:
                break
            if run.origin == self.me:
                mine = last_number(run.up_to(position))
        return mine

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
        if self._answered or self._wanted > self._asked:
            self._go_on_with_reads()
        waiting = self._ack_to
        settles = self._is_first and self.log.settled > self._announced
        if not (waiting or settles or self._has_cast):
            return  # as after most turns
        if self._phase is not Phase.CONFIRMED or not self._has_accepted or self.below.is_stopped:
            return
        self._has_cast = False
        if waiting:
            self._acknowledge()
        if settles:
            self._announce_settled()

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
        me, first = self.me, members[0]
        if not self._is_first and len(waiting) == 1 and waiting[0] is first:
            self._send(AckEntries(self.log.end, wants_answer=False), first)
        elif not self._is_first or waiting != [me]:
            told = [each for each in members if each != me and (each is first or each in waiting)]
            if told:
                self._send(AckEntries(self.log.end, wants_answer=False), *told)
        self._watch_settling()

    def _announce_settled(self) -> None:
        """The first member hears from everyone, so it tells everyone.

        Who proposed an entry hears from everyone itself, so nobody is in a hurry for this: it is
        said when there is much of it, or after a short while. Said with every entry it would have
        every member execute the one before while the caller of this one waits for its word, and
        what is executed together costs each less.
        """
        is_awaited = self._announced < self._awaited <= self.log.settled
        is_little = self.log.settled - self._announced < ANNOUNCE_ENTRIES
        if self._hurries and is_little and not is_awaited:
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
            case AckEntries():  # nearly all are this or the next
                self._on_ack(sender, message)
            case SettledUpTo(position=position):
                self.hear_settled(position)
            case Confirm():
                self._on_confirm(sender, message)
            case Confirmed(position=position):
                self.acknowledged(sender, position)
                self._on_confirmed(sender, message)
            case ForAbove(body=inner):
                self.above.receive_direct(sender, inner)
            case _:
                self._receive_of_transfer(sender, message)

    def _receive_of_transfer(self, sender: Member, message: PrimaryMessage) -> None:
        match message:
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

    def send_direct(self, members: Sequence[Member], body: bytes) -> None:
        self._send(ForAbove(body), *members)

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
            configuration, chunks = take_off(transfer.state.chunks())
            log.reset(offer.position, dict(offer.origins), configuration)
            self._report_configuration(offer.position, log.settled_configuration)
            self.above.restore(chunks, offer.position)
            self.context.acquaint(log.settled_configuration)
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


def _one_by_one(batch: Batch) -> Iterator[Batch]:
    """Give a batch as batches of one message."""
    for index, payload in enumerate(batch.payloads):
        single = Batch(
            batch.view,
            batch.sender,
            batch.rank,
            batch.packet,
            batch.first + index,
            batch.raw_header,
            batch.header,
            [payload],
        )
        single.mark, single.safe, single.delivery = batch.mark, batch.safe, batch.delivery
        single.number = batch.number + index if batch.number else 0
        yield single
