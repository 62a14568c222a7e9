"""Recovery: what a replica knows of its earlier lives, and whether it may be counted on.

`recover` only reads; `begin_life` (in `life.py`) then makes the next life's journal. The history is
rebuilt from the newest snapshot that is whole and the records of all earlier lives, from a segment
on whose head says that the replica remembered no more than the snapshot there.

Each life says, in its first segment, from which record of which earlier life it went on. So what
of an earlier life counts was decided once, when the replica came back, and is not decided anew:

- Of earlier lives everything up to that record is needed. If it cannot be read any more, the
  history is *broken*, and the replica a zombie, unless a state taken over whole mends it later.
  A life that begins with a broken history writes down what is left of it anew (it is *fresh*), so
  that nothing has to be pieced together twice.
- Of the last life everything up to the first thing that cannot be read counts. What stands there
  may be a turn that the crash interrupted, or turns that were never synced: then nothing is lost.
  But if a later turn says that it had been synced, the disk has lost what it had promised to keep.

A replica is a *zombie* if

- it has been in a primary view and its journal is gone or broken, or
- it has been in a primary view, was not synced every turn, and its machine has been restarted
  since (the boot id tells), so that nobody knows what is missing; but if its last record says that
  it stopped on purpose, and everything before is there, nothing is, or
- its disk is empty and has no bootstrap mark, or
- it was one when it stopped, and neither accepted a primary view nor was recovered by hand since.

What a zombie's journal still holds is given all the same: a head start for catching up, and what
`mark_recovered` lets count again on the word of an operator.

Two limits, stated: a disk that was replaced by an old copy of itself cannot be told from one that
is up to date; and damage to the very last synced turn of a life, with nothing behind it, cannot be
told from a turn that the crash interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from coterie.journal.facts import Facts
from coterie.journal.format import (
    NO_DIGEST,
    Finding,
    Kind,
    Mark,
    Skipped,
    Sync,
    VersionUnknown,
    folder_of,
    read_segment_head,
)
from coterie.journal.history import History, Snapshots, mark_of, position_of
from coterie.journal.reader import LifeReader, Offset
from coterie.journal.removed import read_removed
from coterie.journal.segments import Life, list_lives
from coterie.journal.stable import Stable
from coterie.kernel.engine import Past
from coterie.kernel.views import NO_VIEW

if TYPE_CHECKING:
    from coterie.journal.disk import Disk
    from coterie.journal.format import SegmentHead
    from coterie.journal.segments import SegmentFile, Turn
    from coterie.journal.snapshots import Snapshot
    from coterie.kernel.engine import Run, Version
    from coterie.kernel.views import ViewId


def is_whole_after_process_death(boot_id_then: str, boot_id_now: str) -> bool:
    """Say whether only the process died since a journal was written, not the machine.

    write(2) survives a killed process, so then everything written is there. A system that does
    not tell its boot id (an empty one) leaves this unknown, and unknown is no.
    """
    return boot_id_then != "" and boot_id_then == boot_id_now


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a replica knows of its earlier lives."""

    group: str
    replica: str
    incarnation: int
    """The number of the next life."""
    is_zombie: bool
    reason: str
    """Why it is a zombie, or why it is not, in words for an operator."""
    is_broken: bool
    """Whether its journal has a gap, so that the next life cannot rest on it."""
    is_founder: bool
    """Whether it has the bootstrap mark, and may found its group."""
    facts: Facts
    snapshot: Snapshot | None
    """The state to begin with, if any."""
    runs: list[Run]
    """The entries above the snapshot, in order."""
    findings: tuple[Finding, ...]
    end: Mark
    """What the next life goes on from."""
    unsynced: tuple[str, ...] = ()
    """Files that must be synced before anything rests on them."""
    useless: tuple[str, ...] = ()
    """Snapshots that nothing will ever refer to."""

    @property
    def version(self) -> Version:
        """How advanced the history is."""
        return self.facts.version

    @property
    def settled(self) -> int:
        """Everything up to here is authoritative."""
        return self.facts.settled

    @property
    def highest_view_number(self) -> int:
        """No view it may have taken part in has a higher number."""
        return self.facts.highest_view_number

    @property
    def accepted(self) -> ViewId:
        """The last primary view it accepted; `NO_VIEW` if none."""
        return self.facts.accepted

    def past(self) -> Past:
        """Give all this as an engine takes it; reads the snapshot into memory."""
        snapshot = self.snapshot
        return Past(
            is_zombie=self.is_zombie,
            highest_view=self.highest_view_number,
            version=self.version,
            settled=self.settled,
            position=0 if snapshot is None else snapshot.position,
            chunks=() if snapshot is None else tuple(snapshot.chunks()),
            origins=() if snapshot is None else snapshot.head.origins,
            runs=tuple(self.runs),
        )


def recover(disk: Disk, group: str, replica: str, *, incarnation_min: int = 1) -> Recovery:
    """Read what a replica knows of its earlier lives; write nothing.

    *incarnation_min* is for a replica whose disk was replaced: its peers know how many lives it
    has had, and refuse a lower number.

    Raises `VersionUnknown` if the journal is of a release that this one cannot follow.
    """
    return _Recovering(disk, group, replica).recover(incarnation_min)


@dataclass(slots=True)
class _Stage:
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


class _Recovering:
    """One run of `recover`."""

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

    def recover(self, incarnation_min: int) -> Recovery:
        """Do it."""
        if self.stable.damage:
            self._find(Kind.DAMAGED, self.stable.path, self.stable.damage)
        stages, facts, base = self._plan()
        history = History(facts, self.snapshots, base)
        if facts.version.position > history.floor or facts.is_adopting:
            history.begin_broken("the beginning of the journal is not there")
        for stage in stages:
            self._read(stage, history)
        history.finish()
        if history.broken:
            self._find(Kind.CONTRADICTION, folder_of(self.group, self.replica), history.broken)
        is_zombie, reason = self._judge(history)
        numbers = [life.incarnation for life in self.lives]
        highest = max(self.stable.values.incarnation, self.snapshots.incarnation, *numbers, 0)
        return Recovery(
            group=self.group,
            replica=self.replica,
            incarnation=max(highest + 1, incarnation_min),
            is_zombie=is_zombie,
            reason=reason,
            is_broken=bool(history.broken),
            is_founder=self.stable.values.is_founder,
            facts=msgspec.structs.replace(history.facts(), is_zombie=is_zombie),
            snapshot=history.base,
            runs=history.runs,
            findings=tuple(self.findings),
            end=self.end,
            unsynced=tuple(file.path for stage in stages for file in stage.segments),
            useless=tuple(self.snapshots.never_adopted((self.end.incarnation, self.end.sequence))),
        )

    # ---- where to begin

    def _plan(self) -> tuple[list[_Stage], Facts, Snapshot | None]:
        """Walk back from the newest segment to one from which a snapshot leads on."""
        stages: list[_Stage] = []
        facts = Facts()
        own: Snapshot | None = None
        by_number = {life.incarnation: life for life in self.lives if life.segments}
        follows: Mark | None = Mark(max(by_number, default=0))
        is_last = True
        while follows is not None and follows.incarnation in by_number:
            life = by_number[follows.incarnation]
            stage = _Stage(life, None if is_last else follows)
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
                    own = self.snapshots.own(head.facts)
                stage.head = head
                facts = head.facts
                base = self._base_at(head, own)
                is_covered = facts.version.position <= position_of(base)
                if facts.is_fresh or (is_covered and not facts.is_adopting):
                    return stages, facts, base
            if stage.head is not None and stage.head.first == 1:
                follows, is_last = stage.head.follows, False
            elif stage.head is None and is_last:
                # A life that was begun and never used: the one before it is the last.
                follows = Mark(max((n for n in by_number if n < life.incarnation), default=0))
            else:
                follows = None  # how this life began cannot be read
        if self.newest is None:
            own = self.snapshots.own(facts)
        return stages, facts, own

    def _head(self, file: SegmentFile) -> SegmentHead | None:
        try:
            head = read_segment_head(self.disk, file.path).head
        except ValueError:
            return None  # reading the segment will say so
        except VersionUnknown as error:
            raise VersionUnknown(f"{file.path}: {error}") from None
        is_ours = (head.group, head.replica) == (self.group, self.replica)
        return head if is_ours else None

    def _base_at(self, head: SegmentHead, own: Snapshot | None) -> Snapshot | None:
        """Give the better base at the beginning of a segment: ours, or a state taken over."""
        facts = head.facts
        if not facts.restored:
            return own
        adopted = self.snapshots.adopted(facts.restored, before=facts.restored_at)
        if adopted is None or (own is not None and mark_of(own) >= mark_of(adopted)):
            return own
        return adopted

    # ---- reading

    def _read(self, stage: _Stage, history: History) -> None:
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

    def _on_finding(self, finding: Finding, stage: _Stage, seen: _Seen, history: History) -> None:
        self.findings.append(finding)
        if finding.kind is Kind.VOID:
            return
        if stage.next_follows is None and not self._is_loss(finding, stage):
            seen.doubt = seen.doubt or finding
        else:
            history.break_off(_lost(finding))

    def _on_turn(self, turn: Turn, seen: _Seen, history: History) -> None:
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

    def _is_loss(self, wrong: Finding, stage: _Stage) -> bool:
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
        return self.newest is None or self.newest.sync is not Sync.TURN

    def _check_link(self, follows: Mark, history: History, seen: _Seen) -> None:
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

    # ---- judging

    def _judge(self, history: History) -> tuple[bool, str]:
        """Say whether the replica is a zombie, and why or why not."""
        stable = self.stable
        has_been_primary = stable.has_been_primary or history.accepted != NO_VIEW
        if stable.exists and not stable.damage and not has_been_primary:
            if stable.values.is_founder:
                return False, "it founds the group and has not been in a primary view yet"
            if self.newest is None:
                return True, "it has not been in a primary view yet, and does not found the group"
        reason = self._what_is_missing() or history.broken or self._what_may_be_missing(history)
        if not reason and history.is_zombie:
            reason = "it was a zombie when it stopped, and had not been brought up to date"
        return bool(reason), reason or "its journal is whole"

    def _what_is_missing(self) -> str:
        stable = self.stable
        if not stable.exists and self.newest is None and not self.snapshots:
            return "the disk holds nothing of this replica, not even a bootstrap mark"
        if not stable.exists:
            return "its stable values are gone, though other things of it are there"
        if stable.damage:
            return f"its stable values cannot be read: {stable.damage}"
        if self.newest is None:
            return "it has been in a primary view, and its journal is gone"
        return ""

    def _what_may_be_missing(self, history: History) -> str:
        newest = self.newest
        assert newest is not None
        if newest.sync is Sync.TURN or is_whole_after_process_death(
            newest.boot_id, self.disk.boot_id
        ):
            return ""
        if history.has_stopped:
            return ""  # a life writes nothing after that, so there is nothing to be missed
        return (
            f"its machine has been restarted, and with sync = {newest.sync.value!r} nobody knows "
            "what was lost"
        )

    def _find(self, kind: Kind, path: str, reason: str) -> None:
        self.findings.append(Finding(kind=kind, path=path, offset=0, reason=reason))


def _lost(finding: Finding) -> str:
    return f"records that were safely written cannot be read: {finding}"
