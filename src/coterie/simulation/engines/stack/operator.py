"""The operator of a simulated group: changes its members, and asks until it is done.

A replica may refuse, or die before it has ordered what was asked of it; so the operator looks now
and then at what is settled, and asks some replica again for what is still missing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coterie.kernel.clock import milliseconds
from coterie.kernel.errors import Refused
from coterie.kernel.views import Configuration
from coterie.replication.layer import EngineLayer

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from coterie.simulation.engines.stack.group import Group

LOOKS_EVERY = milliseconds(300)
MEMBERS_MIN = 2
MEMBERS_MAX = 7


class Operator:
    """Wants replicas to join and to go."""

    def __init__(self, group: Group, random: Random) -> None:
        self._group = group
        self._random = random
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
        id = f"n{self._count}"
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

    def _ask(self, wish: Callable[[EngineLayer], None]) -> None:
        host = self._random.choice(list(self._group))
        replica = host.replica
        if replica is None:
            return
        engine = replica.layers[0]
        assert isinstance(engine, EngineLayer)

        def ask() -> None:
            try:
                wish(engine)
            except Refused:
                replica.context.count("changes_refused")

        host.call(ask)


def _admit(id: str, engine: EngineLayer) -> None:
    engine.admit(id)


def _dismiss(id: str, engine: EngineLayer) -> None:
    engine.dismiss(id)
