"""The jobs of the pipeline: thin, in one order, each leaving its result in a folder.

    <out>/lake/                     the journals as tables (`seal`)
    <out>/history/                  every entry once, with its standing (`history`)
    <out>/forced/, transactions/    the same for cohorts: events, and how transactions ended
    <out>/verdicts/, violations/    what was promised, and whether it was kept (`verify`)
    <out>/events/                   executed updates, where the class is known (`events`)
    <out>/report.html, figures.json, figures/    (`report`)

A result replaces the one of an earlier run: it is written beside it, and renamed. One run at a time
may work on a folder; the claim on it ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.journal import FileDisk, list_journals
from coterie.kernel.errors import CoterieError
from coterie.pipeline.cohort_history import cohort_groups
from coterie.pipeline.events import write_events
from coterie.pipeline.findings import findings_of
from coterie.pipeline.lake import Lake
from coterie.pipeline.planning import NoJournals
from coterie.pipeline.problems import problems_of
from coterie.pipeline.reconstruct import history
from coterie.pipeline.report import write_report
from coterie.pipeline.sealing import seal
from coterie.pipeline.transaction_tables import (
    FORCED_FOLDER,
    TRANSACTIONS_FOLDER,
    count_outcomes,
    forced_events,
    transactions,
)
from coterie.pipeline.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from coterie.pipeline.replay import Program

JOBS = ("seal", "history", "verify", "events", "report")
LOCK = "_lock"
_DEPTH = 4
"""How many folders below the one named journals are looked for."""


@dataclass(slots=True)
class Outcome:
    """What a run of the pipeline found."""

    out: Path
    groups: list[str] = field(default_factory=list)
    segments: int = 0
    standings: dict[str, int] = field(default_factory=dict)
    transactions: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many transactions of each coordinating group ended how."""
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    violations: list[dict[str, Any]] = field(default_factory=list)
    findings: int = 0
    problems: list[str] = field(default_factory=list)
    """What is wrong with the journals, in sentences: verdicts speak only of what was read."""
    events: int = 0
    report: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def is_kept(self) -> bool:
        """Whether no promise was found broken."""
        return not self.violations

    @property
    def is_whole(self) -> bool:
        """Whether all journals were there and could be read."""
        return not self.problems


class ResultsTaken(CoterieError):
    """Another run works on the same results."""


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Have a folder of results to oneself; it is made if need be."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsTaken(
                f"another run works on {out}: let it end, or name another folder with --out"
            ) from None
        yield


def find_journals(folders: Sequence[str | Path]) -> list[str]:
    """Give the folders that hold journals, at or a little below those named."""
    found: dict[str, None] = {}
    for folder in folders:
        place = Path(folder)
        if not place.is_dir():
            raise NoJournals(f"{folder} is no folder: name one with journals in it, or below it")
        roots = _roots_below(place, _DEPTH)
        if not roots:
            raise NoJournals(
                f"there is no journal in {folder}: a journal is a folder <group>/<replica> with "
                "numbered lives in it, as replicas write it into their dir"
            )
        found.update(dict.fromkeys(roots))
    return list(found)


def _roots_below(folder: Path, depth: int) -> list[str]:
    if list_journals(FileDisk(folder)):
        return [str(folder)]
    if not depth:
        return []
    inner = sorted(each for each in folder.iterdir() if each.is_dir())
    return [root for each in inner for root in _roots_below(each, depth - 1)]


def run_pipeline(  # noqa: PLR0913 -- all by name
    spark: SparkSession,
    folders: Sequence[str | Path],
    out: Path,
    *,
    jobs: Sequence[str] = JOBS,
    programs: Mapping[str, Program] | None = None,
    growing: bool = False,
    strict: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Run jobs, in their order, over the journals in *folders*; results go below *out*."""
    roots = find_journals(folders)
    out.mkdir(parents=True, exist_ok=True)
    lake = Lake.make(out / "lake")
    outcome = Outcome(out)
    unwritten: list[str] = []
    for job in (each for each in JOBS if each in jobs):
        progress(job)
        began = time.perf_counter()
        match job:
            case "seal":
                outcome.segments = seal(spark, roots, lake, growing=growing, strict=strict)
            case "history":
                outcome.standings = _write_history(spark, lake, out)
            case "verify":
                _write_verdicts(spark, lake, roots, outcome, programs)
            case "events":
                outcome.events, unwritten = write_events(
                    spark, lake, out / "events", programs or {}
                )
            case "report":
                outcome.problems = [*problems_of(lake), *unwritten]
                _recall(spark, outcome)
                outcome.report = write_report(spark, lake, outcome)
        outcome.seconds[job] = time.perf_counter() - began
    outcome.groups = lake.groups()
    outcome.transactions = count_outcomes(out)
    outcome.problems = [*problems_of(lake), *unwritten]
    outcome.findings = sum(len(findings_of(lake, group)) for group in outcome.groups)
    return outcome


def _write_history(spark: SparkSession, lake: Lake, out: Path) -> dict[str, int]:
    replace_table(history(spark, lake), out / "history")
    if cohort_groups(lake):
        replace_table(forced_events(spark, lake), out / FORCED_FOLDER)
        replace_table(transactions(spark, lake), out / TRANSACTIONS_FOLDER)
    return _count_standings(spark, out)


def _write_verdicts(
    spark: SparkSession,
    lake: Lake,
    roots: Sequence[str],
    outcome: Outcome,
    programs: Mapping[str, Program] | None,
) -> None:
    verification = verify(spark, lake, programs=programs, roots=roots)
    verdicts, violations = verification.tables(spark)
    replace_table(verdicts, outcome.out / "verdicts")
    replace_table(violations, outcome.out / "violations")
    outcome.verdicts = verification.verdicts
    outcome.violations = verification.violations


def _recall(spark: SparkSession, outcome: Outcome) -> None:
    """Take what an earlier run found, where this one did not look again."""
    if not outcome.verdicts and (outcome.out / "verdicts").exists():
        for name in ("verdicts", "violations"):
            rows = spark.read.parquet(str(outcome.out / name)).collect()
            setattr(outcome, name, [row.asDict(recursive=True) for row in rows])
    if not outcome.standings and (outcome.out / "history").exists():
        outcome.standings = _count_standings(spark, outcome.out)


def _count_standings(spark: SparkSession, out: Path) -> dict[str, int]:
    counted = spark.read.parquet(str(out / "history")).groupBy("standing").count().collect()
    return {row["standing"]: row["count"] for row in counted}


def replace_table(frame: DataFrame, folder: Path) -> None:
    """Write a table in the place of an earlier one; whoever reads meanwhile may read again."""
    draft = folder.with_name(f"_draft-{folder.name}")
    old = folder.with_name(f"_old-{folder.name}")
    for left in (draft, old):
        shutil.rmtree(left, ignore_errors=True)
    frame.write.parquet(str(draft))
    if folder.exists():
        folder.rename(old)
    draft.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
