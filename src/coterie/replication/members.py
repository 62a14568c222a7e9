"""How the members of a group with one history change (`coterie.kernel.configuration`).

Each step is an entry. The first member of the view takes those that follow from what has settled:
it promotes learners that have accepted the view, and leaves joint. Who finds, in what is settled,
that it is gone leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.configuration import admitting, dismissing, encode_change, left, promoting
from coterie.kernel.engine import Role
from coterie.kernel.errors import BacklogFull, Refused
from coterie.replication.forming import FormingViews
from coterie.replication.transfer import Transfer

if TYPE_CHECKING:
    from coterie.kernel.layers import Context
    from coterie.kernel.views import ChangedConfiguration, ReplicaAddresses, ReplicaId

RECONFIGURE = 2
"""The mark of entries that change the configuration: each is a run of its own."""
STEP_AGAIN = "primary members"
"""The name of the timer for a step that had no room among what waits to be sent."""


class ChangingMembers(FormingViews[Transfer]):
    """The part of PRIMARY that changes who belongs to the group."""

    members_change = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._has_cast = False
        """Whether something was cast in the running turn."""

    def _begin_view(self) -> None:
        super()._begin_view()
        self._is_first = self._view.members[0] == self.me
        """Whether we are the one who takes the steps, and tells everyone what is settled."""
        self._proposed = 0
        """The number of the configuration that we proposed in this view."""

    def admit(self, id: ReplicaId, at: ReplicaAddresses | None = None) -> None:
        self._check_may_change()
        now = self.log.configuration
        self._reconfigure(admitting(now, id, self.context.found_at(now, at)))

    def dismiss(self, id: ReplicaId) -> None:
        self._check_may_change()
        present = {member.id for member in self._accepted_by}
        self._reconfigure(dismissing(self.log.configuration, id, present))

    def _check_may_change(self) -> None:
        if self.role is not Role.PRIMARY or self._is_ending:
            raise Refused("this replica is not in a primary view: ask another one, or wait")
        is_settled = len(self.log.configurations) == 1
        if not is_settled or self._proposed > self.log.configuration.number:
            raise Refused("the members are being changed: wait until that is done, then ask again")

    def _reconfigure(self, to: ChangedConfiguration) -> None:
        self.below.cast([encode_change(to)], mark=RECONFIGURE)
        self._proposed = to.number
        self._has_cast = True

    def _configuration_settled(self) -> None:
        """A configuration is settled: tell everybody here, and take the next step."""
        configuration = self.log.settled_configuration
        self.context.acquaint(configuration)
        self._tell_status()
        if self.me.id in configuration.gone:
            self.context.is_removed = True
            self.below.leave()
            return
        self._advance_configuration()

    def _advance_configuration(self) -> None:
        """Take the next step of a change, if one is due and it is up to us."""
        now = self.log.configuration
        if not (now.before or now.learners) or not self._is_first or self._is_ending:
            return
        is_settled = len(self.log.configurations) == 1
        if self.role is not Role.PRIMARY or not is_settled or self._proposed > now.number:
            return
        accepted = {member.id for member in self._accepted_by}
        ready = [id for id in now.learners if id in accepted]
        if not (now.before or ready):
            return
        try:
            self._reconfigure(left(now) if now.before else promoting(now, ready))
        except BacklogFull:
            # We are in the middle of a turn, and nothing else may come that would ask again.
            wait = self.context.settings.ack_delay
            self.context.set_timer(STEP_AGAIN, wait, self._advance_configuration)
