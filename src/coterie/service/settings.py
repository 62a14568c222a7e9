"""Every limit of the port for clients. `docs/use/clients.md` says what happens at each."""

from __future__ import annotations

import msgspec

from coterie.kernel.clock import Duration, milliseconds, seconds


class PortSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals are durations in microseconds; sizes are bytes."""

    connections_max: int = 4096
    """How many clients may be connected; one more is told that the replica is busy."""
    hello_timeout: Duration = seconds(2)
    """How long a new connection may take for its greetings before it is closed."""
    idle_max: Duration = seconds(60)
    """A connection on which nothing is read for this long is closed; clients ping."""
    frame_bytes_max: int = 4 << 20
    """The largest frame taken from a client."""
    answer_frame_bytes_max: int = 8 << 20
    """The largest frame sent to a client; the result of a query must fit into one."""
    untaken_bytes_max: int = 4 << 20
    """While more than this of one client waits for a turn, nothing is read from it."""
    queue_bytes_high: int = 1 << 20
    """While more than this waits to be written to a client, nothing is read from it."""
    queue_bytes_max: int = 64 << 20
    """A client for which more than this waits to be written is cut off."""
    sessions_max: int = 20_000
    """How many sessions may be used on one connection."""
    watches_max: int = 10_000
    """How many requests made elsewhere may be watched on one connection."""
    preferred_max: int = 16
    """While no more than this are connected to the replica that puts calls into order, it lets
    clients prefer it; each call costs it more than the others, so it is not for all."""
    close_timeout: Duration = milliseconds(500)
    """How long the last answers may take to leave when the port is closed."""


DEFAULT_PORT_SETTINGS = PortSettings()
