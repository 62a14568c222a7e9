"""Random runs over a partitioned network: load on every side, healing, one order in the end."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from coterie.checking.history import Violation
from coterie.kernel.clock import seconds
from coterie.simulation.engines.colours.group import ColoursGroup, ColoursSimulation
from coterie.simulation.engines.stack.trial import StackTrial

if TYPE_CHECKING:
    from coterie.kernel.settings import Settings
    from coterie.simulation.campaign import SeedRun

PATIENCE = seconds(6)
"""How long an operator watches a group that is in touch and does not become primary."""


class ColoursTrial(StackTrial):
    """The run of one seed."""

    world: ColoursGroup
    simulation_kind = ColoursSimulation
    least_sizes: ClassVar[tuple[int, ...]] = (1, 2)
    """How many members a primary component must have: a seed draws one of these."""

    past_lives: ClassVar[tuple[int, ...]] = (0, 3)
    """How many lives that are over may be named before they are taken out."""

    def settings(self, history_bytes: int) -> Settings:
        """Have a primary component shrink to one in some runs, and not in others."""
        random = Random(f"{self.seed}/primary_min")  # noqa: S311 -- reproducible on purpose
        least = random.choice(self.least_sizes)
        lives = random.choice(self.past_lives)
        return replace(super().settings(history_bytes), primary_min=least, past_lives_max=lives)

    def converge(self, run: SeedRun) -> list[Violation]:
        """All must be in one primary component, without a red action, and answer."""
        group, options = self.world, self.options
        begun = group.simulation.now
        while not group.run_until(lambda: group.is_one, within=PATIENCE):
            if group.simulation.now - begun > options.converge_within:
                evidence = f"not one primary component in time: {group.describe_views()}"
                return [Violation("convergence", evidence)]
            if group.is_blocked:
                if not self.may_block:
                    evidence = f"blocked although no disk was lost: {group.describe_views()}"
                    return [Violation("liveness", evidence)]
                group.speak()
        run.converged_after = group.simulation.now - begun
        return self._clients_end() if options.object else self._all_settle()

    @property
    def may_block(self) -> bool:
        """Whether somebody has forgotten what others may wait for, and so wait for ever."""
        engines = [self.world.engine(host.id) for host in self.world]
        return any(engine.is_zombie or engine.has_forgotten for engine in engines)

    def violations(self) -> list[Violation]:
        """Check every promise, and that nothing green is missing in the end."""
        found = super().violations()
        if self.world.is_one and not self.world.tracker.is_known_to_all:
            found.append(Violation("green for ever", "somebody lacks what was green elsewhere"))
        return found

    def report(self, run: SeedRun) -> None:
        """Count views, green actions, components and words of operators."""
        super().report(run)
        tracker = self.world.tracker
        run.deliveries = len(tracker.order)
        run.figures["components"] = tracker.components
        run.figures["red before green"] = tracker.late
        run.figures["past lives"] = tracker.past_lives
        run.figures["words"] = tracker.words
