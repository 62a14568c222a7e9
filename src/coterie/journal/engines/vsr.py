"""Recovery of a cohort: what it promised, and its state if that is still there.

Three things are asked, one after the other:

1. *Stable storage.* The configuration, and the views that the cohort promised and was active in,
   are in the file of stable values, synced at every change. A cohort without it cannot take part:
   it might help a primary against one that it has forgotten. One that was founded with quite
   others is not the cohort that was meant. Who belongs to the group by now is in its history.
2. *The state.* It is that of the newest snapshot whose place the journal reaches, with the events
   known since. A snapshot is the state right after the record it names, whether it was taken in
   passing or came from a primary with `StateTaken`.
3. *Whether that is all it knew.* Synced every turn it is. Where only the process died, or it
   stopped on purpose, too. Where the machine was lost, events may be missing that it had
   acknowledged, unless it was not active (all it promised was synced with the invitation), or was
   the primary and synced its own events.

A cohort without all of its state accepts invitations as *crashed*; its views still count. `Started`
says so on record: what comes after it counts again only from the next `StateTaken` on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import msgspec

from coterie.journal.above_snapshot import AboveSnapshot, ReadingBack
from coterie.journal.facts import Facts, Memory
from coterie.journal.family import Adoption, JournalFamily, LifeFound
from coterie.journal.format import Kind, Mark, Sync, WrongJournal, folder_of
from coterie.journal.stable import found_group
from coterie.kernel.cohorts import CohortViews, EventSpan
from coterie.kernel.decoding import Decoder
from coterie.kernel.engine import Version
from coterie.kernel.records import (
    ConfigurationForced,
    EventsKnown,
    Forced,
    InvitationAccepted,
    InvitationsMade,
    Started,
    StateAt,
    StateTaken,
    Stopped,
    ViewStarted,
    VsrRecord,
)
from coterie.kernel.views import NO_VIEW, Viewstamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.journal.disk import Disk
    from coterie.journal.engines.vsr_keeper import CohortKeeper
    from coterie.journal.keeper import KeeperSettings
    from coterie.journal.snapshots import Snapshot
    from coterie.journal.stable import StableValues
    from coterie.journal.writer import JournalWriter
    from coterie.kernel.engine import Checkpoint
    from coterie.kernel.records import Record
    from coterie.kernel.views import Configuration

NOTHING = (Viewstamp(NO_VIEW, 0),)
"""The history of the empty state, with which a group begins."""
_views_decoder = Decoder(CohortViews)


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortRecovery(LifeFound):
    """What a cohort knows of its earlier lives."""

    configuration: Configuration
    views: CohortViews
    has_state: bool
    base: tuple[Viewstamp, ...]
    """What the snapshot reflects; without a snapshot, that of the empty state."""
    spans: list[EventSpan]
    """The events known since, in order."""
    history: tuple[Viewstamp, ...]
    """What the state reflects after these; empty if it is lost."""

    @property
    def family(self) -> JournalFamily:
        return VSR

    @property
    def promises(self) -> CohortViews:
        return self.views

    @property
    def counted(self) -> object:
        return self.history

    @property
    def bytes_above(self) -> int:
        return sum(len(event) for span in self.spans for event in span.events)


def recover_cohort(
    disk: Disk, group: str, replica: str, configuration: Configuration, *, incarnation_min: int = 1
) -> CohortRecovery:
    """Read what a cohort knows of its earlier lives; write nothing.

    Raises `WrongJournal` if it cannot take part: its stable values are gone, or those of another
    configuration or engine. Raises `VersionUnknown` if a later release wrote the journal.
    """
    return _RecoveringCohort(disk, group, replica).recover(configuration, incarnation_min)


def _views(promises: msgspec.Raw | None) -> CohortViews:
    return CohortViews() if promises is None else _views_decoder.decode(promises)


class CohortMemory(Memory):
    """Follows the records of a cohort: its views, which are stable values, and no facts.

    `InvitationsMade`, `InvitationAccepted` and `ViewStarted` change its views.
    """

    def __init__(self, facts: Facts, views: CohortViews) -> None:
        super().__init__(facts)
        self.views = self.promises = views
        """What it promised, and where it was active."""
        self.is_zombie = facts.is_zombie
        self.has_state = not facts.is_zombie
        self.acts = {
            Started: self._on_started,
            InvitationsMade: self._on_promise,
            InvitationAccepted: self._on_promise,
            ViewStarted: self._on_view_started,
            StateTaken: self._on_state_taken,
        }

    def facts(self) -> Facts:
        return Facts(is_zombie=self.is_zombie)

    def may_be_stored(self, position: int) -> bool:
        del position
        return self.has_state

    def _on_started(self, record: Started) -> None:
        self.is_zombie = self.is_zombie or record.is_zombie

    def _on_promise(self, record: InvitationsMade | InvitationAccepted) -> None:
        self.views = self.promises = self.views.promised(record.view)

    def _on_view_started(self, record: ViewStarted) -> None:
        is_primary = record.primary == record.member
        self.views = self.promises = self.views.started(record.view, is_primary=is_primary)

    def _on_state_taken(self, record: StateTaken) -> None:
        del record
        self.has_state = True


class _CohortHistory(CohortMemory, AboveSnapshot):
    """The state of a cohort as its records tell it: a snapshot and the events known since."""

    def __init__(self, base: Snapshot | None, views: CohortViews) -> None:
        CohortMemory.__init__(self, Facts(), views)
        AboveSnapshot.__init__(self, base)
        self.spans: list[EventSpan] = []
        self.forget()
        self.has_stopped = False
        """Whether the last record says that the life ended on purpose."""

    def begin_life(self, facts: Facts) -> None:
        """Go on with the next life: its `Started` tells whether it had a state."""
        super().begin_life(facts)
        self.has_stopped = False

    def take_base(self, base: Snapshot) -> None:
        del base
        self.forget()

    def forget(self) -> None:
        self.base_history = NOTHING if self.base is None else self.base.head.history or NOTHING
        self.known: list[Viewstamp] = list(self.base_history)
        self.spans.clear()

    def apply(self, records: Iterable[Record]) -> None:
        """Take the records of one turn."""
        self.reach_base()
        for record in records:
            self.has_stopped = isinstance(record, Stopped)
            super().apply((record,))
            if self.is_at_base and not self.lost:
                self._follow(record)

    def _follow(self, record: Record) -> None:
        match record:
            case EventsKnown():
                self._learn(record)
            case ViewStarted(history=()):
                self.break_off(f"view {record.view} began without a history")
            case ViewStarted(history=history):
                last, first = self.known[-1], history[-1]
                if first != last and (first.number or first.view <= last.view):
                    self.break_off(f"view {record.view} began at {first}, and here is {last}")
                self.known = list(history)
            case StateTaken(source=source):
                self.break_off(f"the state taken over from {source} is not on the disk")
            case Started(is_zombie=True):
                self.break_off("it had lost its state before, and has not been brought up to date")

    def _learn(self, record: EventsKnown) -> None:
        last = self.known[-1]
        if record.view > last.view:
            # On its way into a later view it went through this one.
            last = Viewstamp(record.view, 0)
            self.known.append(last)
        if record.view != last.view or record.first != last.number + 1:
            self.break_off(f"event {record.first} of {record.view} was learned after {last}")
            return
        self.known[-1] = Viewstamp(last.view, last.number + len(record.events))
        self.spans.append(EventSpan(record.view, record.first, record.events))


class _RecoveringCohort(ReadingBack[_CohortHistory]):
    """One run of `recover_cohort`."""

    def begin_at(self, base: Snapshot | None) -> _CohortHistory:
        return _CohortHistory(base, _views(self.stable.promises))

    def recover(self, configuration: Configuration, incarnation_min: int) -> CohortRecovery:
        """Read the journal back, and judge whether anything is lost that it rests on."""
        configuration = self._check_stable(configuration)
        history, stages = self.read_back()
        reason = self._what_is_lost(history)
        if reason:
            self.find(Kind.CONTRADICTION, folder_of(self.group, self.replica), reason)
        reason = reason or self._what_may_be_lost(history)
        has_state = not reason
        return CohortRecovery(
            group=self.group,
            replica=self.replica,
            incarnation=self.next_incarnation(incarnation_min),
            configuration=configuration,
            views=history.views,
            has_state=has_state,
            reason=reason or "its journal is whole",
            base=history.base_history,
            snapshot=history.base if has_state else None,
            spans=history.spans if has_state else [],
            history=tuple(history.known) if has_state else (),
            facts=msgspec.structs.replace(history.facts(), is_zombie=not has_state),
            findings=tuple(self.findings),
            end=self.end,
            unsynced=tuple(file.path for stage in stages for file in stage.segments),
            useless=self.useless(history.base),
        )

    def _check_stable(self, configuration: Configuration) -> Configuration:
        """Give the configuration with which the cohort was founded, or those whom it joined."""
        stable = self.stable
        who = f"cohort {self.replica} of group {self.group}"
        if not stable.exists or stable.damage:
            why = stable.damage or "the disk holds none"
            raise WrongJournal(
                f"{who} cannot take part without its stable values ({why}): it may have promised "
                "views that it has forgotten. Start it with its own disk, or, if the group is new, "
                "found it"
            )
        try:
            _views(stable.promises)
        except msgspec.DecodeError as error:
            raise WrongJournal(
                f"{who} cannot take part: which views it has promised cannot be read ({error}). "
                "Start it with its own disk"
            ) from None
        stored = stable.values.configuration
        if stored is None or not VSR.owns(stable.values):
            raise WrongJournal(
                f"{who} is no cohort by its journal: its engine is another one, and cannot be "
                "changed"
            )
        if stored.number and not {*stored.members, self.replica} & {*configuration.members}:
            # Members change while a group serves, and the file that a cohort is started with is
            # older or younger than its history; but it is of the same group.
            raise WrongJournal(
                f"{who} belongs, by its stable values, to a group of {', '.join(stored.members)}, "
                f"and was started with {', '.join(configuration.members)}: give it the file of its "
                "own group"
            )
        return stored

    # ---- judging

    def _what_is_lost(self, history: _CohortHistory) -> str:
        """Say what is surely missing of the state, in words; nothing if nothing is."""
        if history.lost:
            return history.lost
        if history.known[-1].view < history.views.cur_viewid:
            return (
                f"it was active in {history.views.cur_viewid}, and its journal ends in "
                f"{history.known[-1].view}"
            )
        return ""

    def _what_may_be_lost(self, history: _CohortHistory) -> str:
        views, newest = history.views, self.newest
        if newest is None or not views.is_active:
            return ""
        if not self.may_miss_turns(has_stopped=history.has_stopped):
            return ""
        if newest.sync is Sync.PRIMARY and views.led == views.cur_viewid:
            return ""
        return (
            f"its machine has been restarted, and with sync = {newest.sync.value!r} nobody knows "
            "which events were lost"
        )


class VsrJournal(JournalFamily):
    """The journals of cohorts under viewstamped replication."""

    name = "vsr"
    syncs = frozenset(Sync)
    kinds = frozenset(get_args(VsrRecord))
    promises_nothing = frozenset({Forced, StateAt, ConfigurationForced})
    syncs_before_snapshots = True

    def found(
        self, disk: Disk, group: str, replica: str, configuration: Configuration | None = None
    ) -> None:
        assert configuration is not None, "a cohort is created with its configuration"
        found_group(disk, group, replica, configuration)

    def owns(self, values: StableValues) -> bool:
        return not values.family and values.configuration is not None

    def memory(self, facts: Facts, promises: msgspec.Raw | None = None) -> CohortMemory:
        return CohortMemory(facts, _views(promises))

    def is_due(self, sync: Sync, memory: Memory, records: Sequence[Record]) -> bool:
        if sync is not Sync.PRIMARY:
            return super().is_due(sync, memory, records)
        # Only what it adds as primary (4.2): a backup that loses its machine loses its state.
        assert isinstance(memory, CohortMemory), "what this family gave"
        led = memory.views.led
        return any(isinstance(record, EventsKnown) and record.view == led for record in records)

    def adoption(self, writer: JournalWriter, records: Sequence[Record]) -> Adoption | None:
        if not any(isinstance(record, StateTaken) for record in records):
            return None
        # It is the state at the end of this turn, so it has the number of its last record.
        return Adoption(Mark(writer.incarnation, writer.sequence + len(records)))

    def stored(self, checkpoint: Checkpoint) -> Checkpoint:
        # Its place is that of a record; the position only tells names apart.
        last = checkpoint.history[-1]
        version = Version(last.view, last.number)
        return checkpoint._replace(position=last.number, version=version)

    def recover(
        self,
        disk: Disk,
        group: str,
        replica: str,
        configuration: Configuration | None = None,
        *,
        incarnation_min: int = 1,
    ) -> CohortRecovery:
        assert configuration is not None, "a cohort is started with its configuration"
        return recover_cohort(disk, group, replica, configuration, incarnation_min=incarnation_min)

    def open(
        self, disk: Disk, found: LifeFound, settings: KeeperSettings | None = None, *, at: int = 0
    ) -> CohortKeeper:
        from coterie.journal.engines.vsr_keeper import CohortKeeper  # noqa: PLC0415

        assert isinstance(found, CohortRecovery), "what this family found"
        del at  # it writes nothing at once
        return CohortKeeper(
            disk, found.group, found.replica, found.configuration, settings, found=found
        )


VSR = VsrJournal()
