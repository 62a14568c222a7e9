"""Following journals that grow: how far they can be read, and what lies between two such places.

A place in all journals is one `Offset` for each of them: life, segment, byte and next record. What
lies between two places is a list of *slices*, one for each segment, and follows from the two
places alone: files only grow at their ends, so the same two places give the same rows for ever.
That is what makes a stream that was interrupted repeat a batch exactly.

Two things follow. How far a segment counts because the next life took over before its end is
looked up only for lives that were over at the later place. And what a replica wrote, and later had
to call void because its machine lost it, may have been given before that was known.

Only the last segment of a journal has to be looked into to learn how far it can be read, and only
its blocks' heads and checksums: nothing is decoded. Where a block is not whole it may be on its
way, and reading stops there until it is, or until the replica goes on elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from coterie.journal import (
    FileDisk,
    Finding,
    JournalDamaged,
    Offset,
    SegmentFile,
    SegmentReader,
    VersionUnknown,
    list_journals,
    list_lives,
)
from coterie.journal.format import (
    BLOCK_HEAD_BYTES,
    HARMLESS,
    decode_block_head,
    read_segment_head,
)
from coterie.journal.reader import follows_of, limits_of
from coterie.pipeline.read.places import NoJournals
from coterie.pipeline.read.planning import NO_LIMIT, survey
from coterie.pipeline.read.tables import make_maker, tables_of_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from coterie.journal import Disk

_CHUNK_BYTES = 1 << 20
_BATCH_ROWS = 1 << 16

Place = dict[str, Offset]
"""How far each journal has been read, by its root, group and replica."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of one segment: from a byte to a record. All plain values."""

    root: str
    group: str
    replica: str
    incarnation: int
    segment: int
    path: str
    byte: int
    sequence: int
    """The record at *byte*; 0 if the slice begins with the segment."""
    last: int
    """The last record of the slice; NO_LIMIT if it goes to the end of the segment."""


def streamed() -> frozenset[str]:
    """Give the tables that can be followed: those of which every row comes from one record."""
    return frozenset(tables_of_records().values())


def place_now(roots: Sequence[str], known: Mapping[str, Offset]) -> Place:
    """Give how far all journals can be read now. *known* is such a place from before."""
    place: Place = {}
    for root in roots:
        if not Path(root).is_dir():
            raise NoJournals(f"{root} is no folder: name the folder that holds the groups")
        disk = FileDisk(root)
        for group, replica in list_journals(disk):
            key = f"{root}\t{group}\t{replica}"
            before = known.get(key, Offset())
            segments = _segments(disk, group, replica, before)
            if segments:
                place[key] = _end_of(disk, segments[-1], before)
            elif before != Offset():
                place[key] = before
    return place


def ended_now(roots: Sequence[str], quiet_seconds: float) -> int:
    """Say how many journals nobody writes to any more.

    That changes what can be told of them, though nothing in them changes.
    """
    looked = survey(roots, quiet_seconds=quiet_seconds)
    return sum(not source.is_open for source in looked.sources)


def bytes_between(disk: Disk, group: str, replica: str, start: Offset, end: Offset) -> int:
    """Say how much of a journal lies between two places."""
    total = 0
    for file in _segments(disk, group, replica, start):
        where = (file.incarnation, file.first)
        if where > (end.incarnation, end.segment):
            break
        until = end.byte if where == (end.incarnation, end.segment) else disk.size(file.path)
        is_begun = where == (start.incarnation, start.segment)
        total += max(0, until - (start.byte if is_begun else 0))
    return total


def slices_between(start: Mapping[str, Offset], end: Mapping[str, Offset]) -> list[Slice]:
    """Give what lies between two places."""
    return [
        piece
        for key, until in end.items()
        if until != start.get(key, Offset())
        for piece in _slices_of(key, start.get(key, Offset()), until)
    ]


def read_slice(piece: Slice, table: str, *, strict: bool) -> Iterator[pa.RecordBatch]:
    """Give the rows of *table* in one slice.

    What cannot be read is left out; `findings` of a batch reading has it. A *strict* reading
    raises `JournalDamaged`.
    """
    file = SegmentFile(piece.incarnation, piece.segment, piece.path)
    reader = SegmentReader(FileDisk(piece.root), file, offset=piece.byte, sequence=piece.sequence)
    table_of = tables_of_records()
    maker = make_maker(table, piece.group, piece.replica, piece.incarnation)
    problem = reader.open()
    items = iter([problem]) if problem is not None else reader.turns()
    for item in items:
        if isinstance(item, Finding):
            if strict and item.kind not in HARMLESS:
                raise JournalDamaged(item)
            continue
        if piece.last != NO_LIMIT and item.first > piece.last:
            break
        sequence = item.first
        for record in item.records:
            if table_of.get(type(record)) == table:
                maker.add(record, sequence)
            sequence += 1
        if len(maker) >= _BATCH_ROWS:
            yield maker.take()
    if len(maker):
        yield maker.take()


# ---- inside


def _segments(disk: Disk, group: str, replica: str, after: Offset) -> list[SegmentFile]:
    """Give the segments of a journal from the one at *after* on."""
    return [
        file
        for life in list_lives(disk, group, replica)
        for file in life.segments
        if (file.incarnation, file.first) >= (after.incarnation, after.segment)
    ]


def _end_of(disk: Disk, file: SegmentFile, before: Offset) -> Offset:
    """Find the end of the last whole block of a segment; it is at *before* or behind it."""
    try:
        sealed = read_segment_head(disk, file.path)
    except (ValueError, VersionUnknown):
        return Offset(file.incarnation, file.first)  # just being begun, or reading it will say so
    offset, sequence = sealed.size, file.first
    if (before.incarnation, before.segment) == (file.incarnation, file.first) and before.byte:
        offset, sequence = before.byte, before.sequence
    buffer, base = b"", offset
    while True:
        if len(buffer) - (offset - base) < BLOCK_HEAD_BYTES:
            buffer, base = disk.read(file.path, offset, _CHUNK_BYTES), offset
        head = decode_block_head(buffer, offset - base, sealed.seed)
        if head is None:
            break
        size = BLOCK_HEAD_BYTES + head.length
        if len(buffer) - (offset - base) < size:
            buffer, base = disk.read(file.path, offset, max(_CHUNK_BYTES, size)), offset
        start = offset - base + BLOCK_HEAD_BYTES
        body = buffer[start : start + head.length]
        if len(body) < head.length or crc32(body) != head.check:
            break
        offset += size
        sequence = head.last + 1
    return Offset(file.incarnation, file.first, offset, sequence)


def _slices_of(key: str, start: Offset, end: Offset) -> Iterator[Slice]:
    """Give the slices of one journal."""
    root, group, replica = key.split("\t")
    disk = FileDisk(root)
    lives = [
        life for life in list_lives(disk, group, replica) if life.incarnation <= end.incarnation
    ]
    limits = limits_of(lives, follows_of(disk, lives))
    for file in _segments(disk, group, replica, start):
        where = (file.incarnation, file.first)
        if where > (end.incarnation, end.segment):
            return
        last = limits.get(file.incarnation, NO_LIMIT)
        if where == (end.incarnation, end.segment):
            last = end.sequence - 1
            if not end.byte:
                return  # nothing of it could be read then
        is_resumed = where == (start.incarnation, start.segment)
        sequence = start.sequence if is_resumed else 0
        if last != NO_LIMIT and max(sequence, file.first) > last:
            continue
        yield Slice(
            root=root,
            group=group,
            replica=replica,
            incarnation=file.incarnation,
            segment=file.first,
            path=file.path,
            byte=start.byte if is_resumed else 0,
            sequence=sequence,
            last=last,
        )
