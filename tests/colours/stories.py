"""Groups over a partitioned network, as the tests tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from coterie.colours.states import ServerState
from coterie.kernel.clock import seconds
from coterie.simulation.engines.colours.group import ColoursGroup, ColoursSimulation
from coterie.simulation.world.settings import SIMULATED_JOURNAL, SIMULATED_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.journal.keeper import KeeperSettings

STACKS = ("COLOURS:DYNSEQ:VSYNC", "COLOURS:TOKEN:VSYNC")


def make_group(
    names: str = "abcde",
    *,
    stack: str = STACKS[0],
    seed: int = 1,
    journal: KeeperSettings = SIMULATED_JOURNAL,
    **settings: int,
) -> ColoursGroup:
    """A group that is one primary component."""
    simulation = ColoursSimulation(
        seed=seed,
        stack=stack,
        settings=replace(SIMULATED_SETTINGS, **settings),
        journal=journal,
    )
    group = simulation.group(*names)
    until(group, lambda: group.is_one, "all are one primary component")
    return group


def until(group: ColoursGroup, condition: Callable[[], bool], what: str) -> None:
    """Let time pass until something is so."""
    assert group.run_until(condition, within=seconds(60)), (
        f"it never came about that {what}: {group.describe_views()}"
    )


def until_parts(group: ColoursGroup, *parts: str) -> None:
    """Let time pass until each of these is a component that has exchanged all it knows."""

    def settled() -> bool:
        return all(
            group.engine(id).is_with(part) and group.engine(id).state.takes_actions
            for part in parts
            for id in part
        )

    until(group, settled, f"the components are {', '.join(parts)}")


def cut(group: ColoursGroup, *parts: str) -> None:
    """Have the network consist of these parts from now on."""
    group.heal()
    group.partition(*parts)
    until_parts(group, *parts)


def cut_others(group: ColoursGroup, one: str, others: str) -> None:
    """Have one part come to others, whoever else is down."""
    group.heal()
    until_parts(group, one + others)


def merge(group: ColoursGroup) -> None:
    """Heal everything, and let all become one primary component."""
    group.heal()
    until(group, lambda: group.is_one, "all are one primary component")


def is_primary(group: ColoursGroup, id: str) -> bool:
    """Say whether a replica is in the primary component."""
    return group.engine(id).state is ServerState.REG_PRIM


def greens(group: ColoursGroup) -> list[str]:
    """The names of all actions in the global order."""
    return [str(green.id) for green in group.tracker.order]


def reds(group: ColoursGroup, id: str) -> list[str]:
    """The names of the actions that are not green at a replica."""
    return [str(action.id) for action in group.engine(id).queue.shown()]
