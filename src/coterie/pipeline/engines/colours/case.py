"""What is to be found out about groups over a partitioned network, as tasks.

1. One task a range of positions compares what replicas marked green there, writes rows of the
   history, and hands on a summary. Beside it answers to the same request are compared.
2. One task a group checks it as a whole, with the summaries of its ranges; another one runs its
   order, where a class is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from coterie.pipeline.engines.colours.checks import CHECKS
from coterie.pipeline.engines.colours.order import (
    GreenRange,
    Greens,
    check_order,
    green_ranges,
    hand_on,
    summaries,
    tabulate,
)
from coterie.pipeline.engines.colours.rerun import RerunColours, rerun
from coterie.pipeline.engines.colours.servers import check_servers
from coterie.pipeline.engines.colours.told import read_group
from coterie.pipeline.history.answers import CHECK as EXACTLY_ONCE
from coterie.pipeline.history.answers import Answered, answered, check_answered
from coterie.pipeline.history.reconstruct import FILE, write_file
from coterie.pipeline.history.results import Count, Results, verdict_row
from coterie.pipeline.lake.lake import folder_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from coterie.pipeline.engines.colours.told import ToldColours
    from coterie.pipeline.engines.family import Row, Wanted
    from coterie.pipeline.lake.lake import Lake


class WholeColoursGroup(NamedTuple):
    """A group as a whole, to be checked."""

    group: str


Item = GreenRange | WholeColoursGroup | RerunColours | Answered
"""What one task does."""


def open_case(lake: Lake, groups: Sequence[str], wanted: Wanted) -> ColoursCase:
    """Read what the journals of groups say as a whole."""
    return ColoursCase(lake, wanted, {group: read_group(lake, group) for group in groups})


@dataclass(slots=True)
class ColoursCase:
    """Groups over a partitioned network in one lake."""

    lake: Lake
    wanted: Wanted
    told: dict[str, ToldColours]
    rounds: int = 2

    @property
    def groups(self) -> Iterable[str]:
        """The names of the groups."""
        return self.told

    def items(self, number: int) -> list[Item]:
        """Give the tasks of a round; what takes longest comes first."""
        wanted = self.wanted
        if number:
            checks = [WholeColoursGroup(group) for group in self.told] if wanted.has_checks else []
            runs = [
                RerunColours(group, program)
                for group, program in wanted.programs.items()
                if group in self.told and (wanted.has_checks or wanted.events)
            ]
            return [*runs, *checks]
        if not (wanted.has_checks or wanted.tables or wanted.programs):
            return []
        ranges = [task for group in self.told for task in green_ranges(self.lake, group)]
        told = [task for group in self.told for task in answered(self.lake, group)]
        return [*ranges, *(told if wanted.has_checks else ())]

    def work(self, item: Item) -> Iterator[Results]:
        """Do one task of a round, and give what it found."""
        found = self.told[item.group]
        results = Results(item.group)
        match item:
            case GreenRange():
                results = self._read_range(item, found)
            case WholeColoursGroup():
                check_servers(self.lake, found, self.wanted.scratch, results)
            case Answered():
                results = check_answered(item)
            case RerunColours():
                ranges = green_ranges(self.lake, item.group)
                results = rerun(item, found, self.lake, ranges, self._history(), self.wanted)
        yield self._with_views(results, found)

    def _history(self) -> str:
        return f"{self.wanted.tables or self.wanted.scratch}/history"

    def _read_range(self, task: GreenRange, found: ToldColours) -> Results:
        results = Results(task.group)
        greens = Greens(task, found)
        if task.greens and (self.wanted.tables or task.group in self.wanted.programs):
            place = f"{self._history()}/{folder_of(task.group, task.number)}/{FILE}"
            write_file(tabulate(greens), place, plain=("payload", "stamp", "fingerprint"))
        if self.wanted.has_checks:
            check_order(greens, results)
            hand_on(greens, self.wanted.scratch)
        return results

    def _with_views(self, results: Results, found: ToldColours) -> Results:
        """Put into each violation the view in which the first of its records was written."""
        for row in results.violations:
            if row["view"] is None:
                place = next(iter(row["rows"]), None)
                if place is not None:
                    view = found.testimony.view_at(tuple(place.values()))
                    row["view"] = dict(
                        zip(("number", "proposer", "incarnation"), view, strict=True)
                    )
        return results

    # ---- with the results of all tasks

    def conclude(self, found: dict[str, Results], spark: SparkSession | None) -> None:
        """Say of groups with very many answers that these were not compared."""
        del spark
        for group in self.told:
            replies = any(self.lake.files_of("replies", group))
            if self.wanted.has_checks and replies and not answered(self.lake, group):
                results = found.setdefault(group, Results(group))
                results.undecided(EXACTLY_ONCE, 1, "there are too many answers to compare them")

    def verdicts(self, results: Results) -> Iterator[Row]:
        """Give a verdict on every promise to one group."""
        found = self.told[results.group]
        for check in CHECKS.values():
            count = results.counts.get(check.name, Count())
            row = verdict_row(results.group, check, count, *_verdict(count, found, check.name))
            yield {**row, **self._share(found)}

    def _share(self, found: ToldColours) -> dict[str, int]:
        """Say how many positions are known, and of how many all replicas have had their say."""
        ends: dict[str, int] = {}
        for summary in summaries(self.wanted.scratch, found.group):
            for replica, _, _, _, _, last in summary.stretches:
                ends[replica] = max(ends.get(replica, 0), last)
        known = max(ends.values(), default=0)
        return {"positions": 0 if found.partial else known, "positions_known": known}


def _verdict(count: Count, found: ToldColours, name: str) -> tuple[str, str]:
    if count.found:
        return "broken", ""
    if count.undecided and found.testimony.is_waiting and not found.partial:
        return "not yet", f"replicas are still at work ({count.undecided} rows)"
    if count.undecided:
        return "undecided", f"{count.remark} ({count.undecided} rows)"
    if count.checked:
        return "kept", count.remark
    return "not checked", _WHY_NOT.get(name, "no record speaks of it")


_WHY_NOT = {
    "replicated state machine": "name the class, and the order is run on it",
    "linearizability": "name the class, and the order is run on it",
    "exactly once": "no request was answered for good",
}
