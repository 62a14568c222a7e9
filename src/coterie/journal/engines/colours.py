"""Recovery of a server of **transis**: what it promised, which actions it knows, in which colour.

Where the algorithm forces the disk the journal does, whatever `sync` says: what a replica says in
an exchange, that it attempts a primary component, and that it installed one (`Promises`). They are
on stable storage as well, with the place of the record that made them. Everything else, the
actions above all, is written and synced as the group wants it: with `sync = "none"` no action waits
for a disk.

That costs nothing but actions: a replica that comes back with fewer than it had is *vulnerable*
wherever others may rest on what it forgot. So the loss of what was never synced makes no zombie.
These do:

- its stable values are gone or cannot be read;
- it has said that it is ready for a primary component, and its journal is gone, is broken, or does
  not lead to the promises that are on stable storage;
- its disk is empty and has no bootstrap mark, or it was a zombie when it stopped, and has not been
  in a primary component since.

A zombie begins with nothing, in a life that rests on no record before it (it is *fresh*). What it
learns from then on is true, and is kept through further lives; it counts again when it has
installed a primary component, with all that the others know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

import msgspec
from msgspec.structs import replace

from coterie.journal.above_snapshot import AboveSnapshot, ReadingBack
from coterie.journal.facts import Facts, Memory
from coterie.journal.family import Adoption, JournalFamily, LifeFound
from coterie.journal.format import Kind, Mark, Sync, WrongJournal, folder_of
from coterie.journal.keeper import Keeper, KeeperSettings
from coterie.journal.replay import is_whole_after_process_death
from coterie.kernel import components
from coterie.kernel.components import Action, ActionId, Promises
from coterie.kernel.decoding import Decoder
from coterie.kernel.engine import Past, Run
from coterie.kernel.past_lives import fold, past_lives_in
from coterie.kernel.records import (
    ActionsGreen,
    ActionsKnown,
    ColoursRecord,
    ComponentAttempted,
    ComponentInstalled,
    ComponentState,
    GreenLines,
    Replied,
    StateAdopted,
    StateDigest,
    StateEntered,
    ViewInstalled,
    ViewProposed,
)
from coterie.kernel.views import Viewstamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.journal.disk import Disk
    from coterie.journal.format import Finding
    from coterie.journal.replay import Stage
    from coterie.journal.snapshots import Snapshot
    from coterie.journal.stable import StableValues
    from coterie.journal.writer import JournalWriter
    from coterie.kernel.engine import Checkpoint
    from coterie.kernel.records import Record
    from coterie.kernel.views import Configuration, Member


class StoredPromises(msgspec.Struct, frozen=True, array_like=True):
    """Promises on stable storage, with the life and the record that made them."""

    life: int
    record: int
    promises: Promises


_stored_decoder = Decoder(StoredPromises)
_memory_decoder = Decoder(components.ServerMemory)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColoursRecovery(LifeFound):
    """What a server knows of its earlier lives."""

    is_zombie: bool
    is_fresh: bool
    """Whether the next life rests on nothing before it."""
    memory: components.ServerMemory | None
    """All that it knows; None if that is nothing."""
    runs: list[Run] = field(default_factory=list)
    """The green actions above the snapshot."""
    stored: StoredPromises | None = None

    @property
    def family(self) -> JournalFamily:
        return COLOURS

    @property
    def promises(self) -> StoredPromises | None:
        return self.stored

    @property
    def bytes_above(self) -> int:
        return sum(len(each) for run in self.runs for each in run.payloads)

    def past(self) -> Past:
        """Give all this as an engine takes it, with the state of the snapshot."""
        snapshot, memory = self.snapshot, self.memory
        return Past(
            is_zombie=self.is_zombie,
            highest_view=self.facts.highest_view_number,
            position=0 if snapshot is None else snapshot.position,
            chunks=self.chunks()[1:],
            origins=() if snapshot is None else snapshot.head.origins,
            runs=tuple(self.runs),
            more=memory,
        )


class ColoursMemory(Memory):
    """Follows the records of a server: its promises, which are stable values, and its views."""

    def __init__(self, facts: Facts, stored: StoredPromises | None) -> None:
        super().__init__(facts)
        self.promises = self.stored = stored
        self.is_zombie = facts.is_zombie
        self.highest_view_number = facts.highest_view_number
        self.acts = {
            ViewProposed: self._on_view,
            ViewInstalled: self._on_view,
            ComponentState: self._on_component,
            ComponentAttempted: self._on_component,
            ComponentInstalled: self._on_component,
        }

    def facts(self) -> Facts:
        return Facts(is_zombie=self.is_zombie, highest_view_number=self.highest_view_number)

    def _on_view(self, record: ViewProposed | ViewInstalled) -> None:
        self.highest_view_number = max(self.highest_view_number, record.view.number)

    def _on_component(
        self, record: ComponentState | ComponentAttempted | ComponentInstalled
    ) -> None:
        self.is_zombie = record.promises.is_zombie
        self.promises = self.stored = StoredPromises(*self.place, record.promises)


class ColoursHistory(ColoursMemory, AboveSnapshot):
    """What a server knows as its records tell it, above a snapshot."""

    def __init__(self, base: Snapshot | None) -> None:
        ColoursMemory.__init__(self, Facts(), None)
        AboveSnapshot.__init__(self, base)
        self.is_in_component = False
        """Whether the last promises are those of a primary component that may have gone on."""
        self.forget()
        self.acts |= {
            ActionsKnown: self._on_known,
            ActionsGreen: self._on_green,
            GreenLines: self._on_lines,
            StateAdopted: self._on_adopted,
        }

    def forget(self) -> None:
        self.promises = self.stored = None
        self.is_zombie = self.is_in_component = False
        self.position = 0
        self.greens: dict[Member, int] = {}
        self.actions: dict[ActionId, Action] = {}
        self.lines: tuple[tuple[str, int], ...] = ()
        self.time = 0
        self.runs: list[Run] = []

    def memory(self) -> components.ServerMemory | None:
        """Give all that is known, as an engine takes it."""
        if self.stored is None:
            return None
        return components.ServerMemory(
            self.stored.promises,
            self.position,
            tuple(sorted(self.greens.items())),
            tuple(self.actions.values()),
            self.lines,
            self.time,
            self.highest_view_number,
        )

    # ---- lives

    def begin_life(self, facts: Facts) -> None:
        """Go on with the next life; a fresh one rests on nothing before it."""
        super().begin_life(facts)
        self.highest_view_number = max(self.highest_view_number, facts.highest_view_number)
        if facts.is_fresh:
            self.is_zombie = facts.is_zombie

    def take_base(self, base: Snapshot) -> None:
        self.forget()
        memory = _memory_of(base)
        self.promises = self.stored = StoredPromises(*self.reached, memory.promises)
        self.is_zombie = memory.promises.is_zombie
        attempt = memory.promises.vulnerable
        self.is_in_component = attempt is not None and (
            attempt.attempt == memory.promises.prim.attempt
        )
        self.position, self.greens = memory.position, dict(memory.greens)
        self.actions = {action.id: action for action in memory.actions}
        self.lines, self.time = memory.lines, memory.time
        self.highest_view_number = max(self.highest_view_number, memory.view_number)

    def apply(self, records: Iterable[Record]) -> None:
        """Take the records of one turn."""
        self.reach_base()
        if not self.is_at_base:
            # The snapshot is ahead, and holds all that these say but the views.
            for record in records:
                if isinstance(record, ViewProposed | ViewInstalled):
                    self._on_view(record)
            return
        super().apply(records)
        if self.contradictions:
            self.break_off(f"the records contradict each other: {self.contradictions.pop()}")

    # ---- records

    def _on_component(
        self, record: ComponentState | ComponentAttempted | ComponentInstalled
    ) -> None:
        super()._on_component(record)
        self.is_in_component = isinstance(record, ComponentInstalled)

    def _on_known(self, record: ActionsKnown) -> None:
        for action in record.actions:
            self.actions.setdefault(action.id, action)
            self.time = max(self.time, action.time)

    def _on_green(self, record: ActionsGreen) -> None:
        if record.position != self.position + 1:
            self.contradict(f"{record.position} became green where {self.position + 1} comes next")
            return
        for offset, id in enumerate(record.actions):
            action = self.actions.pop(id, None)
            if action is None:
                self.contradict(f"{id} became green, and is not known")
                return
            self.position += 1
            self.greens[id.creator] = id.index
            fold(self.greens, past_lives_in(action.command))
            number = record.number + offset
            self.runs.append(
                Run(record.view, number, self.position, id.creator, id.index, [action.command])
            )

    def _on_lines(self, record: GreenLines) -> None:
        self.lines = record.lines

    def _on_adopted(self, record: StateAdopted) -> None:
        # The snapshot with that state stands behind this very turn; without it nothing is whole.
        self.contradict(f"the state taken over from {record.source} is not on the disk")


class _Recovering(ReadingBack[ColoursHistory]):
    """One run of a recovery."""

    def begin_at(self, base: Snapshot | None) -> ColoursHistory:
        return ColoursHistory(base)

    def why_unreadable(self, base: Snapshot) -> str:
        try:
            memory = _memory_of(base)
        except msgspec.DecodeError as error:
            return f"what it begins with is no server's memory: {error}"
        head = base.head
        is_same = memory.position == head.position and dict(memory.greens) == dict(head.origins)
        if not is_same:
            return "its head and its memory speak of different actions"
        mine = [each for each, _ in memory.greens if each.id == self.replica]
        if any(each.incarnation > head.incarnation for each in mine):
            return "it has actions of a life that came later"
        return ""

    def recover(self, incarnation_min: int) -> ColoursRecovery:
        """Read the journal back, and judge whether anything is lost that it rests on."""
        stable = self.stable
        if not COLOURS.owns(stable.values):
            raise WrongJournal(
                f"replica {self.replica} of group {self.group} has another engine by its journal: "
                "it cannot be changed"
            )
        if stable.damage:
            self.find(Kind.DAMAGED, stable.path, stable.damage)
        history, stages = self.read_back()
        lost = self._what_is_lost(history)
        if lost:
            self.find(Kind.CONTRADICTION, folder_of(self.group, self.replica), lost)
        was_zombie = history.is_zombie and not lost
        is_new = self.newest is None and not stable.values.is_founder
        is_zombie = bool(lost) or was_zombie or is_new
        reason = lost or (
            "it was a zombie when it stopped, and has not been in a primary component since"
            if was_zombie
            else "it does not found the group, and has nothing on its disk"
            if is_new
            else "its journal is broken, but it has never been ready for a primary component"
            if history.lost
            else "its journal is whole"
        )
        is_fresh = bool(lost or history.lost) or is_new
        memory = None if is_fresh else history.memory()
        if memory is not None and self._may_have_forgotten(history, stages):
            memory = _forgetful(memory, self.replica)
            reason = "its machine was lost in a primary component, with what was not synced"
        facts = Facts(
            is_zombie=is_zombie,
            highest_view_number=history.highest_view_number,
            is_fresh=is_fresh,
        )
        return ColoursRecovery(
            group=self.group,
            replica=self.replica,
            incarnation=self.next_incarnation(incarnation_min),
            is_zombie=is_zombie,
            is_fresh=is_fresh,
            reason=reason,
            facts=facts,
            snapshot=None if is_fresh else history.base,
            memory=memory,
            runs=[] if is_fresh else history.runs,
            stored=None if is_fresh else history.stored,
            findings=tuple(self.findings),
            end=self.end,
            unsynced=tuple(file.path for stage in stages for file in stage.segments),
            useless=self.useless(history.base),
        )

    def _is_loss(self, wrong: Finding, stage: Stage) -> bool:
        """Say whether what cannot be read in the last life cannot be what a crash leaves.

        Also where turns are not synced: then a lost machine leaves gaps as well, and which of its
        turns had been synced is said by those behind.
        """
        if wrong.kind is not Kind.DAMAGED:
            return wrong.kind is not Kind.TORN_TAIL
        if wrong.offset == 0 or wrong.path != stage.segments[-1].path:
            return True
        newest = self.newest
        return newest is None or is_whole_after_process_death(newest.boot_id, self.disk.boot_id)

    def _may_have_forgotten(self, history: ColoursHistory, stages: list[Stage]) -> bool:
        """Say whether it may have made something green that went with its machine."""
        stored = history.stored
        if stored is None or not history.is_in_component:
            return False
        heads = [each.head for each in stages if each.head is not None]
        head = next((each for each in heads if each.incarnation == stored.life), self.newest)
        return (
            head is not None
            and head.sync is not Sync.TURN
            and not is_whole_after_process_death(head.boot_id, self.disk.boot_id)
        )

    def _what_is_lost(self, history: ColoursHistory) -> str:
        """Say what is missing that it promised to keep, in words; nothing if nothing is."""
        stable = self.stable
        if not stable.exists and (self.newest is not None or self.snapshots):
            return "its stable values are gone, though other things of it are there"
        if stable.damage:
            return f"its stable values cannot be read: {stable.damage}"
        if stable.has_been_primary and self.newest is None:
            return "it has been ready for a primary component, and its journal is gone"
        if stable.has_been_primary and not history.lost and stable.promises is not None:
            stored = _stored(stable.promises)
            if stored is None:
                return "which promises are on stable storage cannot be read"
            if history.stored is None or _place(history.stored) < _place(stored):
                return "its journal ends before what it promised last"
        return history.lost if stable.has_been_primary else ""


def _memory_of(base: Snapshot) -> components.ServerMemory:
    """Read what a snapshot begins with; the state of the object follows."""
    first = next(iter(base.chunks()), b"")
    return _memory_decoder.decode(first)


def _stored(promises: msgspec.Raw | None) -> StoredPromises | None:
    """Read promises; none if they cannot be read, which whoever recovers a replica has said."""
    try:
        return None if promises is None else _stored_decoder.decode(promises)
    except msgspec.DecodeError:
        return None


def _forgetful(memory: components.ServerMemory, replica: str) -> components.ServerMemory:
    """Have the record of the attempt no longer say that its holder knows what it made green."""
    attempt = memory.promises.vulnerable
    if attempt is None:
        return memory
    seen = tuple(each for each in attempt.seen if each != replica)
    promises = replace(memory.promises, vulnerable=replace(attempt, seen=seen))
    return replace(memory, promises=promises)


def _place(stored: StoredPromises) -> tuple[int, int]:
    return (stored.life, stored.record)


class ColoursKeeper(Keeper):
    """Keeps the journal of a server for one life."""

    recovery: ColoursRecovery

    def past(self) -> Past:
        """Give what the engine is to know of earlier lives."""
        return self.recovery.past()


class ColoursJournal(JournalFamily):
    """The journals of servers under **transis**."""

    name = "colours"
    kinds = frozenset(get_args(ColoursRecord))
    forced = frozenset({ComponentState, ComponentAttempted, ComponentInstalled})
    promises_nothing = frozenset({GreenLines, Replied, StateDigest, StateEntered})
    sets_recovery_bit = frozenset({ComponentAttempted})
    syncs_before_snapshots = True

    def owns(self, values: StableValues) -> bool:
        # A replica whose disk was replaced has a file that says nothing yet.
        return values.family == self.name or not (values.family or values.is_founder)

    def memory(self, facts: Facts, promises: msgspec.Raw | None = None) -> ColoursMemory:
        return ColoursMemory(facts, _stored(promises))

    def adoption(self, writer: JournalWriter, records: Sequence[Record]) -> Adoption | None:
        if not any(isinstance(record, StateAdopted) for record in records):
            return None
        # It is the state at the end of this turn, so it has the number of its last record.
        return Adoption(Mark(writer.incarnation, writer.sequence + len(records)))

    def stored(self, checkpoint: Checkpoint) -> Checkpoint:
        # A snapshot belongs to a place in the journal, not to a position: its head says so.
        version = checkpoint.version
        return checkpoint._replace(history=(Viewstamp(version.view, version.position),))

    def recover(
        self,
        disk: Disk,
        group: str,
        replica: str,
        configuration: Configuration | None = None,
        *,
        incarnation_min: int = 1,
    ) -> ColoursRecovery:
        del configuration  # promises carry what is needed of it
        return _Recovering(disk, group, replica).recover(incarnation_min)

    def open(
        self, disk: Disk, found: LifeFound, settings: KeeperSettings | None = None, *, at: int = 0
    ) -> ColoursKeeper:
        assert isinstance(found, ColoursRecovery), "what this family found"
        return ColoursKeeper(disk, found, settings, at=at)


COLOURS = ColoursJournal()
