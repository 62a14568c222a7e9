"""The history of a replica as its records tell it, rebuilt above a snapshot.

A history can be *broken*: something it rests on is not there any more. What was known before the
gap is kept. Two things mend it, because they rest on nothing before: a state taken over whole, and
a history adopted from its very beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.engines.stack_memory import StackMemory
from coterie.journal.snapshots import mark_of
from coterie.kernel.records import (
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Stopped,
    ViewInstalled,
    ViewProposed,
)
from coterie.kernel.views import NO_VIEW

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.journal.facts import Facts
    from coterie.journal.snapshots import Snapshot, Snapshots
    from coterie.kernel.engine import Run
    from coterie.kernel.records import Record


class History(StackMemory):
    """A memory with its entries above a snapshot."""

    def __init__(self, facts: Facts, snapshots: Snapshots, base: Snapshot | None) -> None:
        super().__init__(facts)
        self.base = base
        self.runs: list[Run] = []
        self.broken = ""
        """Why the history is not whole, in words; empty if it is."""
        self._broken_at = (0, 0)
        self.reached = (0, 0)
        """Life and number of the last record applied."""
        self.has_stopped = False
        """Whether the last record says that the life ended on purpose."""
        self._snapshots = snapshots
        self._before: tuple[Facts, Snapshot | None, list[Run], str] | None = None

    @property
    def floor(self) -> int:
        """Everything up to here is in the snapshot."""
        return position_of(self.base)

    def break_off(self, reason: str) -> None:
        """Learn that something is missing here; the history before it is kept."""
        if not self.broken:
            self.broken = reason
            self._broken_at = self.reached
        self._undo_adoption()

    def begin_broken(self, reason: str) -> None:
        """Learn that what comes before the first record is missing: there is the snapshot only."""
        self.broken = reason
        self.end = self.settled = self.floor
        self.view = NO_VIEW if self.base is None else self.base.head.version.view

    def apply(self, records: Iterable[Record]) -> None:
        for record in records:
            self.has_stopped = isinstance(record, Stopped)
            if self.broken and not self._is_mended_by(record):
                self.note(record)
                continue
            super().apply((record,))
            if self.contradictions:
                self.break_off(f"the records contradict each other: {self.contradictions.pop()}")
            if self.broken:
                self._undo_adoption()

    def note(self, record: Record) -> None:
        """Take what counts even where the history is broken: promises about views."""
        if isinstance(record, PrimaryAccepted | PrimaryConfirmed | ViewInstalled | ViewProposed):
            self.highest_view_number = max(self.highest_view_number, record.view.number)
        if isinstance(record, PrimaryAccepted):
            self.accepted = record.view
            self.is_zombie = False

    def begin_life(self, facts: Facts) -> None:
        """Go on with the records of the next life, which began with these facts."""
        self._undo_adoption()
        self.has_stopped = False
        self.is_zombie = facts.is_zombie
        # Promises about views hold, whatever becomes of the history.
        self.highest_view_number = max(self.highest_view_number, facts.highest_view_number)
        self.accepted = facts.accepted
        if facts.version != self.version:
            self.break_off(f"a life began with {facts.version}, and here is {self.version}")

    def finish(self) -> None:
        """Learn that all records were read; an adoption that did not end is undone."""
        self._undo_adoption()
        base = self.base
        if base is not None and self.reached < mark_of(base):
            self.break_off("the journal ends before its newest snapshot was taken")
        if self.end < self.floor:
            # Entries that the snapshot has were never on record, or were given up afterwards.
            self.break_off(f"the history ends at {self.end}, and its snapshot is of {self.floor}")
            self._broken_at = (0, 0)
        if base is not None and self.broken and self._broken_at < mark_of(base):
            # Entries above the snapshot that were known before the gap may have been given up
            # before it was taken: only the snapshot is sure.
            self.runs.clear()
            self.end = self.settled = base.position
            self.view = base.head.version.view
            self._saw(self.view)
        self.settled = min(max(self.settled, self.floor), self.end)
        if base is None or not base.head.adopts:
            self.restored, self.restored_at = 0, (0, 0)

    # ---- what the records do to the entries

    def begin_adoption(self) -> None:
        if self._before is None:
            self._before = (self.facts(), self.base, list(self.runs), self.broken)

    def end_adoption(self) -> None:
        if not self.broken:
            self._before = None

    def take(self, run: Run) -> None:
        if run.last_position > self.floor:
            self.runs.append(run.after(self.floor))

    def cut_off(self, position: int) -> None:
        if position < self.floor and self._is_behind_base():
            if position > 0:
                self.break_off(f"what is above {position} was given up, but the snapshot has it")
                return
            self.base = None
        while self.runs and self.runs[-1].position > position:
            self.runs.pop()
        if self.runs:
            self.runs[-1] = self.runs[-1].up_to(position)

    def restore(self, position: int) -> None:
        self.runs.clear()
        if not self._is_behind_base():
            return  # the snapshot was taken later, and contains it
        adopted = self._adopted(position)
        if adopted is None:
            self.break_off(f"the state taken over at position {position} is not on the disk")
            return
        self.base = adopted

    # ---- inside

    def _is_behind_base(self) -> bool:
        """Say whether the present turn was written after the snapshot was taken."""
        return self.base is None or self.place > mark_of(self.base)

    def _adopted(self, restored: int) -> Snapshot | None:
        """Give the snapshot of a state taken over, if there is one that was taken before now."""
        return self._snapshots.adopted(restored, before=self.place)

    def _is_mended_by(self, record: Record) -> bool:
        """Say whether a history begins with this record that rests on nothing lost."""
        if not isinstance(record, HistoryAdopted):
            return False
        start = record.restored or record.kept
        if record.restored and self._adopted(record.restored) is not None:
            pass  # the state is on the disk
        elif start == 0 or (start <= self.floor and not self._is_behind_base()):
            pass  # there is no state, or the snapshot was taken later and contains it
        else:
            return False
        self.begin_adoption()
        self.broken = ""
        self.runs.clear()
        self.end = max(self.end, start)
        return True

    def _take_over(self, facts: Facts) -> None:
        self.view, self.end = facts.version.view, facts.version.position
        self.settled, self.rebased, self.base_mark = facts.settled, facts.rebased, facts.base
        self.restored, self.restored_at = facts.restored, facts.restored_at

    def _undo_adoption(self) -> None:
        """Go back to what was before an adoption that was never completed."""
        if self._before is None:
            return
        facts, self.base, self.runs, broken = self._before
        self.broken = self.broken or broken
        self._take_over(facts)
        self._before = None
        self._adopting = None


def position_of(snapshot: Snapshot | None) -> int:
    """Give where in the order a snapshot stands; 0 if there is none."""
    return 0 if snapshot is None else snapshot.position
