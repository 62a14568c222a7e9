"""PRIMARY: at most one view at a time may change the history (**objects** section 4, appendix A).

In a new view each member multicasts its *credentials*: how advanced its history is, and whether
it has lost its memory (a zombie). Where all credentials have been delivered, at the same place of
the order everywhere, all decide the same:

1. The members of the configuration that are not zombies must be a majority, or the view is a
   *minority* and takes no updates.
2. The most advanced history among them becomes the initial history of the view. It contains every
   authoritative entry, since each was accepted by a majority, and two majorities meet.
3. Who has exactly that history *accepts* the view at once; the others are *learners*: they fetch
   what they miss (`Transfer`) and accept when they have it. Acceptances are ordered messages.
4. Where the acceptances of a majority have been delivered the view is *confirmed*, again at the
   same place everywhere. Only now are entries proposed; each has the next position.
5. A member takes an entry into its history, then acknowledges it. What a majority has
   acknowledged (by name: the view it was ordered in, and the position) is authoritative: settled.

A version names the last *confirmed* view and the length of the history. Entries exist only in
confirmed views, and a majority accepted each such view, on record, before it was confirmed; so a
later confirmed view contains a member that knows the earlier one, has a higher id, and the higher
version is the one that contains all authoritative entries. A view accepted by a few before a
partition raises no version and can outrank nothing (this is where the paper's version numbers go
wrong).

Without SAFE above, entries go up when they are ordered (*optimistic*), `settle` follows, and
`roll_back` when another history wins.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from coterie.kernel.engine import Checkpoint, Role, Run, Standing, Status, Version
from coterie.kernel.errors import DECODE_ERRORS, BacklogFull, BadMessage
from coterie.kernel.layers import Service
from coterie.kernel.records import (
    Delivery,
    EntriesAccepted,
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Recovered,
    RolledBack,
    Settled,
    TransitionalInstalled,
    ViewEnded,
)
from coterie.kernel.views import NO_VIEW, Member, View, ViewId
from coterie.replication.layer import EngineLayer
from coterie.replication.log import NO_VERSION, Log
from coterie.replication.messages import (
    Accept,
    AckEntries,
    Credentials,
    Entries,
    FetchChunk,
    FetchEntries,
    PrimaryMessage,
    SettledUpTo,
    StateChunk,
    StateOffer,
)
from coterie.replication.transfer import Donor, Transfer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coterie.kernel.layers import Batch, Context, Ending, Side

CONTROL = 1
"""The mark of PRIMARY's own ordered messages."""


class _AliveValue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What merge partners know of each other beforehand."""

    is_zombie: bool
    version: Version


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[PrimaryMessage] = msgspec.msgpack.Decoder(PrimaryMessage)
_alive_decoder = msgspec.msgpack.Decoder(_AliveValue)


class _Phase(enum.Enum):
    GATHERING = "gathering credentials"
    MINORITY = "minority"
    FORMING = "waiting for a majority to accept"
    CONFIRMED = "confirmed"


class _Delivered:
    """What was delivered in one part of a view."""

    def __init__(self) -> None:
        self.digest = 0
        self._counts: dict[Member, int] = {}

    def add(self, batch: Batch) -> None:
        sender, count = batch.sender, len(batch.payloads)
        self._counts[sender] = self._counts.get(sender, 0) + count
        self.digest = crc32(b"%d %d %d," % (batch.rank, batch.first, count), self.digest)

    def counts(self, members: Sequence[Member]) -> list[int]:
        return [self._counts.get(member, 0) for member in members]


class PrimaryViews(EngineLayer):
    """The layer that keeps the history."""

    name = "PRIMARY"
    needs = frozenset({Service.VIEWS, Service.STABILITY})
    gives = frozenset({Service.PRIMARY_VIEWS})

    @classmethod
    def services(cls, below: frozenset[Service]) -> frozenset[Service]:
        return cls.gives | (below & {Service.TOTAL_ORDER})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.me = context.me
        self.log = Log(bytes_max=context.settings.history_bytes)
        self.is_zombie = False
        self._hurries = False
        self._view = View(NO_VIEW, (self.me,), (NO_VIEW,), (b"",), context.configuration)
        self._donor = Donor(self.log, self._snapshot, context.settings.packet_bytes_max)
        self._waiting: deque[Sequence[bytes]] = deque()
        self._waiting_bytes = 0
        # Our own entries that may have to be proposed again: first number, payloads.
        self._pending: deque[tuple[int, Sequence[bytes]]] = deque()
        self._is_ordered = True
        self._begin_view()

    def _begin_view(self) -> None:
        self._phase = _Phase.GATHERING
        self._is_ending = False
        self._delivered = (_Delivered(), _Delivered())
        self._credentials: dict[Member, Credentials] = {}
        self._initial = NO_VERSION
        self._accepted_by: list[Member] = []
        self._has_accepted = False
        self._acks: dict[Member, int] = {}
        self._ack_to: list[Member] = []
        self._announced = 0
        self._ordered_to = 0
        self._transfer: Transfer | None = None
        self._tail: list[Run] = []
        self._tail_bytes = 0
        self._donor.forget()

    def assembled(self) -> None:
        self._is_ordered = Service.TOTAL_ORDER in self.below.gives
        past = self.context.past
        if past is None:
            return
        self.is_zombie = past.is_zombie
        if past.position:
            self.log.reset(past.position, dict(past.origins))
            self.above.restore(past.chunks, past.position)
        for run in past.runs:
            self.log.append(run)
        self.log.version = past.version
        if past.runs:
            self.above.deliver_runs(list(past.runs), Standing.OPTIMISTIC)
        if past.settled > self.log.settled:
            self.log.settle(past.settled)
            self.above.settle(past.settled)

    def _snapshot(self) -> Iterator[bytes]:
        return self.above.snapshot()

    def checkpoint(self) -> Checkpoint:
        """Give the authoritative part of the history, as it is now."""
        log = self.log
        origins = tuple(sorted(log.origins(log.settled).items()))
        return Checkpoint(log.settled, log.version, origins, self.above.snapshot())

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

    def recover(self) -> None:
        """Let the history of a zombie count again, on the word of an operator who accepts loss."""
        self.is_zombie = False
        self._report(Recovered, version=self.log.version)
        self._cast(Credentials(self._view.id, self.log.version, self.log.settled, is_zombie=False))

    @property
    def role(self) -> Role:
        """What this replica may do at present."""
        match self._phase:
            case _Phase.MINORITY:
                return Role.MINORITY
            case _Phase.CONFIRMED:
                return Role.PRIMARY if self._has_accepted else Role.LEARNER
            case _:
                return Role.FORMING

    # ---- forming a primary view

    def view(self, view: View) -> None:
        self._report_ended()
        self._view = view
        self.context.cancel_timer("primary ack")
        self.context.cancel_timer("transfer")
        self._begin_view()
        log = self.log
        self._cast(Credentials(view.id, log.version, log.settled, self.is_zombie))
        self._tell_status()

    def _report_ended(self) -> None:
        """Say what was delivered in the view that is over."""
        if self._view.id == NO_VIEW:
            return
        regular, late = self._delivered
        self._report(
            ViewEnded,
            view=self._view.id,
            counts=regular.counts(self._view.members),
            digest=regular.digest if self._is_ordered else 0,
            transitional_counts=late.counts(self._view.members),
            transitional_digest=late.digest if self._is_ordered else 0,
        )

    def transitional(self, view: ViewId, members: tuple[Member, ...]) -> None:
        # What still comes are facts about the old view; nothing new can be begun in it.
        self._is_ending = True
        self._report(TransitionalInstalled, view=view, members=members)

    def end_view(self, ending: Ending) -> None:
        self.transitional(ending.view, ending.transitional)

    def _on_credentials(self, sender: Member, message: Credentials) -> None:
        if self._phase not in {_Phase.GATHERING, _Phase.MINORITY} or self._is_ending:
            return
        self._credentials[sender] = message
        if len(self._credentials) == len(self._view.members):
            self._decide()

    def counts(self, credentials: Credentials) -> bool:
        """Say whether a member with these credentials helps to make a view primary."""
        return not credentials.is_zombie

    def _decide(self) -> None:
        """All credentials are here: everyone comes to the same conclusion."""
        configuration = self._view.configuration
        counted = [
            member
            for member in self._view.members
            if self.counts(self._credentials[member]) and member.id in configuration.members
        ]
        if len(counted) < configuration.majority:
            self._phase = _Phase.MINORITY
            self._tell_status()
            return
        self._phase = _Phase.FORMING
        initial = self._initial = max(self._credentials[member].version for member in counted)
        self._ordered_to = initial.position
        mine = self._credentials[self.me]
        if self.counts(mine) and mine.version == initial:
            self._accept()
            return
        donors = [member for member in counted if self._credentials[member].version == initial]
        # Learners begin with different donors.
        turn = self._view.rank(self.me) % len(donors)
        settled = 0 if self.is_zombie and not self.log.end else self.log.settled
        self._transfer = Transfer(donors[turn:] + donors[:turn], settled, initial.position)
        self._tell_status()
        self._go_on_with_transfer()

    def _accept(self) -> None:
        """We hold the initial history: say so, on record first."""
        self._has_accepted = True
        self.is_zombie = False
        self._transfer = None
        self.context.cancel_timer("transfer")
        self._acks[self.me] = self.log.end
        self._report(
            PrimaryAccepted,
            view=self._view.id,
            members=self._view.members,
            version=self._initial,
        )
        self._cast(Accept(self._view.id))
        if self._phase is _Phase.CONFIRMED:
            self._enter_confirmed()

    def _on_accept(self, sender: Member) -> None:
        if self._phase not in {_Phase.FORMING, _Phase.CONFIRMED} or sender in self._accepted_by:
            return
        self._accepted_by.append(sender)
        self._acks[sender] = max(self._acks.get(sender, 0), self._initial.position)
        configuration = self._view.configuration
        accepted = frozenset(member.id for member in self._accepted_by)
        if self._phase is _Phase.FORMING and configuration.has_majority(accepted):
            self._phase = _Phase.CONFIRMED
            if self._has_accepted:
                self._enter_confirmed()
            else:
                self._tell_status()
        self._settle_what_a_majority_has()

    def _enter_confirmed(self) -> None:
        """We hold the initial history and know that a majority does: entries may follow."""
        log = self.log
        # A transfer may have brought entries of this very view.
        log.version = Version(self._view.id, log.end)
        self._report(
            PrimaryConfirmed,
            view=self._view.id,
            position=self._initial.position,
            accepted_by=tuple(self._accepted_by),
        )
        tail, self._tail = self._tail, []
        self._take([run.after(log.end) for run in tail if run.last_position > log.end])
        self._tell_status()
        self._settle_what_a_majority_has()
        if not self._is_ending:
            self._propose_again()

    # ---- entries

    def parse(self, header: bytes) -> object:
        # Only straight above VSYNC, where no layer in between carries the mark.
        if len(header) > 1:
            raise BadMessage("not a header of the primary-view layer")
        return header[0] if header else 0

    def deliver(self, batches: list[Batch]) -> None:
        for batch in batches:
            if batch.delivery is Delivery.AFTER_HOLE:
                # Its place may differ elsewhere; it is as if it had never been ordered.
                self.context.count("primary.dropped_after_hole", len(batch.payloads))
                continue
            self._delivered[batch.delivery].add(batch)
            mark = batch.header if isinstance(batch.header, int) else batch.mark
            if mark == CONTROL:
                for payload in batch.payloads:
                    self._on_control(batch.sender, payload)
            else:
                self._on_entries(batch)

    def _on_control(self, sender: Member, payload: bytes) -> None:
        try:
            message = _decoder.decode(payload)
        except DECODE_ERRORS:
            self.context.count("primary.malformed")
            return
        match message:
            case Credentials(view=view) if view == self._view.id:
                self._on_credentials(sender, message)
            case Accept(view=view) if view == self._view.id:
                self._on_accept(sender)
            case _:
                self.context.count("primary.stale")

    def _on_entries(self, batch: Batch) -> None:
        if self._phase is not _Phase.CONFIRMED:
            run = Run(self._view.id, batch.number, 0, batch.sender, batch.first, batch.payloads)
            self.above.deliver_runs([run], Standing.NON_PRIMARY)
            return
        position = self._ordered_to + 1
        run = Run(self._view.id, batch.number, position, batch.sender, batch.first, batch.payloads)
        self._ordered_to = run.last_position
        if self._has_accepted:
            # A state taken over may be ahead of what has been ordered here.
            if run.last_position > self.log.end:
                self._take([run.after(self.log.end)])
        else:
            self._keep_for_after_transfer(run, batch.size)

    def _take(self, runs: list[Run]) -> None:
        """Take entries into the history, on record, then hand them up."""
        if not runs:
            return
        log = self.log
        for run in runs:
            log.append(run)
            self._report(EntriesAccepted, run=run)
            if run.origin == self.me and not self._hurries:
                self._no_longer_pending(run.first + len(run.payloads) - 1)
            if run.origin not in self._ack_to:
                self._ack_to.append(run.origin)
        if self._phase is _Phase.CONFIRMED:
            log.version = Version(self._view.id, log.end)
            self._acks[self.me] = log.end
        self.above.deliver_runs(runs, Standing.OPTIMISTIC)

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
        contained = self.log.origins(self.log.end).get(self.me, 0)
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
        if self._phase is not _Phase.CONFIRMED or not self._has_accepted:
            return
        configuration = self._view.configuration
        acks = sorted(
            (
                self._acks.get(member, 0)
                for member in self._accepted_by
                if member.id in configuration.members
            ),
            reverse=True,
        )
        if len(acks) >= configuration.majority:
            self._settle(acks[configuration.majority - 1])

    def _settle(self, position: int) -> None:
        log = self.log
        position = min(position, log.end)
        if position <= log.settled:
            return
        if self._hurries:
            mine = [
                run.first + len(run.payloads) - 1
                for run in log.after(log.settled, up_to=position, bytes_max=1 << 62)
                if run.origin == self.me
            ]
            if mine:
                self._no_longer_pending(mine[-1])
        log.settle(position)
        self._report(Settled, position=position)
        self.above.settle(position)

    def _on_ack(self, sender: Member, message: AckEntries) -> None:
        if message.position > self._acks.get(sender, 0):
            self._acks[sender] = message.position
            self._settle_what_a_majority_has()
        if message.wants_answer and self._has_accepted:
            self._send(sender, SettledUpTo(self.log.settled))
            self._send(sender, AckEntries(self.log.end, wants_answer=False))

    def finish_turn(self) -> None:
        if self.below.is_stopped:
            return
        if self.role is Role.PRIMARY:
            self._cast_waiting()
            self._acknowledge()
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

    def _acknowledge(self) -> None:
        """Tell the first member, and those who wait for their entries, what we have."""
        if not self._ack_to:
            return
        if not self._hurries:
            self._watch_settling()
            return
        waiting, self._ack_to = self._ack_to, []
        message = AckEntries(self.log.end, wants_answer=False)
        for member in self._view.members:
            if member != self.me and (member in waiting or member == self._view.members[0]):
                self._send(member, message)
        self._watch_settling()

    def _announce_settled(self) -> None:
        """The first member hears from everyone, so it tells everyone."""
        if self._view.members[0] != self.me or self.log.settled <= self._announced:
            return
        self._announced = self.log.settled
        message = SettledUpTo(self.log.settled)
        for member in self._view.members[1:]:
            self._send(member, message)

    def _watch_settling(self) -> None:
        if not self.context.timer_is_set("primary ack"):
            settings = self.context.settings
            wait = settings.advertise_interval if self._hurries else settings.ack_delay
            self.context.set_timer("primary ack", wait, self._acknowledge_again)

    def _acknowledge_again(self) -> None:
        """While something is not settled here, tell all what we have and ask what they have."""
        self._ack_to = []
        if self.role is Role.PRIMARY and self.log.settled < self.log.end:
            message = AckEntries(self.log.end, wants_answer=True)
            for member in self._view.members:
                if member != self.me:
                    self._send(member, message)
            self._watch_settling()

    # ---- transfer

    def receive_direct(self, sender: Member, body: bytes) -> None:
        try:
            message = _decoder.decode(body)
        except DECODE_ERRORS as error:
            raise BadMessage(f"not a message of the primary-view layer: {error}") from None
        match message:
            case AckEntries():
                self._on_ack(sender, message)
            case SettledUpTo(position=position):
                if self.role is Role.PRIMARY:
                    self._settle(position)
            case FetchEntries() | FetchChunk():
                if self._has_accepted:
                    answer = self._donor.answer(message)
                    if answer is not None:
                        self._send(sender, answer)
            case Entries() | StateOffer() | StateChunk():
                self._on_transfer(message)
            case _:
                raise BadMessage("an ordered message that came directly")

    def _on_transfer(self, message: Entries | StateOffer | StateChunk) -> None:
        transfer = self._transfer
        if transfer is None or self._is_ending:
            return
        if transfer.take(message):
            self._go_on_with_transfer()

    def _go_on_with_transfer(self) -> None:
        transfer = self._transfer
        assert transfer is not None
        if transfer.is_complete:
            self._adopt(transfer)
            return
        for request in transfer.requests():
            self._send(transfer.donor, request)
        wait = self.context.settings.transfer_resend
        self.context.set_timer("transfer", wait, self._transfer_stalls)

    def _transfer_stalls(self) -> None:
        """No answer: ask another donor."""
        if self._transfer is not None and not self._is_ending:
            self._transfer.change_donor()
            self._go_on_with_transfer()

    def _adopt(self, transfer: Transfer) -> None:
        """Everything is here: make it our history, then accept the view."""
        log = self.log
        offer = transfer.offer
        if offer is not None:
            kept = log.settled
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
            self.above.restore(transfer.chunks(), offer.position)
            self._no_longer_pending_up_to_origins()
        elif kept < log.end:
            log.cut_off(kept)
            self._report(RolledBack, position=kept)
            self.above.roll_back(kept)
        log.version = self._initial
        self._take([run.after(log.end) for run in transfer.runs if run.last_position > log.end])
        self._accept()

    def _no_longer_pending_up_to_origins(self) -> None:
        contained = self.log.origins(self.log.end).get(self.me, 0)
        if contained:
            self._no_longer_pending(contained)

    # ---- merging

    def flush_value(self) -> bytes:
        return b""

    @property
    def has_waiting_casts(self) -> bool:
        return self.role is Role.PRIMARY and bool(self._waiting)

    def stability_rose(self) -> None:
        pass

    def alive_value(self) -> bytes:
        return _encoder.encode(_AliveValue(self.is_zombie, self.log.version))

    def proposes_merge(self, ours: Side, theirs: Side) -> bool | None:
        """The side with the more advanced history proposes, so that its members come first."""

        def rank(side: Side) -> tuple[bool, Version, int]:
            value = _alive_decoder.decode(side.value)
            return (not value.is_zombie, value.version, len(side.members))

        mine, other = rank(ours), rank(theirs)
        if mine != other:
            return mine > other
        return ours.contact < theirs.contact

    # ---- helpers

    def _cast(self, message: Credentials | Accept) -> None:
        self.below.cast([_encoder.encode(message)], mark=CONTROL)

    def _send(self, member: Member, message: PrimaryMessage) -> None:
        self.below.send_direct(member, _encoder.encode(message))

    def _report(self, kind: type, **fields: object) -> None:
        context = self.context
        context.report(kind(group=context.group, member=self.me, at=context.now, **fields))

    def _tell_status(self) -> None:
        self.above.status(
            Status(
                role=self.role,
                view=self._view.id,
                members=self._view.members,
                position=self.log.end,
                settled=self.log.settled,
                is_zombie=self.is_zombie,
            )
        )
