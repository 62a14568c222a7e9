"""What a replica remembers, told by its records one after the other.

The writer follows the records it writes, so that each segment can say at its beginning what the
replica remembered there; recovery follows the records it reads. Both do it with the class below,
so a memory rebuilt from any segment on is the one that the writer had.

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
- `InvitationsMade`, `InvitationAccepted` and `ViewStarted` change the views of a cohort. These are
  stable values and stand in a file of their own, not among the facts of a segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.cohorts import CohortViews
from coterie.kernel.engine import Version
from coterie.kernel.records import (
    EntriesAccepted,
    HistoryAdopted,
    InvitationAccepted,
    InvitationsMade,
    PrimaryAccepted,
    PrimaryConfirmed,
    Recovered,
    Settled,
    Started,
    ViewInstalled,
    ViewProposed,
    ViewStarted,
)
from coterie.kernel.views import NO_VIEW, ViewId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coterie.kernel.engine import Run
    from coterie.kernel.records import Record


class Facts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a replica remembers at one place of its journal, without the entries."""

    version: Version = Version(NO_VIEW, 0)
    """The last confirmed primary view in its history, and the length of the history."""
    settled: int = 0
    """Everything up to here is authoritative."""
    highest_view_number: int = 0
    """No view it may have taken part in has a higher number."""
    accepted: ViewId = NO_VIEW
    """The last primary view it accepted."""
    restored: int = 0
    """The position of the last state it took over whole; 0 for none."""
    restored_at: tuple[int, int] = (0, 0)
    """Life and record where that was."""
    rebased: tuple[int, int] = (0, 0)
    """Life and record where settled entries were last given up, which takes an accepted loss or a
    zombie that began with nothing: no snapshot taken before that is of use."""
    base: tuple[int, int, int] = (0, 0, 0)
    """The one older snapshot that is: life, record and position of that on which a fresh life
    rests."""
    is_zombie: bool = False
    is_adopting: bool = False
    """Whether it is in the middle of adopting a history: recovery cannot begin here."""
    is_fresh: bool = False
    """Whether a life begins here that rests on no record of an earlier one, because too much of
    them was lost: only on the state at the position of `version`."""


class Memory:
    """Follows records; `facts` gives what they amount to."""

    def __init__(self, facts: Facts) -> None:
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
        self.views = CohortViews()
        """Of a cohort: what it promised, and where it was active."""
        self.place = (0, 0)
        """Life and number of the first record of the turn that is being applied."""
        self.contradictions: list[str] = []
        """What cannot be true, in words; the first few."""
        self._adopting: Version | None = None
        self._acts: dict[type, Callable[[Any], None]] = {
            Started: self._on_started,
            ViewProposed: self._on_view,
            ViewInstalled: self._on_view,
            PrimaryAccepted: self._on_primary_accepted,
            PrimaryConfirmed: self._on_primary_confirmed,
            EntriesAccepted: self._on_entries,
            HistoryAdopted: self._on_adopted,
            Settled: self._on_settled,
            Recovered: self._on_recovered,
            InvitationsMade: self._on_promise,
            InvitationAccepted: self._on_promise,
            ViewStarted: self._on_view_started,
        }

    def apply(self, records: Iterable[Record]) -> None:
        """Take the records of one turn; `place` says which."""
        acts = self._acts
        for record in records:
            act = acts.get(type(record))
            if act is not None:
                act(record)

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
            self._contradict(
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
            self._contradict(f"entry {run.position} was accepted where {self.end + 1} comes next")
            return
        self.end = run.last_position
        self.take(run)
        if self._adopting is not None and self.end >= self._adopting.position:
            self._complete_adoption()

    def _on_adopted(self, record: HistoryAdopted) -> None:
        if record.restored == 0 and record.kept > self.end:
            self._contradict(f"{record.kept} entries were kept where {self.end} are known")
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
            self._contradict(
                f"{record.version.position} entries were recovered where {self.end} are known"
            )
            return
        self.is_zombie = False
        self.view = record.version.view
        self._shorten(record.version.position)

    def _on_promise(self, record: InvitationsMade | InvitationAccepted) -> None:
        self.views = self.views.promised(record.view)

    def _on_view_started(self, record: ViewStarted) -> None:
        is_primary = record.primary == record.member
        self.views = self.views.started(record.view, is_primary=is_primary)

    def _shorten(self, position: int) -> None:
        if position < self.settled:
            self._rebase()
            self.settled = position
        if position < self.end:
            self.end = position
            self.cut_off(position)

    def _rebase(self) -> None:
        self.rebased, self.base_mark = self.place, (0, 0, 0)

    def _contradict(self, sentence: str) -> None:
        if len(self.contradictions) < CONTRADICTIONS_MAX:
            self.contradictions.append(sentence)


CONTRADICTIONS_MAX = 8
