"""Sealing: turning segments into Parquet, once, off the hot path.

One task reads one segment, decodes it once and writes its rows to files that no other task
touches, each under a draft's name first. The segment's row of `segments` is written last and lists
them; so a task that is killed at any moment leaves a segment that is sealed or one that is not,
and running the job again gives what one run would have given. Segments that have not changed since
they were sealed are left alone.

A segment that has grown, or whose end has become void because the next life went on before it, is
sealed again in place. What retention has since removed from a journal stays in the lake.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.pipeline.lake import DRAFT, Lake
from coterie.pipeline.planning import plan
from coterie.pipeline.reading import read_segment
from coterie.pipeline.schemas import JOURNAL_TABLES, POSITIONED, SEGMENTS
from coterie.pipeline.tasks import for_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from coterie.pipeline.planning import SegmentTask

_ROWS = 1 << 17
"""Rows that a task gathers before it writes."""
_DICTIONARIES = [
    *("group", "replica", "incarnation", "sequence", "at", "event", "standing", "session"),
    *("view.number", "view.proposer", "view.incarnation", "origin.id", "origin.incarnation"),
]
"""Columns with few different values; dictionaries for the others only cost time."""
_MIXED = ("stamp", "fingerprint")
"""Columns that look like chance, so that trying to compress them only costs time."""


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
    known = {
        (row["group"], row["replica"], row["incarnation"], row["first"]): row
        for row in lake.segments()
        .select(["group", "replica", "incarnation", "first", "bytes", "limit", "is_over"])
        .to_pylist()
    }
    stale = [task for task in plan(roots, growing=growing) if not _is_sealed(task, known)]
    if stale:

        def work(task: SegmentTask) -> Iterator[pa.RecordBatch]:
            yield seal_segment(task, lake, strict=strict)

        for_each(spark, stale, work, SEGMENTS).count()
    sweep(lake)
    return len(stale)


def _is_sealed(
    task: SegmentTask, known: dict[tuple[str, str, int, int], dict[str, object]]
) -> bool:
    row = known.get((task.group, task.replica, task.incarnation, task.first))
    return row is not None and (row["bytes"], row["limit"], row["is_over"]) == (
        task.bytes,
        task.limit,
        task.is_over,
    )


def seal_segment(task: SegmentTask, lake: Lake, *, strict: bool = False) -> pa.RecordBatch:
    """Write all rows of one segment; give its row of `segments`, which is written last."""
    files = _Files(task, lake)
    try:
        described = None
        for table, batch in read_segment(task, strict=strict, batch_rows=_ROWS):
            if table == "segments":
                described = batch
            elif table in POSITIONED:
                files.write_by_range(table, batch)
            else:
                files.write(table, None, batch)
        names = files.finish()
    finally:
        files.abandon()
    row = {"path": task.path, "bytes": task.bytes, "limit": task.limit, "is_over": task.is_over}
    row |= {"group": task.group, "replica": task.replica, "incarnation": task.incarnation}
    row |= {"first": task.first, "last": task.first - 1, "records": 0, "is_whole": False}
    if described is not None:
        [row] = described.to_pylist()
    batch = pa.RecordBatch.from_pylist([{**row, "files": names}], schema=SEGMENTS)
    mark = lake.path(lake.file("segments", task.group, task.name))
    _write_whole(mark, pa.Table.from_batches([batch]))
    return batch


def sweep(lake: Lake) -> int:
    """Remove files that no row of `segments` lists; give how many there were.

    Not to be called while the lake is being sealed by someone else.
    """
    listed = {name for names in lake.segments()["files"].to_pylist() for name in names}
    root = Path(lake.root)
    gone = 0
    for path in lake.files():
        name = str(path.relative_to(root))
        is_mark = name.startswith("segments/") and not path.name.startswith(DRAFT)
        if name not in listed and not is_mark:
            path.unlink()
            gone += 1
    return gone


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
            path = _draft_of(self._lake.path(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            is_large = table in POSITIONED
            writer = self._writers[name] = pq.ParquetWriter(
                path,
                JOURNAL_TABLES[table],
                compression=_compression(JOURNAL_TABLES[table]) if is_large else "zstd",
                use_dictionary=_DICTIONARIES if is_large else True,
            )
        writer.write_batch(batch)

    def finish(self) -> list[str]:
        """Give the files their names; tell these."""
        for name, writer in self._writers.items():
            writer.close()
            path = self._lake.path(name)
            _draft_of(path).rename(path)
        names = sorted(self._writers)
        self._writers = {}
        return names

    def abandon(self) -> None:
        """Remove what is not finished."""
        for name, writer in self._writers.items():
            writer.close()
            _draft_of(self._lake.path(name)).unlink(missing_ok=True)


def _compression(schema: pa.Schema) -> dict[str, str]:
    """Say how each column is compressed."""
    names = [
        f"{field.name}.{part.name}" if pa.types.is_struct(field.type) else field.name
        for field in schema
        for part in (field.type if pa.types.is_struct(field.type) else [field])
    ]
    return dict.fromkeys(names, "zstd") | dict.fromkeys(_MIXED, "none")


def _draft_of(path: Path) -> Path:
    return path.with_name(f"{DRAFT}{path.name}")


def _write_whole(path: Path, table: pa.Table) -> None:
    """Write a small file: whatever happens, it is the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft_of(path)
    pq.write_table(table, draft, compression="zstd")
    draft.rename(path)
