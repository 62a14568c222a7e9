"""Telling tampering from damage in a journal that was written with a seal key.

Damage makes checksums wrong, and the journal's readers find it. What is looked for here is what no
accident does: bytes that are whole by all checksums and that the replica did not write, and gaps
that end exactly where turns end though what stands behind them proves that more was there.

What cannot be told from one journal alone: whether its very end was cut off, which looks as if the
replica had been killed earlier; and whether all of it is an older copy of itself. Whoever has read
the journal before knows. A key that was stolen proves nothing about what was written since.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from coterie.journal.format import (
    BLOCK_HEAD_BYTES,
    Finding,
    Kind,
    Sync,
    VersionUnknown,
    decode_block_head,
    folder_of,
    read_said,
    segment_path,
)
from coterie.journal.keyed import SEAL_BYTES
from coterie.journal.removed import read_sealed
from coterie.journal.segments import list_lives

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.journal.disk import Disk
    from coterie.journal.format import Sealed
    from coterie.journal.keyed import SealKey, TurnSeals
    from coterie.journal.removed import Ranges
    from coterie.journal.segments import Life, SegmentFile

_CHUNK_BYTES = 1 << 20


class _Looked(NamedTuple):
    """What a look at one segment has shown."""

    file: SegmentFile
    sealed: Sealed
    last: int
    """Its last record."""
    ends_with_turn: bool
    """Whether nothing but whole turns is in it."""


def find_tampering(disk: Disk, group: str, replica: str, key: SealKey) -> Iterator[Finding]:
    """Say what in a journal was not written by somebody who has the key.

    What is damaged is passed over: the readers of journals say so.
    """
    note, removed = read_sealed(disk, group, replica, key)
    if removed is None:
        yield Finding(
            kind=Kind.TAMPERED,
            path=note,
            offset=0,
            reason="the note of what was removed is not sealed with the key: what is missing was "
            "not, as far as anybody can tell, removed by the replica",
        )
    ends: dict[int, _Looked] = {}
    lives = list_lives(disk, group, replica)
    present = {life.incarnation for life in lives}
    for life in lives:
        looked: list[_Looked] = []
        for file in life.segments:
            yield from _look_at(disk, group, replica, file, key, looked)
        if looked:
            ends[life.incarnation] = looked[-1]
            yield from _gaps(life, looked, (removed or {}).get(life.incarnation, ()))
            yield from _what_it_follows(looked[0], ends, present, removed or {})


def _look_at(  # noqa: PLR0913, PLR0917 -- one step of `find_tampering`
    disk: Disk, group: str, replica: str, file: SegmentFile, key: SealKey, looked: list[_Looked]
) -> Iterator[Finding]:
    try:
        sealed, said = read_said(disk, file.path)
    except (ValueError, VersionUnknown):
        return
    head = sealed.head
    if not head.seal:
        if any(each.sealed.head.seal for each in looked):
            yield _finding(Kind.TAMPERED, file, "its seal was removed: the life had one before")
        else:
            yield _finding(
                Kind.UNSEALED, file, "it was written without a seal key, so nothing proves it"
            )
        return
    seals = key.find(said[:-SEAL_BYTES], said[-SEAL_BYTES:])
    if seals is None:
        yield _finding(
            Kind.TAMPERED, file, "its head was altered, or sealed with a key that is not given"
        )
        return
    place = segment_path(folder_of(head.group, head.replica), head.incarnation, head.first)
    if (head.group, head.replica) != (group, replica) or place != file.path:
        yield _finding(
            Kind.TAMPERED,
            file,
            f"it was put there: it is record {head.first} and following of life "
            f"{head.incarnation} of replica {head.replica} of group {head.group}",
        )
        return
    walk = _Walk(disk, file, sealed)
    yield from walk.findings(seals)
    looked.append(_Looked(file, sealed, walk.last, walk.is_whole))


class _Walk:
    """One pass over the turns of a segment."""

    def __init__(self, disk: Disk, file: SegmentFile, sealed: Sealed) -> None:
        self.last = file.first - 1
        self.is_whole = True
        self._disk = disk
        self._file = file
        self._sealed = sealed

    def findings(self, seals: TurnSeals) -> Iterator[Finding]:
        offset, size = self._sealed.size, self._disk.size(self._file.path)
        data, base = b"", offset
        while offset < size:
            if len(data) - (offset - base) < BLOCK_HEAD_BYTES:
                data, base = self._disk.read(self._file.path, offset, _CHUNK_BYTES), offset
            head = decode_block_head(data, offset - base, self._sealed.seed)
            if head is None:
                rest = data[offset - base :]
                self.is_whole = not any(rest) and len(rest) == size - offset
                return
            end = BLOCK_HEAD_BYTES + head.length
            if len(data) - (offset - base) < end:
                length = max(_CHUNK_BYTES, end)
                data, base = self._disk.read(self._file.path, offset, length), offset
            start = offset - base
            body = memoryview(data)[start + BLOCK_HEAD_BYTES : start + end]
            if len(body) < head.length or crc32(body) != head.check:
                self.is_whole = False  # damage; what is behind it can still be checked
            else:
                if head.first > self.last + 1 and self.is_whole:
                    yield self._gap(offset, self.last + 1, head.first - 1)
                if not seals.is_turn(
                    body, count=head.records, first=head.first, synced=head.synced
                ):
                    yield _finding(
                        Kind.TAMPERED,
                        self._file,
                        "a turn was altered or made up: its checksums fit, and its seal does not",
                        offset=offset,
                        first=head.first,
                        last=head.last,
                    )
                self.last = head.last
            offset += end

    def _gap(self, offset: int, first: int, last: int) -> Finding:
        reason = "turns were taken out: those around the gap are whole and sealed"
        return _finding(Kind.TAMPERED, self._file, reason, offset=offset, first=first, last=last)


def _gaps(life: Life, looked: list[_Looked], removed: Ranges) -> Iterator[Finding]:
    """Say which segments of a life were taken out or cut off."""
    known = {each.file.first for each in looked}
    if any(file.first not in known for file in life.segments):
        return  # something is damaged, and what is missing may be there
    first = looked[0].file.first
    if first > 1 and not _is_removed(removed, 1, first - 1):
        yield _finding(
            Kind.TAMPERED, looked[0].file, "the segments before it were taken away", last=first - 1
        )
    for one, other in pairwise(looked):
        is_missing = one.last + 1 < other.file.first
        # Where nothing was synced, the loss of the machine may leave the same picture.
        was_synced = one.sealed.head.sync is not Sync.NONE
        if is_missing and one.ends_with_turn and was_synced:
            missing = one.last + 1, other.file.first - 1
            if not _is_removed(removed, *missing):
                yield _finding(
                    Kind.TAMPERED,
                    one.file,
                    "its end was cut off, or segments behind it were taken away: the next one "
                    "proves that they were there",
                    first=missing[0],
                    last=missing[1],
                )


def _what_it_follows(
    beginning: _Looked,
    ends: dict[int, _Looked],
    present: set[int],
    removed: dict[int, Ranges],
) -> Iterator[Finding]:
    """Say if what a life went on from is not there any more."""
    follows = beginning.sealed.head.follows
    if beginning.file.first > 1 or not follows.sequence:
        return
    end = ends.get(follows.incarnation)
    ranges = removed.get(follows.incarnation, ())
    if end is None:
        if not ranges and follows.incarnation not in present:
            yield _finding(
                Kind.TAMPERED,
                beginning.file,
                f"life {follows.incarnation}, from which this one went on, was taken away",
                last=follows.sequence,
            )
        return
    # A life syncs all that it goes on from before it begins, so no crash explains this.
    is_missing = end.last < follows.sequence and end.ends_with_turn
    if is_missing and not _is_removed(ranges, end.last + 1, follows.sequence):
        yield _finding(
            Kind.TAMPERED,
            end.file,
            f"its end was cut off: life {beginning.file.incarnation} went on from record "
            f"{follows.sequence}",
            first=end.last + 1,
            last=follows.sequence,
        )


def _is_removed(ranges: Ranges, first: int, last: int) -> bool:
    return any(start <= first and last <= end for start, end in ranges)


def _finding(  # noqa: PLR0913 -- all by name
    kind: Kind, file: SegmentFile, reason: str, *, offset: int = 0, first: int = 0, last: int = 0
) -> Finding:
    return Finding(
        kind=kind,
        path=file.path,
        offset=offset,
        reason=reason,
        incarnation=file.incarnation,
        first=first or (1 if last else 0),
        last=last,
    )
