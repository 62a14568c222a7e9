"""Every limit and interval of the runtime itself; those of the protocols are in the kernel."""

from __future__ import annotations

import msgspec

from coterie.kernel.clock import Duration, milliseconds, seconds


class TransportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals are durations in microseconds; sizes are bytes."""

    retry_first: Duration = milliseconds(20)
    """The pause after the first failed attempt to connect; each further one is twice as long."""
    retry_max: Duration = milliseconds(500)
    """The longest pause between attempts. All pauses vary by a half either way."""
    connect_timeout: Duration = seconds(1)
    """How long one attempt may take before it counts as failed: a machine that is gone."""
    hello_timeout: Duration = seconds(1)
    """How long a new connection may stay without a complete hello before it is closed."""
    silence_max: Duration = seconds(1)
    """A connection on which nothing is read for this long is closed; heartbeats should come."""
    queue_bytes_max: int = 16 << 20
    """While more than this waits to be written to a peer, frames for it are dropped."""
    strangers_max: int = 64
    """How many connections may be open that have not said hello; more are closed at once."""
    close_timeout: Duration = milliseconds(500)
    """How long the last frames may take to leave when the transport is closed."""


DEFAULT_TRANSPORT_SETTINGS = TransportSettings()
