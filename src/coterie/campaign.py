"""Campaigns: simulation seeds as Spark tasks, so that they can be more than one machine can run.

A task runs one seed after the other (`coterie.simulation.campaign`), and where the engines keep
journals it puts those of all replicas through the pipeline's checks at once, in a lake that lives
as long as the task: what the simulator saw from inside and what the journals tell must both be in
order. Only a row for each seed travels; the journals of seeds that failed are kept.

    <out>/runs/              one row for each seed
    <out>/coverage.parquet   how often each fault came, and in how many runs
    <out>/failed/<seed>/     the journals of a run that broke a promise
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from coterie.pipeline.history.verify import verify_alone
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.lake.sealing import seal_alone
from coterie.pipeline.spark.tasks import PARTS, for_each
from coterie.simulation.campaign import run_seed
from coterie.simulation.engines import family_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from coterie.simulation.campaign import Options, SeedRun

SEEDS_PER_TASK = 16
SAID_MAX = 10
"""How many violations of a seed are written out."""

RUNS = pa.schema(
    [
        ("seed", pa.int64()),
        ("violations", pa.list_(pa.string())),
        ("damage", pa.list_(pa.string())),
        ("faults", pa.list_(pa.struct([("fault", pa.string()), ("count", pa.int64())]))),
        ("checked", pa.int64()),
        ("simulated_us", pa.int64()),
        ("converged_after_us", pa.int64()),
        ("views", pa.int64()),
        ("deliveries", pa.int64()),
        ("frames", pa.int64()),
        ("digest", pa.int64()),
        ("seconds", pa.float64()),
    ]
)
"""What came of each seed; `checked` is how many rows the pipeline's checks looked at."""

COVERAGE = pa.schema([("fault", pa.string()), ("count", pa.int64()), ("runs", pa.int64())])


@dataclass(slots=True)
class Campaign:
    """What came of all seeds."""

    seeds: int
    failed: dict[int, list[str]] = field(default_factory=dict)
    damaged: int = 0
    checked: int = 0
    simulated_seconds: float = 0.0
    seconds: float = 0.0
    coverage: list[dict[str, Any]] = field(default_factory=list)


def run_campaign(
    spark: SparkSession,
    seeds: Sequence[int],
    options: Options,
    out: Path,
    *,
    run: Callable[[int, Any], SeedRun] = run_seed,
) -> Campaign:
    """Run all seeds as tasks; leave the tables below *out*. *run* lets tests put in broken runs."""
    began = time.monotonic()
    failed = str(out / "failed")
    # Runs of a campaign before this one are not failures of this one.
    shutil.rmtree(failed, ignore_errors=True)

    def work(seed: int) -> Iterator[pa.RecordBatch]:
        row = run_and_check(seed, options, Path(failed), run)
        yield pa.RecordBatch.from_pylist([row], RUNS)

    spark.conf.set(PARTS, str(max(1, len(seeds) // SEEDS_PER_TASK)))
    try:
        _replace_table(for_each(spark, seeds, work, RUNS), out / "runs")
    finally:
        spark.conf.unset(PARTS)
    runs = spark.read.parquet(str(out / "runs")).toArrow().to_pylist()
    campaign = _sum_up(runs, options)
    pq.write_table(pa.Table.from_pylist(campaign.coverage, COVERAGE), out / "coverage.parquet")
    campaign.seconds = time.monotonic() - began
    return campaign


def run_and_check(
    seed: int, options: Options, failed: Path, run: Callable[[int, Any], SeedRun] = run_seed
) -> dict[str, Any]:
    """Run one seed, put its journals through the pipeline's checks, and give its row."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="coterie-seed-") as place:
        keeps = family_named(options.family).keeps_journals(options)
        came = run(seed, replace(options, journals=f"{place}/journals" if keeps else ""))
        journals = Path(place) / "journals" / str(seed)
        checked = 0
        if journals.is_dir():
            found, checked = _check(journals, Path(place) / "lake")
            # What an old disk did no promise covers, whoever notices it.
            (came.damage or came.violations).extend(found)
            if came.violations:
                shutil.copytree(journals, failed / str(seed), dirs_exist_ok=True)
    return {
        "seed": seed,
        "violations": came.violations[:SAID_MAX],
        "damage": came.damage[:SAID_MAX],
        "faults": [{"fault": kind, "count": count} for kind, count in came.faults.items()],
        "checked": checked,
        "simulated_us": came.simulated,
        "converged_after_us": came.converged_after,
        "views": came.views,
        "deliveries": came.deliveries,
        "frames": came.frames,
        "digest": came.digest,
        "seconds": time.monotonic() - began,
    }


def _check(journals: Path, folder: Path) -> tuple[list[str], int]:
    """Give what the pipeline finds in the journals of one run, and how many rows it looked at."""
    lake = Lake.make(folder)
    seal_alone([journals], lake)
    found = verify_alone(lake)
    sentences = [
        f"journals: {row['check_name']}: {row['evidence']}"
        for results in found.values()
        for row in results.violations
    ]
    counts = [count for results in found.values() for count in results.counts.values()]
    return sentences, sum(count.checked for count in counts)


def _replace_table(frame: DataFrame, folder: Path) -> None:
    """Write a table in the place of an earlier one."""
    draft = folder.with_name(f"_draft-{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    frame.write.parquet(str(draft))
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)


def _sum_up(runs: list[dict[str, Any]], options: Options) -> Campaign:
    counts: Counter[str] = Counter()
    in_runs: Counter[str] = Counter()
    for row in runs:
        for fault in row["faults"]:
            counts[fault["fault"]] += fault["count"]
            in_runs[fault["fault"]] += 1
    return Campaign(
        seeds=len(runs),
        failed={
            row["seed"]: row["violations"]
            for row in sorted(runs, key=lambda row: row["seed"])
            if row["violations"]
        },
        damaged=sum(bool(row["damage"]) for row in runs),
        checked=sum(row["checked"] for row in runs),
        simulated_seconds=sum(row["simulated_us"] for row in runs) / 1e6,
        # A fault that never came is worth knowing, too.
        coverage=[
            {"fault": kind, "count": counts[kind], "runs": in_runs[kind]}
            for kind in sorted({*options.faults, *counts})
        ],
    )
