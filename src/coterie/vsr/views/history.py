"""The history that a cohort keeps, as drivers and journals ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.engine import Checkpoint, Version
from coterie.kernel.errors import Refused
from coterie.kernel.layers import Layer
from coterie.kernel.views import NO_VIEW, ViewId

if TYPE_CHECKING:
    from coterie.vsr.views.log import EventLog
    from coterie.vsr.views.members import CohortMembers
    from coterie.vsr.views.module import CohortPast

CANNOT_RECOVER = (
    "a group under vsr is not recovered at the price of what it promised: give the replicas back "
    "their folders, or found another group"
)
"""A cohort without its state cannot tell what its group has promised (4.2)."""


class CohortHistory(Layer):
    """The part of a cohort that drivers know as its history (`HistoryKeeper`)."""

    log: EventLog
    members: CohortMembers
    up_to_date: bool
    _earlier: tuple[ViewId, int] = (NO_VIEW, 0)
    """The view that `position` was last asked in, and how many events came before it."""

    @property
    def is_active(self) -> bool:
        """Whether this cohort is active in its view."""
        raise NotImplementedError

    @property
    def forced(self) -> int:
        """Up to which event of its view a majority is known here to know all."""
        raise NotImplementedError

    def recall(self, memory: CohortPast) -> None:
        """Take the state from an earlier life: as it was stored, and the events since."""
        if memory.chunks:
            self.members.restore(memory.chunks, (memory.base or memory.history)[-1])
        self.log.adopt(memory.base or memory.history)
        for span in memory.spans:
            if span.view != self.log.last.view:
                self.log.begin_view(span.view)
            self.members.perform(self.log.append(span.events), self.members.read(span.events))
        self.log.recall(memory.history)

    # ---- its history (`coterie.kernel.engine.HistoryKeeper`)

    @property
    def version(self) -> Version:
        """How advanced the history is."""
        return Version(self.log.last.view, self.position)

    @property
    def position(self) -> int:
        """How many events the state reflects: the views of a history follow each other."""
        last = self.log.last
        if self._earlier[0] != last.view:
            # Of the views before the last one nothing is added any more.
            known = sum(each.number for each in self.log.history[:-1])
            self._earlier = (last.view, known)
        return self._earlier[1] + last.number

    @property
    def settled(self) -> int:
        """Up to which of these events a majority is known here to know all."""
        if not self.is_active:
            return self.position
        return self.position - max(self.log.last.number - self.forced, 0)

    @property
    def is_zombie(self) -> bool:
        """Whether the cohort has lost its state, and waits for a view with those who have it."""
        return not self.up_to_date

    def checkpoint(self) -> Checkpoint:
        """Give the state and what it reflects, for the journal."""
        chunks = self.members.snapshot()
        return Checkpoint(self.position, self.version, chunks, history=tuple(self.log.history))

    def recover(self) -> None:
        """Refuse: a group under **vsr** is not recovered by an operator's word."""
        raise Refused(CANNOT_RECOVER)
