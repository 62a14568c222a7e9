"""The operator of a simulated group: changes its members, and asks until it is done.

A replica may refuse, or die before it has ordered what was asked of it; so the operator looks now
and then at what is settled, and asks some replica again for what is still missing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from coterie.kernel.clock import milliseconds
from coterie.kernel.errors import Refused
from coterie.kernel.views import Configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from coterie.kernel.replica import Replica
    from coterie.kernel.views import ReplicaId
    from coterie.simulation.world.virtual_time import VirtualTime

LOOKS_EVERY = milliseconds(300)
MEMBERS_MIN = 2
MEMBERS_MAX = 7


@runtime_checkable
class ChangesMembers(Protocol):
    """The layer of a replica by which the members of its group change."""

    def admit(self, id: ReplicaId) -> None:
        """Have a replica join the group; raise `Refused` if it cannot be."""

    def dismiss(self, id: ReplicaId) -> None:
        """Have a replica removed; raise `Refused` if it cannot be."""


class Leaver(Protocol):
    """Who lives on a machine, and may be removed."""

    def be_removed(self) -> None:
        """Mark the disk, and end."""


class OperatedReplica(Protocol):
    """A machine with a replica of the group."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def configuration(self) -> Configuration:
        """The last configuration that has settled, as far as is known there."""

    @property
    def replica(self) -> Replica | None:
        """The replica, while its process lives."""

    @property
    def resident(self) -> Leaver:
        """Who lives there."""

    def call(self, call: Callable[[], None]) -> None:
        """Have something done in the next turn."""


class ChangingGroup(Protocol):
    """A group whose members an operator changes."""

    @property
    def simulation(self) -> VirtualTime:
        """Its time."""

    @property
    def configuration(self) -> Configuration:
        """The one with which it was founded."""

    def __iter__(self) -> Iterator[OperatedReplica]:
        """Give the machines with replicas of it that are not out of service."""

    def put_up(self, id: str, seeds: Configuration) -> None:
        """Start a new machine, whose replica is to join."""

    def may_dismiss(self, id: str) -> bool:
        """Say whether the members that stay remember enough when this one goes."""


class Operator:
    """Wants replicas to join and to go; newcomers are called by *prefix* and a number."""

    def __init__(self, group: ChangingGroup, random: Random, *, prefix: str = "n") -> None:
        self._group = group
        self._random = random
        self._prefix = prefix
        self._joining: list[str] = []
        self._leaving: list[tuple[str, str]] = []
        """Who is to go, and who must have become a member before."""
        self._is_looking = False
        self._count = 0

    @property
    def is_done(self) -> bool:
        """Whether everything that was wanted, and can be, has come about."""
        now = self.configuration
        self._strike_off(now)
        if self._joining or now.before or now.learners:
            return False
        # A member whose disk is damaged may have forgotten when it comes back: nobody goes then.
        return not any(self._group.may_dismiss(id) for id, _ in self._leaving)

    @property
    def configuration(self) -> Configuration:
        """The last one that has settled anywhere."""
        found = [self._group.configuration]
        found += [host.configuration for host in self._group]
        return max(found, key=lambda each: each.number)

    # ---- what is wanted

    def join(self) -> str:
        """Put up a new machine and have it join; give its name."""
        now = self.configuration
        if len(now.everyone) + len(self._joining) >= MEMBERS_MAX:
            return ""
        self._count += 1
        id = f"{self._prefix}{self._count}"
        self._group.put_up(id, Configuration(0, now.members))
        self._joining.append(id)
        self._look_soon()
        return id

    def dismiss(self, *, after: str = "") -> None:
        """Have some member go, if the others can do without."""
        now = self.configuration
        going = {id for id, _ in self._leaving}
        staying = [id for id in now.members if id not in going]
        least = MEMBERS_MIN if after else MEMBERS_MIN + 1
        if len(staying) < least:
            return
        self._leaving.append((self._random.choice(staying), after))
        self._look_soon()

    # ---- asking for it

    def _look_soon(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._group.simulation.at(LOOKS_EVERY, self._look)

    def _look(self) -> None:
        self._is_looking = False
        now = self.configuration
        self._strike_off(now)
        self._look_soon()
        self._switch_off(now)
        wishes = [partial(_admit, id) for id in self._joining]
        for id, after in self._leaving:
            ready = not after or after in now.members
            if ready and self._group.may_dismiss(id):
                wishes.append(partial(_dismiss, id))
        if wishes:
            self._ask(self._random.choice(wishes))

    def _strike_off(self, now: Configuration) -> None:
        self._joining = [
            id for id in self._joining if id not in now.everyone and id not in now.gone
        ]
        self._leaving = [
            (id, after)
            for id, after in self._leaving
            if id not in now.gone and after not in now.gone
        ]

    def _switch_off(self, now: Configuration) -> None:
        """End replicas that were removed while they were away, and know nobody who could tell."""
        for host in list(self._group):
            if host.id in now.gone and not set(host.configuration.everyone) & set(now.members):
                host.resident.be_removed()

    def _ask(self, wish: Callable[[ChangesMembers], None]) -> None:
        host = self._random.choice(list(self._group))
        replica = host.replica
        if replica is None:
            return
        engine = replica.layers[0]
        assert isinstance(engine, ChangesMembers), "its members can change"

        def ask() -> None:
            try:
                wish(engine)
            except Refused:
                replica.context.count("changes_refused")

        host.call(ask)


def _admit(id: str, engine: ChangesMembers) -> None:
    engine.admit(id)


def _dismiss(id: str, engine: ChangesMembers) -> None:
    engine.dismiss(id)
