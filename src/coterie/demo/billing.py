"""The bills of the demo, made on Spark from the journals, and the proof that they are right."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 -- as everybody calls it

from coterie.demo.story import DemoFailed
from coterie.objects import HostSettings
from coterie.pipeline.history.replay import Program
from coterie.pipeline.publish.events import read_events
from coterie.pipeline.publish.manifest import table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from coterie.demo.story import Told
    from coterie.pipeline.jobs import JobOutcome

CENTS_PER_MINUTE = 9
SETTINGS = HostSettings(digest_interval=100, dump_interval=500)
"""The settings that the replicas of the demo run with."""


class Bill(NamedTuple):
    """What one account owes."""

    account: str
    calls: int
    seconds: int
    cents: int


def programs(told: Told) -> dict[str, Program]:
    """Say which class the group ran."""
    return {told.group: Program(name="coterie.demo.phone:Exchange", settings=SETTINGS)}


def call_records(spark: SparkSession, outcome: JobOutcome) -> DataFrame:
    """Give the calls that were recorded, from the application events."""
    words = F.from_json("arguments", "array<string>")
    return (
        read_events(spark, table_of(outcome.out, "events"))
        .where("method = 'record' and error is null")
        .select(
            words[0].alias("account"),
            words[1].alias("call"),
            words[2].cast("long").alias("seconds"),
            "position",
        )
    )


def bill(calls: DataFrame) -> list[Bill]:
    """Bill every account, by the minute begun."""
    minutes = F.ceil(F.col("seconds") / 60)
    rows = (
        calls.groupBy("account")
        .agg(
            F.count("*").alias("calls"),
            F.sum("seconds").alias("seconds"),
            F.sum(minutes * CENTS_PER_MINUTE).alias("cents"),
        )
        .orderBy("account")
        .collect()
    )
    return [Bill(row["account"], row["calls"], row["seconds"], row["cents"]) for row in rows]


def prove(told: Told, outcome: JobOutcome, calls: DataFrame) -> list[str]:
    """Check what the demo promises; give it in words, or raise `DemoFailed`."""
    if not outcome.is_kept:
        broken = ", ".join(sorted({row["check_name"] for row in outcome.violations}))
        raise DemoFailed(f"promises were broken: {broken}; see {outcome.report}")
    times: dict[str, int] = {}
    for row in calls.groupBy("call").count().collect():
        times[row["call"]] = row["count"]
    twice = sorted(call for call, count in times.items() if count > 1)
    if twice:
        raise DemoFailed(f"billed twice: {', '.join(twice[:5])}")
    lost = [each.name for each in told.heard.confirmed if each.name not in times]
    if lost:
        raise DemoFailed(f"confirmed by a majority and not billed: {', '.join(lost[:5])}")
    allowed = {
        each.name for each in (*told.heard.confirmed, *told.heard.unconfirmed, *told.heard.unknown)
    }
    foreign = sorted(call for call in times if call not in allowed)
    if foreign:
        raise DemoFailed(f"billed although nobody called: {', '.join(foreign[:5])}")
    rolled_back = outcome.standings.get("rolled back", 0)
    if not rolled_back:
        raise DemoFailed("the journals show no entry that was rolled back")
    void = [each.name for each in told.heard.unconfirmed if each.name not in times]
    if not void:
        raise DemoFailed("no call that was answered too early is void: run it again")
    kept = [row for row in outcome.verdicts if row["verdict"].startswith("kept")]
    hasty = len(told.heard.unconfirmed)
    return [
        f"{len(told.heard.confirmed)} calls were confirmed, and each is billed exactly once",
        f"{rolled_back} entries were rolled back, and none of them is billed",
        f"{hasty} calls were answered too early and given up; {len(void)} are on no bill",
        f"{len(kept)} promises were checked against the journals of all replicas, and kept",
    ]
