"""Recovery of a cohort: what it promised, and its state if that is still there.

Three things are asked, one after the other:

1. *Stable storage.* The configuration, and the views that the cohort promised and was active in,
   are in the file of stable values, synced at every change. A cohort without it cannot take part:
   it might help a primary against one that it has forgotten. One whose configuration is another
   than the group's is not the cohort that was meant.
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
from typing import TYPE_CHECKING

import msgspec

from coterie.journal.facts import Facts, Memory
from coterie.journal.format import Kind, Sync, WrongJournal, folder_of
from coterie.journal.history import mark_of
from coterie.journal.recalling import Recalling
from coterie.kernel.cohorts import Span
from coterie.kernel.records import EventsKnown, Started, StateTaken, Stopped, ViewStarted
from coterie.kernel.views import NO_VIEW, Viewstamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.journal.disk import Disk
    from coterie.journal.format import Finding, Mark, SegmentHead
    from coterie.journal.recalling import Stage
    from coterie.journal.snapshots import Snapshot
    from coterie.kernel.cohorts import CohortViews
    from coterie.kernel.records import Record
    from coterie.kernel.views import Configuration

NOTHING = (Viewstamp(NO_VIEW, 0),)
"""The history of the empty state, with which a group begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortRecovery:
    """What a cohort knows of its earlier lives."""

    group: str
    replica: str
    incarnation: int
    """The number of the next life."""
    views: CohortViews
    has_state: bool
    reason: str
    """Why it has lost its state, or why it has not, in words for an operator."""
    base: tuple[Viewstamp, ...]
    """What the snapshot reflects; without a snapshot, that of the empty state."""
    snapshot: Snapshot | None
    spans: list[Span]
    """The events known since, in order."""
    history: tuple[Viewstamp, ...]
    """What the state reflects after these; empty if it is lost."""
    facts: Facts
    findings: tuple[Finding, ...]
    end: Mark
    """What the next life goes on from."""
    unsynced: tuple[str, ...]
    """Files that must be synced before anything rests on them."""
    useless: tuple[str, ...]
    """Snapshots to which nothing leads."""

    def chunks(self) -> tuple[bytes, ...]:
        """Read the snapshot into memory."""
        return () if self.snapshot is None else tuple(self.snapshot.chunks())


def recover_cohort(
    disk: Disk, group: str, replica: str, configuration: Configuration, *, incarnation_min: int = 1
) -> CohortRecovery:
    """Read what a cohort knows of its earlier lives; write nothing.

    Raises `WrongJournal` if it cannot take part: its stable values are gone, or those of another
    configuration or engine. Raises `VersionUnknown` if a later release wrote the journal.
    """
    return _RecoveringCohort(disk, group, replica).recover(configuration, incarnation_min)


class _RecoveringCohort(Recalling):
    """One run of `recover_cohort`."""

    def recover(self, configuration: Configuration, incarnation_min: int) -> CohortRecovery:
        """Do it."""
        self._check_stable(configuration)
        history, stages = self._read_back()
        reason = self._what_is_lost(history)
        if reason:
            self.find(Kind.CONTRADICTION, folder_of(self.group, self.replica), reason)
        reason = reason or self._what_may_be_lost(history)
        has_state = not reason
        end = (self.end.incarnation, self.end.sequence)
        return CohortRecovery(
            group=self.group,
            replica=self.replica,
            incarnation=self.next_incarnation(incarnation_min),
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
            useless=tuple(each.path for each in self.snapshots.all if mark_of(each) > end),
        )

    def _check_stable(self, configuration: Configuration) -> None:
        stable = self.stable
        who = f"cohort {self.replica} of group {self.group}"
        if not stable.exists or stable.damage:
            why = stable.damage or "the disk holds none"
            raise WrongJournal(
                f"{who} cannot take part without its stable values ({why}): it may have promised "
                "views that it has forgotten. Start it with its own disk, or, if the group is new, "
                "found it"
            )
        stored = stable.values.configuration
        if stored is None:
            raise WrongJournal(
                f"{who} is no cohort by its journal: its engine is another one, and cannot be "
                "changed"
            )
        is_same = stored.number == configuration.number
        if not is_same or sorted(stored.members) != sorted(configuration.members):
            raise WrongJournal(
                f"{who} belongs, by its stable values, to configuration {stored.number} of "
                f"{', '.join(stored.members)}, and was started with {configuration.number} of "
                f"{', '.join(configuration.members)}: give it the one it was created with"
            )

    # ---- reading

    def _read_back(self) -> tuple[_CohortHistory, list[Stage]]:
        """Read from the newest snapshot on to which the journal leads; without one, everything."""
        found_before = len(self.findings)
        for base in self.snapshots.good():
            history, stages = self._read_from(base)
            if history.is_at_base:
                return history, stages
            del self.findings[found_before:]
        return self._read_from(None)

    def _read_from(self, base: Snapshot | None) -> tuple[_CohortHistory, list[Stage]]:
        incarnation, sequence = (0, 0) if base is None else mark_of(base)

        def is_enough(head: SegmentHead) -> bool:
            return (head.incarnation, head.first) <= (incarnation, max(sequence, 1))

        stages = self.walk_back(is_enough)
        history = _CohortHistory(base, self.stable.values.views)
        first = stages[0].head if stages else None
        if (
            base is None
            and first is not None
            and (first.first, first.follows.incarnation) != (1, 0)
        ):
            history.break_off("the beginning of the journal is not there")
        for stage in stages:
            self.read(stage, history)
        history.reach_base()
        return history, stages

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


class _CohortHistory(Memory):
    """The state of a cohort as its records tell it: a snapshot and the events known since."""

    def __init__(self, base: Snapshot | None, views: CohortViews) -> None:
        super().__init__(Facts())
        self.views = views
        self.base = base
        self.base_history = NOTHING if base is None else base.head.history
        self.is_at_base = base is None
        self.known: list[Viewstamp] = list(self.base_history)
        self.spans: list[Span] = []
        self.lost = ""
        """Why the state is not whole, in words; empty if it is."""
        self.has_stopped = False
        """Whether the last record says that the life ended on purpose."""
        self.reached = (0, 0)

    def begin_life(self, facts: Facts) -> None:
        """Go on with the next life: its `Started` tells whether it had a state."""
        del facts
        self.reach_base()
        self.has_stopped = False

    def reach_base(self) -> None:
        """Begin with the snapshot if its place is reached; it rests on nothing before."""
        if self.base is not None and self.reached == mark_of(self.base):
            self.is_at_base = True
            self.known = list(self.base_history)
            self.spans.clear()
            self.lost = ""

    def break_off(self, reason: str) -> None:
        """Learn that something is missing here."""
        self.lost = self.lost or reason

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
        self.spans.append(Span(record.view, record.first, record.events))
