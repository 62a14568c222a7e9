"""The fault menu, the same for all families of engines.

Every fault is a function that does something to a world and gives back how to end it. A new one
needs a function and a line here; a family says which of them it can be asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from coterie.simulation.faults import disks, machines, members, network
from coterie.simulation.world.world import World

Fault = Callable[[World, Random], Callable[[], None]]

DISK_FAULTS: dict[str, Fault] = {
    "power": disks.power,
    "power-all": disks.power_all,
    "torn-write": disks.torn_write,
    "full-disk": disks.full_disk,
    "failing-sync": disks.failing_sync,
    "bit-flip": disks.bit_flip,
    "new-machine": disks.new_machine,
}

LOSSES: dict[str, Fault] = {"amnesia": disks.amnesia, "old-disk": disks.old_disk}
"""Faults that no replication survives without loss; they are never part of all the others."""

CHANGES: dict[str, Fault] = {
    "join": members.join,
    "remove": members.remove,
    "replace": members.replace,
}
"""Changes of members, for engines whose members can change; asked for by name."""

FAULTS: dict[str, Fault] = {
    "loss": network.loss,
    "duplication": network.duplication,
    "damage": network.damage,
    "delay": network.delay,
    "reordering": network.reordering,
    "clogging": network.clogging,
    "partition": network.partition,
    "one-way": network.one_way,
    "non-transitive": network.non_transitive,
    "isolation": network.isolation,
    "flapping": network.flapping,
    "crash": machines.crash,
    "restart": machines.restart,
    "restart-all": machines.restart_all,
    "pause": machines.pause,
    "slow": machines.slow,
    "suspicion": machines.suspicion,
    "clock-jump": machines.clock_jump,
    "clock-drift": machines.clock_drift,
    "leave": machines.leave,
    **DISK_FAULTS,
    **LOSSES,
    **CHANGES,
    "kill": machines.kill,
    "outage": machines.outage,
}

RARE = {
    "restart-all": 0.1,
    "leave": 0.5,
    "restart": 0.5,
    "power-all": 0.1,
    "bit-flip": 0.3,
    "new-machine": 0.3,
    "failing-sync": 0.3,
    "amnesia": 0.1,
    "old-disk": 0.3,
    "join": 0.5,
    "remove": 0.5,
    "replace": 0.5,
}
"""Faults that would drown the others if they came as often."""


OF_JOURNALS = DISK_FAULTS.keys() | LOSSES.keys()
"""Faults that mean something only where somebody keeps a journal."""
OF_MACHINES = frozenset({"kill", "outage"})
"""Faults that mean something only where `crash` is the death of a machine."""

ALL_FAULTS = tuple(
    kind for kind in FAULTS if kind not in LOSSES.keys() | CHANGES.keys() | OF_MACHINES
)
"""What can be done to a world in which a crash is the death of a process, without loss."""
