"""A backup's watch over its primary: when a view change is needed, and when it is not (4.1).

A view change is needed when the primary is lost: it is a new life, or it is out of reach here and,
as far as others tell, of a majority. Who finds it lost becomes the manager at once if no cohort of
higher priority can be reached, and otherwise a little later.

**Departure.** In figure 5 an active cohort accepts every invitation to a higher view. Then a single
cohort that is cut off from the primary, and can form no view without it because it has lost its
state, calls the others out of theirs again and again for as long as the cut lasts. Here a backup
whose primary is in touch with a majority declines, and names the primary. An inviter who has heard
from that primary itself, so that the view is over, *insists*, and is not declined. To ignore an
invitation is always safe; and the one declined last is accepted as soon as the primary is lost.
A primary that serves ignores an inviter that does not hear it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from coterie.kernel.clock import Duration
    from coterie.kernel.views import Member, ViewId
    from coterie.vsr.views.cohort import Cohort

_LOST = "vsr lost primary"


class PrimaryMonitor:
    """What one cohort, while it is a backup, thinks of its primary."""

    def __init__(self, cohort: Cohort) -> None:
        self._cohort = cohort
        self._context = cohort.context
        self.members_changed()
        self._restarted = False
        self._declined: tuple[Member, ViewId] | None = None

    def members_changed(self) -> None:
        """Learn that majorities are those of another configuration."""
        self._configuration = now = self._cohort.members.now
        mine = self._cohort.me.id
        self._others = [id for id in dict.fromkeys((*now.members, *now.before)) if id != mine]

    def begin(self) -> None:
        """Enter a view."""
        self._restarted = False
        self._declined = None

    def stop(self) -> None:
        """Leave the view."""
        self._declined = None
        self._context.cancel_timer(_LOST)

    def reaches_majority(self) -> bool:
        """Whether a majority of the configuration, this cohort included, can be reached."""
        reached = {id for id in self._others if self._context.reaches(id)}
        return self._configuration.is_quorum(reached | {self._cohort.me.id})

    def reachability_changed(self, restarted: set[str]) -> None:
        """Learn whom the failure detector believes in now."""
        self._restarted |= self._cohort.cur_view.primary.id in restarted
        self.look()

    def look(self) -> None:
        """See whether the primary is lost, and do what is needed."""
        if self._has_lost_primary():
            self._change_view()

    # ---- invitations

    def declines(self, inviter: Member, view: ViewId) -> bool:
        """Say whether there is no reason to follow an invitation; it is remembered."""
        primary = self._cohort.cur_view.primary
        if self._restarted or inviter.id == primary.id or not self._primary_has_majority():
            return False
        self._declined = (inviter, view)
        return True

    # ---- losing the primary

    def _primary_has_majority(self) -> bool:
        """Whether the primary is in touch with a majority, as far as is known here."""
        primary = self._cohort.cur_view.primary.id
        in_touch = {
            id
            for id in self._others
            if id != primary and self._context.reaches(id) and self._context.in_touch(id, primary)
        }
        if self._context.reaches(primary):
            in_touch.add(self._cohort.me.id)
        return self._configuration.is_quorum(in_touch | {primary})

    def _has_lost_primary(self) -> bool:
        """Whether the primary is out of reach here, and nowhere with a majority as far as known."""
        primary = self._cohort.cur_view.primary.id
        if self._restarted:
            return True
        return not self._context.reaches(primary) and not self._primary_has_majority()

    def _change_view(self) -> None:
        """Follow who has invited already, or become a manager when it is this cohort's turn."""
        if self._declined is not None:
            inviter, view = self._declined
            self._declined = None
            if self._context.reaches(inviter.id):
                self._cohort.accept_invitation(inviter, view)
                return
        if self._context.timer_is_set(_LOST):
            return
        members, mine = self._configuration.members, self._cohort.me.id
        before = [
            id
            for id in (members[: members.index(mine)] if mine in members else members)
            if id != self._cohort.cur_view.primary.id and self._context.reaches(id)
        ]
        if not before and self._cohort.members.may_manage and self.reaches_majority():
            self._cohort.manage()
            return
        wait = (len(before) or 1) * self._cohort.settings.manager_stagger
        self._context.set_timer(_LOST, cast("Duration", wait), self._still_lost)

    def _still_lost(self) -> None:
        if not self._cohort.is_backup or not self._has_lost_primary():
            return
        if self._cohort.members.may_manage and self.reaches_majority():
            self._cohort.manage()
        else:
            self._change_view()
