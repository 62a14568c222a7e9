"""What leader and followers promise (**llft**, II-F), checked from records alone.

The edge's orders at the end are the group's *chain*: the surviving branch. By name:

- *one chain of primary views* (theorem 1): on the chain each view begins with its VIEW order, view
  numbers rise, and nobody enters a view from another than its predecessor;
- *one sequence of operations* (theorem 2): whoever executes an order by its (claim, number) meets
  what all others met there: same order, same input, same output, same state;
- *consecutive subsequence* (theorem 3): what a life executed has no gap, and is on the chain, but
  for what it gave up or took into its death without the edge having it;
- *consecutive states* (theorem 4, for backups that log): a state that is kept, or sent, is the one
  after its order; the checkpoints of a backup follow each other, and it has every order between;
- *released is ordered*, *released once*, *same output*: output leaves after the order it rests on
  is stored, each byte once, and as that order says; *inputs consumed once*; *group clock monotone*;
- *quorum held* (with the guard): nothing that the edge stored is ever given up, and who begins to
  lead has all of it. If another edge takes its place, that begins with all of it, and what the old
  one stores later stands on the chain already.

Theorems 5 and 6 are for the liveness phase of runs. Without a guard stored orders may be given up:
that is no violation but counted, in `discarded`.

The simulator has records in the order in which they were made. From journals there is one order for
each writer only: then the edge's are taken first, and what was stored when somebody began to lead
is read from the chain, where its VIEW order stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from coterie.checking.history import Violation
from coterie.kernel.claims import NO_CLAIM, OrderKind, PrimaryClaim
from coterie.kernel.records import (
    ClaimPromised,
    Diverged,
    EdgeActivated,
    ExecutedUpTo,
    InputsHeld,
    LeadingBegun,
    OrdersKnown,
    OrdersStored,
    OutputReleased,
    PrimaryViewStarted,
    ProgramStateTaken,
    RosterAccepted,
    SideBranchDiscarded,
)

if TYPE_CHECKING:
    from coterie.kernel.claims import Order
    from coterie.kernel.records import Record
    from coterie.kernel.views import Member

EDGE = "@edge"


@dataclass(frozen=True, slots=True)
class Excuses:
    """What of the journals is not at hand; nothing for a simulator, which has all records."""

    edge_lacks: bool = False
    """Whether records of the edge are missing between others."""
    edge_is_open: bool = False
    """Whether the edge is still at work."""
    edge_is_cut_off: bool = False
    """Whether the edge's journal just ends, so that more may have been there."""
    partial: frozenset[str] = frozenset()
    """Replicas of whose journals records are missing."""
    open_: frozenset[Member] = frozenset()
    """Lives that go on."""
    lost: frozenset[Member] = frozenset()
    """Lives whose ends may be lost with their machines."""


class Doubt(NamedTuple):
    """What would be a violation, had records not been missing."""

    check: str
    is_waiting: bool
    """Whether these are only still to be written."""


@dataclass(slots=True)
class LifeSoFar:
    """What one life of a replica did."""

    executed: int = 0
    first: int = 1
    """It began behind a state, or with the first order."""
    claims: dict[int, PrimaryClaim] = field(default_factory=dict)
    """Of the orders that it knows."""
    stored: int = 0
    since: int = 0
    """All orders that it has come to know from this one on are known here, too; 0 for none."""
    checkpoint: int = 0
    """The number of the last state that was kept."""
    views: list[PrimaryViewStarted] = field(default_factory=list)


class ProgramTracker:
    """Follows the records of one program: its edge, and all lives of its replicas."""

    def __init__(self, group: str, *, is_guarded: bool, from_journals: bool = False) -> None:
        self.group = group
        self.is_guarded = is_guarded
        self.from_journals = from_journals
        self.excuses = Excuses()
        self.doubts: list[Doubt] = []
        self.violations: list[Violation] = []
        self.place: tuple[str, int, int] | None = None
        """Where the present record stands, if a reader says so."""
        self.places: list[tuple[str, int, int] | None] = []
        """For each violation, where the record stands that shows it."""
        self.chain: list[tuple[PrimaryClaim, Order]] = []
        """The edge's orders, from the first on."""
        self.fence: PrimaryClaim = NO_CLAIM
        self.lives: dict[Member, LifeSoFar] = {}
        self.discarded = 0
        """Orders that clients may have seen the effect of, and that were given up."""
        self.views = 0
        self.rosters = 0
        """How often the edge stored another roster."""
        self.released_bytes = 0
        self._began: list[LeadingBegun] = []
        self._states: list[tuple[ProgramStateTaken, tuple[str, int, int] | None]] = []
        self._may_skip = self._has_skipped = False
        self._digests: dict[tuple[PrimaryClaim, int], tuple[int, Member]] = {}
        self._released: dict[tuple[str, str], int] = {}
        """By edge and connection."""
        self._edge = ""
        """Which edge is active."""
        self.installed = 0
        """How often another edge took the place of one."""
        self._received: dict[str, int] = {}
        self._base = 0
        """Without a guard: the edge took over a branch whose first orders it never saw."""

    def _fail(
        self,
        check: str,
        evidence: str,
        *,
        member: Member | None = None,
        is_last: bool = False,
        is_beyond: bool = False,
    ) -> None:
        """Find a violation, unless records may be missing that would explain it.

        *member* is the life that is accused; *is_last* says that its later records could, and
        *is_beyond* that the edge's could.
        """
        doubt = self._doubt(check, member, is_last=is_last, is_beyond=is_beyond)
        if doubt is not None:
            self.doubts.append(doubt)
            return
        self.violations.append(Violation(check, f"{self.group}: {evidence}"))
        self.places.append(self.place)

    def _doubt(
        self, check: str, member: Member | None, *, is_last: bool, is_beyond: bool
    ) -> Doubt | None:
        excuses = self.excuses
        if excuses.edge_lacks or (member is not None and member.id in excuses.partial):
            return Doubt(check, is_waiting=False)
        if is_beyond and excuses.edge_is_cut_off:
            return Doubt(check, is_waiting=False)
        if is_last and member in excuses.lost:
            return Doubt(check, is_waiting=False)
        if (is_beyond and excuses.edge_is_open) or (is_last and member in excuses.open_):
            return Doubt(check, is_waiting=True)
        return None

    def add(self, record: Record) -> None:
        """Take the next record of anybody."""
        if record.group.endswith(EDGE):
            id = record.member.id
            if isinstance(record, EdgeActivated):
                self._on_activated(record)
            elif self._edge in {"", id} or isinstance(record, InputsHeld | OutputReleased):
                self._add_edge(record)
            elif isinstance(record, OrdersKnown):
                self._on_stored_late(record)
        else:
            self._add_replica(record)

    def skip(self, group: str, member: Member) -> None:
        """Learn that records of a journal are no longer kept between those before and the next."""
        if group.endswith(EDGE):
            self._may_skip = self._has_skipped = True
            self._released.clear()
        elif member in self.lives:
            self.lives[member].executed = self.lives[member].since = 0

    # ---- the edge

    def _add_edge(self, record: Record) -> None:  # noqa: C901 -- one part a kind
        match record:
            case ClaimPromised(claim=claim):
                self._edge = record.member.id
                if claim < self.fence:
                    self._fail("quorum held", f"the edge went back to {claim}")
                self.fence = claim
            case OrdersKnown():
                self._on_stored(record)
            case OutputReleased():
                self._on_released(record)
            case RosterAccepted(number=number, claim=claim):
                self._take_over_branch(number, claim)
            case InputsHeld(inputs=inputs):
                for each in inputs:
                    self.receive(each.conn, each.end)
            case SideBranchDiscarded(number=number, count=count):
                if self.is_guarded:
                    self._fail("quorum held", f"the edge gave up {count} orders above {number}")
                self.discarded += count
                if number < self._base or number > self.end:
                    self.chain, self._base = [], number
                del self.chain[number - self._base :]
            case _:
                pass

    def _take_over_branch(self, number: int, claim: PrimaryClaim) -> None:
        """Without a guard: a branch begins behind an order that the edge may never have had."""
        known = self.chain[number - self._base - 1][0] if self._base < number <= self.end else None
        if number and known != claim:
            self.chain, self._base = [], number

    def _on_activated(self, record: EdgeActivated) -> None:
        """Another edge takes the place of the one before, with all that this had."""
        state = record.state
        if self.from_journals:
            self._begin_from_journals(state.number, state.claim)
        for run in record.runs:
            for number, order in enumerate(run.orders, run.first):
                if number == self.end + 1:
                    self.chain.append((run.claim, order))
                elif self._base < number <= self.end:
                    self._must_be_here(number, run.claim, "begins with")
        if state.number != self.end:
            self._fail("quorum held", f"an edge begins with {state.number}, and {self.end} exist")
        self._edge, self.fence = record.member.id, record.claim
        self.installed += 1
        for conn, at in state.produced.items():
            self._released[self._edge, conn] = at

    def _begin_from_journals(self, number: int, claim: PrimaryClaim) -> None:
        """From columns, orders that the old edge never stored are known to replicas alone."""
        if number > self.end:
            self._check_chain()
            self.chain, self._base = [], number
            self._has_skipped = True
        elif number == self.end and self.chain and self.chain[-1][0] != claim:
            self._fail("quorum held", f"an edge begins behind {claim}:{number}, which is not there")

    def _on_stored_late(self, record: OrdersKnown) -> None:
        """An edge in whose place there is another gets orders that were under way."""
        for run in record.runs:
            for number in range(run.first, run.last + 1):
                self._must_be_here(number, run.claim, "was sent late")

    def _must_be_here(self, number: int, claim: PrimaryClaim, what: str) -> None:
        at = number - self._base - 1
        if number > self.end or (at >= 0 and self.chain[at][0] != claim):
            self._fail("quorum held", f"an edge {what} {claim}:{number}, which is not on the chain")

    @property
    def end(self) -> int:
        """How many orders the edge has."""
        return self._base + len(self.chain)

    def _on_stored(self, record: OrdersKnown) -> None:
        for run in record.runs:
            if self._may_skip:
                self.fence = max(self.fence, run.claim)
                if run.first > self.end + 1:
                    self._check_chain()
                    self.chain, self._base = [], run.first - 1
            self._may_skip = False
            if run.first != self.end + 1:
                self._fail("one sequence of operations", f"{run.first} follows {self.end}")
                return
            if self.is_guarded and run.claim != self.fence:
                self._fail("quorum held", f"orders of {run.claim} stored behind {self.fence}")
            self.chain += [(run.claim, order) for order in run.orders]
            self.rosters += sum(order.kind is OrderKind.ROSTER for order in run.orders)

    def _on_released(self, record: OutputReleased) -> None:
        edge = record.member.id
        for each in record.outputs:
            crc = crc32(each.data)
            self.release(each.conn, each.offset, len(each.data), crc, each.rests_on, edge=edge)

    def receive(self, conn: str, end: int) -> None:
        """Learn that the edge has input of a connection up to an offset."""
        self._received[conn] = max(end, self._received.get(conn, 0))

    def release(  # noqa: PLR0913 -- as it stands on record
        self, conn: str, offset: int, length: int, crc: int, rests_on: int, *, edge: str = ""
    ) -> None:
        """Learn that the edge let bytes of a connection leave."""
        self.released_bytes += length
        is_known = not self._has_skipped and not (self.from_journals and self.installed)
        at = self._released.get((edge, conn), 0 if is_known else offset)
        if offset != at:
            self._fail("released once", f"{conn}@{offset} left at {at}")
        self._released[edge, conn] = offset + length
        if not self._base < rests_on <= self.end:
            if not self._has_skipped or rests_on > self.end:
                self._fail("released is ordered", f"{conn}@{offset} before {rests_on}")
            return
        order = self.chain[rests_on - self._base - 1][1]
        if order.kind is not OrderKind.SENT or order.conn != conn:
            self._fail("released is ordered", f"{rests_on} wrote nothing to {conn}")
        elif (order.value, order.data) != (length, crc.to_bytes(4)):
            self._fail("same output", f"{conn}@{offset} is not what {rests_on} wrote")

    # ---- replicas

    def _add_replica(self, record: Record) -> None:  # noqa: C901 -- one part a kind
        life = self.lives.setdefault(record.member, LifeSoFar())
        match record:
            case OrdersKnown(runs=runs):
                life.since = life.since or runs[0].first
                for run in runs:
                    for number in range(run.first, run.last + 1):
                        life.claims[number] = run.claim
            case OrdersStored(number=number):
                life.stored = max(life.stored, number)
            case SideBranchDiscarded(number=number):
                self._on_discarded(record, life)
                life.claims = {n: claim for n, claim in life.claims.items() if n <= number}
                life.stored = min(life.stored, number)
                life.views = [view for view in life.views if view.number <= number]
            case ExecutedUpTo():
                self._on_executed(record, life)
            case ProgramStateTaken():
                self._on_state(record, life)
            case PrimaryViewStarted():
                self.views += record.number not in {view.number for view in life.views}
                life.views.append(record)
            case LeadingBegun():
                self._on_leading(record)
            case Diverged(number=number, reason=reason):
                self._fail("one sequence of operations", f"{record.member} at {number}: {reason}")
            case _:
                pass

    def _on_discarded(self, record: SideBranchDiscarded, life: LifeSoFar) -> None:
        del life
        if record.was_stored and self.is_guarded:
            evidence = f"{record.member} gave up stored orders above {record.number}"
            self._fail("quorum held", evidence, member=record.member)

    def _on_executed(self, record: ExecutedUpTo, life: LifeSoFar) -> None:
        # Below what it had executed it executes anew; behind that it must go on without a gap.
        if record.first > life.executed + 1 and life.executed:
            self._fail(
                "consecutive subsequence",
                f"{record.member} executed {record.first} after {life.executed}",
                member=record.member,
            )
        if not life.executed:
            life.first = record.first
        for number, digest in enumerate(record.digests, record.first):
            claim = life.claims.get(number)
            if claim is None:
                continue  # known from an earlier life of the same replica
            known = self._digests.setdefault((claim, number), (digest, record.member))
            if known[0] != digest:
                self._fail(
                    "one sequence of operations",
                    f"{record.member} and {known[1]} differ after {claim}:{number}",
                    member=known[1] if known[1].id in self.excuses.partial else record.member,
                )
        life.executed = record.number

    def _on_state(self, record: ProgramStateTaken, life: LifeSoFar) -> None:
        state = record.state
        if record.is_checkpoint:
            self._check_log(record, life)
        if self.from_journals:
            self._states.append((record, self.place))
        else:
            self._check_state(record)
        life.checkpoint = state.number
        if record.is_checkpoint:
            life.executed = max(life.executed, state.number)
        if record.is_received and not record.is_checkpoint:
            if life.claims.get(state.number) != state.claim:
                # Another branch's, or far ahead: what was known behind it is no longer.
                life.claims = {n: c for n, c in life.claims.items() if n <= state.number}
            life.executed = state.number
            life.stored = max(life.stored, state.number)
            life.claims[state.number] = state.claim

    def _check_log(self, record: ProgramStateTaken, life: LifeSoFar) -> None:
        """A logged backup could have executed its way from each checkpoint to the next."""
        state, before = record.state, life.checkpoint
        if state.number <= before:
            evidence = f"{record.member} has {state.number} after {before}"
            self._fail("consecutive states", evidence, member=record.member)
        # What an earlier life knew, or what is no longer kept, is not known here.
        first = max(before + 1, life.since or state.number + 1)
        if any(number not in life.claims for number in range(first, state.number + 1)):
            evidence = f"{record.member} lacks orders between {before} and {state.number}"
            self._fail("consecutive states", evidence, member=record.member)
        if life.claims.get(state.number, state.claim) != state.claim:
            evidence = f"{record.member} has another order at {state.number}"
            self._fail("consecutive states", evidence, member=record.member)

    def _check_state(self, record: ProgramStateTaken) -> None:
        state = record.state
        known = self._digests.get((state.claim, state.number))
        if known is not None and known[0] != state.digest:
            self._fail(
                "consecutive states",
                f"{record.member} has another state than {known[1]} after {state.number}",
                member=known[1] if known[1].id in self.excuses.partial else record.member,
            )

    def _on_leading(self, record: LeadingBegun) -> None:
        if not self.is_guarded:
            return
        if self.from_journals:
            self._began.append(record)
        elif record.claim == self.fence and record.base != self.end:
            self._fail(
                "quorum held",
                f"{record.claim} leads from {record.base}, and the edge has {self.end}",
            )

    # ---- the end

    def finish(self) -> list[Violation]:
        """Check what can be said only when all is over."""
        for record, place in self._states:
            self.place = place
            self._check_state(record)
        self.place = None
        self._check_chain()
        self._check_beginnings()
        consumed: dict[str, int] = {}
        for _, order in self.chain:
            if order.kind is OrderKind.TOOK:
                consumed[order.conn] = consumed.get(order.conn, 0) + order.value
        for conn, count in consumed.items():
            if count > self._received.get(conn, 0) and not self._has_skipped:
                self._fail("inputs consumed once", f"{conn}: {count} bytes consumed")
        if self.is_guarded:
            for member, life in self.lives.items():
                self._check_life(member, life)
        return self.violations

    def _check_chain(self) -> None:
        last, clock, is_first = NO_CLAIM, 0, True
        for number, (claim, order) in enumerate(self.chain, self._base + 1):
            if claim != last:
                is_begun = order.kind is OrderKind.VIEW or (is_first and self._base > 0)
                if claim.view <= last.view or not is_begun:
                    self._fail("one chain of primary views", f"{claim} after {last} at {number}")
                last = claim
            is_first = False
            if order.clock < clock:
                self._fail("group clock monotone", f"{order.clock} after {clock} at {number}")
            clock = order.clock

    def _check_beginnings(self) -> None:
        """From journals: who led a view of the chain began right behind what was stored."""
        first: dict[PrimaryClaim, int] = {}
        for number, (claim, _) in enumerate(self.chain, self._base + 1):
            first.setdefault(claim, number)
        for record in self._began:
            number = first.get(record.claim, record.base + 1)
            is_known = not self._has_skipped or number > self._base + 1
            if number != record.base + 1 and is_known:
                self._fail(
                    "quorum held",
                    f"{record.claim} leads from {record.base}, and the edge had {number - 1}",
                )

    def _check_life(self, member: Member, life: LifeSoFar) -> None:
        for number in range(1, life.stored + 1):
            claim = life.claims.get(number)
            if claim is None or number <= self._base:
                continue  # not known, or before what is kept
            if number > self.end or self.chain[number - self._base - 1][0] != claim:
                self._fail(
                    "consecutive subsequence",
                    f"{member} has {claim}:{number}, which is not on the chain",
                    member=member,
                    is_last=True,
                    is_beyond=number > self.end,
                )
                break
        views = [NO_CLAIM]
        for claim, _ in self.chain:
            if claim != views[-1]:
                views.append(claim)
        before = dict(zip(views[1:], views, strict=False))
        for view in life.views:
            if view.number > life.stored:
                continue
            is_known = not self._has_skipped or view.number > self._base + 1
            if before.get(view.claim) != view.after and is_known:
                self._fail(
                    "one chain of primary views",
                    f"{member} entered {view.claim} from {view.after} at {view.number}",
                    member=member,
                    is_last=True,
                    is_beyond=view.claim not in before,
                )
