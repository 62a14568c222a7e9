"""Deliberately broken variants of changing members; see `variants.py`.

That two changes never run at once, and that an id is never used again, is not left to whoever
proposes: an entry that does not follow is void (`tests/kernel/test_configuration.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.broken.variants import Broken

from coterie.kernel.configuration import changed, left
from coterie.kernel.views import ChangedConfiguration
from coterie.membership.vsync import Vsync
from coterie.replication.primary import PrimaryViews

if TYPE_CHECKING:
    from coterie.kernel.views import Configuration, Member
    from coterie.membership.messages import VsyncMessage
    from coterie.replication.messages import Credentials


class HighestNumberWins(PrimaryViews):
    """Goes by the highest configuration that anybody names, whatever the history says.

    It takes a change that was given up, and somebody who remembers it: rare in random runs, so it
    has a story (`tests/replication/test_members.py`).
    """

    def _configuration_of(self, sound: list[Credentials]) -> Configuration:
        named = [each.configuration for each in sound if each.configuration is not None]
        if not named:
            return super()._configuration_of(sound)
        chosen = max(named, key=lambda each: each.number)
        self.log.configurations[-1] = (self.log.configurations[-1][0], chosen)
        return chosen


class JointLeftWhenSettled(PrimaryViews):
    """Leaves joint where it learns that joint is settled: at another place than others."""

    def _configuration_settled(self) -> None:
        position, now = self.log.configurations[0]
        if now.before:
            self.log.configurations[0] = (position, left(now))
        super()._configuration_settled()


class NewMajorityAlone(PrimaryViews):
    """Does not ask the members before, neither for a view nor for an entry."""

    def _configuration_of(self, sound: list[Credentials]) -> Configuration:
        return _without_before(super()._configuration_of(sound))

    def _settle_what_a_majority_has(self) -> None:
        kept = self.log.configurations
        self.log.configurations = [(place, _without_before(each)) for place, each in kept]
        count = len(kept)
        super()._settle_what_a_majority_has()
        rest = len(self.log.configurations)
        self.log.configurations = kept[count - rest :] if rest <= count else kept


class LearnersCounted(PrimaryViews):
    """Leaves learners what they are, and counts them."""

    def _advance_configuration(self) -> None:
        if self.log.configuration.before:
            super()._advance_configuration()

    def _held_by(self, members: tuple[str, ...]) -> int:
        learners = self.log.configuration.learners
        acks = [
            self._acks.get(member, 0)
            for member in self._accepted_by
            if member.id in members or member.id in learners
        ]
        majority = len(members) // 2 + 1
        return sorted(acks, reverse=True)[majority - 1] if len(acks) >= majority else -1


class RemovedOnesAreNotTold(Vsync):
    """Says nothing to a replica that was away when it was removed."""

    def hear_stranger(self, sender: Member, message: VsyncMessage) -> None:
        if sender.id not in self.configuration.gone:
            super().hear_stranger(sender, message)


def _without_before(configuration: Configuration) -> ChangedConfiguration:
    now = changed(configuration)
    return ChangedConfiguration(now.number, now.members, now.learners, (), now.gone)


CHANGES = (
    "partition",
    "isolation",
    "one-way",
    "crash",
    "pause",
    "slow",
    "join",
    "remove",
    "replace",
)

MEMBERS_BROKEN = (
    Broken(
        JointLeftWhenSettled,
        "SAFE:DYNSEQ:PVSYNC",
        ("confirmed chain", "authoritative majority", "authoritative for ever"),
        faults=CHANGES,
    ),
    Broken(
        NewMajorityAlone,
        "SAFE:DYNSEQ:PVSYNC",
        ("confirmed chain", "authoritative majority"),
        faults=CHANGES,
    ),
    Broken(LearnersCounted, "SAFE:DYNSEQ:PVSYNC", ("authoritative majority",), faults=CHANGES),
    Broken(RemovedOnesAreNotTold, "SAFE:DYNSEQ:PVSYNC", ("convergence",), faults=CHANGES),
)
