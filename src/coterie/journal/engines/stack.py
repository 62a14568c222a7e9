"""Recovery: what a replica knows of its earlier lives, and whether it may be counted on.

`recover` only reads; `begin_life` then makes the next life's journal. The history is rebuilt from
the newest snapshot that is whole and the records of all earlier lives, from a segment on whose head
says that the replica remembered no more than the snapshot there.

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
from typing import TYPE_CHECKING, get_args

import msgspec

from coterie.journal.engines.stack_history import History, position_of
from coterie.journal.engines.stack_memory import StackMemory
from coterie.journal.facts import Facts
from coterie.journal.family import Adoption, JournalFamily, LifeFound
from coterie.journal.format import Kind, WrongJournal, folder_of
from coterie.journal.replay import Recalling
from coterie.journal.snapshots import mark_of
from coterie.journal.stable import found_group
from coterie.kernel.engine import Past, Version
from coterie.kernel.records import (
    ConfigurationSettled,
    EngineRecord,
    EntriesAccepted,
    GroupRecord,
    HistoryAdopted,
    PrimaryAccepted,
    Replied,
    Settled,
    Started,
    StateDigest,
    Stopped,
)
from coterie.kernel.views import NO_VIEW, Member

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.journal.disk import Disk
    from coterie.journal.engines.stack_keeper import JournalKeeper
    from coterie.journal.format import SegmentHead
    from coterie.journal.keeper import KeeperSettings
    from coterie.journal.replay import Stage
    from coterie.journal.snapshots import Snapshot
    from coterie.journal.stable import StableValues
    from coterie.journal.writer import JournalWriter
    from coterie.kernel.engine import Run
    from coterie.kernel.records import Record
    from coterie.kernel.views import Configuration, ViewId

_TURN_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery(LifeFound):
    """What a replica knows of its earlier lives."""

    is_zombie: bool
    is_broken: bool
    """Whether its journal has a gap, so that the next life cannot rest on it."""
    is_founder: bool
    """Whether it has the bootstrap mark, and may found its group."""
    runs: list[Run] = field(default_factory=list)
    """The entries above the snapshot, in order."""

    @property
    def family(self) -> JournalFamily:
        return STACK

    @property
    def counted(self) -> object:
        origins = () if self.snapshot is None else self.snapshot.head.origins
        return (origins, [(run.number, run.first, run.position) for run in self.runs])

    @property
    def has_been_primary(self) -> bool:
        return self.accepted != NO_VIEW

    @property
    def bytes_above(self) -> int:
        return sum(len(each) for run in self.runs for each in run.payloads)

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
        """Give all this as an engine takes it, with the state of the snapshot."""
        snapshot = self.snapshot
        return Past(
            is_zombie=self.is_zombie,
            highest_view=self.highest_view_number,
            version=self.version,
            settled=self.settled,
            position=0 if snapshot is None else snapshot.position,
            chunks=self.chunks(),
            origins=() if snapshot is None else snapshot.head.origins,
            runs=tuple(self.runs),
        )


def recover(disk: Disk, group: str, replica: str, *, incarnation_min: int = 1) -> Recovery:
    """Read what a replica knows of its earlier lives; write nothing.

    *incarnation_min* is for a replica whose disk was replaced: its peers know how many lives it
    has had, and refuse a lower number.

    Raises `VersionUnknown` if the journal is of a release that this one cannot follow, and
    `WrongJournal` if it is that of another engine family.
    """
    return _Recovering(disk, group, replica).recover(incarnation_min)


class _Recovering(Recalling):
    """One run of `recover`."""

    def recover(self, incarnation_min: int) -> Recovery:
        """Read the journal back, and judge whether anything is lost that it rests on."""
        if not STACK.owns(self.stable.values):
            raise WrongJournal(
                f"replica {self.replica} of group {self.group} has no stack by its journal: its "
                "engine is another one, and cannot be changed"
            )
        if self.stable.values.is_removed:
            raise WrongJournal(
                f"replica {self.replica} was removed from group {self.group}: add a replica with a "
                "new id instead"
            )
        if self.stable.damage:
            self.find(Kind.DAMAGED, self.stable.path, self.stable.damage)
        stages, facts, base = self._plan()
        history = History(facts, self.snapshots, base)
        if facts.version.position > history.floor or facts.is_adopting:
            history.begin_broken("the beginning of the journal is not there")
        for stage in stages:
            self.read(stage, history)
        history.finish()
        if history.broken:
            self.find(Kind.CONTRADICTION, folder_of(self.group, self.replica), history.broken)
        is_zombie, reason = self._judge(history)
        return Recovery(
            group=self.group,
            replica=self.replica,
            incarnation=self.next_incarnation(incarnation_min),
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

    def _plan(self) -> tuple[list[Stage], Facts, Snapshot | None]:
        """Find the newest segment from which a snapshot leads on."""
        facts = Facts()
        own: Snapshot | None = None
        found: Snapshot | None = None

        def is_enough(head: SegmentHead) -> bool:
            nonlocal facts, own, found
            if head is self.newest:
                own = self.snapshots.own(head.facts)
            facts = head.facts
            base = self._base_at(head, own)
            is_covered = facts.version.position <= position_of(base)
            if facts.is_fresh or (is_covered and not facts.is_adopting):
                found = base
                return True
            return False

        stages = self.walk_back(is_enough)
        if self.newest is None:
            own = self.snapshots.own(facts)
        return stages, facts, found or own

    def _base_at(self, head: SegmentHead, own: Snapshot | None) -> Snapshot | None:
        """Give the better base at the beginning of a segment: ours, or a state taken over."""
        facts = head.facts
        if not facts.restored:
            return own
        adopted = self.snapshots.adopted(facts.restored, before=facts.restored_at)
        if adopted is None or (own is not None and mark_of(own) >= mark_of(adopted)):
            return own
        return adopted

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
        if not self.may_miss_turns(has_stopped=history.has_stopped):
            return ""
        return (
            f"its machine has been restarted, and with sync = {newest.sync.value!r} nobody knows "
            "what was lost"
        )


# ---- the next life


def _fresh_facts(recovery: Recovery) -> Facts:
    """Give the facts of a life that rests on the snapshot only."""
    base = None if recovery.snapshot is None else recovery.snapshot.head
    position = 0 if base is None else base.position
    return msgspec.structs.replace(
        recovery.facts,
        version=Version(recovery.version.view, position),
        settled=position,
        restored=0,
        restored_at=(0, 0),
        rebased=(recovery.incarnation, 0),
        base=(0, 0, 0) if base is None else (base.incarnation, base.sequence, base.position),
        is_fresh=True,
    )


def _write_anew(writer: JournalWriter, recovery: Recovery, at: int) -> None:
    """Write down the entries above the snapshot, as a history adopted from ourselves."""
    group, me = recovery.group, Member(recovery.replica, recovery.incarnation)
    kept = recovery.runs[0].position - 1
    turn: list[Record] = [
        HistoryAdopted(
            group=group,
            member=me,
            at=at,
            view=recovery.version.view,
            source=me,
            version=recovery.version,
            kept=kept,
            restored=0,
        )
    ]
    size = 0
    for run in recovery.runs:
        turn.append(EntriesAccepted(group=group, member=me, at=at, run=run))
        size += sum(map(len, run.payloads))
        if size > _TURN_BYTES:
            writer.append(turn)
            turn, size = [], 0
    if recovery.settled > kept:
        turn.append(Settled(group=group, member=me, at=at, position=recovery.settled))
    writer.append(turn)
    writer.sync()


class StackJournal(JournalFamily):
    """Stacks of layers: group communication, and the engines that order entries."""

    name = "stack"
    kinds = frozenset({*get_args(GroupRecord), *get_args(EngineRecord)} - {Started, Stopped})
    promises_nothing = frozenset({Settled, ConfigurationSettled, Replied, StateDigest})
    may_follow = frozenset({Settled, Replied})
    sets_recovery_bit = frozenset({PrimaryAccepted})

    def found(
        self, disk: Disk, group: str, replica: str, configuration: Configuration | None = None
    ) -> None:
        del configuration  # views carry it
        found_group(disk, group, replica)

    def owns(self, values: StableValues) -> bool:
        return not values.family and values.configuration is None

    def memory(self, facts: Facts, promises: msgspec.Raw | None = None) -> StackMemory:
        del promises
        return StackMemory(facts)

    def adoption(self, writer: JournalWriter, records: Sequence[Record]) -> Adoption | None:
        for record in records:
            if isinstance(record, HistoryAdopted) and record.restored:
                return Adoption(writer.end, record.restored)
        return None

    def recover(
        self,
        disk: Disk,
        group: str,
        replica: str,
        configuration: Configuration | None = None,
        *,
        incarnation_min: int = 1,
    ) -> Recovery:
        del configuration
        return recover(disk, group, replica, incarnation_min=incarnation_min)

    def open(
        self, disk: Disk, found: LifeFound, settings: KeeperSettings | None = None, *, at: int = 0
    ) -> JournalKeeper:
        from coterie.journal.engines.stack_keeper import JournalKeeper  # noqa: PLC0415

        assert isinstance(found, Recovery), "what this family found"
        return JournalKeeper(disk, found.group, found.replica, settings, found=found, at=at)

    def first_facts(self, found: LifeFound) -> Facts:
        assert isinstance(found, Recovery), "what this family found"
        return _fresh_facts(found) if found.is_broken else found.facts

    def begun(self, writer: JournalWriter, found: LifeFound, *, at: int) -> None:
        assert isinstance(found, Recovery), "what this family found"
        if found.is_broken and found.runs:
            _write_anew(writer, found, at)


STACK = StackJournal()
