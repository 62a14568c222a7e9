"""The copies of an object over a partitioned network: two while something is red, and then one.

In a primary component nothing is shown before it is green, so there one copy is enough. The second
one is made when something red comes, and goes with the first green entries that come while nothing
is: not with those that take the place of what was rolled back, because more that is red may follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.objects.applied_once import AppliedOnce
from coterie.objects.copies import Copies

if TYPE_CHECKING:
    from coterie.kernel.engine import Run, Standing
    from coterie.objects.answering import Answering
    from coterie.objects.classes.definition import Definition


class ColouredCopies(Copies):
    """What is red is rolled back, and executed again, wherever others come before it."""

    _went_back = False

    def execute(self, runs: list[Run], answering: Answering, standing: Standing) -> None:
        if standing.is_final and not self._went_back and self.settled == self.machine.position:
            self._keep_one()
        self._went_back = False
        super().execute(runs, answering, standing)

    def roll_back(self, position: int) -> None:
        self._went_back = True
        super().roll_back(position)

    def _keep_one(self) -> None:
        if self.authoritative is None:
            return
        self.machine = self.follow()
        self.authoritative = None
        self._forget_start()
        self._prepare(self.machine)


def copies_for(definition: Definition, *, has_colours: bool) -> type[Copies]:
    """Say which copies an object needs, by its class and by whether entries may come red."""
    if not has_colours:
        return Copies
    return AppliedOnce if definition.commuting else ColouredCopies
