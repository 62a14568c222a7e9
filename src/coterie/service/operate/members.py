"""Newcomers on this machine: what becomes of a group's file when its members change.

`coterie serve` runs all replicas of its groups, so it also gives a newcomer its ports, its folder
and its secrets, and forgets who was removed. The file says whom to start and where; who belongs to
a group is in the group's own history.
"""

from __future__ import annotations

import string
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.errors import Refused
from coterie.ready.locations import LOCATIONS
from coterie.service.config import NAME, ReplicaConfig, encode_config, parse_config
from coterie.service.operate.founding import LOOPBACK, free_port
from coterie.service.security import write_secrets
from coterie.service.state_folder import CONFIG, write_config
from coterie.stacks import serves_datagrams

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.service.config import ClusterConfig


def put_up(
    folder: Path, config: ClusterConfig, group: str, id: str = ""
) -> tuple[ClusterConfig, str]:
    """Write a newcomer into the file; give what the file says now, and how it is called.

    Raises `Refused` with no effect.
    """
    if group not in config.groups:
        raise Refused(f"there is no group {group!r} here; there is {', '.join(config.groups)}")
    id = id or _free_id(folder, config)
    if not NAME.fullmatch(id):
        raise Refused(f"{id!r} is no name for a replica: use letters, digits, dots and hyphens")
    if id in config.replicas:
        raise Refused(f"replica {id} is here already: give the new one another name")
    if (folder / id).exists():
        raise Refused(
            f"{folder / id} holds what an earlier replica {id} kept: ids are never used again, so "
            "give the new one another name"
        )
    takes_datagrams = serves_datagrams(config.groups[group].stack)
    with ExitStack() as held:
        ports = [free_port(held) for _ in range(3 if takes_datagrams else 2)]
    newcomer = ReplicaConfig(
        listen=f"{LOOPBACK}:{ports.pop()}",
        clients=f"{LOOPBACK}:{ports.pop()}",
        dir=str(folder / id),
        datagrams=f"{LOOPBACK}:{ports.pop()}" if takes_datagrams else "",
        joins=(group,),
    )
    replicas = {**config.replicas, id: newcomer}
    after = _write(folder, msgspec.structs.replace(config, replicas=replicas))
    return after, id


def take_down(folder: Path, config: ClusterConfig, group: str, id: str) -> ClusterConfig:
    """Take a replica of a group out of the file; give what the file says now."""
    if group not in config.groups or id not in config.everyone(group):
        raise Refused(f"there is no replica {id!r} of {group!r} here")
    replica, given = config.replicas[id], config.groups[group]
    others = config.groups_at(id).keys() - {group, LOCATIONS}
    staying = tuple(each for each in config.everyone(group) if each != id)
    replicas = dict(config.replicas)
    groups = dict(config.groups)
    if others and group in replica.joins:
        joins = tuple(each for each in replica.joins if each != group)
        replicas[id] = msgspec.structs.replace(replica, joins=joins)
    elif others:
        groups[group] = msgspec.structs.replace(given, replicas=staying)
    else:
        del replicas[id]
        if given.replicas:
            groups[group] = msgspec.structs.replace(given, replicas=staying)
    return _write(folder, msgspec.structs.replace(config, replicas=replicas, groups=groups))


def have_changed(folder: Path, config: ClusterConfig) -> bool:
    """Say whether replicas have come or gone since the groups in a folder began."""
    left = [id for id in string.ascii_lowercase if id not in config.replicas]
    return any(each.joins for each in config.replicas.values()) or any(
        (folder / id).is_dir() for id in left
    )


def _write(folder: Path, config: ClusterConfig) -> ClusterConfig:
    config = parse_config(encode_config(config), source=str(folder / CONFIG))
    write_secrets(config)
    write_config(folder, config)
    return config


def _free_id(folder: Path, config: ClusterConfig) -> str:
    """Choose a name that no replica here has or had."""
    letters = string.ascii_lowercase
    names: list[str] = [*letters, *(one + other for one in letters for other in letters)]
    for name in names:
        if name not in config.replicas and not (folder / name).exists():
            return name
    raise Refused("all short names are taken: give the new replica one of your own")
