"""A group of processes on this machine: its configuration, made up, and its beginning.

The bootstrap marks of all replicas are set before the configuration file is written, and that is
written whole or not at all. So a group whose file is there has been founded, and a replica that
later finds its disk empty knows that it has lost something.
"""

from __future__ import annotations

import random
import socket
import string
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.journal.stable import found_group
from coterie.kernel.errors import CoterieError
from coterie.service.config import (
    ClusterConfig,
    ReplicaConfig,
    directory_of,
    encode_config,
    parse_config,
)
from coterie.service.folder import open_folder
from coterie.service.places import CONFIG, write_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.service.config import GroupConfig

LOOPBACK = "127.0.0.1"
REPLICAS_MAX = len(string.ascii_lowercase)
_LOWEST_PORT = 10_000
_TRIES_MAX = 1000


def make_config(
    folder: Path, name: str, *, groups: Mapping[str, GroupConfig], replicas: int
) -> ClusterConfig:
    """Make the configuration of groups on this machine; raises `ConfigError` if it cannot be.

    Each group under **vsr** prefers another replica as its primary, in the order given.
    """
    if not 1 <= replicas <= REPLICAS_MAX:
        raise CoterieError(f"a local group has 1 to {REPLICAS_MAX} replicas, not {replicas}")
    with ExitStack() as held:
        ports = [free_port(held) for _ in range(2 * replicas)]
    ids = string.ascii_lowercase[:replicas]
    config = ClusterConfig(
        cluster=name,
        groups={
            group: msgspec.structs.replace(
                given, replicas=(*ids[place % replicas :], *ids[: place % replicas])
            )
            if given.is_vsr
            else given
            for place, (group, given) in enumerate(groups.items())
        },
        replicas={
            id: ReplicaConfig(
                listen=f"{LOOPBACK}:{ports.pop()}",
                clients=f"{LOOPBACK}:{ports.pop()}",
                dir=str(folder / id),
            )
            for id in ids
        },
    )
    return parse_config(encode_config(config), source=str(folder / CONFIG))


def found(folder: Path, config: ClusterConfig) -> None:
    """Make the groups begin: all their replicas are founders."""
    directory = directory_of(config)
    for id, replica in config.replicas.items():
        groups = config.groups_at(id)
        with open_folder(Path(replica.dir), id, groups) as disk:
            for group in groups:
                try:
                    found_group(disk, group, id, directory.get(group))
                except ValueError as error:
                    raise CoterieError(
                        f"{error}; but {folder / CONFIG} is gone: put it back, or choose another "
                        "name"
                    ) from None
    write_config(folder, config)


def free_port(held: ExitStack) -> int:
    """Find a port to listen at, and keep it from others until *held* is closed.

    It is not one that the system gives to outgoing connections: one of those could occupy it
    while its replica is down.
    """
    numbers = range(_LOWEST_PORT, _first_ephemeral_port())
    for _ in range(_TRIES_MAX if numbers else 0):
        try:
            return _bind(held, random.choice(numbers))  # noqa: S311 -- no secret
        except OSError:
            continue
    return _bind(held, 0)


def _bind(held: ExitStack, port: int) -> int:
    listener = held.enter_context(socket.create_server((LOOPBACK, port)))
    number: int = listener.getsockname()[1]
    return number


def _first_ephemeral_port() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        return int(text.split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
