"""Judging a lake: the history of all groups, and every promise as a named check.

Each group belongs to an engine family (`coterie.pipeline.engines`), which knows its tasks. Tasks
of one round are one job of Spark without a shuffle. What comes back is counts and violations, both
bounded, and is added up here; tables are written by the tasks themselves.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coterie.kernel.clock import Duration, seconds
from coterie.pipeline.engines import families_of
from coterie.pipeline.engines.family import Wanted
from coterie.pipeline.history.results import RESULTS, VIOLATIONS_MAX, Results, gather
from coterie.pipeline.lake.kept import kept
from coterie.pipeline.outcomes import basis_of, outcome_of, with_basis
from coterie.pipeline.read.schemas import VERDICTS, VIOLATIONS, spark_schema
from coterie.pipeline.spark.tasks import for_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from coterie.pipeline.engines.family import Case, Family
    from coterie.pipeline.history.replay import Program
    from coterie.pipeline.lake.lake import Lake
    from coterie.pipeline.outcomes import Outcome

CLOCK_BOUND = seconds(1)
"""How far apart the clocks of clients and replicas may be, for the order in real time."""


@dataclass(slots=True)
class Verification:
    """What came of all checks."""

    verdicts: list[dict[str, Any]]
    violations: list[dict[str, Any]]
    found: dict[str, Results] = field(default_factory=dict)
    """What was found in each group."""

    @property
    def is_kept(self) -> bool:
        """Whether no promise was found broken."""
        return not self.violations

    @property
    def outcome(self) -> Outcome:
        """What came of it in a word; what is wrong with journals shows in what verdicts rest on."""
        is_whole = all(
            row["journals"] >= row["journals_known"] and row["lives"] >= row["lives_known"]
            for row in self.verdicts
        )
        return outcome_of(self.verdicts, self.violations, is_whole=is_whole)

    def tables(self, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
        """Give verdicts and violations as DataFrames."""
        return (
            _frame(spark, self.verdicts, VERDICTS),
            _frame(spark, self.violations, VIOLATIONS),
        )


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
    with tempfile.TemporaryDirectory(prefix="coterie-judge-") as scratch:
        wanted = Wanted(scratch, programs=programs or {}, roots=roots, clock_bound=clock_bound)
        return judge(spark, lake, wanted)


def judge(spark: SparkSession, lake: Lake, wanted: Wanted) -> Verification:
    """Find out about all groups of a lake what is wanted."""
    lake = kept(lake)
    cases = _cases(lake, wanted, spark)

    def work(item: tuple[str, Any]) -> Iterator[pa.RecordBatch]:
        name, inner = item
        for results in cases[name].work(inner):
            yield results.batch()

    found: dict[str, Results] = {}
    for items in _rounds(cases):
        gather(for_each(spark, items, work, RESULTS).toArrow().to_pylist(), found)
    return _conclude(lake, cases, found, spark)


def verify_alone(lake: Lake, clock_bound: Duration = CLOCK_BOUND) -> dict[str, Results]:
    """Run all checks that need no shuffle in this process: what a task does with a small lake."""
    with tempfile.TemporaryDirectory(prefix="coterie-judge-") as scratch:
        return judge_alone(lake, Wanted(scratch, clock_bound=clock_bound)).found


def judge_alone(lake: Lake, wanted: Wanted) -> Verification:
    """Do what `judge` does in this process, but for what needs a shuffle."""
    lake = kept(lake)
    cases = _cases(lake, wanted, None)
    found: dict[str, Results] = {}
    for items in _rounds(cases):
        for name, item in items:
            for results in cases[name].work(item):
                gather(results.batch().to_pylist(), found)
    return _conclude(lake, cases, found, None)


def _cases(lake: Lake, wanted: Wanted, spark: SparkSession | None) -> dict[str, Case]:
    """Begin with the groups of each family."""
    groups: dict[str, list[str]] = {}
    by_name: dict[str, Family] = {}
    for group, family in families_of(lake).items():
        by_name[family.name] = family
        groups.setdefault(family.name, []).append(group)
    return {
        name: by_name[name].open(
            lake, mine, replace(wanted, scratch=f"{wanted.scratch}/{name}"), spark
        )
        for name, mine in groups.items()
    }


def _rounds(cases: Mapping[str, Case]) -> Iterator[list[tuple[str, Any]]]:
    """Give the tasks of all families, round by round: each when the one before is done."""
    for number in range(max((case.rounds for case in cases.values()), default=0)):
        items = [
            (name, item)
            for name, case in cases.items()
            if number < case.rounds
            for item in case.items(number)
        ]
        if items:
            yield items


def _conclude(
    lake: Lake, cases: Mapping[str, Case], found: dict[str, Results], spark: SparkSession | None
) -> Verification:
    for case in cases.values():
        case.conclude(found, spark)
    verdicts = [
        row
        for case in cases.values()
        for group in sorted(case.groups)
        if group in found
        for row in _verdicts(lake, case, found[group])
    ]
    violations = [row for group in sorted(found) for row in _bounded(found[group].violations)]
    return Verification(verdicts, violations, found)


def _verdicts(lake: Lake, case: Case, results: Results) -> list[dict[str, Any]]:
    """Give the verdicts on one group, unless a task came to them, with what they rest on."""
    group = results.group
    return results.verdicts or with_basis(case.verdicts(results), {group: basis_of(lake, group)})


def _bounded(violations: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    seen: dict[str, int] = {}
    for row in violations:
        seen[row["check_name"]] = seen.get(row["check_name"], 0) + 1
        if seen[row["check_name"]] <= VIOLATIONS_MAX:
            yield row


def _frame(spark: SparkSession, rows: list[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    table = pa.Table.from_pylist(rows, schema=schema)
    if not rows:
        return spark.createDataFrame([], spark_schema(schema))
    return spark.createDataFrame(table)
