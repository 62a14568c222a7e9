"""How replicas join and leave a group over a partitioned network.

A change of members is an action (`coterie.kernel.configuration`), so the configuration is a
function of the green actions, and whoever holds the same ones counts the same members. It takes
effect when the next primary component is installed (**transis**: PersistentJoin, PersistentLeave):

1. an ordered action admits a *learner*. It is in the views of the others and exchanges what it
   knows with them, but takes no part in attempts: nobody waits until it has all there is;
2. when it has, a second action makes it a member, or, in another change, takes a member out. The
   view is renewed, so that there is an exchange, an attempt, and a component of the new members.
   Those who were members before take part in that attempt, with a record of it on disk: a vote
   that is not on record could be given twice. They are not in the component that comes of it;
3. a third action says that this is done. Whoever was taken out hears it, and is gone.

No majority of the configuration is needed for any of that, because nothing but the last component
counts: so a component of two can remove three that will never come back.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from coterie.colours.marking import Marking
from coterie.colours.messages import Again
from coterie.colours.states import ServerState
from coterie.kernel import past_lives
from coterie.kernel.clock import Duration
from coterie.kernel.configuration import admitting, dismissing, encode_change, left, promoting
from coterie.kernel.errors import BacklogFull, Refused

if TYPE_CHECKING:
    from collections.abc import Collection

    from coterie.kernel.layers import Context
    from coterie.kernel.views import (
        ChangedConfiguration,
        Configuration,
        Member,
        ReplicaAddresses,
        ReplicaId,
        View,
    )

S = ServerState


class Members(Marking):
    """Who belongs to the group, as the green actions have it."""

    members_change = True
    _proposed = 0
    """The number of the last configuration that was proposed here in this view."""
    _installed_with = 0
    """The number of the configuration under which the present component was installed."""
    _looked_at_lives: View | None = None
    """The view in which it was last looked whether many lives are over."""
    _installed_at = 0
    """How many actions were green before it was."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._said: dict[ReplicaId, int] = {}
        """How far members have said that they are, in the present view."""

    @property
    def configuration(self) -> Configuration:
        """Who belongs to the group, by what is green here."""
        return self.queue.log.configuration

    def admit(self, id: ReplicaId, at: ReplicaAddresses | None = None) -> None:
        self._check_may_change()
        now = self.configuration
        self._reconfigure(admitting(now, id, self.context.found_at(now, at)))

    def dismiss(self, id: ReplicaId) -> None:
        self._check_may_change()
        now = self.configuration
        to = dismissing(now, id, now.everyone)
        here = self._here()
        least = min(self.context.settings.primary_min, len(to.members))
        if sum(each in here for each in to.members) < least:
            raise Refused(
                f"without {id} fewer than {least} members would be in touch (primary_min); "
                "start others first"
            )
        self._reconfigure(to)

    def _check_may_change(self) -> None:
        if self.state is not S.REG_PRIM:
            raise Refused("this replica is not in the primary component: ask another one, or wait")
        if self._proposed > self.configuration.number:
            raise Refused("the members are being changed: wait until that is done, then ask again")

    def _reconfigure(self, to: ChangedConfiguration) -> None:
        self.propose([encode_change(to)])
        self._proposed = to.number

    def _here(self) -> set[ReplicaId]:
        return {member.id for member in self._view.members}

    # ---- who takes part

    def _participants(self, *, without: Collection[ReplicaId] = ()) -> tuple[ReplicaId, ...]:
        """Give who in this view must be ready for a component: members, also those who go."""
        here, now = self._here().difference(without), self.configuration
        return tuple(each for each in dict.fromkeys((*now.members, *now.before)) if each in here)

    def _component_of(self, participants: tuple[ReplicaId, ...]) -> tuple[ReplicaId, ...]:
        """Give who will be in the component that an attempt leads to: members only."""
        members = self.configuration.members
        return tuple(each for each in participants if each in members)

    # ---- the steps of a change

    def _after_green(self) -> None:
        """Actions became green here: with other members, have these spoken with."""
        now = self.configuration
        if now.number <= self.context.configuration.number:
            return
        self.context.acquaint(now)
        if self.me.id in now.gone:
            self.context.is_removed = True
            # Not here: we are in the middle of a delivery, and nothing is reported after the end.
            self.context.set_timer("removed", Duration(0), self.below.leave)

    def _on_line(self, sender: Member, position: int) -> None:
        super()._on_line(sender, position)
        self._said[sender.id] = position

    def _is_somebody_back(self, now: Configuration) -> bool:
        """Say whether a member that was left out, because it needed a whole state, has it now.

        It must have said so in this view: what is known of it may be of a disk that it has lost.
        """
        return any(
            id in now.members and id not in self.prim.members and at >= self._installed_at
            for id, at in self._said.items()
        )

    def _advance(self) -> None:
        """Take the next step of a change, if one is due and it is up to us."""
        now = self.configuration
        if self.state is not S.REG_PRIM:
            return
        is_somebody_back = self._is_somebody_back(now)
        if not (now.before or now.learners or is_somebody_back):
            self._let_lives_go(now)
            return
        is_up_to_us = self.me.id == self.prim.members[0]
        if not is_up_to_us or self._proposed > now.number or self.below.is_stopped:
            return
        try:
            if is_somebody_back or (now.before and self._installed_with < now.number):
                self._proposed = now.number + 1  # once a view
                self._cast(Again(self._view.id))
            elif now.before:
                self._reconfigure(left(now))
            else:
                self._promote(now)
        except BacklogFull:
            self._proposed = 0

    def _let_lives_go(self, now: Configuration) -> None:
        """Take lives that are over out of what is said and kept, once there are many.

        Everybody is in this component, so everybody held all that anybody has of these lives when
        it was installed, and it is green; they are over, so there will be nothing more. That does
        not change any more, whatever becomes of this component.
        """
        view = self._view
        if self._looked_at_lives is view or self.below.is_stopped:
            return
        self._looked_at_lives = view  # what is over now was over when the component began
        if self.me.id != self.prim.members[0] or not self._is_everybody_in(now):
            return
        lives = past_lives.over(self.queue.log.contained, view.members)
        if len(lives) > self.context.settings.past_lives_max:
            with suppress(BacklogFull):
                self.propose([past_lives.encode_past_lives(past_lives.latest(lives))])

    def _is_everybody_in(self, now: Configuration) -> bool:
        return set(self.prim.members) == set(now.everyone) == self._here()

    def _promote(self, now: Configuration) -> None:
        here = self._here()
        ready = [
            id
            for id in now.learners
            if id in here and self.lines.get(id, 0) >= max(self._installed_at, 1)
        ]
        if ready:
            self._reconfigure(promoting(now, ready))
