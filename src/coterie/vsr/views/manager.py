"""The manager of a view change: invites, collects acceptances, forms a view (figure 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from coterie.kernel.records import Catastrophe, InvitationsMade, ViewFormed
from coterie.kernel.views import ViewId
from coterie.vsr.views.formation import (
    Response,
    can_form,
    choose_primary,
    winning_configuration,
)
from coterie.vsr.views.messages import CohortView, InitView, Invite

if TYPE_CHECKING:
    from coterie.kernel.clock import Duration
    from coterie.kernel.views import Configuration, Member, ReplicaId
    from coterie.vsr.views.cohort import Cohort
    from coterie.vsr.views.messages import AcceptInvitation, Declined

_MANAGE = "vsr manage"
_INVITE = "vsr invite"


class Manager:
    """The view change that this cohort manages, if it manages one."""

    def __init__(self, cohort: Cohort) -> None:
        self._cohort = cohort
        self._context = cohort.context
        self._settings = cohort.settings
        self._responses: dict[ReplicaId, Response] = {}
        self._loyal: dict[ReplicaId, ReplicaId] = {}
        """Who declined, and to which primary it is loyal."""
        self._view: ViewId | None = None
        self._formed: CohortView | None = None
        self._successor: ReplicaId = ""
        """Who is to lead the view, if it knows as much as anybody."""
        self._has_told_catastrophe = False

    def stop(self) -> None:
        """Manage nothing any more."""
        self._view = self._formed = None
        self._responses = {}
        self._loyal = {}
        self._context.cancel_timer(_MANAGE)
        self._context.cancel_timer(_INVITE)

    def make_invitations(self, successor: ReplicaId = "") -> None:
        """Invite all cohorts to a view with an id above all that were seen."""
        self._successor = successor
        cohort, me = self._cohort, self._cohort.me
        view = ViewId(cohort.seen.number + 1, me.id, me.incarnation)
        cohort.promise(view)
        cohort.report(InvitationsMade, view=view)
        self._view = view
        self._formed = None
        self._responses = {me.id: cohort.response()}
        self._loyal = {}
        self._context.set_timer(_MANAGE, self._settings.manager_patience, self._time_is_up)
        self._invite()
        self._form_if_all_answered()

    def _invite(self) -> None:
        silent = [
            id for id in self._everyone() if id not in self._responses and id != self._cohort.me.id
        ]
        if self._view is None or not silent:
            return
        bound = self._bound_to_come()
        free = [id for id in silent if id not in bound]
        news = self._cohort.members.told()
        self._context.send(free, Invite(self._view, configuration=news))
        self._context.send(bound, Invite(self._view, insists=True, configuration=news))
        self._context.set_timer(_INVITE, self._settings.resend, self._invite)

    def _bound_to_come(self) -> list[ReplicaId]:
        """Who declined for the sake of a primary that has left its view, or its life, by now."""
        return [
            id
            for id, primary in self._loyal.items()
            if primary in self._responses and id not in self._responses
        ]

    def on_accept(self, sender: Member, message: AcceptInvitation) -> None:
        """Take an acceptance."""
        if message.view == self._view and self._formed is None:
            self._responses[sender.id] = Response(
                sender, message.crashed, message.known, message.was_primary, message.configuration
            )
            self._cohort.members.hear(message.configuration)
            if sender.id in self._loyal.values():
                self._context.send(self._bound_to_come(), Invite(self._view, insists=True))
            self._form_if_all_answered()

    def on_declined(self, sender: Member, message: Declined) -> None:
        """Learn that a cohort sees no need for a view change."""
        if message.view == self._view and self._formed is None:
            self._loyal[sender.id] = message.primary.id
            self._context.send(self._bound_to_come(), Invite(self._view, insists=True))

    def reachability_changed(self) -> None:
        """Learn that somebody that was waited for may be gone."""
        if self._view is not None and self._formed is None:
            self._form_if_all_answered()

    def _form_if_all_answered(self) -> None:
        """Form the view once everyone who can be expected to answer has done so."""
        configuration = self._configuration()
        voters = (*configuration.members, *configuration.before)
        expected = [id for id in voters if self._context.reaches(id)]
        answered = self._responses.keys()
        if all(id in answered for id in expected) and configuration.is_quorum(set(answered)):
            self._form()

    def _time_is_up(self) -> None:
        if self._formed is None:
            self._form()

    def _form(self) -> None:
        assert self._view is not None, "a view change is being managed"
        cohort = self._cohort
        responses = list(self._responses.values())
        if not self.can_form(responses):
            self._cannot(responses)
            return
        primary = self.choose_primary(responses)
        members = tuple(sorted(response.member for response in responses))
        view = CohortView(self._view, primary, members)
        cohort.report(ViewFormed, view=view.id, primary=primary, members=members)
        if primary == cohort.me:
            cohort.start_view(view)
            return
        self._formed = view
        self._context.cancel_timer(_MANAGE)
        cohort.await_view()
        self._init_view()

    def can_form(self, responses: list[Response]) -> bool:
        """Say whether a view of these cohorts is sure to know all that was ever forced."""
        return can_form(responses, self._configuration())

    def choose_primary(self, responses: list[Response]) -> Member:
        """Give the cohort that will lead; the configuration's order is the preference."""
        return choose_primary(responses, self._configuration().members, self._successor)

    def _configuration(self) -> Configuration:
        """Give the one that counts for what has been answered so far."""
        return winning_configuration(self._responses.values(), self._cohort.members.now)

    def _everyone(self) -> list[ReplicaId]:
        """Give all who may have to be asked: those whom this cohort knows, and whom others do."""
        known = (self._cohort.members.now, self._configuration(), self._context.configuration)
        return list(dict.fromkeys(id for each in known for id in each.everyone))

    def _init_view(self) -> None:
        """Have the chosen primary start the view; again and again, until something happens."""
        if self._formed is not None:
            self._context.send([self._formed.primary.id], InitView(self._formed))
            self._context.set_timer(_INVITE, self._settings.resend, self._init_view)

    def _cannot(self, responses: list[Response]) -> None:
        """No view can be formed of these acceptances: wait and try again later."""
        if set(self._configuration().members) <= self._responses.keys():
            self._tell_catastrophe(responses)
        self._context.cancel_timer(_INVITE)
        pause = self._settings.manager_pause
        wait = pause // 2 + self._context.random.randrange(pause)
        self._context.set_timer(_MANAGE, cast("Duration", wait), self._try_again)

    def _try_again(self) -> None:
        self.stop()
        self._cohort.try_again()

    def _tell_catastrophe(self, responses: list[Response]) -> None:
        """Nobody is missing, and still forced events may be lost: no view will ever be formed."""
        if not self._has_told_catastrophe:
            self._has_told_catastrophe = True
            self._cohort.report(
                Catastrophe,
                view=self._view,
                normal=tuple(each.member for each in responses if not each.crashed),
                crashed=tuple(each.member for each in responses if each.crashed),
            )
