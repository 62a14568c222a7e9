"""What is to be found out about groups of stacks, as tasks.

First round: one task a range judges its positions, once, and makes everything of it that needs
nothing else: rows of the history, and all checks that compare replicas over the range. Beside it
go the checks of a group as a whole, and the comparison of answers to the same request.

Second round, where a class is given: one task a group runs the history, once, from the rows that
the first round wrote; so it compares states and answers, and writes the events.

Where there are many small groups, a task takes a batch of them, and does all of this for each, as
far as to the verdicts: reading what a group says as a whole is then most of the work, so it is not
left to the process that started the run, and travels nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

from coterie.pipeline.engines.stack.checks import CHECKS, ENGINE_CHECK_NAMES, SERVER_CHECK_NAMES
from coterie.pipeline.history.answers import (
    CHECK,
    Answered,
    answered,
    check_answered,
    executed_once,
)
from coterie.pipeline.history.decided import about, asked_of, key_of, metadata_of, take_over
from coterie.pipeline.history.dumps import beginnings
from coterie.pipeline.history.gathering import testimony_of
from coterie.pipeline.history.group_checks import check_group
from coterie.pipeline.history.range_checks import RangeFacts, check_range, real_time_across
from coterie.pipeline.history.reconstruct import history_file, write_history
from coterie.pipeline.history.rerun import Rerun, rerun
from coterie.pipeline.history.results import Count, Results, verdict_row
from coterie.pipeline.history.served import ServedGroup, check_served, is_served
from coterie.pipeline.history.witnesses import NO_VIEW_KNOWN
from coterie.pipeline.lake.kept import kept
from coterie.pipeline.lake.ranges import Range, ranges_of
from coterie.pipeline.outcomes import basis_of, with_basis

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from coterie.pipeline.engines.family import Row, Wanted
    from coterie.pipeline.history.dumps import Agreed
    from coterie.pipeline.history.witnesses import Testimony
    from coterie.pipeline.lake.lake import Lake


MANY_GROUPS = 8
"""From how many small groups on tasks take them in batches."""
SMALL_BYTES = 1 << 20
"""What the large tables of a small group take in the lake, at most."""
BATCH_GROUPS = 16
"""Small groups in a task."""


class WholeStackGroup(NamedTuple):
    """A group as a whole, to be checked."""

    group: str


class SmallGroups(NamedTuple):
    """Small groups, each to be judged from its beginning to its verdicts."""

    groups: tuple[str, ...]


Item = Range | WholeStackGroup | ServedGroup | Rerun | Answered | SmallGroups
"""What one task does."""


def open_case(
    lake: Lake, groups: Sequence[str], wanted: Wanted, spark: SparkSession | None
) -> StackCase:
    """Build the testimonies of groups, and find the states with which running them begins."""
    small = _small_groups(lake, [group for group in groups if group not in wanted.programs])
    alone = set(groups).difference(small)
    testimonies = {group: testimony_of(lake, group) for group in groups if group in alone}
    to_run = {group: each for group, each in testimonies.items() if group in wanted.programs}
    begins = {} if spark is None else beginnings(spark, wanted.roots, to_run)
    return StackCase(lake, wanted, testimonies, begins, small)


def _small_groups(lake: Lake, groups: Sequence[str]) -> list[str]:
    """Give the groups that are small, if they are many."""
    if len(groups) < MANY_GROUPS:
        return []
    small = [group for group in groups if _is_small(lake, group)]
    return small if len(small) >= MANY_GROUPS else []


def _is_small(lake: Lake, group: str) -> bool:
    total = 0
    for table in ("entries", "replies", "messages"):
        for path, _ in lake.files_of(table, group):
            total += path.stat().st_size
            if total > SMALL_BYTES:
                return False
    return True


@dataclass(slots=True)
class StackCase:
    """Groups of stacks in one lake."""

    lake: Lake
    wanted: Wanted
    testimonies: dict[str, Testimony]
    begins: dict[str, Agreed] = field(default_factory=dict)
    """Dumped states, of groups whose first entries no journal has any more."""
    small: list[str] = field(default_factory=list)
    """Groups that are judged in batches; what they say is read by the tasks."""
    rounds: int = 2

    @property
    def groups(self) -> Iterable[str]:
        """The names of the groups."""
        return [*self.testimonies, *self.small]

    def items(self, number: int) -> list[Item]:
        """Give the tasks of a round; what takes longest comes first."""
        wanted, groups = self.wanted, self.testimonies
        if number:
            return [
                Rerun(group, program, self.begins.get(group))
                for group, program in wanted.programs.items()
                if group in groups and (wanted.has_checks or wanted.events)
            ]
        checks: list[Item] = []
        if wanted.has_checks:
            checks = [
                *map(WholeStackGroup, groups),
                *(ServedGroup(group) for group in groups if is_served(self.lake, group)),
                *(task for group in groups for task in answered(self.lake, group)),
            ]
        judged = [group for group in groups if wanted.has_checks or self._folder(group)]
        batches: list[Item] = []
        if wanted.has_checks or wanted.tables:
            batches = [
                SmallGroups(tuple(self.small[start : start + BATCH_GROUPS]))
                for start in range(0, len(self.small), BATCH_GROUPS)
            ]
        return [*checks, *ranges_of(self.lake, judged), *batches]

    def work(self, item: Item) -> Iterator[Results]:
        """Do one task of a round, and give what it found."""
        if isinstance(item, SmallGroups):
            for group in item.groups:
                yield self._judge_whole(group)
            return
        testimony = self.testimonies[item.group]
        match item:
            case WholeStackGroup():
                yield with_views(check_group(self.lake, testimony), testimony)
            case ServedGroup():
                yield with_views(check_served(self.lake, item.group), testimony)
            case Answered():
                yield with_views(check_answered(item), testimony)
            case Range():
                yield from self._judge(item, testimony)
            case Rerun():
                folder = self._folder(item.group)
                for results in rerun(item, testimony, self.lake, folder, self.wanted):
                    yield with_views(results, testimony)

    def _judge_whole(self, group: str) -> Results:
        """Find out all there is about a small group."""
        lake = kept(self.lake)
        case = StackCase(lake, self.wanted, {group: testimony_of(lake, group)})
        results = Results(group)
        for item in case.items(0):
            for found in case.work(item):
                results.add(found)
        if self.wanted.has_checks:
            case.conclude({group: results}, None)
            bases = {group: basis_of(lake, group)}
            results.verdicts = with_basis(case.verdicts(results), bases)
        return results

    def _judge(self, task: Range, testimony: Testimony) -> Iterator[Results]:
        wanted, folder = self.wanted, self._folder(task.group)
        key = key_of(testimony, task, asked_of(wanted)) if wanted.code and wanted.tables else ""
        if key and wanted.last:
            last = history_file(f"{wanted.last}/history", task)
            decided = take_over(task.group, last, history_file(folder, task), key)
            if decided is not None:
                yield decided
                return
        facts = RangeFacts(task, about(testimony, task.start, task.start + task.width - 1))
        results = check_range(facts, wanted.clock_bound) if wanted.has_checks else None
        if folder:
            metadata = metadata_of(facts, results, key) if key else {}
            write_history(facts, history_file(folder, task), metadata)
        if results is not None:
            yield with_views(results, testimony)

    def _folder(self, group: str) -> str:
        """Give the folder that gets the history; nothing if nobody wants it."""
        wanted = self.wanted
        if wanted.tables:
            return f"{wanted.tables}/history"
        return f"{wanted.scratch}/history" if group in wanted.programs else ""

    # ---- with the results of all tasks

    def conclude(self, found: dict[str, Results], spark: SparkSession | None) -> None:
        """Compare the times of ranges, and very many answers."""
        if not self.wanted.has_checks:
            return
        for group, testimony in self.testimonies.items():
            results = found.setdefault(group, Results(group))
            ranges = ranges_of(self.lake, [group])
            check_across(results, ranges, testimony, self.wanted.clock_bound)
        if spark is not None:
            self._check_many_answers(spark, found)

    def _check_many_answers(self, spark: SparkSession, found: dict[str, Results]) -> None:
        """Compare the answers of groups that have too many of them for tasks."""
        many = [
            group
            for group in self.testimonies
            if any(self.lake.files_of("replies", group)) and not answered(self.lake, group)
        ]
        if many:
            replies = self.lake.read(spark, "replies").where(F.col("group_name").isin(many))
            for results in executed_once(replies):
                found[results.group].count(CHECK).add(results.count(CHECK))
                with_views(results, self.testimonies[results.group])
                found[results.group].violations += results.violations

    def verdicts(self, results: Results) -> Iterator[Row]:
        """Give a verdict on every promise to one group."""
        testimony = self.testimonies[results.group]
        share = {"positions": testimony.heard(), "positions_known": testimony.length}
        for check in CHECKS.values():
            if check.name in SERVER_CHECK_NAMES and check.name not in results.counts:
                continue
            count = results.counts.get(check.name, Count())
            verdict, remark = _verdict(testimony, check.name, count)
            if verdict == "kept" and check.name == "linearizability" and not results.extents:
                remark = "answers only: no request says when it was made"
            yield {**verdict_row(testimony.group, check, count, verdict, remark), **share}


def check_across(
    results: Results, ranges: list[Range], testimony: Testimony, clock_bound: int
) -> None:
    """Compare the times of ranges: nothing in a later one may have ended before an earlier began.

    Where the extents of two ranges say otherwise, the two are looked into.
    """
    by_number = {task.number: task for task in ranges}
    later: tuple[int, int] | None = None
    for number, end, start in sorted(results.extents, reverse=True):
        if later is not None and start - clock_bound > later[0]:
            found = real_time_across(by_number[number], by_number[later[1]], testimony, clock_bound)
            results.count("linearizability").add(found.count("linearizability"))
            results.violations += with_views(found, testimony).violations
        later = min(later or (end, number), (end, number))


def with_views(results: Results, testimony: Testimony) -> Results:
    """Put into each violation the view in which the first of its records was written."""
    for row in results.violations:
        if row["view"] is None:
            place = next(iter(row["rows"]), None)
            known = NO_VIEW_KNOWN if place is None else testimony.view_at(tuple(place.values()))
            row["view"] = dict(zip(("number", "proposer", "incarnation"), known, strict=True))
    return results


def _verdict(testimony: Testimony, name: str, count: Count) -> tuple[str, str]:
    if count.found:
        return "broken", ""
    if count.undecided and testimony.is_waiting:
        return "not yet", f"replicas are still at work ({count.undecided} rows)"
    if count.undecided:
        return "undecided", f"{count.remark} ({count.undecided} rows)"
    if count.checked:
        return "kept", count.remark
    has_engine = any(witness.acceptances for witness in testimony.witnesses)
    if name in ENGINE_CHECK_NAMES and not has_engine:
        return "not checked", "no primary view was ever accepted"
    return "not checked", _WHY_NOT.get(name, "no record speaks of it")


_WHY_NOT = {
    "replicated state machine": "name the class, and the history is run on it",
    "linearizability": "no request says when it was made",
    "exactly once": "no request was answered as authoritative",
}
