"""Limits that an operator may set in the configuration file.

    [limits]                           # of the clients' port, for all groups of a process
    connections_max = 20000

    [groups.seats.limits]              # of one group; which there are depends on its engine
    command_bytes_max = 262144

The words are those of the settings they change, and of the messages that name them. What decides
what becomes of a command once it is ordered (the largest result, how many sessions a group
remembers) cannot be set here: replicas that disagree about it would part, one restarted before the
others would be enough, and a replay of the history must come to what they came to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coterie.kernel.errors import CoterieError
from coterie.service.settings import PortSettings

if TYPE_CHECKING:
    from collections.abc import Mapping


class Bounds(NamedTuple):
    """What a limit may be."""

    least: int
    most: int


PORT_LIMITS: dict[str, Bounds] = {
    "connections_max": Bounds(1, 1_000_000),
    "frame_bytes_max": Bounds(3 << 20, 64 << 20),  # a client's frames have up to 2 MiB
    "answer_frame_bytes_max": Bounds(1 << 20, 16 << 20),  # which is what clients take
    "untaken_bytes_max": Bounds(64 << 10, 1 << 30),
    "queue_bytes_max": Bounds(2 << 20, 4 << 30),
    "sessions_max": Bounds(1, 1_000_000),
    "watches_max": Bounds(1, 1_000_000),
}
"""The limits of the clients' port: fields of `PortSettings`."""


def check_limits(given: Mapping[str, int], known: Mapping[str, Bounds], whose: str) -> None:
    """Refuse what is no limit, or makes no sense as one; *whose* they are is told."""
    for name, value in given.items():
        if name not in known:
            there_is = f"there is {', '.join(sorted(known))}" if known else "there is none"
            raise CoterieError(f"limits: {whose} has no limit {name!r}; {there_is}")
        least, most = known[name]
        if not least <= value <= most:
            raise CoterieError(f"limits: {name} = {value} cannot be: give {least} to {most}")


def port_settings(given: Mapping[str, int]) -> PortSettings:
    """Give the settings of the clients' port, with the limits that were checked."""
    return msgspec.structs.replace(PortSettings(), **given)
