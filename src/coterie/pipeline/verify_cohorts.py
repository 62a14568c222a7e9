"""Verifying groups of cohorts: one task a group, and one for the transactions over all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from coterie.pipeline.checks import COHORT_CHECKS
from coterie.pipeline.cohort_checks import check_cohorts
from coterie.pipeline.cohort_history import cohort_groups
from coterie.pipeline.results import RESULTS, Count, Results, gather, verdict_row
from coterie.pipeline.tasks import for_each
from coterie.pipeline.transaction_checks import check_transactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from coterie.pipeline.lake import Lake

Row = dict[str, Any]


class Item(NamedTuple):
    """What one task checks: one group, or the transactions over several."""

    groups: tuple[str, ...]
    is_across: bool


def check_item(item: Item, lake: Lake) -> list[Results]:
    """Run the checks of one task."""
    if item.is_across:
        return check_transactions(lake, item.groups)
    return [check_cohorts(lake, group) for group in item.groups]


def items_of(lake: Lake) -> list[Item]:
    """Give all that is to be checked; what takes longest comes first."""
    groups = cohort_groups(lake)
    if not groups:
        return []
    return [
        Item(tuple(groups), is_across=True),
        *(Item((group,), is_across=False) for group in groups),
    ]


def verify_cohorts(spark: SparkSession, lake: Lake) -> dict[str, Results]:
    """Check every promise of all groups of cohorts; give what was found, by group."""
    items = items_of(lake)
    if not items:
        return {}

    def work(item: Item) -> Iterator[pa.RecordBatch]:
        for results in check_item(item, lake):
            yield results.batch()

    return gather(for_each(spark, items, work, RESULTS).toArrow().to_pylist())


def verify_cohorts_alone(lake: Lake) -> dict[str, Results]:
    """Do the same in this process."""
    return gather(
        row
        for item in items_of(lake)
        for results in check_item(item, lake)
        for row in results.batch().to_pylist()
    )


def verdicts_of(found: dict[str, Results]) -> Iterator[Row]:
    """Give a verdict on every promise to every group."""
    for group in sorted(found):
        for check in COHORT_CHECKS.values():
            count = found[group].counts.get(check.name, Count())
            verdict, remark = _verdict(count)
            yield verdict_row(group, check, count, verdict, remark)


def _verdict(count: Count) -> tuple[str, str]:
    if count.found:
        return "broken", ""
    if count.undecided:
        return "undecided", f"{count.remark} ({count.undecided} rows)"
    return ("kept", "") if count.checked else ("not checked", "no record speaks of it")
