"""Giving the lead back to a cohort that the configuration prefers (sections 5 and 6).

Primaries of several groups are spread over machines by the order in which their configurations name
them. After a failure another cohort leads, and several groups may be led from one machine. If
`hand_over_after` is set, a primary that has led for so long, and sees that a preferred cohort knows
everything, forms a view in which that one leads. No event is lost by it; calls in progress are made
again, and transactions that this primary coordinates abort, as the paper says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.kernel.views import ReplicaId
    from coterie.vsr.views.cohort import Cohort

_HAND_OVER = "vsr hand over"


class HandOver:
    """The wish of a primary to be led by another one."""

    def __init__(self, cohort: Cohort) -> None:
        self._cohort = cohort
        self._context = cohort.context

    def begin(self) -> None:
        """Begin to lead."""
        patience = self._cohort.settings.hand_over_after
        if patience and self._preferred():
            self._context.set_timer(_HAND_OVER, patience, self._look)

    def stop(self) -> None:
        """Lead no more."""
        self._context.cancel_timer(_HAND_OVER)

    def _preferred(self) -> tuple[ReplicaId, ...]:
        members, mine = self._cohort.members.now.members, self._cohort.me.id
        return members[: members.index(mine)] if mine in members else members

    def _look(self) -> None:
        """Hand over to the most preferred cohort that knows everything, if there is one."""
        buffer = self._cohort.buffer
        if buffer is None:
            return
        for id in self._preferred():
            if self._context.reaches(id) and buffer.knows_all(id):
                self._cohort.manage(successor=id)
                return
        self.begin()
