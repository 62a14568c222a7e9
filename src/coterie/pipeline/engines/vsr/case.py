"""What is to be found out about groups of cohorts, as tasks.

What the journals of a group say as a whole is read once, where the run is started, and travels to
the tasks. Then:

1. one task a range of events compares what cohorts know, writes rows of the history, and hands on
   each event to the part that its transaction belongs to. Beside it go the checks of a group as a
   whole, which need no events;
2. one task a part follows its transactions through all groups: how they ended, and the checks that
   look at one transaction. It hands on what they did, shared out by objects;
3. one task a share of the objects says whether two may have held one, or a circle is possible;
4. only if so, one task looks at that in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from coterie.kernel.views import NO_VIEW
from coterie.pipeline.engines.vsr.checks import CHECKS
from coterie.pipeline.engines.vsr.event_ranges import (
    EventRange,
    event_ranges,
    hand_on,
    read_range,
    tabulate_events,
)
from coterie.pipeline.engines.vsr.group_checks import check_cohorts
from coterie.pipeline.engines.vsr.history import read_group
from coterie.pipeline.engines.vsr.plain import read_plain
from coterie.pipeline.engines.vsr.serial import as_rows, hand_on_touches, has_circle, read_share
from coterie.pipeline.engines.vsr.transaction_checks import check_suspects, check_transactions
from coterie.pipeline.engines.vsr.transactions import PART_SHIFT, TransactionLedger
from coterie.pipeline.history.reconstruct import FILE, write_file
from coterie.pipeline.history.results import Count, Results, verdict_row
from coterie.pipeline.lake.lake import folder_of
from coterie.pipeline.read.rows import view_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from coterie.pipeline.engines.family import Row, Wanted
    from coterie.pipeline.engines.vsr.history import CohortGroup
    from coterie.pipeline.lake.lake import Lake

PART_EVENTS = 150_000
"""Events in a part, about: a task has the transactions of a part in memory. With smaller parts more
of the time goes into tasks and files: twenty of them cost twice as much as six."""
_BACKWARD, _SUSPECT = "backward", "suspect"


class WholeVsrGroup(NamedTuple):
    """A group as a whole, to be checked."""

    group: str


class TransactionPart(NamedTuple):
    """Some of the transactions over all groups."""

    number: int


class Objects(NamedTuple):
    """Some of the objects of all groups."""

    share: int


class Suspects(NamedTuple):
    """All transactions, because something may be wrong with some of them."""


Item = EventRange | WholeVsrGroup | TransactionPart | Objects | Suspects
"""What one task does."""


def open_case(lake: Lake, groups: Sequence[str], wanted: Wanted) -> VsrCase:
    """Read what the journals of groups say as a whole."""
    told = {group: read_group(lake, group) for group in groups}
    events = sum(sum(found.extent.values()) for found in told.values())
    return VsrCase(lake, wanted, told, max(1, -(-events // PART_EVENTS)))


@dataclass(slots=True)
class VsrCase:
    """Groups of cohorts in one lake."""

    lake: Lake
    wanted: Wanted
    told: dict[str, CohortGroup]
    parts: int
    """Into how many parts transactions, and objects, are shared out."""
    rounds: int = 4

    @property
    def groups(self) -> Iterable[str]:
        """The names of the groups."""
        return self.told

    def items(self, number: int) -> list[Item]:
        """Give the tasks of a round; what takes longest comes first."""
        has_checks = self.wanted.has_checks
        if not (has_checks or self.wanted.tables):
            return []
        match number:
            case 0:
                ranges = [
                    task for found in self.told.values() for task in event_ranges(self.lake, found)
                ]
                return [*ranges, *(map(WholeVsrGroup, self.told) if has_checks else ())]
            case 1:
                return [TransactionPart(part) for part in range(self.parts)]
            case 2:
                return [Objects(share) for share in range(self.parts)] if has_checks else []
            case _:
                return [Suspects()] if any(self._marks().glob("*")) else []

    def work(self, item: Item) -> Iterator[Results]:
        """Do one task of a round, and give what it found."""
        match item:
            case EventRange():
                yield self._with_views(self._read_range(item))
            case WholeVsrGroup(group):
                yield self._with_views(check_cohorts(self.told[group]))
            case TransactionPart(number):
                yield from map(self._with_views, self._follow(number))
            case Objects(share):
                self._suspect(share)
            case Suspects():
                yield from map(self._with_views, self._look())

    def _read_range(self, task: EventRange) -> Results:
        results = Results(task.group)
        known = read_range(task, self.told, results)
        if self.wanted.tables:
            place = f"{self.wanted.tables}/forced/{folder_of(task.group, task.number)}/{FILE}"
            write_file(tabulate_events(known), place, plain=("data", "aid"))
        hand_on(known, task, self._events(), self.parts)
        return results if self.wanted.has_checks else Results(task.group)

    def _follow(self, part: int) -> Iterator[Results]:
        """Follow the transactions of a part: the plain ones by columns, the others one by one."""
        plain = read_plain(sorted(self.told), self._events(), part)
        ledger = TransactionLedger(
            self.told.values(), self._events(), range(part, part + 1), without=plain.ids
        )
        if self.wanted.tables:
            place = f"{self.wanted.tables}/transactions/{part:06}.parquet"
            rows = pa.concat_tables([plain.rows(), ledger.rows()])
            write_file(rows.sort_by([(name, "ascending") for name in ("began_at", "aid")]), place)
        if self.wanted.has_checks:
            first = part << PART_SHIFT
            others = as_rows(ledger.touches(first))
            touches = plain.touches(self._events(), part, first + len(ledger.transactions))
            joined = np.concatenate([others, touches])
            hand_on_touches(joined, self._objects(), part, self.parts)
            yield from plain.results()
            yield from check_transactions(ledger)

    def _suspect(self, share: int) -> None:
        found = read_share(self._objects(), share)
        if found.is_shared or found.is_unwritten:
            self._mark(_SUSPECT)
        elif found.steps.is_backward().any():
            self._mark(_BACKWARD)

    def _look(self) -> Iterator[Results]:
        """Look for what is suspected: first, if that is all, whether there is any circle."""
        if not (self._marks() / _SUSPECT).exists():
            steps = [read_share(self._objects(), share).steps for share in range(self.parts)]
            if not has_circle(steps):
                return
        every = range(self.parts)
        yield from check_suspects(
            TransactionLedger(self.told.values(), self._events(), every, has_locks=True)
        )

    # ---- what rounds hand on

    def _events(self) -> str:
        return f"{self.wanted.scratch}/events"

    def _objects(self) -> str:
        return f"{self.wanted.scratch}/objects"

    def _marks(self) -> Path:
        return Path(self.wanted.scratch, "marks")

    def _mark(self, word: str) -> None:
        self._marks().mkdir(parents=True, exist_ok=True)
        (self._marks() / word).touch()

    # ---- with the results of all tasks

    def conclude(self, found: dict[str, Results], spark: SparkSession | None) -> None:
        """Add nothing: tasks have found all there is."""

    def verdicts(self, results: Results) -> Iterator[Row]:
        """Give a verdict on every promise to one group."""
        for check in CHECKS.values():
            count = results.counts.get(check.name, Count())
            row = verdict_row(results.group, check, count, *_verdict(count, self.told.values()))
            yield {**row, **self._share(results.group)}

    def _share(self, group: str) -> dict[str, int]:
        """Say how many events are authoritative, and of how many all cohorts have had their say."""
        known = sum(self.told[group].authoritative().values())
        heard = 0 if self.told[group].incomplete else known
        return {"positions": heard, "positions_known": known}

    def _with_views(self, results: Results) -> Results:
        """Put into each violation the view in which the first of its records was written."""
        for row in results.violations:
            if row["view"] is None:
                place = next(iter(row["rows"]), None)
                found = self.told[results.group]
                view = NO_VIEW if place is None else found.view_at(tuple(place.values()))
                row["view"] = view_row(view)
        return results


def _verdict(count: Count, groups: Iterable[CohortGroup]) -> tuple[str, str]:
    if count.found:
        return "broken", ""
    told = list(groups)
    is_waiting = any(each.is_waiting for each in told) and not any(each.incomplete for each in told)
    if count.undecided and not is_waiting:
        return "undecided", f"{count.remark} ({count.undecided} rows)"
    if count.undecided or count.waiting:
        why = "replicas are still at work" if is_waiting else count.remark
        return "not yet", f"{why} ({count.undecided + count.waiting} rows)"
    return ("kept", "") if count.checked else ("not checked", "no record speaks of it")
