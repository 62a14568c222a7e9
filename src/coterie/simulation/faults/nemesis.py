"""The one who orders from the menu of faults.

Faults are drawn at random, several a second, each for a random while, so that they overlap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.clock import milliseconds, seconds
from coterie.simulation.faults.menu import CHANGES, FAULTS, OF_JOURNALS, RARE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from coterie.simulation.world.world import World


WILD_FOR = seconds(3)
"""How long faults go on before a rest, on average."""
RESTS = (milliseconds(500), seconds(2))
"""How long everything is left alone then."""


class Nemesis:
    """Draws faults at random while it is active.

    With *rests* it ends all of them now and then and does nothing for a while: a group that needs
    a second or two to come back would otherwise spend wild runs doing nothing else.
    """

    def __init__(
        self, world: World, random: Random, kinds: Sequence[str], *, rests: bool = False
    ) -> None:
        self._world = world
        self._random = random
        has_journal = world.has_journals
        self._kinds = [
            kind
            for kind in kinds
            if (has_journal or kind not in OF_JOURNALS)
            and (world.can_change_members or kind not in CHANGES)
        ]
        self._weights = [RARE.get(kind, 1.0) for kind in self._kinds]
        self._is_active = bool(self._kinds)
        self._undo: dict[int, Callable[[], None]] = {}
        self._serial = 0
        self.counts: dict[str, int] = {}
        # Some runs are wild, some nearly calm: rare orders of events need both.
        self._pace = random.choice([milliseconds(120), milliseconds(350), seconds(1)])
        self._stay = random.choice([milliseconds(150), milliseconds(600), seconds(2)])
        self._rests = rests
        self._is_resting = False

    def start(self) -> None:
        """Begin to make faults."""
        self._next()
        if self._rests:
            self._world.simulation.at(self._wild_for(), self._rest)

    def stop(self) -> None:
        """End all faults."""
        self._is_active = False
        self._end_all()

    def _end_all(self) -> None:
        for serial in sorted(self._undo):
            self._undo.pop(serial)()

    def _wild_for(self) -> int:
        return int(self._random.expovariate(1 / WILD_FOR))

    def _rest(self) -> None:
        if not self._is_active:
            return
        self._is_resting = True
        self._world.simulation.note("a rest")
        self._end_all()
        self._world.simulation.at(self._random.randrange(*RESTS), self._go_on)

    def _go_on(self) -> None:
        self._is_resting = False
        self._next()
        self._world.simulation.at(self._wild_for(), self._rest)

    def _next(self) -> None:
        if not self._is_active or self._is_resting:
            return
        simulation = self._world.simulation
        kind = self._random.choices(self._kinds, self._weights)[0]
        simulation.note(f"fault: {kind}")
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self._serial += 1
        self._undo[self._serial] = FAULTS[kind](self._world, self._random)
        stay = int(self._random.expovariate(1 / self._stay))
        simulation.at(min(stay, 5 * self._stay), self._end, self._serial, kind)
        simulation.at(int(self._random.expovariate(1 / self._pace)), self._next)

    def _end(self, serial: int, kind: str) -> None:
        undo = self._undo.pop(serial, None)
        if undo is not None:
            self._world.simulation.note(f"over: {kind}")
            undo()
