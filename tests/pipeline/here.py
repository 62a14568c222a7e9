"""Running the pipeline's tasks in the test's own process: what Spark would run, without Spark."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coterie.pipeline.engines.family import Wanted
from coterie.pipeline.history.replay import Program
from coterie.pipeline.history.results import Results
from coterie.pipeline.history.verify import CLOCK_BOUND, Verification, judge_alone
from coterie.pipeline.jobs import JUDGED, JobOutcome, judge_and_publish, say_what_is_wrong
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.lake.problems import wrong_with
from coterie.pipeline.lake.sealing import seal_alone, seal_surveyed
from coterie.pipeline.read.places import look_for_journals
from coterie.pipeline.read.planning import survey
from coterie.pipeline.read.schemas import as_numbers
from coterie.pipeline.read.tables import schema_of

Row = dict[str, Any]

RECORDED = Path(__file__).parent / "recorded"
"""Journals that no engine writes again as they are, because it runs their seeds differently now."""


def recorded_journals(name: str, into: Path) -> Path:
    with tarfile.open(RECORDED / f"{name}.tar.xz") as archive:
        archive.extractall(into, filter="data")
    return into


def seal_here(journals: Path, folder: Path, *, width: int = 100, growing: bool = False) -> Lake:
    lake = Lake.make(folder, width=width)
    seal_alone([journals], lake, growing=growing)
    return lake


def judge_here(
    journals: Path, folder: Path, *, growing: bool = False, verify_sources: bool = False
) -> JobOutcome:
    """What a run of the pipeline comes to."""
    roots, unread = look_for_journals([journals])
    lake = Lake.make(folder, width=100)
    looked = survey(roots, growing=growing)
    sealed = seal_surveyed(None, looked, lake, verify_sources=verify_sources)
    outcome = JobOutcome(folder, groups=lake.groups(), segments=sealed.segments)
    with TemporaryDirectory() as scratch:
        found = judge_alone(lake, Wanted(scratch, clock_bound=CLOCK_BOUND))
    outcome.verdicts, outcome.violations = found.verdicts, found.violations
    say_what_is_wrong(outcome, wrong_with(lake), unread, sealed.bad_files)
    return outcome


def publish_here(
    journals: Path, out: Path, programs: Mapping[str, Program] | None = None, *, width: int = 100
) -> JobOutcome:
    """All tables of a run."""
    lake = seal_here(journals, out / "lake", width=width)
    outcome = JobOutcome(out, groups=lake.groups())
    judge_and_publish(None, lake, [str(journals)], outcome, JUDGED, programs or {})
    return outcome


def history_here(lake: Lake) -> list[Row]:
    return tables_here(lake, "history")


def tables_here(lake: Lake, table: str) -> list[Row]:
    """The rows of a table in which families give the history."""
    with TemporaryDirectory() as folder:
        wanted = Wanted(f"{folder}/scratch", tables=f"{folder}/tables", has_checks=False)
        judge_alone(lake, wanted)
        place = Path(folder) / "tables" / table
        rows: list[Row] = as_numbers(pq.read_table(place)).to_pylist() if place.exists() else []
    return rows


def verify_here(
    lake: Lake, programs: Mapping[str, Program] | None = None, clock_bound: int = CLOCK_BOUND
) -> dict[str, Results]:
    """All checks but the one that needs a shuffle."""
    with TemporaryDirectory() as folder:
        wanted = Wanted(folder, programs=programs or {}, clock_bound=clock_bound)
        return judge_alone(lake, wanted).found


def judge_lake(lake: Lake) -> Verification:
    """The verdicts on all groups of a lake."""
    with TemporaryDirectory() as folder:
        return judge_alone(lake, Wanted(folder, clock_bound=CLOCK_BOUND))


def broken(lake: Lake, programs: Mapping[str, Program] | None = None) -> set[str]:
    """The names of all checks that fire."""
    return {
        check
        for results in verify_here(lake, programs).values()
        for check, count in results.counts.items()
        if count.found
    }


def edit(lake: Lake, table: str, change: Callable[[Row], Row | None]) -> int:
    """Change the rows of a table; one for which None is given is dropped. Counts the changes."""
    changed = 0
    for path in sorted(lake.path(table).rglob("*.parquet")):
        rows = lake.read_file(path, schema_of(table)).to_pylist()
        edited = [change(dict(row)) for row in rows]
        if edited != rows:
            changed += sum(one != other for one, other in zip(rows, edited, strict=True))
            kept = [row for row in edited if row is not None]
            made = pa.Table.from_pylist(kept, schema=schema_of(table))
            lake.write_whole(str(path.relative_to(lake.root)), made)
    return changed
