"""UNION: primary views without an order, for objects whose updates commute.

This is **objects** PVSYNC alone. Without a total order the histories of two replicas are never the
same sequence; but if updates commute the sequence does not matter, and a history is a *set* of
entries, each known by its identity (origin, number). Sets merge by union, so

- the initial history of a view is the union of what all its members hold: no history wins, and
  nothing is ever rolled back;
- a *position* is how many entries this replica has taken: it is not the same elsewhere, but equal
  sets have equal sizes.

**Sets are vectors.** An origin multicasts its entries first in, first out, takes each itself at
once, and multicasts only in views whose initial history contains all its earlier ones. So every
replica holds, of each origin, all entries up to some number, and a vector of numbers names a set.

**When an entry is settled.** In a confirmed view a member that has accepted takes an entry into
its history, on record, in the turn in which VSYNC delivers it, and VSYNC acknowledges it after
that turn. So when an entry is *stable* (all members have it) every member that accepted holds it;
those are a majority, and what a majority holds is in every later union: it is authoritative. The
initial history is settled when the view is confirmed. (A majority of acknowledgements would do
for this; stability also says what may be forgotten, and costs no message.) A replica settles the
longest prefix of its own sequence of which that is known.

**When an entry may be forgotten.** The state of an object is no set: two states cannot be merged.
If two members each lacked what the other had forgotten, there would be no union. But entries are
forgotten only once they are settled. Let *d* have forgotten *e* in view *V*. Whoever accepted *V*
holds *e*, for it was stable or in the initial history of *V*; whoever accepted a later view holds
it, since it is authoritative. So who lacks *e* last accepted a view before *V*, and in turn all it
has forgotten is held by *d*. Hence those who accepted the latest view need only entries, from each
other and from the rest; they accept first, and the rest can take over a state of theirs, which has
everything.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from coterie.kernel.backlog import Backlog
from coterie.kernel.engine import Role, Run, Standing, Version
from coterie.kernel.errors import BadMessage, Refused
from coterie.kernel.layers import Service
from coterie.kernel.records import EntriesAccepted, HistoryAdopted, Settled
from coterie.replication.forming import FormingViews, Phase
from coterie.replication.gathering import Gathering
from coterie.replication.messages import (
    Credentials,
    FetchChunk,
    FetchMissing,
    Missing,
    StateChunk,
    StateOffer,
)
from coterie.replication.vectors import Vector, add, beyond, covers, last_number, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.kernel.layers import Batch, Context
    from coterie.kernel.views import Member, ReplicaAddresses, ReplicaId


class UnionViews(FormingViews[Gathering]):
    """The layer that keeps a set of entries."""

    name = "UNION"
    needs = FormingViews.needs | {Service.RELIABLE_FIFO}
    is_ordered = False

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._backlog = Backlog(context)
        self._authoritative: Vector = {}
        self._begin_view()

    def _begin_view(self) -> None:
        super()._begin_view()
        self._union: Vector = {}
        """For every origin, the number of its last entry in the initial history."""
        self._target: Vector = {}
        """What this member must hold to accept: `_union`, and what it could not keep since."""
        self._corrected: dict[Member, Credentials] = {}
        self._early: list[Member] = []
        """Whose acceptance came before we had decided: nothing orders the two."""
        self._tail: list[Run] = []
        self._tail_bytes = 0
        # By rank: number in the view and last entry of each packet that is not stable yet.
        self._unstable: list[deque[tuple[int, int]]] = [deque() for _ in self._view.members]

    def assembled(self) -> None:
        super().assembled()
        self._authoritative = self.log.origins(self.log.settled)

    # ---- what the host asks for

    def propose(self, payloads: Sequence[bytes]) -> None:
        self._backlog.add(payloads, safe=False)

    def hurry(self) -> None:
        """Do nothing: no layer above waits for acknowledgements, and stability settles entries."""

    @property
    def has_waiting_casts(self) -> bool:
        return self.role is Role.PRIMARY and bool(self._backlog)

    def finish_turn(self) -> None:
        if self.below.is_stopped or self.role is not Role.PRIMARY:
            return
        # Straight into the view: a packet that waited below could leave in another view.
        for _, first, payloads, _ in self._backlog.packets(lambda: self.below.can_cast):
            self.below.cast_packet(b"", first, payloads, safe=False, urgent=False)
        self._settle_what_is_stable()

    # ---- forming a primary view

    def admit(self, id: ReplicaId, at: ReplicaAddresses | None = None) -> None:
        del at
        raise Refused(f"{id} cannot join: without an order members cannot change one at a time")

    def dismiss(self, id: ReplicaId) -> None:
        raise Refused(f"{id} cannot go: without an order members cannot change one at a time")

    def _my_credentials(self) -> Credentials:
        log = self.log
        return Credentials(
            self._view.id,
            log.version,
            log.settled,
            self.is_zombie,
            list(log.contained.items()),
            self.is_by_hand,
            list(log.forgotten.items()),
        )

    def _on_credentials(self, sender: Member, message: Credentials) -> None:
        if self._phase is Phase.GATHERING and sender in self._credentials:
            # An operator spoke. Nobody knows what others have seen of it when they decide, so all
            # decide without; it is for a view that turns out to be a minority.
            self._corrected[sender] = message
        else:
            super()._on_credentials(sender, message)

    def _decide(self) -> None:
        super()._decide()
        corrected, self._corrected = self._corrected, {}
        for sender, message in corrected.items():
            self._on_credentials(sender, message)
        if self._phase is Phase.FORMING:
            early, self._early = self._early, []
            for sender in early:
                self._on_accept(sender)

    def _on_accept(self, sender: Member) -> None:
        if self._phase in {Phase.GATHERING, Phase.MINORITY}:
            self._early.append(sender)
        else:
            super()._on_accept(sender)

    def _begin_forming(self, counted: list[Member]) -> None:
        """The union of all that the members hold is the initial history."""
        latest = max(self._credentials[member].version.view for member in counted)
        self._initial = Version(latest, 0)
        holds = {member: dict(each.holds) for member, each in self._credentials.items()}
        for member in self._beyond_help(counted):
            del holds[member]
        for vector in holds.values():
            add(self._union, vector.items())
        add(self._target, self._union.items())
        ours = holds.pop(self.me, None)
        if ours is not None and covers(ours, self._target):
            self._accept()
            return
        self._start_transfer(Gathering(holds, ours, self._target, self._view.rank(self.me)))

    def _beyond_help(self, counted: list[Member]) -> list[Member]:
        """Find members with a state that has in it what nobody else can give any more.

        That can be only where an operator has accepted a loss since they last were there, or at a
        zombie. They give up what they hold, and take over a state.
        """
        known: Vector = {}
        sure = [
            member
            for member in counted
            if self._credentials[member].version.view == self._initial.view
        ]
        for member in sure:
            add(known, self._credentials[member].holds)
        return [
            member
            for member, each in self._credentials.items()
            if member not in sure and not covers(known, dict(each.forgot))
        ]

    def _accept(self) -> None:
        log = self.log
        self._initial = log.version = Version(self._initial.view, log.end)
        super()._accept()
        tail, self._tail = self._tail, []
        self._take(tail)

    def _enter_confirmed(self) -> None:
        log = self.log
        log.version = Version(self._view.id, log.end)
        self._report_confirmed()
        add(self._authoritative, self._union.items())
        self._tell_status()
        self._settle_what_is_covered()

    # ---- entries

    def parse(self, header: bytes) -> object:
        if len(header) > 1:
            raise BadMessage("not a header of the union layer")
        return header[0] if header else 0

    def _mark(self, batch: Batch) -> int:
        assert isinstance(batch.header, int)
        return batch.header

    def _on_entries(self, batch: Batch) -> None:
        # There is no place in an order: the viewstamp is the view and the origin's own number.
        run = Run(self._view.id, batch.first, 0, batch.sender, batch.first, batch.payloads)
        self._unstable[batch.rank].append((batch.packet, last_number(run)))
        if self._has_accepted:
            self._take([run])
            return
        # Its sender knows that the view is confirmed, and we do not hold the initial history yet.
        self._tail.append(run)
        self._tail_bytes += batch.size
        if self._tail_bytes > self.context.settings.backlog_bytes:
            add(self._target, ((run.origin, last_number(run)) for run in self._tail))
            self._tail = []
            self._tail_bytes = 0

    def _take(self, runs: Iterable[Run]) -> None:
        """Take what is new into the history, on record, then hand it up."""
        log = self.log
        taken: list[Run] = []
        for each in runs:
            run = beyond(each, log.contained)
            if run is None:
                continue
            run = Run(run.view, run.number, log.end + 1, run.origin, run.first, run.payloads)
            log.append(run)
            self._report(EntriesAccepted, run=run)
            taken.append(run)
        if taken:
            log.version = Version(log.version.view, log.end)
            self.above.deliver_runs(taken, Standing.OPTIMISTIC)

    # ---- settling

    def _settle_what_is_stable(self) -> None:
        for member, packets, stable in zip(
            self._view.members, self._unstable, self.below.stable, strict=True
        ):
            while packets and packets[0][0] <= stable:
                self._authoritative[member] = packets.popleft()[1]
        self._settle_what_is_covered()

    def _settle_what_is_covered(self) -> None:
        log = self.log
        position = log.covered_by(self._authoritative)
        if position > log.settled:
            log.settle(position)
            self._report(Settled, position=position)
            self.above.settle(position)

    # ---- transfer

    def receive_direct(self, sender: Member, body: bytes) -> None:
        message = self._decode_direct(body)
        match message:
            case FetchMissing():
                # A member that has not accepted gives entries, but no state: it lacks something.
                missing = self._donor.answer_missing(message, gives_state=self._has_accepted)
                if missing is not None:
                    self._send(missing, sender)
            case FetchChunk():
                self._donate(sender, message)
            case Missing() | StateOffer() | StateChunk():
                transfer = self._transfer
                if transfer is not None and not self._is_ending and transfer.take(sender, message):
                    self._go_on_with_transfer()
            case _:
                raise BadMessage("a message that the union layer does not send directly")

    def _adopt(self, transfer: Gathering) -> None:
        log = self.log
        offer = transfer.state.offer
        runs = transfer.runs
        if not transfer.keeps_own:
            self.context.count("primary.histories_given_up")
            self._authoritative = {}
        if offer is not None:
            add(self._authoritative, offer.origins)
            # What was settled here before comes first, so that it stays settled.
            runs = split(runs, self._authoritative)
        position = log.end if offer is None else offer.position
        position += sum(len(run.payloads) for run in runs)
        self._report(
            HistoryAdopted,
            view=self._view.id,
            source=transfer.source,
            version=Version(self._initial.view, position),
            kept=(log.end if offer is None else log.settled) if transfer.keeps_own else 0,
            restored=0 if offer is None else offer.position,
        )
        if offer is not None:
            log.reset(offer.position, dict(offer.origins))
            self.above.restore(transfer.state.chunks(), offer.position)
        self._take(runs)
        self._settle_what_is_covered()
        self._accept()
