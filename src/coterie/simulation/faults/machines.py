"""Faults of processes and machines: how they die, stand still, and lose track of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.clock import Duration, seconds
from coterie.simulation.faults.network import nothing

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from coterie.simulation.world.machine import Machine
    from coterie.simulation.world.world import World


OUTAGE = (seconds(1), seconds(4))
"""How long an outage lasts."""


def some_machine(world: World, random: Random) -> Machine:
    """Draw a machine."""
    return world.machines[random.choice(list(world.machines))]


def crash(world: World, random: Random) -> Callable[[], None]:
    """Crash, as the engines of the world mean it; begin a new life later."""
    machine = some_machine(world, random)
    machine.crash()
    return machine.start


def kill(world: World, random: Random) -> Callable[[], None]:
    """Kill a process, where `crash` is the death of a machine; what it wrote stays."""
    machine = some_machine(world, random)
    if machine.is_damaged and not world.may_forget(machine):
        return nothing
    machine.kill()
    return machine.start


def outage(world: World, random: Random) -> Callable[[], None]:
    """Take down, for seconds, a machine for which another may step in."""
    machine = world.machines[random.choice(world.replaceable or list(world.machines))]
    machine.crash()
    world.simulation.at(random.randrange(*OUTAGE), machine.start)
    return nothing


def restart(world: World, random: Random) -> Callable[[], None]:
    """Crash a machine or its process and start it again at once."""
    machine = some_machine(world, random)
    machine.restart()
    return nothing


def restart_all(world: World, random: Random) -> Callable[[], None]:
    """Crash and restart everything at the same moment."""
    del random
    for machine in world.machines.values():
        machine.restart()
    return nothing


def pause(world: World, random: Random) -> Callable[[], None]:
    """Make a machine stand still for a while."""
    machine = some_machine(world, random)
    machine.pause()
    return machine.resume


def slow(world: World, random: Random) -> Callable[[], None]:
    """Make a machine slow."""
    machine = some_machine(world, random)
    machine.slowness = random.choice([5_000, 50_000, 200_000])

    def undo() -> None:
        machine.slowness = 0

    return undo


def suspicion(world: World, random: Random) -> Callable[[], None]:
    """Make a machine believe for a moment that another is dead."""
    machine = some_machine(world, random)
    others = [name for name in world.machines if name != machine.id]
    if others:
        machine.suspect(random.choice(others))
    return nothing


def clock_jump(world: World, random: Random) -> Callable[[], None]:
    """Make a clock jump."""
    machine = some_machine(world, random)
    machine.jump_clock(Duration(random.choice([-1, 1]) * random.randrange(10_000_000)))
    return nothing


def clock_drift(world: World, random: Random) -> Callable[[], None]:
    """Make a clock run fast or slow."""
    machine = some_machine(world, random)
    machine.set_drift(random.choice([0.8, 0.95, 1.05, 1.25]))
    return lambda: machine.set_drift(1.0)


def leave(world: World, random: Random) -> Callable[[], None]:
    """Have the replicas of a machine leave in good order; they join again with a new life later."""
    machine = some_machine(world, random)
    machine.leave()

    def come_back() -> None:
        if machine.is_leaving:
            machine.restart()

    return come_back
