"""Faults of the network: every one of them says how to end it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from coterie.simulation.world.network import Link
    from coterie.simulation.world.world import World


def nothing() -> None:
    """End a fault that is over already."""


def _cut(world: World, links: list[Link]) -> Callable[[], None]:
    world.simulation.network.cut(links)
    return lambda: world.simulation.network.mend(links)


def _split(world: World, random: Random) -> tuple[list[str], list[str]]:
    names = list(world.machines)
    random.shuffle(names)
    place = random.randrange(1, len(names)) if len(names) > 1 else 1
    return names[:place], names[place:]


def loss(world: World, random: Random) -> Callable[[], None]:
    """Lose some of all frames."""
    network = world.simulation.network
    amount = random.choice([0.01, 0.05, 0.2, 0.5])
    network.loss = amount

    def undo() -> None:
        network.loss = 0.0

    return undo


def duplication(world: World, random: Random) -> Callable[[], None]:
    """Double some of all frames."""
    network = world.simulation.network
    network.duplication = random.choice([0.05, 0.3])

    def undo() -> None:
        network.duplication = 0.0

    return undo


def damage(world: World, random: Random) -> Callable[[], None]:
    """Flip a bit in some of all frames."""
    network = world.simulation.network
    network.damage = random.choice([0.01, 0.1])

    def undo() -> None:
        network.damage = 0.0

    return undo


def delay(world: World, random: Random) -> Callable[[], None]:
    """Make all frames late."""
    network = world.simulation.network
    network.delay_min = random.choice([1_000, 10_000, 80_000])

    def undo() -> None:
        network.delay_min = 50

    return undo


def reordering(world: World, random: Random) -> Callable[[], None]:
    """Make frames overtake each other."""
    network = world.simulation.network
    network.delay_spread = random.choice([2_000, 20_000, 100_000])

    def undo() -> None:
        network.delay_spread = 100

    return undo


def clogging(world: World, random: Random) -> Callable[[], None]:
    """Hold back everything on a few links, then let it go at once."""
    names = list(world.machines)
    links = [
        (one, other)
        for one in names
        for other in names
        if one != other and random.random() < 0.2  # noqa: PLR2004 -- a few
    ]
    network = world.simulation.network
    network.clog(links)
    return lambda: network.unclog(links, world.arrive)


def partition(world: World, random: Random) -> Callable[[], None]:
    """Cut the world in two."""
    return _cut(world, world.links_between(*_split(world, random)))


def one_way(world: World, random: Random) -> Callable[[], None]:
    """Cut some links in one direction only."""
    mine, others = _split(world, random)
    return _cut(world, [(one, other) for one in mine for other in others])


def non_transitive(world: World, random: Random) -> Callable[[], None]:
    """Cut two machines off from each other while both reach the rest."""
    names = list(world.machines)
    if len(names) < 3:  # noqa: PLR2004 -- there is no rest
        return nothing
    one, other = random.sample(names, 2)
    return _cut(world, [(one, other), (other, one)])


def isolation(world: World, random: Random) -> Callable[[], None]:
    """Cut one machine off from all others."""
    lone = random.choice(list(world.machines))
    rest = [name for name in world.machines if name != lone]
    return _cut(world, world.links_between([lone], rest))


def flapping(world: World, random: Random) -> Callable[[], None]:
    """Cut and mend the same links again and again."""
    links = world.links_between(*_split(world, random))
    network = world.simulation.network
    period = random.choice([50_000, 200_000, 600_000])
    state = {"flaps": True, "is_cut": False}

    def flap() -> None:
        if not state["flaps"]:
            return
        (network.mend if state["is_cut"] else network.cut)(links)
        state["is_cut"] = not state["is_cut"]
        world.simulation.at(period, flap)

    flap()

    def undo() -> None:
        state["flaps"] = False
        if state["is_cut"]:
            network.mend(links)

    return undo
