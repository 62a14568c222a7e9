"""Sealing: turning segments into Parquet, once, off the hot path.

One task reads one segment, decodes it once and writes its rows to files that no other task
touches, each under a draft's name first. The segment's row of `segments` is written last and lists
them, with sizes and digests; so a task that is killed at any moment leaves a segment that is sealed
or one that is not, and running the job again gives what one run would have given. Segments that
have not changed since they were sealed are left alone.

A segment that has grown, or whose end has become void because the next life went on before it, is
sealed again in place. One of which another content was sealed before keeps what was sealed, and is
called altered (`coterie.pipeline.lake.remembered`). What retention has since removed from a journal
stays in the lake.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.journal import Kind
from coterie.journal.disk import sync_place
from coterie.pipeline.lake.kept import kept
from coterie.pipeline.lake.lake import DRAFT, Lake, LakeDamaged, codec_for, draft_of
from coterie.pipeline.lake.remembered import (
    check_files,
    finding,
    gone,
    is_unseen,
    read_seen,
    write_seen,
)
from coterie.pipeline.lake.sources import write_sources
from coterie.pipeline.read.content import digest_of
from coterie.pipeline.read.planning import NO_LIMIT, survey
from coterie.pipeline.read.reading import read_segment
from coterie.pipeline.read.schemas import FINDINGS, GROUP, SEGMENTS, as_numbers, stored
from coterie.pipeline.read.tables import is_positioned, schema_of
from coterie.pipeline.spark.tasks import for_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from coterie.pipeline.lake.remembered import BadFile, Key
    from coterie.pipeline.read.planning import SegmentTask, Survey

Row = dict[str, Any]
_ROWS = 1 << 17
"""Rows that a task gathers before it writes."""
_DICTIONARIES = [
    *("replica", "incarnation", "sequence", "recorded_at", "event", "standing", "session"),
    *("view.number", "view.proposer", "view.incarnation", "origin.id", "origin.incarnation"),
]
"""Columns with few different values; dictionaries for the others only cost time."""
_MIXED = ("stamp", "fingerprint")
"""Columns that look like chance, so that trying to compress them only costs time."""
_FLAGS = ("bytes", "last_valid", "is_over")
"""What a segment is sealed with, beside its content."""


@dataclass(frozen=True, slots=True)
class SealTask:
    """A segment that is new, or may have changed since it was sealed."""

    segment: SegmentTask
    known: Row | None = None
    """Its row of `segments`, if it is sealed."""
    is_bad: bool = False
    """Whether its files in the lake are not as they were written."""


@dataclass(slots=True)
class Sealing:
    """What came of looking at all journals."""

    segments: int
    """How many were sealed, or sealed again."""
    bad_files: list[BadFile]
    """What was wrong with the lake itself."""


def seal(
    spark: SparkSession,
    roots: Sequence[str | Path],
    lake: Lake,
    *,
    growing: bool = False,
    strict: bool = False,
) -> int:
    """Bring the lake up to what the journals hold now; give how many segments were sealed.

    With *strict*, damage stops the job with its finding as the reason.
    """
    return seal_surveyed(spark, survey(roots, growing=growing), lake, strict=strict).segments


def seal_alone(roots: Sequence[str | Path], lake: Lake, *, growing: bool = False) -> int:
    """Do what `seal` does, in this process."""
    return seal_surveyed(None, survey(roots, growing=growing), lake).segments


def seal_surveyed(
    spark: SparkSession | None,
    looked: Survey,
    lake: Lake,
    *,
    strict: bool = False,
    verify_sources: bool = False,
) -> Sealing:
    """Bring the lake up to what the journals hold by a survey; without Spark, in this process.

    With *verify_sources* everything that was ever sealed is read again and compared, and so are the
    lake's own files.
    """
    before = kept(lake)
    bad = list(check_files(before, has_content=verify_sources))
    for each in bad:
        if not each.segment and each.file.startswith("segments/"):
            lake.path(each.file).unlink()  # the segment is sealed anew, if it is there
    known = {_key(row): row for row in before.segments().to_pylist()}
    jobs = list(_stale(looked, lake, known, bad, verify_sources=verify_sources))

    def work(job: SealTask) -> Iterator[pa.RecordBatch]:
        sealed = _refresh(job, lake, strict=strict)
        if sealed is not None:
            yield sealed

    sealed = _run(spark, jobs, work) if jobs else []
    found = [*gone(looked, known), *_unmended(looked, known, bad)]
    known |= {_key(row): row for row in sealed}
    write_sources(before, looked, known.values(), found)
    write_seen(lake, looked.tasks)
    sweep(lake, known.values())
    return Sealing(len(sealed), bad)


_KEY = ("replica", "incarnation", "first")


def _key(row: Row) -> Key:
    return row["group_name"], row["replica"], row["incarnation"], row["first"]


def _stale(
    looked: Survey,
    lake: Lake,
    known: dict[Key, Row],
    bad: list[BadFile],
    *,
    verify_sources: bool = False,
) -> Iterator[SealTask]:
    """Give the segments that are to be read."""
    seen = read_seen(lake)
    broken = {(each.group, each.segment) for each in bad}
    for task in looked.tasks:
        row = known.get((task.group, task.replica, task.incarnation, task.first))
        is_bad = (task.group, task.path) in broken
        if (
            row is None
            or is_bad
            or verify_sources
            or not _is_as_sealed(task, row)
            or is_unseen(task, seen)
        ):
            yield SealTask(task, row, is_bad)


def _is_as_sealed(task: SegmentTask, row: Row) -> bool:
    return not row["is_altered"] and all(row[name] == getattr(task, name) for name in _FLAGS)


def _run(
    spark: SparkSession | None,
    jobs: list[SealTask],
    work: Callable[[SealTask], Iterator[pa.RecordBatch]],
) -> list[Row]:
    """Give the rows of `segments` that were written."""
    if spark is None:
        return [row for job in jobs for batch in work(job) for row in batch.to_pylist()]
    rows: list[Row] = as_numbers(for_each(spark, jobs, work, SEGMENTS).toArrow()).to_pylist()
    return rows


def _unmended(looked: Survey, known: dict[Key, Row], bad: list[BadFile]) -> Iterator[Row]:
    """Give findings for what the lake has lost and the journals no longer have."""
    present = {(task.group, task.path) for task in looked.tasks}
    by_path = {(row["group_name"], row["path"]): row for row in known.values()}
    for each in bad:
        row = by_path.get((each.group, each.segment))
        if row is not None and (each.group, each.segment) not in present:
            reason = (
                f"{each.file} {each.reason}, and the journal does not have the segment any more"
            )
            yield finding(row, reason, Kind.DAMAGED)


# ---- one segment


def _refresh(job: SealTask, lake: Lake, *, strict: bool) -> pa.RecordBatch | None:
    """Seal a segment, unless what is there was sealed already, or something else was."""
    task, known = job.segment, job.known
    if known is None or known["content"] is None:
        return seal_segment(task, lake, strict=strict)
    place = Path(task.root) / task.path
    try:
        is_same = digest_of(place, known["read"]) == known["content"]
    except OSError:
        is_same = False
    if is_same and not job.is_bad and _is_as_sealed(task, known):
        return None
    if is_same or _may_differ(task, known):
        return seal_segment(task, lake, strict=strict)
    return None if known["is_altered"] else _keep(task, lake, known)


def _may_differ(task: SegmentTask, known: Row) -> bool:
    """Say whether a segment may have lost what was read of it: its machine died, unsynced."""
    return not known["is_over"] and task.last_valid != NO_LIMIT


def _keep(task: SegmentTask, lake: Lake, known: Row) -> pa.RecordBatch:
    """Keep what was sealed of a segment that has been altered since, and say so."""
    name = lake.file("findings", task.group, task.name)
    found: list[Row] = []
    if name in known["files"]:
        try:
            found = lake.read_file(lake.path(name), FINDINGS).to_pylist()
        except LakeDamaged:
            found = []
    reason = "it is not what an earlier run sealed: the lake keeps that, and this is not believed"
    found.append(finding(known, reason))
    if task.bytes > known["bytes"]:
        rest = {**known, "first": known["last"] + 1, "last": task.following - 1}
        found.append(finding(rest, "what came after it was altered is not believed", Kind.DAMAGED))
    lake.write_whole(name, pa.Table.from_pylist(found, schema=FINDINGS))
    files = sorted({*known["files"], name})
    return _write_mark(task, lake, {**known, "is_altered": True}, files)


def seal_segment(task: SegmentTask, lake: Lake, *, strict: bool = False) -> pa.RecordBatch:
    """Write all rows of one segment; give its row of `segments`, which is written last."""
    files = _Files(task, lake)
    try:
        described = None
        for table, batch in read_segment(task, strict=strict, batch_rows=_ROWS):
            if table == "segments":
                described = batch
            elif is_positioned(table):
                files.write_by_range(table, batch)
            else:
                files.write(table, None, batch)
        names = files.finish()
    finally:
        files.abandon()
    row: Row = {name: getattr(task, name) for name in ("path", *_FLAGS, *_KEY)}
    row |= {GROUP: task.group, "last": task.first - 1, "records": 0, "is_whole": False}
    if described is not None:
        [row] = described.to_pylist()
    return _write_mark(task, lake, row, names)


def _write_mark(task: SegmentTask, lake: Lake, row: Row, names: list[str]) -> pa.RecordBatch:
    """Write the row that says which files are made from a segment."""
    paths = [lake.path(name) for name in names]
    about = {
        "files": names,
        "sizes": [path.stat().st_size for path in paths],
        "digests": [digest_of(path) for path in paths],
    }
    batch = pa.RecordBatch.from_pylist([{**row, **about}], schema=SEGMENTS)
    mark = lake.file("segments", task.group, task.name)
    lake.write_whole(mark, pa.Table.from_batches([batch]))
    return batch


def sweep(lake: Lake, segments: Iterable[Row]) -> int:
    """Remove files that no row of *segments* lists, which are all there are; give how many.

    Not to be called while the lake is being sealed by someone else.
    """
    listed = {name for row in segments for name in row["files"]}
    root = Path(lake.root)
    swept = 0
    for path in lake.files():
        name = str(path.relative_to(root))
        is_mark = name.startswith("segments/") and not path.name.startswith(DRAFT)
        if name not in listed and not is_mark:
            path.unlink()
            swept += 1
    return swept


class _Files:
    """The files of one segment while they are written."""

    def __init__(self, task: SegmentTask, lake: Lake) -> None:
        self._task = task
        self._lake = lake
        self._writers: dict[str, pq.ParquetWriter] = {}

    def write_by_range(self, table: str, batch: pa.RecordBatch) -> None:
        """Write rows to the ranges that their positions are in."""
        # Rows stand nearly always in the order of their positions, so few cuts suffice.
        ranges = batch.column("position").to_numpy() // self._lake.width
        cuts = np.flatnonzero(np.diff(ranges)) + 1
        starts = [0, *cuts.tolist()]
        for start, end in zip(starts, [*starts[1:], len(ranges)], strict=True):
            self.write(table, int(ranges[start]), batch.slice(start, end - start))

    def write(self, table: str, number: int | None, batch: pa.RecordBatch) -> None:
        """Write rows to one file."""
        name = self._lake.file(table, self._task.group, self._task.name, number)
        writer = self._writers.get(name)
        if writer is None:
            path = draft_of(self._lake.path(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            is_large, schema = is_positioned(table), stored(schema_of(table))
            codec = codec_for(batch)
            writer = self._writers[name] = pq.ParquetWriter(
                path,
                schema,
                compression=_compression(schema, codec) if is_large else codec,
                use_dictionary=_DICTIONARIES if is_large else True,
            )
        writer.write_batch(batch.select(writer.schema.names))

    def finish(self) -> list[str]:
        """Give the files their names; tell these."""
        folders: set[Path] = set()
        for name, writer in self._writers.items():
            writer.close()
            path = self._lake.path(name)
            sync_place(draft_of(path))
            draft_of(path).rename(path)
            folders.add(path.parent)
        for folder in folders:
            sync_place(folder)
        names = sorted(self._writers)
        self._writers = {}
        return names

    def abandon(self) -> None:
        """Remove what is not finished."""
        for name, writer in self._writers.items():
            writer.close()
            draft_of(self._lake.path(name)).unlink(missing_ok=True)


def _compression(schema: pa.Schema, codec: str) -> dict[str, str]:
    """Say how each column is compressed."""
    names = [
        f"{field.name}.{part.name}" if pa.types.is_struct(field.type) else field.name
        for field in schema
        for part in (field.type if pa.types.is_struct(field.type) else [field])
    ]
    return dict.fromkeys(names, codec) | dict.fromkeys(_MIXED, "none")
