"""What an engine without an order promises, checked from the records of all replicas.

Histories are sets of entries (`coterie.replication.union`). What a replica holds of an origin is
always a beginning of what that origin has ever proposed, so a set is told by counts: how many
entries of each origin. The checks:

- *beginning*: a replica takes the entries of an origin in order, and none is left out;
- *once*: no replica takes an entry twice, and nothing is proposed twice;
- *authoritative majority*: what is called authoritative is held by a majority;
- *authoritative for ever*: whoever accepts a later primary view holds it, and nothing is ever
  rolled back;
- *confirmed chain*: as for histories with an order;
- *memory*: a life that is no zombie begins with all that the one before had on record;
- *state of a set*: the state is that of the entries taken, each once, in any order;
- *acknowledged means authoritative*.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coterie.checking.confirmed_chain import ConfirmedChain
from coterie.checking.history import Violation
from coterie.kernel.records import (
    EntriesAccepted,
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Recovered,
    Replied,
    RolledBack,
    Settled,
    StateDigest,
)
from coterie.kernel.views import NO_VIEW

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.engine import Past, Run
    from coterie.kernel.records import Record
    from coterie.kernel.views import Configuration, Member, ViewId

Counts = dict["Member", int]
"""For every origin, how many of its entries."""


@dataclass(slots=True)
class _Origin:
    """All that one life of a replica has ever proposed, in order."""

    numbers: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    sums: list[int] = field(default_factory=lambda: [0])
    """What the first entries weigh together, for each number of them."""


@dataclass(slots=True)
class _Life:
    """What one life holds: whose entry it took at each position."""

    member: Member
    beginning: int = 0
    """Of entries up to here nothing is known: it began with the state there."""
    view: ViewId = NO_VIEW
    """The last primary view that it knew to be confirmed."""
    order: list[Member] = field(default_factory=list)
    counts: Counts = field(default_factory=dict)
    settled: int = 0
    settled_counts: Counts = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.beginning + len(self.order)

    def up_to(self, position: int) -> list[Member]:
        return self.order[: max(position - self.beginning, 0)]

    def counts_at(self, position: int) -> Counts:
        counts: Counts = {}
        for origin in self.up_to(position):
            counts[origin] = counts.get(origin, 0) + 1
        return counts


class SetTracker:
    """Takes the records of all replicas in true order; collects violations."""

    def __init__(
        self,
        configuration: Configuration,
        weigh: Callable[[bytes], int] = lambda _: 0,
        *,
        beginning: int = 0,
    ) -> None:
        self._configuration = configuration
        self._beginning = beginning
        self._weigh = weigh
        """What each entry adds to the digest of a state; such digests do not show the order."""
        self._origins: dict[Member, _Origin] = {}
        self._lives: dict[Member, _Life] = {}
        self._held: dict[str, Counts] = {}
        """By replica, the most that any of its lives has held."""
        self._authoritative: Counts = {}
        self._settled_in: dict[ViewId, Counts] = {}
        """By view, what became authoritative in it."""
        self._accepted: list[tuple[Member, ViewId, Counts]] = []
        self._chain = ConfirmedChain(configuration, self._fail)
        self.has_lost = False
        self._newest: dict[str, _Life] = {}
        self._changed_disks: set[str] = set()
        self.violations: list[Violation] = []
        self.rolled_back = 0
        self.transfers = 0

    def add(self, record: Record) -> None:  # noqa: C901, PLR0912 -- a dispatch table
        """Take one record."""
        life = self._lives.get(record.member)
        if life is None:
            life = self._lives[record.member] = _Life(record.member)
        match record:
            case EntriesAccepted(run=run):
                self._on_entries(life, run)
            case HistoryAdopted():
                self._on_adopted(life, record)
            case PrimaryAccepted(view=view):
                self._chain.accepted(view, life.member)
                self._accepted.append((life.member, view, dict(life.counts)))
            case PrimaryConfirmed():
                self._chain.confirmed(record)
                life.view = record.view
            case Settled(position=position):
                self._on_settled(life, position)
            case RolledBack(position=position):
                self._fail("authoritative for ever", f"{life.member} rolled back to {position}")
            case StateDigest(position=position, digest=digest):
                self._compare_state(life, position, digest)
            case Replied(replies=replies):
                for reply in replies:
                    if reply.standing.is_final and reply.position > life.settled:
                        self._fail(
                            "acknowledged means authoritative",
                            f"{life.member} acknowledged {reply.request} at {reply.position} "
                            f"and had settled {life.settled}",
                        )
            case Recovered():
                self.has_lost = True
            case _:
                pass

    def inherit(self, member: Member, past: Past) -> None:
        """Learn with what a life began: what its replica recovered from its journal."""
        life = self._lives[member] = _Life(member)
        # Who has forgotten everything has not even the state with which all began.
        life.beginning = life.settled = self._beginning if past.position else 0
        for origin, number in past.origins:
            known = self._origins.setdefault(origin, _Origin()).numbers
            life.counts[origin] = bisect_left(known, number + 1)
            life.order += [origin] * life.counts[origin]
        if life.end != past.position:
            self._fail("memory", f"{member} knows {life.end} entries of {past.position}")
        for run in past.runs:
            self._on_entries(life, run)
        life.settled = past.settled
        life.settled_counts = life.counts_at(past.settled)
        before = self._newest.get(member.id)
        self._newest[member.id] = life
        if before is not None and not past.is_zombie and member.id not in self._changed_disks:
            self._compare_memory(before, life)
        self._changed_disks.discard(member.id)

    def disk_was_changed(self, id: str) -> None:
        """Learn that a replica has someone else's memory now, or an old one of its own."""
        self._changed_disks.add(id)

    def _compare_memory(self, before: _Life, life: _Life) -> None:
        for origin, count in before.counts.items():
            if life.counts.get(origin, 0) < count:
                self._fail(
                    "memory",
                    f"{life.member} knows {life.counts.get(origin, 0)} entries of {origin} and is "
                    f"no zombie; {before.member} knew {count}",
                )

    def _fail(self, check: str, evidence: str) -> None:
        self.violations.append(Violation(check, evidence))

    # ---- entries

    def _on_entries(self, life: _Life, run: Run) -> None:
        if run.position != life.end + 1:
            self._fail(
                "once",
                f"{life.member} took {run.position} where {life.end + 1} comes next",
            )
        origin = self._origins.setdefault(run.origin, _Origin())
        for index, payload in enumerate(run.payloads):
            number = run.first + index
            # Whoever proposed it takes it first; that may show only when its next life begins.
            if life.member.id == run.origin.id and number > max(origin.numbers[-1:], default=0):
                origin.numbers.append(number)
                origin.payloads.append(payload)
                origin.sums.append(origin.sums[-1] + self._weigh(payload))
            count = life.counts.get(run.origin, 0)
            place = bisect_left(origin.numbers, number)
            if place != count:
                check = "once" if place < count else "beginning"
                self._fail(
                    check, f"{life.member} took entry {number} of {run.origin}, holding {count}"
                )
            life.counts[run.origin] = max(count, place + 1)
            life.order.append(run.origin)
        self._hold(life, {run.origin: life.counts[run.origin]})

    def _hold(self, life: _Life, counts: Counts) -> None:
        held = self._held.setdefault(life.member.id, {})
        for origin, count in counts.items():
            held[origin] = max(held.get(origin, 0), count)

    def _on_adopted(self, life: _Life, record: HistoryAdopted) -> None:
        self.transfers += 1
        if not record.restored:
            if record.kept != life.end:
                self._fail(
                    "authoritative for ever",
                    f"{life.member} kept {record.kept} of {life.end} entries",
                )
            return
        source = self._lives[record.source]
        life.beginning = source.beginning
        life.order = source.up_to(record.restored)
        life.counts = source.counts_at(record.restored)
        life.settled = record.restored
        life.settled_counts = dict(life.counts)
        self._hold(life, life.counts)

    def _on_settled(self, life: _Life, position: int) -> None:
        if position > life.end:
            self._fail("authoritative majority", f"{life.member} settled {position} of {life.end}")
        counts = life.settled_counts
        for origin in life.up_to(position)[life.settled - life.beginning :]:
            counts[origin] = count = counts.get(origin, 0) + 1
            if count <= self._authoritative.get(origin, 0):
                continue
            self._authoritative[origin] = count
            self._settled_in.setdefault(life.view, {})[origin] = count
            holders = {id for id, held in self._held.items() if held.get(origin, 0) >= count}
            if not self._configuration.is_quorum(holders):
                self._fail(
                    "authoritative majority",
                    f"{life.member} settled entry {count} of {origin}, held by {sorted(holders)}",
                )
        life.settled = max(life.settled, position)

    def _compare_state(self, life: _Life, position: int, digest: bytes) -> None:
        total = 0
        for origin, count in life.counts_at(position).items():
            sums = self._origins[origin].sums
            total += sums[min(count, len(sums) - 1)]
        if total % (1 << 8 * len(digest)) != int.from_bytes(digest):
            self._fail("state of a set", f"{life.member} has another state at {position}")

    # ---- at the end

    def finish(self, replay: object = None) -> None:
        """Check what can only be said of the whole; *replay* is for histories with an order."""
        if not self.has_lost:
            self._chain.check()
            self._check_for_ever()
        if replay is not None:
            self._check_once()

    def _check_for_ever(self) -> None:
        settled = sorted(self._settled_in.items())
        accepted = sorted(self._accepted, key=lambda each: each[1])
        sure: Counts = {}
        for member, view, counts in accepted:
            while settled and settled[0][0] < view:
                sure |= settled.pop(0)[1]
            for origin, count in sure.items():
                if counts.get(origin, 0) < count:
                    self._fail(
                        "authoritative for ever",
                        f"{member} accepted {view} with {counts.get(origin, 0)} entries of "
                        f"{origin}; {count} were authoritative",
                    )

    def _check_once(self) -> None:
        seen: set[bytes] = set()
        for origin in self._origins.values():
            for payload in origin.payloads:
                if payload in seen:
                    self._fail("once", f"{payload!r} was proposed twice")
                seen.add(payload)
