"""Faults of disks and machines; they mean something only where replicas keep a journal.

The last two are beyond what any replication survives without loss, and stand apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from coterie.simulation.faults import Fault
    from coterie.simulation.group import Group
    from coterie.simulation.host import Host


def _nothing() -> None:
    pass


def _some_host(group: Group, random: Random) -> Host:
    return group.hosts[random.choice(list(group.hosts))]


def power(group: Group, random: Random) -> Callable[[], None]:
    """Take a replica's machine down: what it had not synced is lost, or torn."""
    host = _some_host(group, random)
    if not group.simulation.syncs_every_turn and not group.may_forget(host):
        return _nothing
    host.lose_power()
    return host.start


def power_all(group: Group, random: Random) -> Callable[[], None]:
    """Take all machines down at the same moment, unless they would forget what they promised."""
    del random
    hosts = list(group.hosts.values())
    if group.simulation.syncs_every_turn:
        for host in hosts:
            host.lose_power()

    def start() -> None:
        for host in hosts:
            host.start()

    return start


def torn_write(group: Group, random: Random) -> Callable[[], None]:
    """Kill a replica's process in the middle of a write."""
    host = _some_host(group, random)
    host.disk.die_in_write()
    return host.repair


def full_disk(group: Group, random: Random) -> Callable[[], None]:
    """Leave hardly any room on a disk for a while."""
    host = _some_host(group, random)
    host.disk.capacity_bytes = host.disk.used_bytes + random.randrange(3000)
    return host.repair


def failing_sync(group: Group, random: Random) -> Callable[[], None]:
    """Have a disk fail once when it is told to sync."""
    host = _some_host(group, random)
    host.disk.fail_syncs()
    return host.repair


def bit_flip(group: Group, random: Random) -> Callable[[], None]:
    """Flip a bit of a replica's older files; it may lose its memory when it starts again."""
    host = _some_host(group, random)
    # Damage to the very last turn cannot be told from a turn that a crash interrupted.
    disk = host.disk
    newest = [path for path in disk.paths if path.endswith(".segment")][-1:]
    paths = [path for path in disk.paths if path not in newest and disk.size(path)]
    paths = [path for path in paths if not group.is_vital(path)]
    if paths and group.may_forget(host):
        host.is_damaged = True
        path, offset = disk.flip_bit(random.choice(paths))
        group.simulation.note(f"a bit of {path} at {offset} has gone bad")
    return _nothing


def new_machine(group: Group, random: Random) -> Callable[[], None]:
    """Replace a machine: the replica has an empty disk, and comes back as a zombie."""
    host = _some_host(group, random)
    if not group.may_forget(host):
        return _nothing
    host.replace_machine()
    return host.start


# ---- beyond what is promised


def amnesia(group: Group, random: Random) -> Callable[[], None]:
    """Have a majority lose its memory, and later the operator accept what was lost."""
    hosts = random.sample(list(group.hosts.values()), group.configuration.majority)
    for host in hosts:
        if group.simulation.syncs_every_turn:
            host.replace_machine()
        else:
            host.lose_power()

    def start() -> None:
        for host in group.hosts.values():
            host.start()
        group.recover_by_hand(random)

    return start


def old_disk(group: Group, random: Random) -> Callable[[], None]:
    """Put an old copy of a disk in its place, later."""
    host = _some_host(group, random)
    copy = host.disk.keep_copy()

    def put_back() -> None:
        host.put_back(copy)
        host.start()

    return put_back


DISK_FAULTS: dict[str, Fault] = {
    "power": power,
    "power-all": power_all,
    "torn-write": torn_write,
    "full-disk": full_disk,
    "failing-sync": failing_sync,
    "bit-flip": bit_flip,
    "new-machine": new_machine,
}

LOSSES: dict[str, Fault] = {"amnesia": amnesia, "old-disk": old_disk}
"""Faults that no replication survives without loss; they are never part of all the others."""
