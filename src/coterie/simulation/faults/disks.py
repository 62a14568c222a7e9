"""Faults of disks and machines; they mean something only where replicas keep a journal.

The last two are beyond what any replication survives without loss, and stand apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.simulation.faults.machines import some_machine
from coterie.simulation.faults.network import nothing

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from coterie.simulation.world.world import World


def power(world: World, random: Random) -> Callable[[], None]:
    """Take a replica's machine down: what it had not synced is lost, or torn."""
    machine = some_machine(world, random)
    if not world.syncs_every_turn and not world.may_forget(machine):
        return nothing
    machine.lose_power()
    return machine.start


def power_all(world: World, random: Random) -> Callable[[], None]:
    """Take all machines down at the same moment, unless they would forget what they promised."""
    del random
    machines = list(world.machines.values())
    if world.syncs_every_turn:
        for machine in machines:
            machine.lose_power()

    def start() -> None:
        for machine in machines:
            machine.start()

    return start


def torn_write(world: World, random: Random) -> Callable[[], None]:
    """Kill a process in the middle of a write."""
    machine = some_machine(world, random)
    machine.disk.die_in_write()
    return machine.repair


def full_disk(world: World, random: Random) -> Callable[[], None]:
    """Leave hardly any room on a disk for a while."""
    machine = some_machine(world, random)
    machine.disk.capacity_bytes = machine.disk.used_bytes + random.randrange(3000)
    return machine.repair


def failing_sync(world: World, random: Random) -> Callable[[], None]:
    """Have a disk fail once when it is told to sync."""
    machine = some_machine(world, random)
    machine.disk.fail_syncs()
    return machine.repair


def bit_flip(world: World, random: Random) -> Callable[[], None]:
    """Flip a bit of a replica's older files; it may lose its memory when it starts again."""
    machine = some_machine(world, random)
    # Damage to the very last turn cannot be told from a turn that a crash interrupted.
    disk = machine.disk
    newest = [path for path in disk.paths if path.endswith(".segment")][-1:]
    paths = [path for path in disk.paths if path not in newest and disk.size(path)]
    paths = [path for path in paths if not machine.is_vital(path)]
    if paths and world.may_forget(machine):
        machine.is_damaged = True
        path, offset = disk.flip_bit(random.choice(paths))
        world.simulation.note(f"a bit of {path} at {offset} has gone bad")
    return nothing


def new_machine(world: World, random: Random) -> Callable[[], None]:
    """Replace a machine: the replica has an empty disk, and comes back as a zombie."""
    machine = some_machine(world, random)
    if not world.may_forget(machine):
        return nothing
    machine.replace_machine()
    return machine.start


# ---- beyond what is promised


def amnesia(world: World, random: Random) -> Callable[[], None]:
    """Have a majority lose its memory, and later the operator accept what was lost."""
    everyone = list(world.machines.values())
    machines = random.sample(everyone, len(everyone) // 2 + 1)
    for machine in machines:
        if world.syncs_every_turn:
            machine.replace_machine()
        else:
            machine.lose_power()

    def start() -> None:
        for machine in world.machines.values():
            machine.start()
        world.recover_by_hand(random)

    return start


def old_disk(world: World, random: Random) -> Callable[[], None]:
    """Put an old copy of a disk in its place, later."""
    machine = some_machine(world, random)
    copy = machine.disk.keep_copy()

    def put_back() -> None:
        machine.put_back(copy)
        machine.start()

    return put_back
