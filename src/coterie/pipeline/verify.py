"""Verifying: every promise as a named check, over the journals of all replicas.

One Spark job runs everything that needs no shuffle: checks of a group as a whole, one task a
group; checks of positions, one task a range; and replaying the class, one task a group, where a
class is given. One more aggregates replies by request, for *exactly once*. What comes back is
counts and violations, both bounded, and is added up here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

from coterie.kernel.clock import Duration, seconds
from coterie.kernel.engine import Standing
from coterie.pipeline.checks import CHECKS, ENGINE_CHECK_NAMES
from coterie.pipeline.group_checks import check_group
from coterie.pipeline.range_checks import check_range, real_time_across
from coterie.pipeline.ranges import Range, ranges_of
from coterie.pipeline.results import RESULTS, VIOLATIONS_MAX, Count, Results, gather
from coterie.pipeline.schemas import VERDICTS, VIOLATIONS, spark_schema
from coterie.pipeline.states import check_replay
from coterie.pipeline.tasks import for_each
from coterie.pipeline.witnesses import testimonies_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

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
    """A group whose history is to be run."""

    group: str
    program: Program


Item = Range | Whole | Rerun
"""What one task checks."""


def check_item(item: Item, lake: Lake, testimony: Testimony, clock_bound: int) -> Results:
    """Run the checks of one task."""
    match item:
        case Whole():
            return check_group(lake, testimony)
        case Rerun(program=program):
            return check_replay(lake, testimony, program)
        case Range():
            return check_range(item, testimony, clock_bound)


def items_of(
    lake: Lake, groups: Iterable[str], programs: Mapping[str, Program] | None = None
) -> list[Item]:
    """Give all that is to be checked; what takes longest comes first."""
    named = list(groups)
    return [
        *(Rerun(group, each) for group, each in (programs or {}).items() if group in named),
        *map(Whole, named),
        *ranges_of(lake, named),
    ]


def verify(
    spark: SparkSession,
    lake: Lake,
    *,
    programs: Mapping[str, Program] | None = None,
    clock_bound: Duration = CLOCK_BOUND,
) -> Verification:
    """Check every promise against the journals in the lake.

    *programs* says which class each group runs; of the others, the history is not run.
    """
    testimonies = testimonies_of(lake)

    def work(item: Item) -> Iterator[pa.RecordBatch]:
        yield check_item(item, lake, testimonies[item.group], clock_bound).batch()

    items = items_of(lake, testimonies, programs)
    found = gather(for_each(spark, items, work, RESULTS).toArrow().to_pylist())
    _check_across_all(lake, found, testimonies, clock_bound)
    executed_once(lake.read(spark, "replies"), found)
    verdicts = [
        row for group in sorted(found) for row in _verdicts(testimonies[group], found[group])
    ]
    violations = [row for group in sorted(found) for row in _bounded(found[group].violations)]
    return Verification(verdicts, violations)


def verify_alone(lake: Lake, clock_bound: Duration = CLOCK_BOUND) -> dict[str, Results]:
    """Run all checks that need no shuffle in this process: what a task does with a small lake."""
    testimonies = testimonies_of(lake)
    found = gather(
        row
        for item in items_of(lake, testimonies)
        for row in check_item(item, lake, testimonies[item.group], clock_bound).batch().to_pylist()
    )
    _check_across_all(lake, found, testimonies, clock_bound)
    return found


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


def executed_once(replies: DataFrame, found: dict[str, Results]) -> None:
    """Of all authoritative answers to one request, none names another place or another result."""
    check = "exactly once"
    answers = replies.where(
        (F.col("standing") == int(Standing.AUTHORITATIVE)) & (F.col("session") != 0)
    )
    # What travels is one number for each request and one for its answer; only requests that seem
    # to have different ones are looked at as a whole.
    request = F.xxhash64("group", "session", "request", "count")
    answer = F.xxhash64("position", "digest")
    suspects = (
        answers.select(request.alias("request"), answer.alias("answer"))
        .groupBy("request")
        .agg(F.min("answer").alias("one"), F.max("answer").alias("other"))
        .where("one <> other")
        .limit(VIOLATIONS_MAX)
    )
    suspected = [row["request"] for row in suspects.toArrow().to_pylist()]
    if not suspected:
        return
    place = F.struct("replica", "incarnation", "sequence")
    twice = (
        answers.where(request.isin(suspected))
        .groupBy("group", "session", "request", "count")
        .agg(
            F.count_distinct("position", "digest").alias("different"),
            F.min("position").alias("position"),
            F.sort_array(F.collect_set("position")).alias("positions"),
            F.slice(F.collect_set(place), 1, 10).alias("rows"),
        )
        .where("different > 1")
        .limit(VIOLATIONS_MAX)
    )
    for row in twice.toArrow().to_pylist():
        found[row["group"]].violate(
            check,
            f"request {row['request']} of session {row['session']} was answered in "
            f"{row['different']} ways, from positions {row['positions'][:5]}",
            position=row["position"],
            rows=[(each["replica"], each["incarnation"], each["sequence"]) for each in row["rows"]],
        )


def _verdicts(testimony: Testimony, results: Results) -> Iterator[dict[str, Any]]:
    for check in CHECKS.values():
        count = results.counts.get(check.name, Count())
        verdict, remark = _verdict(testimony, check.name, count)
        if verdict == "kept" and check.name == "linearizability" and not results.extents:
            remark = "answers only: no request says when it was made"
        yield {
            "group": testimony.group,
            "check": check.name,
            "paper": check.paper,
            "promise": check.promise,
            "verdict": verdict,
            "checked": count.checked,
            "violations": count.found,
            "remark": remark,
        }


def _verdict(testimony: Testimony, name: str, count: Count) -> tuple[str, str]:
    if count.found:
        return "broken", ""
    if count.undecided:
        return "undecided", f"{count.remark} ({count.undecided} rows)"
    if count.checked:
        return "kept", ""
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
