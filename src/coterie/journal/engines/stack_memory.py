"""What a replica remembers whose engine orders entries.

How records change the memory:

- `EntriesAccepted` makes the history longer.
- `HistoryAdopted` cuts it off above `kept`, or replaces it by a state at `restored`. It counts
  only once the history is as long as that of the version adopted: a memory that ends before that
  is the one from before the adoption, because until then the replica promised nothing new.
- `PrimaryAccepted` says that the replica holds the initial history of a view: it is no zombie.
- `PrimaryConfirmed` raises the view that the version names.
- `Settled` says what is authoritative. `RolledBack` changes nothing here: it speaks of what was
  delivered to the object; what becomes of the history is said by `HistoryAdopted`.
- `Recovered` ends the state of a zombie by the word of an operator, and says which history counts
  from then on: it may be shorter than what is known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.facts import Facts, Memory
from coterie.kernel.engine import Version
from coterie.kernel.records import (
    EntriesAccepted,
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Recovered,
    Settled,
    Started,
    ViewInstalled,
    ViewProposed,
)

if TYPE_CHECKING:
    from coterie.kernel.engine import Run
    from coterie.kernel.views import ViewId


class StackMemory(Memory):
    """Follows the records of a replica whose engine orders entries."""

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self.view = facts.version.view
        self.end = facts.version.position
        """The length of the history."""
        self.settled = facts.settled
        self.highest_view_number = facts.highest_view_number
        self.accepted = facts.accepted
        self.restored = facts.restored
        self.restored_at = facts.restored_at
        self.rebased = facts.rebased
        self.base_mark = facts.base
        self.is_zombie = facts.is_zombie
        self._adopting: Version | None = None
        self.acts = {
            Started: self._on_started,
            ViewProposed: self._on_view,
            ViewInstalled: self._on_view,
            PrimaryAccepted: self._on_primary_accepted,
            PrimaryConfirmed: self._on_primary_confirmed,
            EntriesAccepted: self._on_entries,
            HistoryAdopted: self._on_adopted,
            Settled: self._on_settled,
            Recovered: self._on_recovered,
        }

    @property
    def version(self) -> Version:
        """How advanced the history is."""
        return Version(self.view, self.end)

    @property
    def is_adopting(self) -> bool:
        """Whether a history is being adopted and not whole yet."""
        return self._adopting is not None

    def facts(self) -> Facts:
        """Give what the records so far amount to."""
        return Facts(
            self.version,
            self.settled,
            self.highest_view_number,
            self.accepted,
            self.restored,
            self.restored_at,
            self.rebased,
            self.base_mark,
            self.is_zombie,
            self.is_adopting,
        )

    def may_be_stored(self, position: int) -> bool:
        return self.settled != position

    # ---- what a memory with entries does in addition

    def begin_adoption(self) -> None:
        """Learn that what follows may have to be undone."""

    def end_adoption(self) -> None:
        """Learn that what followed counts."""

    def take(self, run: Run) -> None:
        """Take entries that follow the last one."""

    def cut_off(self, position: int) -> None:
        """Drop everything above *position*."""

    def restore(self, position: int) -> None:
        """Replace everything by the state taken over at *position*."""

    # ---- records

    def _on_started(self, record: Started) -> None:
        self.is_zombie = self.is_zombie or record.is_zombie

    def _on_view(self, record: ViewProposed | ViewInstalled) -> None:
        self._saw(record.view)

    def _saw(self, view: ViewId) -> None:
        self.highest_view_number = max(self.highest_view_number, view.number)

    def _on_primary_accepted(self, record: PrimaryAccepted) -> None:
        self._saw(record.view)
        self.accepted = record.view
        self.is_zombie = False
        if self.end < record.version.position:
            self.contradict(
                f"view {record.view} was accepted with {self.end} of the "
                f"{record.version.position} entries of its initial history"
            )
            return
        self._complete_adoption()
        self.view = record.version.view

    def _on_primary_confirmed(self, record: PrimaryConfirmed) -> None:
        self._saw(record.view)
        self.view = record.view

    def _on_entries(self, record: EntriesAccepted) -> None:
        run = record.run
        if run.position != self.end + 1:
            self.contradict(f"entry {run.position} was accepted where {self.end + 1} comes next")
            return
        self.end = run.last_position
        self.take(run)
        if self._adopting is not None and self.end >= self._adopting.position:
            self._complete_adoption()

    def _on_adopted(self, record: HistoryAdopted) -> None:
        if record.restored == 0 and record.kept > self.end:
            self.contradict(f"{record.kept} entries were kept where {self.end} are known")
            return
        if self._adopting is None:
            self.begin_adoption()
        self._adopting = record.version
        if record.restored:
            if record.restored < self.settled:
                self._rebase()
            self.end = self.settled = self.restored = record.restored
            self.restored_at = self.place
            self.restore(record.restored)
        else:
            self._shorten(record.kept)
        if self.end >= record.version.position:
            self._complete_adoption()

    def _complete_adoption(self) -> None:
        if self._adopting is not None:
            self.view = self._adopting.view
            self._adopting = None
            self.end_adoption()

    def _on_settled(self, record: Settled) -> None:
        self.settled = record.position

    def _on_recovered(self, record: Recovered) -> None:
        if record.version.position > self.end:
            self.contradict(
                f"{record.version.position} entries were recovered where {self.end} are known"
            )
            return
        self.is_zombie = False
        self.view = record.version.view
        self._shorten(record.version.position)

    def _shorten(self, position: int) -> None:
        if position < self.settled:
            self._rebase()
            self.settled = position
        if position < self.end:
            self.end = position
            self.cut_off(position)

    def _rebase(self) -> None:
        self.rebased, self.base_mark = self.place, (0, 0, 0)
