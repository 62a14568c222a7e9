"""Simulations of one stack: where stories begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.journal.engines.stack_keeper import JournalKeeper
from coterie.journal.keeper import KeeperSettings
from coterie.simulation.engines.stack.group import Group
from coterie.simulation.world.settings import SIMULATED_JOURNAL, SIMULATED_SETTINGS
from coterie.simulation.world.virtual_time import VirtualTime
from coterie.stacks import LAYERS, has_engine, parse_stack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.kernel.layers import Layer
    from coterie.kernel.settings import Settings
    from coterie.simulation.world.age import Age


class Simulation(VirtualTime):
    """Virtual time with groups of one stack in it, reproducible by its seed."""

    def __init__(  # noqa: PLR0913 -- what a run is made of
        self,
        *,
        seed: int,
        stack: str,
        settings: Settings = SIMULATED_SETTINGS,
        layers: Mapping[str, type[Layer]] = LAYERS,
        journal: KeeperSettings = SIMULATED_JOURNAL,
        keeper: type[JournalKeeper] = JournalKeeper,
        has_object: bool = False,
        object_kind: str = "counter",
        age: Age | None = None,
    ) -> None:
        super().__init__(seed=seed)
        parse_stack(stack, layers)
        self.stack = stack.upper()
        self.has_engine = has_engine(stack)
        self.settings = settings
        self.layers = layers
        self.journal = journal
        self.keeper = keeper
        self.has_object = has_object
        self.object_kind = object_kind
        self.age = age
        """With what replicas begin that are old; None for new ones."""

    def group(self, *names: str, name: str = "group") -> Group:
        """Make a group of replicas with these names and start them all."""
        return Group(self, name, names)
