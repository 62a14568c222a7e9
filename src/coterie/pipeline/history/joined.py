"""Promises on answers as joins, aggregates and windows over tables: what Spark's own engine sees.

    replies, history = lake.read(spark, "replies"), spark.read.parquet("results/tables/history")
    answered_apart(replies).show()
    not_authoritative(replies, history).explain()

They need the tables of a run and nothing of ours besides, so an auditor can ask in any session for
what the checks of a run looked for, and join on. A run itself compares columns range by range
(`coterie.pipeline.history.range_checks`), in the task that has the range at hand anyway: as a join,
the same answers are read, hashed and sent once more. `coterie bench pipeline` measures both.

They say what the tables say. A run also knows what is not in them, because journals are damaged or
still growing, and calls undecided what these only find.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

from coterie.kernel.engine import FINAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REQUEST = ("group_name", "session", "request", "count")


def answered_apart(replies: DataFrame) -> DataFrame:
    """Give the requests with final answers of which one names another place, or another result.

    *Exactly once*, as far as answers tell: a row for each request, with the places that were named.
    """
    places = F.array_sort(F.collect_set("position")).alias("positions")
    ways = F.count_distinct("position", "digest").alias("ways")
    asked = _final(replies).where("session <> 0")
    return asked.groupBy(*_REQUEST).agg(ways, places).where("ways > 1")


def not_authoritative(replies: DataFrame, history: DataFrame) -> DataFrame:
    """Give the final answers that do not speak of the authoritative entry at their place.

    *Acknowledged means authoritative*: rows of `replies`.
    """
    kept = history.where("standing = 'authoritative'").select("group_name", "position", "stamp")
    told = _final(replies).where("position > 0")
    return told.join(kept, ["group_name", "position", "stamp"], "left_anti")


def asked_too_late(replies: DataFrame, clock_bound_micros: int) -> DataFrame:
    """Give the places that were asked for after something behind them had been answered.

    *Linearizability* in real time, as far as answers tell: a row for each place, with when it was
    asked for and the earliest answer to anything behind it, in microseconds.
    """
    # From the end on: Spark adds up what came before a row, but goes through all that follows it
    # again for each row.
    behind = (
        Window.partitionBy("group_name")
        .orderBy(F.desc("position"))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        _final(replies)
        .where("position > 0")
        .groupBy("group_name", "position")
        .agg(
            F.max(F.unix_micros("asked_at")).alias("asked"),
            F.min(F.unix_micros("recorded_at")).alias("answered"),
        )
        .withColumn("answered_behind", F.min("answered").over(behind))
        .where(F.col("asked") - clock_bound_micros > F.col("answered_behind"))
        .drop("answered")
    )


def _final(replies: DataFrame) -> DataFrame:
    """Give the answers that claim to be authoritative."""
    return replies.where(F.col("standing").bitwiseAND(FINAL) != 0)
