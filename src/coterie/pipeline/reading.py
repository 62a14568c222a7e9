"""Reading one segment into tables, whatever state it is in.

What can be read is read; what cannot is a row of `findings`, with its place and reason. Besides
what the journal's own reader finds, two more things are found here, because the plan tells what
surrounds the segment: records that are missing between this segment and the next, and records that
contradict what the replica remembered when it began the segment.

Whether a segment continues the one before it needs the digests of both, so that is left to
`coterie.pipeline.findings`, which compares rows of `segments`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from coterie.journal import FileDisk, Finding, JournalDamaged, Kind, SegmentReader, Turn
from coterie.journal.facts import Memory
from coterie.journal.format import HARMLESS
from coterie.pipeline.columns import TABLE_OF, RowsMaker, make_maker
from coterie.pipeline.planning import NO_LIMIT
from coterie.pipeline.rows import view_row
from coterie.pipeline.schemas import JOURNAL_TABLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow as pa

    from coterie.pipeline.columns import Maker
    from coterie.pipeline.planning import SegmentTask

BATCH_ROWS = 1 << 16
ALL_TABLES = frozenset(JOURNAL_TABLES)


def read_segment(
    task: SegmentTask,
    tables: Collection[str] = ALL_TABLES,
    *,
    strict: bool = False,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Give the rows of one segment in batches, each with the name of its table.

    A *strict* reading raises `JournalDamaged` at the first finding that is not harmless.
    """
    reading = _Reading(task, tables, strict=strict)
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
        self._memory: Memory | None = None
        self.makers: dict[str, Maker] = {
            table: make_maker(table, task.group, task.replica, task.incarnation)
            for table in sorted(tables)
        }
        self._of_kind = {
            kind: self.makers[table] for kind, table in TABLE_OF.items() if table in self.makers
        }

    def items(self) -> Iterator[Turn | Finding]:
        """Give turns and findings in their order."""
        task = self._task
        disk = FileDisk(task.root)
        reader = SegmentReader(disk, task.file)
        limit = None if task.limit == NO_LIMIT else task.limit
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
        problem = reader.open()
        if problem is not None:
            if task.is_over or task.following:
                yield self._about_head(reader, problem)
            return
        self._memory = Memory(reader.head.facts)
        for item in reader.turns(limit=limit, is_over=task.is_over or task.following > 0):
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
                maker.add(record, sequence)  # type: ignore[arg-type]
            sequence += 1
        self._records += len(item.records)
        self._follow(item)

    # ---- inside

    def _follow(self, turn: Turn) -> None:
        """Let the memory follow; say what in the turn contradicts it."""
        memory = self._memory
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
        if finding.kind not in HARMLESS and finding.kind is not Kind.CONTRADICTION:
            # What comes behind a gap may speak of what was lost there.
            self._memory = None
        if self._strict and finding.kind not in HARMLESS:
            raise JournalDamaged(finding)
        maker = self.makers.get("findings")
        if isinstance(maker, RowsMaker):
            maker.add_row(
                {
                    "incarnation": finding.incarnation or self._task.incarnation,
                    "path": finding.path,
                    "offset": finding.offset,
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
            "limit": task.limit,
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
            "files": [],
        }
        maker.add_row(row)
