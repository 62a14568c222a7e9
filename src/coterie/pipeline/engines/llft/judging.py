"""Judging one program: its records, from columns, through the checks of `coterie.checking.llft`.

The edge's come first, then each replica's: of one writer the order is known, and between writers
(claim, number) says what came after what.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coterie.checking.llft import Excuses, ProgramTracker
from coterie.kernel.claims import NO_CLAIM, Order, OrderRun, PrimaryClaim, ProgramState, Roster
from coterie.kernel.decoding import Decoder
from coterie.kernel.records import (
    ClaimPromised,
    Diverged,
    EdgeActivated,
    ExecutedUpTo,
    LeadingBegun,
    OrdersKnown,
    OrdersStored,
    PrimaryViewStarted,
    ProgramStateTaken,
    RosterAccepted,
    SideBranchDiscarded,
)
from coterie.kernel.views import Member
from coterie.pipeline.engines.llft.checks import CHECKS
from coterie.pipeline.history.results import Results
from coterie.pipeline.lake.ends import End, ends_of
from coterie.pipeline.lake.findings import INCOMPLETE, findings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coterie.kernel.records import Record
    from coterie.pipeline.engines.family import Row
    from coterie.pipeline.lake.lake import Lake

EDGE = "@edge"
Found = tuple[tuple[str, int, int, int], str, Any]
"""Where something stands, in which table, and the row."""
_orders = Decoder(list[Order])
_NOBODY = Roster((), 0)
_WRITTEN = ("order_runs", "executions", "released", "inputs_held", "program_views")
"""In the order in which a turn writes what others rest on, where one record is like another."""


@dataclass(slots=True)
class ProgramFigures:
    """What a report says of a program."""

    takeovers: int = 0
    """How often somebody began to lead, after the first time."""
    alone: int = 0
    """How often without the edge."""
    views: int = 0
    lag: int = 0
    """How many orders a replica was behind at most, when it said how far it is."""
    discarded: int = 0
    """Orders that the edge gave up."""
    branches: int = 0
    """How often anybody gave orders up."""


def judge_program(lake: Lake, program: str, *, has_edge: bool) -> tuple[Results, ProgramFigures]:
    """Check every promise to one program."""
    results, figures = Results(program), ProgramFigures()
    tracker = ProgramTracker(program, is_guarded=is_guarded(lake, program), from_journals=True)
    tracker.excuses = excuses_of(lake, program)
    counts = dict.fromkeys(CHECKS, 0)
    for name in (program + EDGE, program):
        lives = LivesRead(lake, name)
        for table, row in rows_of(lake, name, lives):
            place = (row["replica"], row["incarnation"], row["sequence"])
            tracker.place = place
            if lives.is_behind_a_gap(place):
                tracker.skip(name, Member(place[0], place[1]))
            _count(counts, table, row)
            _figure(figures, tracker, table, row, is_edge=name != program)
            _feed(tracker, name, table, row)
    tracker.finish()
    figures.views, figures.discarded = tracker.views, tracker.discarded
    figures.takeovers = max(0, figures.takeovers - 1)
    for check, count in counts.items():
        if has_edge:
            results.checked(check, count)
        else:
            results.undecided(check, max(count, 1), "the journal of the program's edge is missing")
    if has_edge:
        for violation, shown in zip(tracker.violations, tracker.places, strict=True):
            rows = () if shown is None else (shown,)
            results.violate(violation.check, violation.evidence, rows=rows)
        for doubt in tracker.doubts:
            learn = results.not_yet if doubt.is_waiting else results.undecided
            learn(doubt.check, 1, _AT_WORK if doubt.is_waiting else _MISSING)
    return results, figures


def excuses_of(lake: Lake, program: str) -> Excuses:
    """Say what of the journals of a program is not at hand, or not yet."""
    edge, replicas = _ends(lake, program + EDGE), _ends(lake, program)
    return Excuses(
        edge_lacks=bool(_lacking(lake, program + EDGE)),
        edge_is_open=End.OPEN in edge.values(),
        edge_is_cut_off=not {End.LOST, End.UNSTOPPED}.isdisjoint(edge.values()),
        partial=frozenset(_lacking(lake, program)),
        open_=frozenset(life for life, end in replicas.items() if end is End.OPEN),
        lost=frozenset(life for life, end in replicas.items() if end is End.LOST),
    )


def _ends(lake: Lake, group: str) -> dict[Member, End]:
    """Give how the last life of each writer ends, where more may have been written."""
    last: dict[str, int] = {}
    for row in lake.table("segments", group).select(["replica", "incarnation"]).to_pylist():
        last[row["replica"]] = max(row["incarnation"], last.get(row["replica"], 0))
    return {Member(name, last[name]): end for name, end in ends_of(lake, group).items()}


def _lacking(lake: Lake, group: str) -> set[str]:
    """Give the writers of a group of whose journals something is missing."""
    rows = findings_of(lake, group).to_pylist()
    return {row["replica"] for row in rows if row["kind"] in INCOMPLETE and row["incarnation"]}


_AT_WORK = "replicas are still at work"
_MISSING = "records are missing that may explain it"


class LivesRead:
    """Which records of a group's lives count, and where some are no longer kept."""

    def __init__(self, lake: Lake, group: str) -> None:
        self._follows: dict[tuple[str, int], tuple[int, int]] = {}
        self._ends: dict[tuple[str, int], int] = {}
        for row in lake.table("segments", group).to_pylist():
            if row["first"] == 1 and row["follows_incarnation"] is not None:
                follows = row["follows_incarnation"], row["follows_sequence"]
                self._follows[row["replica"], row["incarnation"]] = follows
                self._ends[row["replica"], follows[0]] = follows[1]
        self._last = ("", 0, 0)

    def counts(self, row: Row) -> bool:
        """Say whether the next life went on from this record, or from a later one."""
        end = self._ends.get((row["replica"], row["incarnation"]))
        return end is None or row["sequence"] <= end

    def is_behind_a_gap(self, place: tuple[str, int, int]) -> bool:
        """Say whether records between the last one and this are no longer kept."""
        (replica, incarnation, sequence), last = self._last, place
        self._last = place
        if last[:2] == (replica, incarnation):
            return last[2] > sequence + 1
        # The first record of a life is its start, and the last may be its stop: both are no rows.
        if last[2] > 2:  # noqa: PLR2004 -- see above
            return True
        follows = self._follows.get(last[:2], (0, 0))
        while follows[0] and follows[1] <= 1:
            follows = self._follows.get((last[0], follows[0]), (0, 0))
        if replica != last[0]:
            return follows[0] > 0
        return follows[0] != incarnation or follows[1] > sequence + 1


def is_guarded(lake: Lake, program: str) -> bool:
    """Say whether a program has the guard, by what its replicas wrote at their start."""
    stacks = [row["stack"] or "" for row in lake.table("lives", program).to_pylist()]
    return not any(":none" in stack for stack in stacks)


def rows_of(lake: Lake, group: str, lives: LivesRead) -> Iterator[tuple[str, Row]]:
    """Give all that the writers of a group wrote and that counts, each writer's in its order."""
    found = [
        ((row["replica"], row["incarnation"], row["sequence"], place), table, row)
        for place, table in enumerate(_WRITTEN)
        for row in lake.table(table, group).to_pylist()
        if lives.counts(row)
    ]
    found.sort(key=lambda each: each[0])
    if any(row.get("event") == "activated" for _, _, row in found):
        found = _by_epochs(found)
    return ((table, row) for _, table, row in found)


def _by_epochs(found: list[Found]) -> list[Found]:
    """Put what edges wrote that took each other's place behind each other, as they were active."""
    keyed, epoch, writer = [], 0, ""
    for each in found:
        row = each[2]
        if row["replica"] != writer:
            epoch, writer = 0, row["replica"]
        if row.get("event") == "activated":
            epoch = row["claim"]["view"]
        keyed.append((epoch, each))
    keyed.sort(key=lambda each: each[0])
    return [each for _, each in keyed]


def _claim(row: dict[str, Any] | None) -> PrimaryClaim:
    if row is None:
        return NO_CLAIM
    life = Member(row["id"], row["incarnation"])
    return PrimaryClaim(row["view"], row["precedence"], life)


def _feed(tracker: ProgramTracker, group: str, table: str, row: Row) -> None:
    match table:
        case "released":
            tracker.release(
                *(row["conn"], row["byte_offset"], row["length"], row["crc"], row["rests_on"]),
                edge=row["replica"],
            )
        case "inputs_held":
            if group.endswith(EDGE):
                tracker.receive(row["conn"], row["byte_offset"] + row["length"])
        case _:
            record = _record(group, table, row)
            if record is not None:
                tracker.add(record)


def _record(  # noqa: C901, PLR0911 -- one a kind
    group: str, table: str, row: Row
) -> Record | None:
    who: dict[str, Any] = {
        "group": group,
        "member": Member(row["replica"], row["incarnation"]),
        "at": row["recorded_at"],
    }
    if table == "order_runs":
        orders = _orders.decode(row["data"])
        run = OrderRun(_claim(row["claim"]), row["first"], orders, _claim(row["after"]))
        return OrdersKnown(**who, runs=[run])
    claim, number = _claim(row["claim"]), row["number"]
    if table == "executions":
        told = {"first": row["first"], "digests": row["digests"], "clock": row["clock"]}
        return ExecutedUpTo(**who, number=number, claim=claim, **told)
    match row["event"]:
        case "promised":
            return ClaimPromised(**who, claim=claim)
        case "leads":
            return LeadingBegun(**who, claim=claim, base=number, with_edge=row["flag"])
        case "started":
            after = _claim(row["after"])
            return PrimaryViewStarted(
                **who, claim=claim, after=after, number=number, roster=_NOBODY
            )
        case "roster" if group.endswith(EDGE):
            return RosterAccepted(**who, number=number, claim=claim, roster=_NOBODY)
        case "stored":
            return OrdersStored(**who, number=number)
        case "state":
            told = {"is_received": row["flag"], "is_checkpoint": bool(row["count"])}
            return ProgramStateTaken(**who, state=_state(row), **told)
        case "discarded":
            return SideBranchDiscarded(
                **who, number=number, count=row["count"], was_stored=row["flag"], claim=claim
            )
        case "activated":
            return EdgeActivated(**who, claim=claim, state=_state(row), runs=[])
        case "diverged":
            return Diverged(**who, number=number, reason=row["reason"])
        case _:
            return None


def _state(row: Row) -> ProgramState:
    claim, number, digest = _claim(row["claim"]), row["number"], row["digest"]
    return ProgramState(*(number, claim, b"", {}, (), {}, 0, _NOBODY, NO_CLAIM, 0, digest))


def _count(counts: dict[str, int], table: str, row: Row) -> None:
    for check in _LOOKS_AT.get(table if table != "program_views" else row["event"], ()):
        counts[check] += row["count"] if table == "order_runs" else 1


_LOOKS_AT: dict[str, Iterable[str]] = {
    "order_runs": ("one sequence of operations", "group clock monotone", "inputs consumed once"),
    "executions": ("consecutive subsequence",),
    "released": ("released is ordered", "released once", "same output"),
    "started": ("one chain of primary views",),
    "state": ("consecutive states",),
    "leads": ("quorum held",),
    "activated": ("quorum held",),
    "discarded": ("quorum held",),
}
"""What each check looks at: a table, or an event of `program_views`."""


def _figure(
    figures: ProgramFigures, tracker: ProgramTracker, table: str, row: Row, *, is_edge: bool
) -> None:
    event = row.get("event") if table == "program_views" else table
    if event == "leads":
        figures.takeovers += 1
        figures.alone += not row["flag"]
    elif event == "discarded" and not is_edge:
        figures.branches += 1
    elif event == "stored":
        life = tracker.lives.get(Member(row["replica"], row["incarnation"]))
        if life is not None and life.executed:
            figures.lag = max(figures.lag, row["number"] - life.executed)
