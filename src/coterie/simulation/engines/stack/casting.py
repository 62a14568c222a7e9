"""Load for stacks without clients: every replica casts, or proposes, now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

    from coterie.kernel.clock import Duration
    from coterie.simulation.engines.stack.group import Group


class Casting:
    """Every replica casts now and then, alone or in bursts, agreed or safe."""

    def __init__(self, group: Group, random: Random, interval: Duration) -> None:
        self._group = group
        self._random = random
        self._interval = interval * random.choice([0.3, 1.0, 3.0])
        self._is_active = True
        self._serial = 0

    def start(self) -> None:
        """Have all members begin to cast."""
        for id in self._group.hosts:
            self._later(id)

    def stop(self) -> None:
        """Cast nothing more."""
        self._is_active = False

    def _later(self, id: str) -> None:
        wait = int(self._random.expovariate(1 / self._interval))
        self._group.simulation.at(wait, self._cast, id)

    def _cast(self, id: str) -> None:
        if not self._is_active:
            return
        random = self._random
        count = 1 if random.random() < 0.8 else random.randrange(2, 30)  # noqa: PLR2004
        safe = random.random() < 0.3  # noqa: PLR2004
        self._serial += 1
        payloads = [b"%d/%d" % (self._serial, n) for n in range(count)]
        if self._group.simulation.has_engine:
            self._group[id].propose(*payloads)
        else:
            self._group[id].cast(*payloads, safe=safe)
        self._later(id)
