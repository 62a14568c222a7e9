"""The jobs of the pipeline: thin, in one order, each leaving its result in a folder.

    <out>/lake/             the journals as tables (`seal`)
    <out>/tables/           one version of all that follows from them (`publish.manifest`):
        history/                 every entry once, with its standing (`history`)
        forced/, transactions/   the same for cohorts: events, and how transactions ended
        verdicts/, violations/   what was promised, and whether it was kept (`verify`)
        events/, states/         executed updates, and states, where the class is known (`events`)
        update_<class>_<method>/ the same updates with typed columns (`publish.typed`)
    <out>/views.sql         all of these as views
    <out>/report.html, figures.json, figures/    (`report`)

Tables replace those of an earlier run all at once. One run at a time may work on a folder; the
claim on it ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coterie.journal.disk import FileDisk
from coterie.journal.segments import list_journals, list_lives
from coterie.kernel.errors import CoterieError
from coterie.pipeline.engines import families, families_of
from coterie.pipeline.engines.family import Wanted
from coterie.pipeline.history.decided import code_digest
from coterie.pipeline.history.verify import CLOCK_BOUND, judge, judge_alone
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.lake.problems import Wrong, wrong_with
from coterie.pipeline.lake.remembered import BadFile, check_files
from coterie.pipeline.lake.sealing import seal_surveyed
from coterie.pipeline.outcomes import Basis, Outcome, outcome_of
from coterie.pipeline.publish.manifest import Draft, read_rows, table_of
from coterie.pipeline.publish.report import write_report
from coterie.pipeline.publish.typed import PREFIX
from coterie.pipeline.publish.views import write_views
from coterie.pipeline.read.places import look_for_journals
from coterie.pipeline.read.planning import survey
from coterie.pipeline.read.schemas import EVENTS, STATES, VERDICTS, VIOLATIONS
from coterie.pipeline.read.seals import tampering_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from coterie.journal.keyed import SealKey
    from coterie.pipeline.history.replay import Program

JOBS = ("seal", "history", "verify", "events", "report")
JUDGED = ("history", "verify", "events")
"""Those that come of judging every range once: what is wanted of them is done together."""
LOCK = "_lock"


@dataclass(slots=True)
class JobOutcome:
    """What a run of the pipeline found."""

    out: Path
    groups: list[str] = field(default_factory=list)
    segments: int = 0
    standings: dict[str, int] = field(default_factory=dict)
    transactions: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many transactions of each coordinating group ended how."""
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    violations: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    """All that is wrong with the journals, or should be said of them, as rows of `findings`."""
    problems: list[str] = field(default_factory=list)
    """What is wrong with the journals, in sentences: verdicts speak only of what was read."""
    tampered: list[str] = field(default_factory=list)
    """What nobody who has the seal key wrote, in sentences; nothing where no key was given."""
    unproven: list[str] = field(default_factory=list)
    """What was written without the seal key, in sentences."""
    unwritten: list[str] = field(default_factory=list)
    """Which events could not be written, in sentences."""
    events: int = 0
    report: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def is_kept(self) -> bool:
        """Whether no promise was found broken, and nobody has tampered with the journals."""
        return not self.violations and not self.tampered

    @property
    def is_whole(self) -> bool:
        """Whether all journals were there, could be read, and are what replicas wrote."""
        return not self.problems and not self.tampered

    @property
    def outcome(self) -> Outcome:
        """What came of the run, in a word."""
        return outcome_of(self.verdicts, self.violations, is_whole=self.is_whole)

    def told(self) -> dict[str, Any]:
        """Give all of it as plain values, as `--json` prints it."""
        return {
            "outcome": str(self.outcome),
            "out": str(self.out),
            "groups": self.groups,
            "basis": {
                group: {**asdict(basis), "told": str(basis)} for group, basis in self.bases.items()
            },
            "segments": self.segments,
            "standings": self.standings,
            "transactions": self.transactions,
            "verdicts": self.verdicts,
            "violations": self.violations,
            "findings": self.findings,
            "problems": self.problems,
            "tampered": self.tampered,
            "events": self.events,
            "report": str(self.report) if self.report else None,
            "seconds": self.seconds,
        }

    @property
    def bases(self) -> dict[str, Basis]:
        """What the verdicts on each group rest on."""
        return {
            row["group_name"]: Basis(**{name: row[name] for name in Basis.__dataclass_fields__})
            for row in self.verdicts
        }


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


def run_pipeline(  # noqa: PLR0913 -- all by name
    spark: SparkSession,
    folders: Sequence[str | Path],
    out: Path,
    *,
    jobs: Sequence[str] = JOBS,
    programs: Mapping[str, Program] | None = None,
    growing: bool = False,
    quiet_seconds: float = 0.0,
    strict: bool = False,
    seal_key: SealKey | None = None,
    verify_sources: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> JobOutcome:
    """Run jobs, in their order, over the journals in *folders*; results go below *out*.

    With a *seal_key* it is told what in the journals was tampered with. Raises `LakeDamaged` if the
    lake of earlier runs cannot be used any more.
    """
    roots, unread = look_for_journals(folders)
    out.mkdir(parents=True, exist_ok=True)
    lake = Lake.make(out / "lake")
    outcome = JobOutcome(out)
    bad_files: list[BadFile] = []
    wrong: Wrong | None = None
    if seal_key is not None:
        outcome.tampered, outcome.unproven = tampering_in(roots, seal_key)
    for step in _steps(jobs):
        progress(step)
        began = time.perf_counter()
        match step:
            case "seal":
                looked = survey(roots, growing=growing, quiet_seconds=quiet_seconds)
                sealed = seal_surveyed(
                    spark, looked, lake, strict=strict, verify_sources=verify_sources
                )
                outcome.segments, bad_files = sealed.segments, sealed.bad_files
            case "report":
                wrong = wrong or wrong_with(lake, spark)
                say_what_is_wrong(outcome, wrong, unread, bad_files)
                _recall(spark, outcome)
                outcome.report = write_report(spark, lake, outcome)
            case _:
                asked = step.split("+")
                judge_and_publish(spark, lake, roots, outcome, asked, programs or {})
        outcome.seconds[step] = time.perf_counter() - began
    if "seal" not in jobs:
        bad_files = list(check_files(lake, has_content=verify_sources))
    outcome.groups = lake.groups()
    outcome.transactions = outcomes_of(out)
    say_what_is_wrong(outcome, wrong or wrong_with(lake, spark), unread, bad_files)
    outcome.problems += without_a_segment(roots)
    return outcome


def without_a_segment(roots: Sequence[str]) -> list[str]:
    """Name the journals that have lives and nothing in any of them: no promise is kept by those."""
    return [
        f"{root}: the journal of {replica!r} of group {group!r} has lives, and no segment in them"
        for root in roots
        for disk in [FileDisk(Path(root))]
        for group, replica in list_journals(disk)
        if not any(life.segments for life in list_lives(disk, group, replica))
    ]


def say_what_is_wrong(
    outcome: JobOutcome, wrong: Wrong, unread: list[str], bad_files: list[BadFile]
) -> None:
    """Gather all that is wrong with the journals, with the lake, and with what was written."""
    outcome.findings = wrong.findings
    outcome.problems = [
        *outcome.unproven,
        *unread,
        *wrong.sentences,
        *map(str, bad_files),
        *outcome.unwritten,
    ]


def _steps(jobs: Sequence[str]) -> Iterator[str]:
    """Give what is done one after the other: history, verdicts and events come of one judging."""
    judged = [job for job in JUDGED if job in jobs]
    for job in JOBS:
        if job in judged[:1]:
            yield "+".join(judged)
        elif job in jobs and job not in judged:
            yield job


def judge_and_publish(  # noqa: PLR0913, PLR0917 -- one step of `run_pipeline`
    spark: SparkSession | None,
    lake: Lake,
    roots: Sequence[str],
    outcome: JobOutcome,
    jobs: Sequence[str],
    programs: Mapping[str, Program],
) -> None:
    """Judge every range once, and publish what the jobs ask for; without Spark, in this process."""
    out = outcome.out
    scratch = out / "_scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    draft = Draft(out)
    folder = draft.folder.absolute()
    wanted = Wanted(
        str(scratch.absolute()),
        tables=str(folder) if "history" in jobs else "",
        events=str(folder) if "events" in jobs else "",
        last=draft.last,
        code=code_digest(),
        has_checks="verify" in jobs,
        programs=programs,
        roots=roots,
        clock_bound=CLOCK_BOUND,
    )
    try:
        verification = judge_alone(lake, wanted) if spark is None else judge(spark, lake, wanted)
        if "verify" in jobs:
            draft.add("verdicts", pa.Table.from_pylist(verification.verdicts, VERDICTS))
            draft.add("violations", pa.Table.from_pylist(verification.violations, VIOLATIONS))
        ended = PREFIX if "events" in jobs else ""
        write_views(out, draft.publish(_schemas(lake, jobs), ended=ended))
    finally:
        draft.abandon()
        shutil.rmtree(scratch, ignore_errors=True)
    if "history" in jobs and spark is not None:
        outcome.standings = _count_standings(spark, out)
    found = verification.found.values()
    outcome.events = sum(results.events for results in found)
    outcome.unwritten = [problem for results in found for problem in results.problems]
    if "verify" in jobs:
        outcome.verdicts = verification.verdicts
        outcome.violations = verification.violations


def _schemas(lake: Lake, jobs: Sequence[str]) -> dict[str, pa.Schema]:
    """Give the tables that jobs make, whatever they find."""
    found: dict[str, pa.Schema] = {}
    if "history" in jobs:
        present = {each.name: each for each in families_of(lake).values()}
        for each in {"stack": families()["stack"], **present}.values():
            found |= each.histories
    if "verify" in jobs:
        found |= {"verdicts": VERDICTS, "violations": VIOLATIONS}
    if "events" in jobs:
        found |= {"events": EVENTS, "states": STATES}
    return found


def outcomes_of(out: Path) -> dict[str, dict[str, int]]:
    """Count how transactions of all families ended, from the tables of a run."""
    counted: dict[str, dict[str, int]] = {}
    for each in families().values():
        counted |= each.outcomes(table_of(out, "transactions").parent)
    return counted


def _recall(spark: SparkSession, outcome: JobOutcome) -> None:
    """Take what an earlier run found, where this one did not look again."""
    if not outcome.verdicts:
        outcome.verdicts = read_rows(outcome.out, "verdicts")
        outcome.violations = read_rows(outcome.out, "violations")
    if not outcome.standings and table_of(outcome.out, "history").exists():
        outcome.standings = _count_standings(spark, outcome.out)


def _count_standings(spark: SparkSession, out: Path) -> dict[str, int]:
    history = spark.read.parquet(str(table_of(out, "history").absolute()))
    counted = history.groupBy("standing").count().collect()
    return {row["standing"]: row["count"] for row in counted}
