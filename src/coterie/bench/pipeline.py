"""`coterie bench pipeline`: how many rows a second Spark ingests, rebuilds, checks and follows.

Rows are entries and replies in the journals of five replicas, counted in all of them together. For
each size: *ingest* seals journals into a lake, *rebuild* gives the whole history, *verify* runs all
checks, *follow* streams from the journals into tables of Parquet: into those of a lake, as
`coterie pipeline follow` does, and entries alone into the sink that Spark brings. *majority* is one
check alone (which entries a majority has, by position): over the ranges of the lake as *rebuild*
begins, and the same in DuckDB over the same files, if it is installed. *rebuild*, Spark's own sink
and *majority* are counted by entries, the rest by all rows.
"""

from __future__ import annotations

import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.figures import Figure, Target
from coterie.bench.machine import Others, describe_machine, family_seconds
from coterie.bench.pages import (
    busy_note,
    comma_separated,
    figures_table,
    machine_words,
    troubles_note,
    write_forms,
)
from coterie.bench.plots import new_figure, plot_rates
from coterie.bench.rows import GROUP, NAMES, write_journals
from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from coterie.pipeline.lake import Lake

TARGETS = {"ingest": 1e6, "verify": 3e6, "follow": 0.5e6}
"""Rows a second on two cores (design section 8)."""
TARGET_ROWS_MIN = 10_000_000
"""Below, what Spark needs to begin a job is most of the time."""
WARM_UP_ROWS = 20_000
BUDGET_SECONDS = 1500.0
"""No size is begun that, by what the last one took, would end later than this after the start."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    sizes: tuple[int, ...] = (1_000_000, 2_000_000, 10_000_000, 50_000_000)
    budget_seconds: float = BUDGET_SECONDS


QUICK = Plan(sizes=(100_000, 200_000))


class Report(msgspec.Struct, kw_only=True):
    """Everything that was measured."""

    machine: dict[str, str | int]
    plan: Plan
    spark: str
    rival: str
    """The release of DuckDB beside us; nothing if it is not installed."""
    figures: list[Figure] = []
    troubles: list[str] = []
    busy_cores: float = 0.0


def measure(plan: Plan, progress: Callable[[str], None], folder: Path | None = None) -> Report:
    """Measure all sizes, one after the other; journals and tables are removed after each."""
    if find_spec("pyspark") is None:
        raise CoterieError("this benchmark needs Spark: pip install 'coterie[pipeline]'")
    from coterie.pipeline.session import make_session  # noqa: PLC0415 -- slow to import

    report = Report(
        machine=describe_machine(),
        plan=plan,
        spark=version("pyspark"),
        rival=_version("duckdb"),
    )
    others = Others()
    began = time.monotonic()
    spark = make_session()
    try:
        progress("starting Spark")
        _warm_up(spark, report, folder)
        last = 0.0
        for index, size in enumerate(plan.sizes):
            grows = size / plan.sizes[index - 1] if index else 1.0
            if time.monotonic() - began + last * grows > plan.budget_seconds:
                report.troubles.append(f"{size:,} rows were left out: they would take too long")
                continue
            started = time.monotonic()
            progress(f"{size:,} rows")
            with tempfile.TemporaryDirectory(prefix="coterie-bench-", dir=folder) as place:
                _measure_size(spark, size, Path(place), report, progress)
            last = time.monotonic() - started
    finally:
        spark.stop()
    report.figures += _growth(report.figures)
    report.busy_cores = others.busy_cores()
    return report


def _warm_up(spark: SparkSession, report: Report, folder: Path | None) -> None:
    """Do everything once with few rows: how Spark starts is not ours to measure."""
    forgotten = Report(machine={}, plan=report.plan, spark=report.spark, rival=report.rival)
    with tempfile.TemporaryDirectory(prefix="coterie-bench-", dir=folder) as place:
        _measure_size(spark, WARM_UP_ROWS, Path(place), forgotten, lambda _: None)


def _measure_size(
    spark: SparkSession, size: int, place: Path, report: Report, progress: Callable[[str], None]
) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 -- slow to import

    from coterie.pipeline.lake import Lake  # noqa: PLC0415
    from coterie.pipeline.reconstruct import history  # noqa: PLC0415
    from coterie.pipeline.sealing import seal  # noqa: PLC0415
    from coterie.pipeline.verify import verify  # noqa: PLC0415

    journals = place / "journals"
    written = write_journals(journals, size)
    lake = Lake.make(place / "lake")

    def timed(section: str, what: str, rows: int, work: Callable[[], object]) -> None:
        began, cpu_began = time.perf_counter(), family_seconds()
        try:
            work()
        except PySparkException as error:
            told = str(error).partition("\n")[0]
            report.troubles.append(f"{section}, {what}, {size:,} rows: {told}")
            return
        took, cpu = time.perf_counter() - began, family_seconds() - cpu_began
        target = TARGETS.get(section) if size >= TARGET_ROWS_MIN else None
        figure = Figure(
            section=section,
            what=f"{what}, {size:,} rows",
            replicas=len(NAMES),
            value=rows / took,
            unit="/s",
            cpu_us=1e6 * cpu / rows,
            target=None if target is None else Target(target),
        )
        report.figures.append(figure)
        progress(str(figure))

    def check() -> None:
        broken = [row for row in verify(spark, lake).verdicts if row["verdict"] == "broken"]
        if broken:
            report.troubles.append(f"{size:,} rows: a promise seems broken: {broken[0]['check']}")

    entries = written.entries
    timed("ingest", "journals into a lake", written.rows, lambda: seal(spark, [journals], lake))
    timed("rebuild", "the whole history", entries, lambda: _consume(history(spark, lake)))
    timed("verify", "all checks", written.rows, check)
    timed("follow", "into the lake", written.rows, lambda: _follow(spark, journals, place))
    timed("follow", "into Spark's own sink", entries, lambda: _stream(spark, journals, place))
    counts: dict[str, int] = {}
    timed("majority", "ranges, numpy", entries, lambda: counts.update(ours=_majority(spark, lake)))
    if report.rival:
        timed("majority", "DuckDB", entries, lambda: counts.update(rival=_in_duckdb(lake)))
    if len(set(counts.values())) > 1:
        report.troubles.append(f"{size:,} rows: the counts differ: {counts}")


def _consume(frame: object) -> None:
    frame.write.format("noop").mode("overwrite").save()  # type: ignore[attr-defined]


def _follow(spark: SparkSession, journals: Path, place: Path) -> None:
    """Do what `coterie pipeline follow` does, as far as the tables of the lake."""
    from coterie.pipeline.follow import follow  # noqa: PLC0415 -- slow to import

    follow(spark, [journals], place / "followed", jobs=("seal",), once=True)


def _stream(spark: SparkSession, journals: Path, place: Path) -> None:
    entries = spark.readStream.format("coterie").option("table", "entries").load(str(journals))
    writer = entries.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    writer.start(str(place / "table")).awaitTermination()


def _majority(spark: SparkSession, lake: Lake) -> int:
    """Count the entries that a majority has, one task a range, without a shuffle."""
    import pyarrow as pa  # noqa: PLC0415 -- slow to import

    from coterie.pipeline.judging import Standing, judge  # noqa: PLC0415
    from coterie.pipeline.ranges import EntryFiles, Range, ranges_of  # noqa: PLC0415
    from coterie.pipeline.tasks import for_each  # noqa: PLC0415
    from coterie.pipeline.witnesses import testimony_of  # noqa: PLC0415

    testimony = testimony_of(lake, GROUP)
    schema = pa.schema([("count", pa.int64())])

    def work(task: Range) -> object:
        rows = EntryFiles(task.entries, testimony).rows
        judgement = judge(rows, testimony, task.start, task.width)
        count = int((judgement.standings == Standing.AUTHORITATIVE).sum())
        yield pa.RecordBatch.from_pylist([{"count": count}], schema)

    counted = for_each(spark, ranges_of(lake, [GROUP]), work, schema)  # type: ignore[arg-type]
    return sum(row["count"] for row in counted.toArrow().to_pylist())


def _in_duckdb(lake: Lake) -> int:
    """Count the same in DuckDB, over the same files."""
    import duckdb  # noqa: PLC0415 -- only where it is installed

    files = str(lake.path("entries") / GROUP / "*" / "*.parquet")
    query = """
        select count(*) from (
            select position, fingerprint from read_parquet(?)
            group by position, fingerprint having count(distinct replica) >= ?
        )
    """
    with duckdb.connect() as connection:
        [(count,)] = connection.execute(query, [files, len(NAMES) // 2 + 1]).fetchall()
    return int(count)


def _growth(figures: list[Figure]) -> list[Figure]:
    """Say how the cost grows when rows double, from the smallest size to the largest."""
    grown: list[Figure] = []
    series: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for figure in figures:
        what, _, rows = figure.what.rpartition(", ")
        size = int(rows.removesuffix(" rows").replace(",", ""))
        series.setdefault((figure.section, what), []).append((size, size / figure.value))
    for (section, what), costs in series.items():
        (few, short), (many, long) = costs[0], costs[-1]
        if many > few:
            factor = 2 ** (log2(long / short) / log2(many / few))
            about = f"{what}, cost when rows double"
            grown.append(Figure(section=section, what=about, value=factor, unit="x"))
    return grown


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


# ---- the report


def setting(report: Report) -> str:
    """Say on what and how it was measured, in one paragraph."""
    rival = f"DuckDB {report.rival}" if report.rival else "DuckDB is not installed"
    return (
        f"{machine_words(report.machine)}. Spark {report.spark}, local[*]; {rival}. Rows are "
        f"entries and replies in the journals of {len(NAMES)} replicas together."
        f"{busy_note(report.machine, report.busy_cores)}{troubles_note(report.troubles)}"
    )


def tables(report: Report) -> str:
    """Give all results as text, for a terminal and as Markdown."""
    return figures_table(report.figures)


def write_files(report: Report, folder: Path, *, plot: bool) -> list[Path]:
    """Write all forms of the report, and give the files."""
    page = (
        "# Pipeline: ingest, rebuild, verify, follow\n\n"
        f"{setting(report)}\n\n{tables(report)}\n\n{(__doc__ or '').partition('.')[2].strip()}\n"
    )

    def draw(path: Path) -> None:
        rates = [figure for figure in report.figures if figure.unit == "/s"]
        drawing = new_figure(8, 0.4 * len(rates) + 1)
        plot_rates(drawing.subplots(), rates, "Rows a second on Spark")
        drawing.savefig(path, dpi=120)

    return write_forms(
        "pipeline",
        report,
        folder,
        rows=comma_separated(report.figures),
        page=page,
        draw=draw if plot else None,
    )
