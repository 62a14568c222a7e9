"""Retention: what of a journal may go, once snapshots make it unnecessary for recovery.

Recovery needs a snapshot and the segments from one on at whose beginning the replica remembered no
more than the snapshot. So everything before what the kept snapshots need can go. It goes oldest
first, only while the journal is larger than its bound, and the first segments of the newest lives
stay, because they tell the pipeline how those lives began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.journal.format import VersionUnknown, read_segment_head
from coterie.journal.removed import note_removed, read_removed, with_range
from coterie.journal.segments import list_lives
from coterie.journal.snapshots import SnapshotStore

if TYPE_CHECKING:
    from coterie.journal.disk import Disk
    from coterie.journal.format import SegmentHead
    from coterie.journal.keyed import SealKey
    from coterie.journal.segments import SegmentFile
    from coterie.journal.snapshots import Snapshot

_TO_THE_END = (1 << 62) - 1


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a journal."""

    snapshots: int = 2
    """How many snapshots of its own state; with fewer than two, damage to the newest is loss."""
    lives: int = 2
    """Of how many of the newest lives the first segment is kept in any case."""
    journal_bytes_max: int = 8 << 30
    """Segments are removed only while all of them together take more than this; 0 removes all
    that recovery does not need. Give the pipeline time to read them."""

    def __post_init__(self) -> None:
        if self.snapshots < 1:
            raise ValueError("at least one snapshot must be kept")


def retain(
    disk: Disk,
    group: str,
    replica: str,
    retention: Retention | None = None,
    *,
    seal_key: SealKey | None = None,
) -> list[str]:
    """Remove what need not be kept; give the paths removed.

    For the running replica's driver, or while the replica is stopped; not between the storing of
    an adopted state and the writing of its `HistoryAdopted` record, nor while a snapshot is being
    written.
    """
    retention = retention or Retention()
    store = SnapshotStore(disk, group, replica)
    removed = [f"{store.folder}/{name}" for name in store.keep(retention.snapshots)]
    lives = list_lives(disk, group, replica)
    segments = [file for life in lives for file in life.segments]
    excess = sum(disk.size(file.path) for file in segments) - retention.journal_bytes_max
    if excess <= 0:
        return removed
    spared = {life.segments[0].path for life in lives[-retention.lives :] if life.segments}
    if retention.lives == 0:
        spared = set()
    snapshots, _ = store.all()
    needed_from = _needed_from(disk, segments, snapshots)
    gone: list[int] = []
    for index in range(needed_from):
        if excess <= 0:
            break
        if segments[index].path not in spared:
            excess -= disk.size(segments[index].path)
            gone.append(index)
    if gone:
        notes = read_removed(disk, group, replica)
        for index in gone:
            file = segments[index]
            notes[file.incarnation] = with_range(
                notes.get(file.incarnation, ()), file.first, _last(segments, index)
            )
        note_removed(disk, group, replica, notes, seal_key)
        for index in gone:
            disk.remove(segments[index].path)
            removed.append(segments[index].path)
    return removed


def _needed_from(disk: Disk, segments: list[SegmentFile], snapshots: list[Snapshot]) -> int:
    """Give the index of the first segment that recovery from any of the snapshots may need."""
    heads: list[SegmentHead | None] = []
    for file in segments:
        try:
            heads.append(read_segment_head(disk, file.path).head)
        except (ValueError, VersionUnknown):
            heads.append(None)
    return min((_start(heads, snapshot) for snapshot in snapshots), default=0)


def _start(heads: list[SegmentHead | None], snapshot: Snapshot) -> int:
    """Give the index of the segment from which recovery with this snapshot reads."""
    taken = (snapshot.head.incarnation, snapshot.head.sequence + 1)
    for index in reversed(range(len(heads))):
        head = heads[index]
        if head is None or head.facts.is_adopting:
            continue
        if head.facts.is_fresh:
            return index
        if snapshot.head.history:
            # The record after which it was taken must be there.
            if (head.incarnation, head.first) <= (taken[0], max(snapshot.head.sequence, 1)):
                return index
        elif snapshot.head.adopts:
            # Its record stands behind the place where it was taken.
            if (head.incarnation, head.first) <= taken:
                return index
        elif head.facts.version.position <= snapshot.position:
            return index
    return 0


def _last(segments: list[SegmentFile], index: int) -> int:
    """Give the number of the last record of a segment, as far as the next one tells."""
    file = segments[index]
    following = segments[index + 1]
    same_life = following.incarnation == file.incarnation
    return following.first - 1 if same_life else _TO_THE_END
