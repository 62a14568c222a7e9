"""`coterie bench pipeline`: how many rows a second Spark ingests, rebuilds, checks and follows.

Rows are entries and replies in the journals of five replicas, counted in all of them together. For
each size: *ingest* seals journals into a lake, *rebuild* writes the whole history, *verify* runs
all checks, *judge* does both at once, as `coterie pipeline run` does, *follow* streams from the
journals into tables of Parquet: into those of a lake, then with history and all checks, as
`coterie pipeline follow` does, and entries alone into the sink that Spark brings. *majority* is one
check alone (which entries a majority has, by position): over the ranges of the lake as *rebuild*
begins, and the same in DuckDB over the same files, if it is installed. *answers* is what clients
were told (exactly once, acknowledged, real time), counted by answers: in tasks that have a range at
hand, judging it included, and by Spark's own joins, aggregates and windows over a history that is
there already. *rebuild*, Spark's own sink and *majority* are counted by entries, the rest by all
rows.

*groups* is a whole run, from the journals to the report, over many groups of 600 rows each, counted
by groups; *transactions* rebuilds and checks those of two groups of cohorts, counted by them.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.harness.figures import Figure, Target
from coterie.bench.harness.machine import Others, describe_machine, family_seconds
from coterie.bench.harness.plots import new_figure, plot_rates
from coterie.bench.harness.tables import (
    busy_note,
    comma_separated,
    figures_table,
    machine_words,
    troubles_note,
    write_forms,
)
from coterie.bench.workloads.journals import GROUP, NAMES, write_journals
from coterie.bench.workloads.transactions import write_transactions
from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from coterie.pipeline.history.verify import Verification
    from coterie.pipeline.lake.lake import Lake

TARGETS = {"ingest": 1e6, "verify": 3e6, "follow": 0.5e6}
"""Rows a second on two cores (design section 8)."""
TARGET_GROUPS = 200 / 30
TARGET_TRANSACTIONS = 50e3
"""Transactions a second on two cores; the other is groups a second, from journals to report."""
GROUP_ROWS = 600
TARGET_ROWS_MIN = 10_000_000
"""Below, what Spark needs to begin a job is most of the time."""
WARM_UP_ROWS = 20_000
WARM_UP_GROUPS = 8
WARM_UP_TRANSACTIONS = 2_000
BUDGET_SECONDS = 1500.0
"""No size is begun that, by what the last one took, would end later than this after the start."""


class PipelinePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure of the pipeline."""

    sizes: tuple[int, ...] = (1_000_000, 2_000_000, 10_000_000, 50_000_000)
    groups: int = 200
    transactions: int = 200_000
    budget_seconds: float = BUDGET_SECONDS


QUICK = PipelinePlan(sizes=(100_000, 200_000), groups=20, transactions=10_000)


class PipelineReport(msgspec.Struct, kw_only=True):
    """Everything that was measured."""

    machine: dict[str, str | int]
    plan: PipelinePlan
    spark: str
    duckdb: str
    """The release of DuckDB beside us; nothing if it is not installed."""
    figures: list[Figure] = []
    troubles: list[str] = []
    busy_cores: float = 0.0


def measure(
    plan: PipelinePlan, progress: Callable[[str], None], folder: Path | None = None
) -> PipelineReport:
    """Measure all sizes, one after the other; journals and tables are removed after each."""
    if find_spec("pyspark") is None:
        raise CoterieError("this benchmark needs Spark: pip install 'coterie[pipeline]'")
    from coterie.pipeline.spark.session import make_session  # noqa: PLC0415 -- slow to import

    report = PipelineReport(
        machine=describe_machine(),
        plan=plan,
        spark=version("pyspark"),
        duckdb=_version("duckdb"),
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
        report.figures += _growth(report.figures)
        for part in (_measure_groups, _measure_transactions):
            with tempfile.TemporaryDirectory(prefix="coterie-bench-", dir=folder) as place:
                part(spark, Path(place), report, progress)
    finally:
        spark.stop()
    report.busy_cores = others.busy_cores()
    return report


def _warm_up(spark: SparkSession, report: PipelineReport, folder: Path | None) -> None:
    """Do everything once with few rows: how Spark starts is not ours to measure."""
    forgotten = PipelineReport(
        machine={},
        plan=PipelinePlan(groups=WARM_UP_GROUPS, transactions=WARM_UP_TRANSACTIONS),
        spark=report.spark,
        duckdb=report.duckdb,
    )

    parts = (
        partial(_measure_size, spark, WARM_UP_ROWS),
        partial(_measure_groups, spark),
        partial(_measure_transactions, spark),
    )
    for part in parts:
        with tempfile.TemporaryDirectory(prefix="coterie-bench-", dir=folder) as place:
            part(Path(place), forgotten, lambda _: None)


def _measure_size(
    spark: SparkSession,
    size: int,
    place: Path,
    report: PipelineReport,
    progress: Callable[[str], None],
) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 -- slow to import

    from coterie.pipeline.history.verify import verify  # noqa: PLC0415
    from coterie.pipeline.lake.lake import Lake  # noqa: PLC0415
    from coterie.pipeline.lake.sealing import seal  # noqa: PLC0415

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

    def check(verification: Verification) -> None:
        broken = [row for row in verification.verdicts if row["verdict"] == "broken"]
        if broken:
            report.troubles.append(
                f"{size:,} rows: a promise seems broken: {broken[0]['check_name']}"
            )

    entries = written.entries
    timed("ingest", "journals into a lake", written.rows, lambda: seal(spark, [journals], lake))
    timed(
        "rebuild",
        "the whole history",
        entries,
        lambda: _judge(spark, lake, place, has_checks=False),
    )
    timed("verify", "all checks", written.rows, lambda: check(verify(spark, lake)))
    both = lambda: check(_judge(spark, lake, place, has_checks=True))  # noqa: E731 -- as the others
    timed("judge", "both at once", written.rows, both)
    timed("follow", "into the lake", written.rows, lambda: _follow(spark, journals, place))
    timed(
        "follow",
        "into the lake, history and checks",
        written.rows,
        lambda: _follow(spark, journals, place, ("seal", "history", "verify")),
    )
    timed("follow", "into Spark's own sink", entries, lambda: _stream(spark, journals, place))
    counts: dict[str, int] = {}
    timed("majority", "ranges, numpy", entries, lambda: counts.update(ours=_majority(spark, lake)))
    if report.duckdb:
        timed("majority", "DuckDB", entries, lambda: counts.update(duckdb=_in_duckdb(lake)))
    if len(set(counts.values())) > 1:
        report.troubles.append(f"{size:,} rows: the counts differ: {counts}")
    found: list[int] = []
    timed("answers", "ranges, numpy", written.replies, lambda: found.append(_compared(spark, lake)))
    with _history(spark, lake, place) as history:
        timed(
            "answers",
            "joins, over the history",
            written.replies,
            lambda: found.append(_joined(spark, lake, history)),
        )
    if any(found):
        report.troubles.append(f"{size:,} rows: a promise on answers seems broken: {found}")


def _judge(spark: SparkSession, lake: Lake, place: Path, *, has_checks: bool) -> Verification:
    """Write the whole history; with checks, do all that `coterie pipeline run` does in one pass."""
    from coterie.pipeline.engines.family import Wanted  # noqa: PLC0415 -- slow to import
    from coterie.pipeline.history.verify import CLOCK_BOUND, judge  # noqa: PLC0415

    with tempfile.TemporaryDirectory(dir=place) as folder:
        wanted = Wanted(
            f"{folder}/scratch",
            tables=f"{folder}/tables",
            has_checks=has_checks,
            clock_bound=CLOCK_BOUND,
        )
        return judge(spark, lake, wanted)


def _follow(
    spark: SparkSession, journals: Path, place: Path, jobs: tuple[str, ...] = ("seal",)
) -> None:
    """Do what `coterie pipeline follow` does, as far as some jobs."""
    from coterie.pipeline.follow import follow  # noqa: PLC0415 -- slow to import

    follow(spark, [journals], place / f"followed-{len(jobs)}", jobs=jobs, once=True)


def _measure_groups(
    spark: SparkSession, place: Path, report: PipelineReport, progress: Callable[[str], None]
) -> None:
    """Measure a whole run over many small groups."""
    from coterie.pipeline.jobs import run_pipeline  # noqa: PLC0415 -- slow to import

    count = report.plan.groups
    for number in range(count):
        write_journals(place / "journals", GROUP_ROWS, f"group-{number}")
    began, cpu_began = time.perf_counter(), family_seconds()
    outcome = run_pipeline(spark, [place / "journals"], place / "out")
    took, cpu = time.perf_counter() - began, family_seconds() - cpu_began
    if not outcome.is_kept:
        report.troubles.append(f"{count:,} groups: a promise seems broken")
    figure = Figure(
        section="groups",
        what=f"journals to report, {count:,} groups of {GROUP_ROWS} rows",
        replicas=len(NAMES),
        value=count / took,
        unit="/s",
        cpu_us=1e6 * cpu / count,
        target=Target(TARGET_GROUPS),
    )
    report.figures.append(figure)
    progress(str(figure))


def _measure_transactions(
    spark: SparkSession, place: Path, report: PipelineReport, progress: Callable[[str], None]
) -> None:
    """Measure how transactions over two groups are followed and checked."""
    from coterie.pipeline.lake.lake import Lake  # noqa: PLC0415 -- slow to import
    from coterie.pipeline.lake.sealing import seal  # noqa: PLC0415

    count = report.plan.transactions
    write_transactions(place / "journals", count)
    lake = Lake.make(place / "lake")
    seal(spark, [place / "journals"], lake)
    began, cpu_began = time.perf_counter(), family_seconds()
    verification = _judge(spark, lake, place, has_checks=True)
    took, cpu = time.perf_counter() - began, family_seconds() - cpu_began
    if not verification.is_kept:
        report.troubles.append(f"{count:,} transactions: a promise seems broken")
    figure = Figure(
        section="transactions",
        what=f"history and all checks, {count:,} transactions",
        value=count / took,
        unit="/s",
        cpu_us=1e6 * cpu / count,
        target=Target(TARGET_TRANSACTIONS),
    )
    report.figures.append(figure)
    progress(str(figure))


def _stream(spark: SparkSession, journals: Path, place: Path) -> None:
    entries = spark.readStream.format("coterie").option("table", "entries").load(str(journals))
    writer = entries.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    writer.start(str(place / "table")).awaitTermination()


def _majority(spark: SparkSession, lake: Lake) -> int:
    """Count the entries that a majority has, one task a range, without a shuffle."""
    import pyarrow as pa  # noqa: PLC0415 -- slow to import

    from coterie.pipeline.history.gathering import testimony_of  # noqa: PLC0415
    from coterie.pipeline.history.judging import EntryStanding, judge  # noqa: PLC0415
    from coterie.pipeline.lake.ranges import EntryFiles, Range, ranges_of  # noqa: PLC0415
    from coterie.pipeline.spark.tasks import for_each  # noqa: PLC0415

    testimony = testimony_of(lake, GROUP)
    schema = pa.schema([("count", pa.int64())])

    def work(task: Range) -> object:
        rows = EntryFiles(task.entries, testimony).rows
        judgement = judge(rows, testimony, task.start, task.width)
        count = int((judgement.standings == EntryStanding.AUTHORITATIVE).sum())
        yield pa.RecordBatch.from_pylist([{"count": count}], schema)

    counted = for_each(spark, ranges_of(lake, [GROUP]), work, schema)  # type: ignore[arg-type]
    return sum(row["count"] for row in counted.toArrow().to_pylist())


@contextmanager
def _history(spark: SparkSession, lake: Lake, place: Path) -> Iterator[DataFrame]:
    """Have the history as a table."""
    from coterie.pipeline.engines.family import Wanted  # noqa: PLC0415 -- slow to import
    from coterie.pipeline.history.verify import judge  # noqa: PLC0415

    with tempfile.TemporaryDirectory(dir=place) as folder:
        judge(spark, lake, Wanted(f"{folder}/scratch", tables=folder, has_checks=False))
        yield spark.read.parquet(f"{folder}/history")


def _compared(spark: SparkSession, lake: Lake) -> int:
    """Check what clients were told as a run does: judging included, as it is at hand only then."""
    from coterie.pipeline.history import range_checks  # noqa: PLC0415 -- slow to import
    from coterie.pipeline.history.answers import answered, check_answered  # noqa: PLC0415
    from coterie.pipeline.history.gathering import testimony_of  # noqa: PLC0415
    from coterie.pipeline.history.results import RESULTS, Results  # noqa: PLC0415
    from coterie.pipeline.history.verify import CLOCK_BOUND  # noqa: PLC0415
    from coterie.pipeline.lake.ranges import Range, ranges_of  # noqa: PLC0415
    from coterie.pipeline.spark.tasks import for_each  # noqa: PLC0415

    testimony = testimony_of(lake, GROUP)

    def work(task: object) -> object:
        if isinstance(task, Range):
            results, facts = Results(GROUP), range_checks.RangeFacts(task, testimony)
            range_checks.acknowledged(facts, results)
            range_checks.real_time(facts, results, CLOCK_BOUND)
            yield results.batch()
        else:
            yield check_answered(task).batch()  # type: ignore[arg-type]

    tasks = [*ranges_of(lake, [GROUP]), *answered(lake, GROUP)]
    rows = for_each(spark, tasks, work, RESULTS).toArrow().to_pylist()  # type: ignore[arg-type]
    return sum(row["evidence"] is not None for row in rows)


def _joined(spark: SparkSession, lake: Lake, history: DataFrame) -> int:
    """Check the same by joins, aggregates and a window over tables."""
    from coterie.pipeline.history import joined  # noqa: PLC0415 -- slow to import
    from coterie.pipeline.history.verify import CLOCK_BOUND  # noqa: PLC0415

    replies = lake.read(spark, "replies")
    found = [
        joined.answered_apart(replies),
        joined.not_authoritative(replies, history),
        joined.asked_too_late(replies, int(CLOCK_BOUND)),
    ]
    return sum(each.count() for each in found)


def _in_duckdb(lake: Lake) -> int:
    """Count in DuckDB what a majority has, over the files of our own ranges."""
    import duckdb  # noqa: PLC0415 -- only where it is installed

    files = str(lake.path("entries") / f"group_name={GROUP}" / "*" / "*.parquet")
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


def setting(report: PipelineReport) -> str:
    """Say on what and how it was measured, in one paragraph."""
    duckdb = f"DuckDB {report.duckdb}" if report.duckdb else "DuckDB is not installed"
    return (
        f"{machine_words(report.machine)}. Spark {report.spark}, local[*]; {duckdb}. Rows are "
        f"entries and replies in the journals of {len(NAMES)} replicas together."
        f"{busy_note(report.machine, report.busy_cores)}{troubles_note(report.troubles)}"
    )


def tables(report: PipelineReport) -> str:
    """Give all results as text, for a terminal and as Markdown."""
    return figures_table(report.figures)


def write_files(report: PipelineReport, folder: Path, *, plot: bool) -> list[Path]:
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
