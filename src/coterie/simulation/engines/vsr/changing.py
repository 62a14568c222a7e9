"""Groups of cohorts whose members an operator changes."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from coterie.kernel.views import ChangedConfiguration
from coterie.simulation.world.operator import Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coterie.kernel.replica import Replica
    from coterie.kernel.views import Configuration
    from coterie.simulation.engines.vsr.world import CohortResident, CohortWorld
    from coterie.simulation.world.virtual_time import VirtualTime


class CohortPlace:
    """A machine with a cohort, as the operator sees it."""

    def __init__(self, resident: CohortResident) -> None:
        self.resident = resident
        self.id = resident.machine.id

    @property
    def replica(self) -> Replica | None:
        """The cohort, while its process lives."""
        return self.resident.replica

    @property
    def configuration(self) -> Configuration:
        """The last configuration that is known there to be forced."""
        cohort = self.resident.cohort
        return self.resident.configuration if cohort is None else cohort.members.settled

    def call(self, call: Callable[[], None]) -> None:
        """Have something done in the next turn."""
        self.resident.machine.call(call)


class ChangingCohorts:
    """One group, and its operator."""

    def __init__(self, world: CohortWorld, group: str) -> None:
        self._world = world
        self._name = group
        self.simulation: VirtualTime = world.simulation
        seed = f"{world.simulation.seed}/{group}/operator"
        self.operator = Operator(self, Random(seed), prefix=f"{group}-n")  # noqa: S311

    @property
    def configuration(self) -> Configuration:
        """The last one that was forced."""
        return self._world.configurations(self._name)[0]

    def __iter__(self) -> Iterator[CohortPlace]:
        from coterie.simulation.engines.vsr.world import CohortResident  # noqa: PLC0415 -- it uses us

        for resident in self._world.residents_of(self._name):
            if isinstance(resident, CohortResident) and not resident.machine.is_retired:
                yield CohortPlace(resident)

    def put_up(self, id: str, seeds: Configuration) -> None:
        """Start a new machine, whose cohort is to join."""
        self._world.put_newcomer(id, self._name, seeds)

    def may_dismiss(self, id: str) -> bool:
        """Say whether the members that stay remember enough when this one goes."""
        now = self.operator.configuration
        staying = tuple(other for other in now.members if other != id)
        to = ChangedConfiguration(now.number + 1, staying, now.learners, now.members)
        return self._world.keeps_memory(self._name, to, sound=True)

    @property
    def is_settled(self) -> bool:
        """Whether all that was wanted has come about, and who was removed has found out."""
        now = self.operator.configuration
        return self.operator.is_done and all(place.id in now.everyone for place in self)
