"""Changes of members, in the middle of everything else: they are no faults, and must do no harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.simulation.faults.network import nothing

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from coterie.simulation.world.world import World


def join(world: World, random: Random) -> Callable[[], None]:
    """Have a new replica join."""
    world.join(random)
    return nothing


def remove(world: World, random: Random) -> Callable[[], None]:
    """Have a replica removed."""
    world.dismiss(random)
    return nothing


def replace(world: World, random: Random) -> Callable[[], None]:
    """Have a new replica join, and an old one go when it is a member."""
    newcomer = world.join(random)
    if newcomer:
        world.dismiss(random, after=newcomer)
    return nothing
