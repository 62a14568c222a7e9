"""Reading journals: one segment, one life, or all lives of a replica; also while they grow.

Readers give whole turns, in order, one at a time: they hold no more in memory than the largest
turn. Whatever cannot be read becomes a `Finding` with file, place and reason, and reading goes on
where it can: at the next block of the segment whose head is whole, or else at the next segment.
A strict reader raises `JournalDamaged` instead.

What the end of a file means depends on whether its writer may still be at work. While a journal is
*growing*, a block that is cut off in its last segment may just be on its way: the reader stops
before it, says nothing, and goes on from there when asked again. Otherwise it is a torn tail.

A life ends where the next one took over: what stands behind that place was unreadable or unsynced
when the replica came back, so it is not part of the replica's history. It is not given, and a
finding of the kind `VOID` names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coterie.journal.format import (
    HARMLESS,
    Finding,
    JournalDamaged,
    Kind,
    Skipped,
    VersionUnknown,
    read_segment_head,
)
from coterie.journal.removed import read_removed
from coterie.journal.segments import NOT_TAKEN_OVER, SegmentReader, Turn, list_lives

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.journal.disk import Disk
    from coterie.journal.format import Mark
    from coterie.journal.segments import Life, SegmentFile
    from coterie.kernel.records import Record


class Offset(NamedTuple):
    """Where to go on reading: all plain numbers, so that it can be stored as such."""

    incarnation: int = 0
    segment: int = 0
    """The segment, by the number of its first record."""
    byte: int = 0
    """Everything before this byte of it has been read; 0 if nothing has."""
    sequence: int = 0
    """The number of the next record; 0 if that is not known."""


class LifeReader:
    """Reads the segments of one life, one after the other."""

    def __init__(
        self, disk: Disk, life: Life, *, removed: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self.disk = disk
        self.life = life
        self.offset = Offset(life.incarnation)
        self.skipped = Skipped()
        self.digest: bytes | None = None
        """The chained digest so far; when a finding is given, before what is left out there; at
        the end None if something was left out of the last segment."""
        self._removed = removed
        self._expected = 0
        self._link: bytes | None = None
        self._is_done = False

    def turns(
        self, *, after: Offset | None = None, limit: int | None = None, is_over: bool = True
    ) -> Iterator[Turn | Finding]:
        """Give the turns behind *after* and up to record *limit*, and what is wrong in between."""
        after = after or self.offset
        self._expected = after.sequence
        self._link = None
        self._is_done = False
        segments = [file for file in self.life.segments if file.first >= after.segment]
        for index, file in enumerate(segments):
            following = segments[index + 1] if index + 1 < len(segments) else None
            if limit is not None and file.first > limit:
                yield _void(file)
                return
            is_resumed = file.first == after.segment
            reader = SegmentReader(
                self.disk,
                file,
                offset=after.byte if is_resumed else 0,
                sequence=after.sequence if is_resumed else 0,
            )
            reader.skipped = self.skipped
            problem = reader.open()
            if problem is not None:
                if following is None and not is_over:
                    return  # it is just being begun
                yield self._about_head(reader, problem, following)
                continue
            if not is_resumed:
                yield from self._about_order(reader)
            yield from self._segment(reader, following, limit, is_over=is_over)
            if self._is_done:
                return
        if limit is not None and segments and 0 < self._expected <= limit:
            self.digest = None
            yield self._absent(segments[-1], self._expected, limit)

    def _segment(
        self,
        reader: SegmentReader,
        following: SegmentFile | None,
        limit: int | None,
        *,
        is_over: bool,
    ) -> Iterator[Turn | Finding]:
        """Read one segment whose head is whole."""
        file = reader.file
        for item in reader.turns(limit=limit, is_over=is_over or following is not None):
            # What is given has been read: an offset taken while it is handled includes it.
            self.offset = Offset(file.incarnation, file.first, reader.offset, reader.expected)
            if isinstance(item, Turn):
                yield item
                continue
            self.digest = reader.digest()
            if item.kind is Kind.VOID:
                self._is_done = True
            yield _placed(item, following, limit)
        self.offset = Offset(file.incarnation, file.first, reader.offset, reader.expected)
        self.digest = self._link = reader.digest() if reader.is_whole else None
        self._expected = reader.expected
        if reader.is_stuck:
            self._expected = following.first if following is not None else (limit or 0) + 1

    def _about_head(
        self, reader: SegmentReader, problem: Finding, following: SegmentFile | None
    ) -> Finding:
        """Say what the loss of a segment's head means."""
        self._link = None
        self._expected = 0 if following is None else following.first
        if problem.kind is Kind.DAMAGED and following is None and not reader.has_blocks():
            # The crash came while the segment was begun: no turn was ever in it.
            return msgspec.structs.replace(problem, kind=Kind.TORN_TAIL, first=reader.file.first)
        last = 0 if following is None else following.first - 1
        return msgspec.structs.replace(problem, first=reader.file.first, last=last)

    def _absent(self, near: SegmentFile, first: int, last: int) -> Finding:
        """Say that segments before or after another are not there."""
        is_removed = any(start <= first and last <= end for start, end in self._removed)
        side = "before" if last < near.first else "after"
        return Finding(
            kind=Kind.REMOVED if is_removed else Kind.MISSING,
            path=near.path,
            offset=0,
            reason=f"the segments {side} it are not there",
            incarnation=near.incarnation,
            first=first,
            last=last,
        )

    def _about_order(self, reader: SegmentReader) -> Iterator[Finding]:
        """Say whether a segment is the continuation of what was read before."""
        head = reader.head
        expected = self._expected or 1
        if head.first > expected:
            yield self._absent(reader.file, expected, head.first - 1)
        elif head.first < expected:
            yield _misplaced(reader.file, f"record {head.first} where {expected} is due")
        elif self._link is not None and head.follows.digest != self._link:
            yield _misplaced(reader.file, "it does not continue the segment before it")


def _void(file: SegmentFile) -> Finding:
    return Finding(
        kind=Kind.VOID,
        path=file.path,
        offset=0,
        reason=NOT_TAKEN_OVER,
        incarnation=file.incarnation,
        first=file.first,
    )


def _misplaced(file: SegmentFile, reason: str) -> Finding:
    return Finding(
        kind=Kind.MISPLACED,
        path=file.path,
        offset=0,
        reason=reason,
        incarnation=file.incarnation,
    )


def _placed(finding: Finding, following: SegmentFile | None, limit: int | None) -> Finding:
    """What would be a torn tail is damage where something follows that went on from it."""
    if finding.kind is not Kind.TORN_TAIL or (following is None and limit is None):
        return finding
    last = following.first - 1 if following is not None else limit or 0
    return msgspec.structs.replace(finding, kind=Kind.DAMAGED, last=last)


def follows_of(disk: Disk, lives: list[Life]) -> dict[int, Mark]:
    """Give, for each life, the place in an earlier one from which it goes on."""
    follows: dict[int, Mark] = {}
    for life in lives:
        if life.segments and life.segments[0].first == 1:
            try:
                head = read_segment_head(disk, life.segments[0].path).head
            except (ValueError, VersionUnknown):
                continue  # reading the life will say so
            follows[life.incarnation] = head.follows
    return follows


def limits_of(lives: list[Life], follows: dict[int, Mark]) -> dict[int, int]:
    """Give the last record that counts of every life that a later one went on from, or passed."""
    limits: dict[int, int] = {}
    following: Mark | None = None
    for life in reversed(lives):
        if following is not None:
            is_taken = following.incarnation == life.incarnation
            limits[life.incarnation] = following.sequence if is_taken else 0
            if not is_taken and life.incarnation > following.incarnation:
                continue  # it was begun and never used, or nothing of it could be read
        following = follows.get(life.incarnation)
    return limits


class JournalReader:
    """Reads all lives of one replica, in order; goes on from `offset` when asked again."""

    def __init__(
        self,
        disk: Disk,
        group: str,
        replica: str,
        *,
        after: Offset | None = None,
        strict: bool = False,
    ) -> None:
        self.disk = disk
        self.group = group
        self.replica = replica
        self.offset = after or Offset()
        """Everything before this place has been given."""
        self.findings: list[Finding] = []
        self.skipped = Skipped()
        """What a later release wrote and this one does not know."""
        self._strict = strict

    def records(self, *, growing: bool = False) -> Iterator[Record]:
        """Give all records from `offset` on."""
        for turn in self.turns(growing=growing):
            yield from turn.records

    def turns(self, *, growing: bool = False) -> Iterator[Turn]:
        """Give all turns from `offset` on; what cannot be read is added to `findings`.

        *growing* says that the last life may still be written: see the top of this module.
        """
        lives = list_lives(self.disk, self.group, self.replica)
        lives = [life for life in lives if life.incarnation >= self.offset.incarnation]
        removed = read_removed(self.disk, self.group, self.replica)
        follows = follows_of(self.disk, lives)
        limits = limits_of(lives, follows)
        for index, life in enumerate(lives):
            is_last = index + 1 == len(lives)
            reader = LifeReader(self.disk, life, removed=removed.get(life.incarnation, ()))
            reader.skipped = self.skipped
            resumed = self.offset.incarnation == life.incarnation
            for item in reader.turns(
                after=self.offset if resumed else None,
                limit=limits.get(life.incarnation),
                is_over=not (is_last and growing),
            ):
                self.offset = reader.offset
                if isinstance(item, Turn):
                    yield item
                else:
                    self._find(item)
            self.offset = reader.offset
            self._check_link(life, reader.digest, follows)

    def _check_link(self, life: Life, digest: bytes | None, follows: dict[int, Mark]) -> None:
        """Say if the life that goes on from this one saw something else in it."""
        for incarnation, mark in follows.items():
            if mark.incarnation == life.incarnation and mark.contradicts(digest):
                reason = f"it is not what life {incarnation} went on from"
                self._find(_misplaced(life.segments[-1], reason))

    def _find(self, finding: Finding) -> None:
        if self._strict and finding.kind not in HARMLESS:
            raise JournalDamaged(finding)
        self.findings.append(finding)
