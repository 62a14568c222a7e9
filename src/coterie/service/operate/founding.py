"""A group of processes on this machine: its configuration, made up, and its beginning.

The bootstrap marks of all replicas are set before the configuration file is written, and that is
written whole or not at all. So a group whose file is there has been founded, and a replica that
later finds its disk empty knows that it has lost something.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import string
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.errors import CoterieError
from coterie.service.config import (
    ClientConfig,
    ClusterConfig,
    ReplicaConfig,
    SecurityConfig,
    encode_config,
    parse_config,
)
from coterie.service.disk_marks import found_groups
from coterie.service.folder import open_folder
from coterie.service.security import write_secrets
from coterie.service.state_folder import CONFIG, write_config
from coterie.stacks import serves_datagrams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.service.config import GroupConfig

LOOPBACK = "127.0.0.1"
OWNER = "owner"
"""The client that whoever serves a group is."""
SECRETS = "secrets"
"""The folder of its secrets."""
REPLICAS_MAX = len(string.ascii_lowercase)
PORTS = "COTERIE_PORTS"
"""The environment variable that says which ports the groups of this machine may have."""
_LOWEST_PORT = 10_000
_PORTS_END = 1 << 16
_TRIES_MAX = 1000
_asked = itertools.count(random.randrange(_PORTS_END))  # noqa: S311 -- no secret


def make_config(
    folder: Path, name: str, *, groups: Mapping[str, GroupConfig], replicas: int
) -> ClusterConfig:
    """Make the configuration of groups on this machine; raises `ConfigError` if it cannot be.

    Each group in which one replica leads prefers another one for it, in the order given.
    """
    if not 1 <= replicas <= REPLICAS_MAX:
        raise CoterieError(f"a local group has 1 to {REPLICAS_MAX} replicas, not {replicas}")
    takes_datagrams = any(serves_datagrams(given.stack) for given in groups.values())
    with ExitStack() as held:
        ports = [free_port(held) for _ in range((3 if takes_datagrams else 2) * replicas)]
    ids = string.ascii_lowercase[:replicas]
    config = ClusterConfig(
        cluster=name,
        groups={
            group: msgspec.structs.replace(
                given, replicas=(*ids[place % replicas :], *ids[: place % replicas])
            )
            if given.family.has_leader
            else given
            for place, (group, given) in enumerate(groups.items())
        },
        replicas={
            id: ReplicaConfig(
                listen=f"{LOOPBACK}:{ports.pop()}",
                clients=f"{LOOPBACK}:{ports.pop()}",
                dir=str(folder / id),
                datagrams=f"{LOOPBACK}:{ports.pop()}" if takes_datagrams else "",
            )
            for id in ids
        },
    )
    return parse_config(encode_config(config), source=str(folder / CONFIG))


def protect(folder: Path, config: ClusterConfig) -> ClusterConfig:
    """Let nobody but the user who serves groups join or call them; give their configuration.

    The secrets are in a folder that only that user can read, where commands and programs of the
    same user find them by themselves. What the configuration asks for already stays as it is.
    """
    if config.security.is_open and not config.security.allow_open:
        secrets = folder / SECRETS
        config = msgspec.structs.replace(
            config,
            security=SecurityConfig(replica_secrets=str(secrets)),
            clients={OWNER: ClientConfig(secret_file=str(secrets / OWNER))},
        )
    write_secrets(config)
    return config


def found(folder: Path, config: ClusterConfig) -> None:
    """Make the groups begin: all their replicas are founders."""
    for id, replica in config.replicas.items():
        groups = config.groups_at(id)
        with open_folder(Path(replica.dir), id, groups) as disk:
            try:
                found_groups(disk, config, id, groups)
            except ValueError as error:
                raise CoterieError(
                    f"{error}; but {folder / CONFIG} is gone: put it back, or choose another name"
                ) from None
    write_config(folder, config)


def free_port(held: ExitStack) -> int:
    """Find a port to listen at, and keep it from others until *held* is closed.

    It is not one that the system gives to outgoing connections: one of those could occupy it
    while its replica is down. Nor is it one that this process was given before.
    """
    numbers = _ports()
    for _ in range(min(_TRIES_MAX, len(numbers))):
        try:
            return _bind(held, numbers[next(_asked) % len(numbers)])
        except OSError:
            continue
    return _bind(held, 0)


def _ports() -> range:
    """Give the ports that groups of this machine may have."""
    text = os.environ.get(PORTS)
    if not text:
        return range(_LOWEST_PORT, _first_ephemeral_port())
    low, _, high = text.partition("-")
    try:
        numbers = range(int(low), int(high) + 1)
    except ValueError:
        numbers = range(0)
    if not numbers or numbers[0] < 1 or numbers[-1] >= _PORTS_END:
        raise CoterieError(f"{PORTS} is {text!r}; it has to be two ports, as in 20000-20999")
    return numbers


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
