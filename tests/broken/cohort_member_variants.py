"""Deliberately broken variants of changing the members of a group of cohorts.

That two changes never run at once, and that an id is never used again, is not left to whoever
proposes: an event that does not follow is void (`tests/kernel/test_configuration.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.broken.cohort_variants import BrokenCohort

from coterie.kernel.configuration import changed, left
from coterie.kernel.views import ChangedConfiguration
from coterie.simulation.faults import CHANGES
from coterie.vsr.views.cohort import Cohort
from coterie.vsr.views.manager import Manager
from coterie.vsr.views.members import CohortMembers

if TYPE_CHECKING:
    from coterie.kernel.views import Configuration, Member
    from coterie.vsr.views.messages import NoMember


def _without_before(configuration: Configuration) -> ChangedConfiguration:
    now = changed(configuration)
    return ChangedConfiguration(now.number, now.members, now.learners, (), now.gone)


class _FormsByOwn(Manager):
    def _configuration(self) -> Configuration:
        return self._cohort.members.now


class ManagersOwnCounts(Cohort):
    """Forms views by the configuration that the manager knows, who may have been away.

    Rare in random runs, so it has a story (`tests/vsr/test_members.py`).
    """

    manager_kind = _FormsByOwn


class _LeavesAtOnce(CohortMembers):
    def forced_rose(self) -> None:
        super().forced_rose()
        if self.settled is self.now and self.now.before:
            at, now = self._known[-1]
            self.now = self.settled = left(now)
            self._known = [(at, self.now)]


class JointLeftWhenSettled(Cohort):
    """Leaves joint where it learns that joint is forced: at another place than others."""

    members_kind = _LeavesAtOnce


class _AgreesWithoutBefore(CohortMembers):
    def agreed(self, numbers: dict[str, int], last: int) -> int:
        kept = self._known
        self._known = [(at, _without_before(each)) for at, each in kept]
        try:
            return super().agreed(numbers, last)
        finally:
            self._known = kept


class _FormsWithoutBefore(Manager):
    def _configuration(self) -> Configuration:
        return _without_before(super()._configuration())


class NewMajorityAlone(Cohort):
    """Does not ask the members before, neither for a view nor for an event."""

    members_kind = _AgreesWithoutBefore
    manager_kind = _FormsWithoutBefore


class _CountsLearners(CohortMembers):
    def agreed(self, numbers: dict[str, int], last: int) -> int:
        now = self.now
        if now.before or not now.learners:
            return super().agreed(numbers, last)
        mine = self._cohort.me.id
        ids = (*now.members, *now.learners)
        known = sorted((last if id == mine else numbers.get(id, -1) for id in ids), reverse=True)
        return known[len(now.members) // 2]

    def look_for_a_step(self) -> None:
        if self.now.before:
            super().look_for_a_step()


class LearnersCounted(Cohort):
    """Leaves learners what they are, and counts them."""

    members_kind = _CountsLearners


class _Stays(CohortMembers):
    def on_no_member(self, sender: Member, message: NoMember) -> None:
        if self._cohort.me.id not in message.configuration.gone:
            super().on_no_member(sender, message)


class RemovedOneStays(Cohort):
    """Does not go when it is told that it was removed."""

    members_kind = _Stays


FAULTS = ("partition", "isolation", "one-way", "crash", "kill", "pause", "slow", *CHANGES)

COHORT_MEMBERS_BROKEN = (
    BrokenCohort(
        "joint left when forced", ("forced majority",), JointLeftWhenSettled, kinds=FAULTS
    ),
    BrokenCohort("new majority alone", ("forced majority",), NewMajorityAlone, kinds=FAULTS),
    BrokenCohort("learners counted", ("forced majority",), LearnersCounted, kinds=FAULTS),
    BrokenCohort("removed one stays", ("convergence",), RemovedOneStays, kinds=FAULTS),
)
