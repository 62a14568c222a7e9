"""The history of groups of cohorts as tables: `forced` has events, `transactions` how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from coterie.pipeline.cohort_history import cohort_groups
from coterie.pipeline.schemas import FORCED, TRANSACTIONS
from coterie.pipeline.tasks import for_each
from coterie.pipeline.transactions import Ledger, tabulate_events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from coterie.pipeline.lake import Lake

FORCED_FOLDER, TRANSACTIONS_FOLDER = "forced", "transactions"


def forced_events(spark: SparkSession, lake: Lake) -> DataFrame:
    """Give every event of every group of cohorts once, with its standing, in order."""

    def work(group: str) -> Iterator[pa.RecordBatch]:
        yield from tabulate_events(lake, group)

    return for_each(spark, cohort_groups(lake), work, FORCED)


def transactions(spark: SparkSession, lake: Lake) -> DataFrame:
    """Give every transaction once, with how it ended: one task, since they span groups."""

    def work(groups: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        yield Ledger(lake, groups).rows()

    return for_each(spark, [tuple(cohort_groups(lake))], work, TRANSACTIONS)


def count_outcomes(out: Path) -> dict[str, dict[str, int]]:
    """Count how the transactions of each coordinator ended, from the table of a run before."""
    counted: dict[str, dict[str, int]] = {}
    folder = out / TRANSACTIONS_FOLDER
    if folder.is_dir():
        table = pq.read_table(folder, columns=["coordinator", "outcome"])
        for row in (
            table.group_by(["coordinator", "outcome"]).aggregate([([], "count_all")]).to_pylist()
        ):
            counted.setdefault(row["coordinator"], {})[row["outcome"]] = row["count_all"]
    return counted
