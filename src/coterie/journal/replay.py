"""Reading earlier lives into a history, of which something may be missing.

Each life says, in its first segment, from which record of which earlier life it went on. So what
of an earlier life counts was decided once, when the replica came back, and is not decided anew: of
earlier lives everything up to that record is needed. Of the last life everything up to the first
thing that cannot be read counts. What stands there may be a turn that the crash interrupted, or
turns that were never synced: then nothing is lost. But if a later turn says that it had been
synced, the disk has lost what it had promised to keep.

What the records amount to is the business of a history, which each kind of engine has its own of:
`coterie.journal.engines.stack` and `coterie.journal.engines.vsr`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from coterie.journal.format import (
    NO_DIGEST,
    Finding,
    Kind,
    Mark,
    Skipped,
    Sync,
    VersionUnknown,
    read_segment_head,
)
from coterie.journal.reader import LifeReader, Offset
from coterie.journal.removed import read_removed
from coterie.journal.segments import Life, list_lives
from coterie.journal.snapshots import Snapshots
from coterie.journal.stable import Stable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coterie.journal.disk import Disk
    from coterie.journal.facts import Facts
    from coterie.journal.format import SegmentHead
    from coterie.journal.segments import SegmentFile, Turn
    from coterie.kernel.records import Record


def is_whole_after_process_death(boot_id_then: str, boot_id_now: str) -> bool:
    """Say whether only the process died since a journal was written, not the machine.

    write(2) survives a killed process, so then everything written is there. A system that does
    not tell its boot id (an empty one) leaves this unknown, and unknown is no.
    """
    return boot_id_then != "" and boot_id_then == boot_id_now


class Recalled(Protocol):
    """What records are read into."""

    place: tuple[int, int]
    """Life and number of the first record of the turn that is being applied."""
    reached: tuple[int, int]
    """Life and number of the last record applied."""

    def begin_life(self, facts: Facts) -> None:
        """Go on with the records of the next life, which began with these facts."""

    def apply(self, records: Iterable[Record]) -> None:
        """Take the records of one turn; `place` says which."""

    def break_off(self, reason: str) -> None:
        """Learn that something is missing here; what was known before it is kept."""


@dataclass(slots=True)
class Stage:
    """One life to be read, from one of its segments on."""

    life: Life
    next_follows: Mark | None
    """Up to where the next life took it over; None for the last life."""
    head: SegmentHead | None = None
    """The first readable one of those that are to be read."""
    segments: list[SegmentFile] = field(default_factory=list)


@dataclass(slots=True)
class _Seen:
    """How far one life could be read."""

    sequence: int
    """The last record that counts."""
    digest: bytes | None = None
    """The chained digest up to there, if known."""
    doubt: Finding | None = None
    """What cannot be read and may never have been synced."""
    waiting: list[Turn] = field(default_factory=list)
    """Turns behind it, which count only if it turns out to have been synced."""


class Recalling:
    """One run of a recovery; subclasses say where to begin, and judge what was found."""

    def __init__(self, disk: Disk, group: str, replica: str) -> None:
        self.disk = disk
        self.group = group
        self.replica = replica
        self.findings: list[Finding] = []
        self.skipped = Skipped()
        self.stable = Stable(disk, group, replica)
        self.lives = list_lives(disk, group, replica)
        self.snapshots = Snapshots(disk, group, replica, self.findings)
        self.removed = read_removed(disk, group, replica)
        self.newest: SegmentHead | None = None
        """The head of the last segment, which says how and where the last life was written."""
        self.end = Mark()

    def next_incarnation(self, incarnation_min: int) -> int:
        """Give the number of the next life."""
        numbers = [life.incarnation for life in self.lives]
        highest = max(self.stable.values.incarnation, self.snapshots.incarnation, *numbers, 0)
        return max(highest + 1, incarnation_min)

    def may_miss_turns(self, *, has_stopped: bool) -> bool:
        """Say whether turns may be gone with the machine that were never synced, unnoticed."""
        newest = self.newest
        if newest is None or newest.sync is Sync.TURN:
            return False
        if is_whole_after_process_death(newest.boot_id, self.disk.boot_id):
            return False
        return not has_stopped  # a life writes nothing after that, so there is nothing to be missed

    # ---- where to begin

    def walk_back(self, is_enough: Callable[[SegmentHead], bool]) -> list[Stage]:
        """Walk back from the newest segment to one from which on it is enough to read."""
        stages: list[Stage] = []
        by_number = {life.incarnation: life for life in self.lives if life.segments}
        follows: Mark | None = Mark(max(by_number, default=0))
        is_last = True
        while follows is not None and follows.incarnation in by_number:
            life = by_number[follows.incarnation]
            stage = Stage(life, None if is_last else follows)
            stages.insert(0, stage)
            for file in reversed(life.segments):
                stage.segments.insert(0, file)
                if not is_last and file.first > max(1, follows.sequence):
                    continue  # not taken over, so not to be trusted
                head = self._head(file)
                if head is None:
                    continue
                if self.newest is None:
                    self.newest = head
                stage.head = head
                if is_enough(head):
                    return stages
            if stage.head is not None and stage.head.first == 1:
                follows, is_last = stage.head.follows, False
                if follows.incarnation >= life.incarnation:
                    follows = None  # a life follows an earlier one
            elif stage.head is None and is_last:
                # A life that was begun and never used: the one before it is the last.
                follows = Mark(max((n for n in by_number if n < life.incarnation), default=0))
            else:
                follows = None  # how this life began cannot be read
        return stages

    def _head(self, file: SegmentFile) -> SegmentHead | None:
        try:
            head = read_segment_head(self.disk, file.path).head
        except ValueError:
            return None  # reading the segment will say so
        except VersionUnknown as error:
            raise VersionUnknown(f"{file.path}: {error}") from None
        # One that was put where it does not belong may name any life as the one before it, also
        # itself, and we would walk in a circle.
        is_ours = (head.group, head.replica, head.incarnation, head.first) == (
            *(self.group, self.replica),
            *(file.incarnation, file.first),
        )
        return head if is_ours and head.follows.incarnation <= head.incarnation else None

    # ---- reading

    def read(self, stage: Stage, history: Recalled) -> None:
        """Read one life into the history, up to the first thing that is wrong with it."""
        incarnation = stage.life.incarnation
        start = stage.segments[0].first
        if stage.head is not None and stage.head.first == 1:
            history.place = (incarnation, 0)
            history.begin_life(stage.head.facts)
        if stage.head is not None and stage.head.first == start:
            history.reached = (incarnation, start - 1)
        follows = stage.next_follows
        reader = LifeReader(
            self.disk,
            Life(incarnation, stage.segments),
            removed=self.removed.get(incarnation, ()),
        )
        reader.skipped = self.skipped
        seen = _Seen(start - 1)
        for item in reader.turns(
            after=Offset(incarnation, start, 0, start),
            limit=None if follows is None else follows.sequence,
        ):
            if isinstance(item, Finding):
                self._on_finding(item, stage, seen, history)
                seen.digest = seen.digest if seen.doubt is None else reader.digest
            else:
                self._on_turn(item, seen, history)
        if seen.doubt is None:
            seen.digest = reader.digest
        if self.skipped.essential:
            history.break_off("a later release wrote records that this one does not understand")
        if follows is not None:
            self._check_link(follows, history, seen)
        if stage.head is not None and (seen.sequence or stage.head.first == 1):
            self.end = Mark(incarnation, seen.sequence, self._digest(seen))

    def _digest(self, seen: _Seen) -> bytes:
        """Give the digest of what counts; a life without records has that of the one before."""
        return self.end.digest if seen.sequence == 0 else seen.digest or NO_DIGEST

    def _on_finding(self, finding: Finding, stage: Stage, seen: _Seen, history: Recalled) -> None:
        self.findings.append(finding)
        if finding.kind is Kind.VOID:
            return
        if stage.next_follows is None and not self._is_loss(finding, stage):
            seen.doubt = seen.doubt or finding
        else:
            history.break_off(_lost(finding))

    def _on_turn(self, turn: Turn, seen: _Seen, history: Recalled) -> None:
        seen.waiting.append(turn)
        if seen.doubt is not None:
            if turn.synced <= seen.sequence:
                return  # perhaps never synced, and then not part of the history
            history.break_off(_lost(seen.doubt))
            seen.doubt = None
        for waiting in seen.waiting:
            history.place = (waiting.incarnation, waiting.first)
            history.apply(waiting.records)
            history.reached = (waiting.incarnation, waiting.last)
            seen.sequence = waiting.last
        seen.waiting.clear()

    def _is_loss(self, wrong: Finding, stage: Stage) -> bool:
        """Say whether what cannot be read in the last life cannot be what a crash leaves."""
        if wrong.kind is Kind.TORN_TAIL:
            return False
        if wrong.kind is not Kind.DAMAGED:
            return True
        if wrong.offset == 0 or wrong.path != stage.segments[-1].path:
            # A head is synced before anything follows it, and a segment before the next one.
            return True
        # A gap in the last segment: turns that were never synced, if the machine was lost. A
        # process that dies leaves none. Without a sync every turn the boot id decides the first.
        newest = self.newest
        if newest is None or newest.sync is not Sync.TURN:
            return True
        return is_whole_after_process_death(newest.boot_id, self.disk.boot_id)

    def _check_link(self, follows: Mark, history: Recalled, seen: _Seen) -> None:
        """Check that all of a life that the next one went on from has been read."""
        if seen.sequence < follows.sequence:
            history.break_off(
                f"records {seen.sequence + 1} to {follows.sequence} of life {follows.incarnation} "
                "cannot be read any more"
            )
        elif follows.contradicts(seen.digest):
            history.break_off(
                f"life {follows.incarnation} is not the one that the next life went on from"
            )

    def find(self, kind: Kind, path: str, reason: str) -> None:
        self.findings.append(Finding(kind=kind, path=path, offset=0, reason=reason))


def _lost(finding: Finding) -> str:
    return f"records that were safely written cannot be read: {finding}"
