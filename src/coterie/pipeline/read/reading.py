"""Reading one segment into tables, whatever state it is in.

What can be read is read; what cannot is a row of `findings`, with its place and reason. Besides
what the journal's own reader finds, two more things are found here, because the plan tells what
surrounds the segment: records that are missing between this segment and the next, and records that
contradict what the replica remembered when it began the segment.

Whether a segment continues the one before it needs the digests of both, so that is left to
`coterie.pipeline.lake.findings`, which compares rows of `segments`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from coterie.journal import FileDisk, Finding, JournalDamaged, Kind, SegmentReader, Turn
from coterie.journal.engines import memory_for
from coterie.journal.format import HARMLESS
from coterie.pipeline.read.columns import RowsMaker
from coterie.pipeline.read.content import digest_of
from coterie.pipeline.read.planning import NO_LIMIT
from coterie.pipeline.read.rows import view_row
from coterie.pipeline.read.tables import journal_tables, make_maker, tables_of_records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow as pa

    from coterie.journal.facts import Facts, Memory
    from coterie.pipeline.engines.family import Maker
    from coterie.pipeline.read.planning import SegmentTask

BATCH_ROWS = 1 << 16
_LOSES_NOTHING = HARMLESS | {Kind.TORN_TAIL, Kind.CONTRADICTION, Kind.MISSING}
"""Findings in spite of which what was read is what the replica wrote."""


def read_segment(
    task: SegmentTask,
    tables: Collection[str] | None = None,
    *,
    strict: bool = False,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Give the rows of one segment in batches, each with the name of its table.

    A *strict* reading raises `JournalDamaged` at the first finding that is not harmless.
    """
    reading = _Reading(task, journal_tables() if tables is None else tables, strict=strict)
    for item in reading.items():
        reading.take(item)
        for table, maker in reading.makers.items():
            if len(maker) >= batch_rows:
                yield table, maker.take()
    for table, maker in reading.makers.items():
        if len(maker):
            yield table, maker.take()


class _Reading:
    """One pass over one segment."""

    def __init__(self, task: SegmentTask, tables: Collection[str], *, strict: bool) -> None:
        self._task = task
        self._strict = strict
        self._records = 0
        self._facts: Facts | None = None
        self._memory: Memory | None = None
        self._is_damaged = False
        self.makers: dict[str, Maker] = {
            table: make_maker(table, task.group, task.replica, task.incarnation)
            for table in sorted(tables)
        }
        self._of_kind = {
            kind: self.makers[table]
            for kind, table in tables_of_records().items()
            if table in self.makers
        }

    def items(self) -> Iterator[Turn | Finding]:
        """Give turns and findings in their order."""
        task = self._task
        disk = FileDisk(task.root)
        reader = SegmentReader(disk, task.file)
        limit = None if task.last_valid == NO_LIMIT else task.last_valid
        if task.absent_life:
            yield Finding(
                kind=Kind.REMOVED if task.is_life_removed else Kind.MISSING,
                path=task.path,
                offset=0,
                reason=f"life {task.absent_life}, from which this one went on, is not there",
                incarnation=task.absent_life,
                first=1,
                last=task.absent_up_to,
            )
        if task.is_first and task.first > 1:
            yield self._absent(1, task.first - 1, "the first segments of the life are not there")
        try:
            problem = reader.open()
        except OSError as error:
            yield self._unreadable(reader, error)
            return
        if problem is not None:
            if task.is_over or task.following:
                yield self._about_head(reader, problem)
            return
        self._facts = reader.head.facts
        for item in self._turns(reader, limit):
            if isinstance(item, Finding) and item.kind is Kind.TORN_TAIL and task.following:
                # Something went on from it, so it was whole once.
                yield replace(item, kind=Kind.DAMAGED, last=task.following - 1)
            else:
                yield item
        if not reader.is_stuck:
            yield from self._about_end(reader.expected, limit)
        self._describe(reader)

    def take(self, item: Turn | Finding) -> None:
        """Make rows of a turn or a finding."""
        if isinstance(item, Finding):
            self._find(item)
            return
        sequence = item.first
        for record in item.records:
            maker = self._of_kind.get(type(record))
            if maker is not None:
                maker.add(record, sequence)
            sequence += 1
        self._records += len(item.records)
        self._follow(item)

    # ---- inside

    def _follow(self, turn: Turn) -> None:
        """Let the memory follow; say what in the turn contradicts it."""
        if self._facts is None:
            return
        memory = self._memory = self._memory or memory_for(self._facts, turn.records)
        if memory is None:
            return
        memory.place = (turn.incarnation, turn.first)
        memory.apply(turn.records)
        for sentence in memory.contradictions:
            self._find(
                Finding(
                    kind=Kind.CONTRADICTION,
                    path=turn.path,
                    offset=turn.offset,
                    reason=sentence,
                    incarnation=turn.incarnation,
                    first=turn.first,
                    last=turn.last,
                )
            )
        memory.contradictions.clear()

    def _find(self, finding: Finding) -> None:
        if finding.kind not in _LOSES_NOTHING and finding.path == self._task.path:
            self._is_damaged = True
        if finding.kind not in HARMLESS and finding.kind is not Kind.CONTRADICTION:
            # What comes behind a gap may speak of what was lost there.
            self._facts = self._memory = None
        if self._strict and finding.kind not in HARMLESS:
            raise JournalDamaged(finding)
        maker = self.makers.get("findings")
        if isinstance(maker, RowsMaker):
            maker.add_row(
                {
                    "incarnation": finding.incarnation or self._task.incarnation,
                    "path": finding.path,
                    "byte_offset": finding.offset,
                    "kind": finding.kind.value,
                    "reason": finding.reason,
                    "first": finding.first,
                    "last": finding.last,
                }
            )

    def _about_head(self, reader: SegmentReader, problem: Finding) -> Finding:
        task = self._task
        if problem.kind is Kind.DAMAGED and not task.following and not reader.has_blocks():
            # The crash came while the segment was begun: no turn was ever in it.
            return replace(problem, kind=Kind.TORN_TAIL, first=task.first)
        return replace(problem, first=task.first, last=max(task.following - 1, 0))

    def _about_end(self, expected: int, limit: int | None) -> Iterator[Finding]:
        task = self._task
        if task.following:
            if expected < task.following and (limit is None or expected <= limit):
                yield self._absent(
                    expected, task.following - 1, "the segments after it are not there"
                )
        elif limit is not None and expected <= limit:
            yield self._absent(expected, limit, "the segments after it are not there")

    def _turns(self, reader: SegmentReader, limit: int | None) -> Iterator[Turn | Finding]:
        """Give the turns of a segment, also where the file system gives only some of them."""
        task = self._task
        try:
            yield from reader.turns(limit=limit, is_over=task.is_over or task.following > 0)
        except OSError as error:
            yield self._unreadable(reader, error)

    def _unreadable(self, reader: SegmentReader, error: OSError) -> Finding:
        """Say that the file system does not give what is there."""
        reader.is_stuck = True
        return Finding(
            kind=Kind.UNREADABLE,
            path=self._task.path,
            offset=reader.offset,
            reason=f"it cannot be read: {error.strerror}",
            incarnation=self._task.incarnation,
            first=reader.expected,
            last=max(self._task.following - 1, 0),
        )

    def _absent(self, first: int, last: int, reason: str) -> Finding:
        is_removed = any(start <= first and last <= end for start, end in self._task.removed)
        return Finding(
            kind=Kind.REMOVED if is_removed else Kind.MISSING,
            path=self._task.path,
            offset=0,
            reason=reason,
            incarnation=self._task.incarnation,
            first=first,
            last=last,
        )

    def _describe(self, reader: SegmentReader) -> None:
        """Make the row of `segments`."""
        maker = self.makers.get("segments")
        if not isinstance(maker, RowsMaker):
            return
        task, head, facts = self._task, reader.head, reader.head.facts
        row: dict[str, Any] = {
            "first": task.first,
            "last": reader.expected - 1,
            "path": task.path,
            "bytes": task.bytes,
            "records": self._records,
            "last_valid": task.last_valid,
            "is_over": task.is_over,
            "is_whole": reader.is_whole,
            "follows_incarnation": head.follows.incarnation,
            "follows_sequence": head.follows.sequence,
            "follows_digest": head.follows.digest,
            "digest": reader.digest(),
            "sync": head.sync.value,
            "boot_id": head.boot_id,
            "version": view_row(facts.version.view),
            "version_position": facts.version.position,
            "settled": facts.settled,
            "is_zombie": facts.is_zombie,
            "is_altered": False,
            "files": [],
        }
        row["read"], row["content"] = self._remember(reader)
        maker.add_row(row)

    def _remember(self, reader: SegmentReader) -> tuple[int, bytes | None]:
        """Give how much was read, and its digest; nothing of a segment that may be mended."""
        if self._is_damaged:
            return 0, None
        task = self._task
        read = min(reader.offset, task.bytes) if reader.is_stuck else task.bytes
        if not (task.is_over or task.following):
            read = reader.offset
        return read, digest_of(Path(task.root) / task.path, read)
