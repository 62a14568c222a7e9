"""Reading one segment, whatever state it is in.

Whatever cannot be read becomes a `Finding`, and reading goes on at the next block of the segment
whose head is whole. Blocks are found by the mark they begin with, and taken for blocks only if
their checksum fits this very segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import msgspec

from coterie.journal.format import (
    BLOCK_HEAD_BYTES,
    BLOCK_MARK,
    LIFE_NAME,
    SEGMENT_NAME,
    Chain,
    Finding,
    Kind,
    Skipped,
    VersionUnknown,
    decode_block_head,
    decode_body,
    folder_of,
    life_folder,
    name_of,
    read_segment_head,
    segment_path,
)
from coterie.kernel.records import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.journal.disk import Disk
    from coterie.journal.format import BlockHead, Sealed, SegmentHead
    from coterie.kernel.records import Record

_CHUNK_BYTES = 1 << 20
NOT_TAKEN_OVER = "the next life did not take over what is from here on"


class Turn(NamedTuple):
    """The records of one turn, and where they stand."""

    incarnation: int
    first: int
    """The number of the first record in its life."""
    records: list[Record]
    synced: int
    """The last record that was known to be synced when this was written."""
    path: str
    offset: int
    size: int
    last: int
    """The number of the last record, counting those that were skipped as unknown."""


class SegmentFile(NamedTuple):
    """A segment by its place."""

    incarnation: int
    first: int
    path: str


class Life(NamedTuple):
    """The segments of one life, in order."""

    incarnation: int
    segments: list[SegmentFile]


def list_journals(disk: Disk) -> list[tuple[str, str]]:
    """Give group and replica of every journal on a disk."""
    return sorted(
        (name_of(group), name_of(replica))
        for group in disk.names("")
        for replica in disk.names(group)
        if any(LIFE_NAME.fullmatch(name) for name in disk.names(f"{group}/{replica}"))
    )


def list_lives(disk: Disk, group: str, replica: str) -> list[Life]:
    """Give all lives of a replica that have a folder, with their segments, in order."""
    folder = folder_of(group, replica)
    lives: list[Life] = []
    for name in disk.names(folder):
        if not LIFE_NAME.fullmatch(name):
            continue
        incarnation = int(name)
        firsts = sorted(
            int(match[1])
            for file in disk.names(life_folder(folder, incarnation))
            if (match := SEGMENT_NAME.fullmatch(file))
        )
        segments = [
            SegmentFile(incarnation, first, segment_path(folder, incarnation, first))
            for first in firsts
        ]
        lives.append(Life(incarnation, segments))
    return sorted(lives)


class SegmentReader:
    """Reads one segment. `expected` is the number of the next record, `offset` where it is."""

    def __init__(
        self, disk: Disk, file: SegmentFile, *, offset: int = 0, sequence: int = 0
    ) -> None:
        self.disk = disk
        self.file = file
        self.sealed: Sealed | None = None
        self.offset = offset
        self.expected = sequence or file.first
        self.skipped = Skipped()
        self.is_stuck = False
        """Whether reading ended before something that is not readable, or not yet."""
        self.is_whole = False
        """Whether nothing has been left out since the beginning of the segment."""
        self._chain: Chain | None = None
        self._buffer = b""
        self._base = 0

    def open(self) -> Finding | None:
        """Read the head; give what is wrong with it, if anything is."""
        try:
            sealed = read_segment_head(self.disk, self.file.path)
        except ValueError as error:
            return self._finding(Kind.DAMAGED, str(error), offset=0)
        except VersionUnknown as error:
            return self._finding(Kind.UNREADABLE, str(error), offset=0)
        head = sealed.head
        has_names = bool(head.group and head.replica)  # without them it has no place at all
        place = (
            segment_path(folder_of(head.group, head.replica), head.incarnation, head.first)
            if has_names
            else ""
        )
        if place != self.file.path:
            return self._finding(
                Kind.MISPLACED,
                f"it says that it is record {head.first} and following of life "
                f"{head.incarnation} of replica {head.replica} of group {head.group}",
                offset=0,
            )
        self.sealed = sealed
        if self.offset == 0:
            self.offset = sealed.size
            self.is_whole = True
            self._chain = Chain(head.follows)
        return None

    @property
    def head(self) -> SegmentHead:
        """What the segment says of itself, after `open`."""
        assert self.sealed is not None, "open comes first"
        return self.sealed.head

    def digest(self) -> bytes | None:
        """Give the chained digest of what was read before the first thing left out.

        None if reading did not begin with the segment.
        """
        return None if self._chain is None else self._chain.digest()

    def has_blocks(self) -> bool:
        """Say whether the file holds anything that looks like a block, whatever else it is."""
        return self._find_mark(0) is not None

    def turns(self, *, limit: int | None = None, is_over: bool = True) -> Iterator[Turn | Finding]:
        """Give the turns from `offset` on and up to record *limit*, and what is wrong in between.

        *is_over* says that nobody writes to this segment any more.
        """
        sealed = self.sealed
        assert sealed is not None, "open comes first"
        kinds, fields = schema()
        is_newer = sealed.head.kinds > kinds or sealed.head.fields > fields
        incarnation, path = self.file.incarnation, self.file.path
        self.is_stuck = False
        self._buffer = b""
        self._base = self.offset
        while self._has(BLOCK_HEAD_BYTES) or self._has(1):
            head = decode_block_head(self._buffer, self.offset - self._base, sealed.seed)
            if limit is not None and self._is_void(head, limit):
                if head is not None or not self._is_zero_from(self.offset):
                    yield self._finding(Kind.VOID, NOT_TAKEN_OVER, first=limit + 1)
                return
            problem = self._problem(head)
            if problem is not None or head is None:
                if not is_over:
                    self.is_stuck = True
                    return
                yield from self._go_round(head, problem or "")
                if self.is_stuck:
                    return
                continue
            if head.first > self.expected:
                self.is_whole = False
                yield self._finding(
                    Kind.MISSING, "records are left out", first=self.expected, last=head.first - 1
                )
            start = self.offset - self._base
            body_start = start + BLOCK_HEAD_BYTES
            size = BLOCK_HEAD_BYTES + head.length
            body = memoryview(self._buffer)[body_start : start + size]
            if self.is_whole and self._chain is not None:
                self._chain.add(self._buffer[start:body_start])
            offset = self.offset
            self.offset += size
            self.expected = head.last + 1
            try:
                records = decode_body(body, is_newer=is_newer, skipped=self.skipped)
            except (msgspec.DecodeError, RecursionError) as error:
                yield self._finding(
                    Kind.UNREADABLE, str(error), offset=offset, first=head.first, last=head.last
                )
                continue
            yield Turn(incarnation, head.first, records, head.synced, path, offset, size, head.last)

    # ---- inside

    def _is_void(self, head: BlockHead | None, limit: int) -> bool:
        """Say whether what comes next is behind the last record that counts."""
        return limit < self.expected or (head is not None and head.last > limit)

    def _problem(self, head: BlockHead | None) -> str | None:
        """Say why there is no whole block at `offset`; bring it into the buffer if there is."""
        if head is None:
            if not self._has(BLOCK_HEAD_BYTES):
                return "the head of a turn is cut off"
            return "the head of a turn does not fit its checksum"
        if head.first < self.expected:
            return f"record {head.first} comes where {self.expected} is due"
        if not self._has(BLOCK_HEAD_BYTES + head.length):
            found = len(self._buffer) - (self.offset - self._base) - BLOCK_HEAD_BYTES
            return f"a turn of {head.length} bytes has only {found}"
        start = self.offset - self._base + BLOCK_HEAD_BYTES
        with memoryview(self._buffer) as view, view[start : start + head.length] as body:
            if crc32(body) != head.check:
                return "a turn does not fit its checksum"
        return None

    def _go_round(self, head: BlockHead | None, problem: str) -> Iterator[Finding]:
        """Find where reading can go on; say what is wrong with the part left out."""
        start = self.offset
        expected = self.expected if head is None else max(self.expected, head.last + 1)
        found = self._find_block(start + 1, expected)
        if found is not None:
            self.is_whole = False
            offset, next_head = found
            yield self._finding(
                Kind.DAMAGED, problem, first=self.expected, last=next_head.first - 1
            )
            self.offset = offset
            self.expected = next_head.first
        elif head is None and self._is_zero_from(start):
            # Room that was made in advance and never used.
            self.offset = self.disk.size(self.file.path)
        else:
            self.is_whole = False
            self.is_stuck = True
            yield self._finding(Kind.TORN_TAIL, problem, first=self.expected)

    def _find_block(self, offset: int, expected: int) -> tuple[int, BlockHead] | None:
        """Find the next head of a block of this segment with records from *expected* on."""
        assert self.sealed is not None
        while (offset_found := self._find_mark(offset)) is not None:
            data = self.disk.read(self.file.path, offset_found, BLOCK_HEAD_BYTES)
            head = decode_block_head(data, 0, self.sealed.seed)
            if head is not None and head.first >= expected:
                return offset_found, head
            offset = offset_found + 1
        return None

    def _find_mark(self, offset: int) -> int | None:
        while data := self.disk.read(self.file.path, offset, _CHUNK_BYTES):
            found = data.find(BLOCK_MARK)
            if found >= 0:
                return offset + found
            if len(data) < _CHUNK_BYTES:
                return None
            offset += len(data) - len(BLOCK_MARK) + 1
        return None

    def _is_zero_from(self, offset: int) -> bool:
        while data := self.disk.read(self.file.path, offset, _CHUNK_BYTES):
            if data.count(0) != len(data):
                return False
            offset += len(data)
        return True

    def _has(self, size: int) -> bool:
        """Bring *size* bytes from `offset` into the buffer, if the file has them."""
        start = self.offset - self._base
        missing = start + size - len(self._buffer)
        if missing <= 0:
            return True
        rest = self._buffer[start:] if 0 <= start < len(self._buffer) else b""
        more = self.disk.read(
            self.file.path, self.offset + len(rest), max(_CHUNK_BYTES, size - len(rest))
        )
        self._buffer = rest + more
        self._base = self.offset
        return len(self._buffer) >= size

    def _finding(
        self, kind: Kind, reason: str, *, offset: int | None = None, first: int = 0, last: int = 0
    ) -> Finding:
        return Finding(
            kind=kind,
            path=self.file.path,
            offset=self.offset if offset is None else offset,
            reason=reason,
            incarnation=self.file.incarnation,
            first=first,
            last=last,
        )
