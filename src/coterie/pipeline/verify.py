"""Verifying: every promise as a named check, over the journals of all replicas.

One Spark job runs everything that needs no shuffle: checks of a group as a whole, one task a
group; checks of positions, one task a range; replaying the class, one task a group, where a class
is given; and comparing answers to the same request. Of groups with very many answers, one more job
aggregates these. What comes back is counts and violations, both bounded, and is added up here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

from coterie.kernel.clock import Duration, seconds
from coterie.pipeline.answers import CHECK, Answered, answered, check_answered, executed_once
from coterie.pipeline.checks import CHECKS, ENGINE_CHECK_NAMES
from coterie.pipeline.dumps import beginnings, load
from coterie.pipeline.group_checks import check_group
from coterie.pipeline.range_checks import check_range, real_time_across
from coterie.pipeline.ranges import Range, ranges_of
from coterie.pipeline.results import RESULTS, VIOLATIONS_MAX, Count, Results, gather, verdict_row
from coterie.pipeline.schemas import VERDICTS, VIOLATIONS, spark_schema
from coterie.pipeline.states import check_replay
from coterie.pipeline.tasks import for_each
from coterie.pipeline.verify_cohorts import verdicts_of, verify_cohorts, verify_cohorts_alone
from coterie.pipeline.witnesses import testimonies_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from coterie.pipeline.dumps import Agreed
    from coterie.pipeline.lake import Lake
    from coterie.pipeline.replay import Program
    from coterie.pipeline.witnesses import Testimony

CLOCK_BOUND = seconds(1)
"""How far apart the clocks of clients and replicas may be, for the order in real time."""


@dataclass(slots=True)
class Verification:
    """What came of all checks."""

    verdicts: list[dict[str, Any]]
    violations: list[dict[str, Any]]

    @property
    def is_kept(self) -> bool:
        """Whether no promise was found broken."""
        return not self.violations

    def tables(self, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
        """Give verdicts and violations as DataFrames."""
        return (
            _frame(spark, self.verdicts, VERDICTS),
            _frame(spark, self.violations, VIOLATIONS),
        )


class Whole(NamedTuple):
    """A group as a whole, to be checked."""

    group: str


class Rerun(NamedTuple):
    """A group whose history is to be run, from a dumped state if its beginning was removed."""

    group: str
    program: Program
    begin: Agreed | None = None


Item = Range | Whole | Rerun | Answered
"""What one task checks."""


def check_item(item: Item, lake: Lake, testimony: Testimony, clock_bound: int) -> Results:
    """Run the checks of one task."""
    match item:
        case Whole():
            return check_group(lake, testimony)
        case Rerun(program=program, begin=begin):
            majority = testimony.configuration.majority
            machine = load(begin, program, majority) if begin is not None else None
            return check_replay(lake, testimony, program, machine)
        case Answered():
            return check_answered(item)
        case Range():
            return check_range(item, testimony, clock_bound)


def items_of(
    lake: Lake,
    groups: Iterable[str],
    programs: Mapping[str, Program] | None = None,
    begins: Mapping[str, Agreed] | None = None,
) -> list[Item]:
    """Give all that is to be checked; what takes longest comes first."""
    named = list(groups)
    return [
        *(
            Rerun(group, each, (begins or {}).get(group))
            for group, each in (programs or {}).items()
            if group in named
        ),
        *map(Whole, named),
        *(task for group in named for task in answered(lake, group)),
        *ranges_of(lake, named),
    ]


def verify(
    spark: SparkSession,
    lake: Lake,
    *,
    programs: Mapping[str, Program] | None = None,
    roots: Sequence[str | Path] = (),
    clock_bound: Duration = CLOCK_BOUND,
) -> Verification:
    """Check every promise against the journals in the lake.

    *programs* says which class each group runs; of the others, the history is not run. *roots* are
    the folders of the journals: where the beginning of a history is gone, running it begins with a
    state that was dumped there.
    """
    testimonies = testimonies_of(lake)
    to_run = {group: each for group, each in testimonies.items() if group in (programs or {})}
    begins = beginnings(spark, roots, to_run)

    def work(item: Item) -> Iterator[pa.RecordBatch]:
        yield check_item(item, lake, testimonies[item.group], clock_bound).batch()

    items = items_of(lake, testimonies, programs, begins)
    found = gather(for_each(spark, items, work, RESULTS).toArrow().to_pylist())
    _check_across_all(lake, found, testimonies, clock_bound)
    compared = {item.group for item in items if isinstance(item, Answered)}
    _check_many_answers(spark, lake, found, compared)
    verdicts = [
        row for group in sorted(found) for row in _verdicts(testimonies[group], found[group])
    ]
    of_cohorts = verify_cohorts(spark, lake)
    verdicts += verdicts_of(of_cohorts)
    found |= of_cohorts
    violations = [row for group in sorted(found) for row in _bounded(found[group].violations)]
    return Verification(verdicts, violations)


def _check_many_answers(
    spark: SparkSession, lake: Lake, found: dict[str, Results], compared: set[str]
) -> None:
    """Compare the answers of groups that have too many of them for a task."""
    others = [group for group in found if group not in compared]
    many = [group for group in others if any(lake.files_of("replies", group))]
    if many:
        for results in executed_once(lake.read(spark, "replies").where(F.col("group").isin(many))):
            found[results.group].count(CHECK).add(results.count(CHECK))
            found[results.group].violations += results.violations


def verify_alone(lake: Lake, clock_bound: Duration = CLOCK_BOUND) -> dict[str, Results]:
    """Run all checks that need no shuffle in this process: what a task does with a small lake."""
    testimonies = testimonies_of(lake)
    found = gather(
        row
        for item in items_of(lake, testimonies)
        for row in check_item(item, lake, testimonies[item.group], clock_bound).batch().to_pylist()
    )
    _check_across_all(lake, found, testimonies, clock_bound)
    return found | verify_cohorts_alone(lake)


def _check_across_all(
    lake: Lake,
    found: dict[str, Results],
    testimonies: Mapping[str, Testimony],
    clock_bound: Duration,
) -> None:
    for group, testimony in testimonies.items():
        results = found.setdefault(group, Results(group))
        check_across(results, ranges_of(lake, [group]), testimony, clock_bound)


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
            results.violations += found.violations
        later = min(later or (end, number), (end, number))


def _verdicts(testimony: Testimony, results: Results) -> Iterator[dict[str, Any]]:
    for check in CHECKS.values():
        count = results.counts.get(check.name, Count())
        verdict, remark = _verdict(testimony, check.name, count)
        if verdict == "kept" and check.name == "linearizability" and not results.extents:
            remark = "answers only: no request says when it was made"
        yield verdict_row(testimony.group, check, count, verdict, remark)


def _verdict(testimony: Testimony, name: str, count: Count) -> tuple[str, str]:
    if count.found:
        return "broken", ""
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


def _bounded(violations: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    seen: dict[str, int] = {}
    for row in violations:
        seen[row["check"]] = seen.get(row["check"], 0) + 1
        if seen[row["check"]] <= VIOLATIONS_MAX:
            yield row


def _frame(spark: SparkSession, rows: list[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    table = pa.Table.from_pylist(rows, schema=schema)
    if not rows:
        return spark.createDataFrame([], spark_schema(schema))
    return spark.createDataFrame(table)
