"""Every limit of the host, in one place. `docs/use/host.md` says what happens at each.

Limits that decide what becomes of a command (all of *sessions*, *results* and *group time*) must
be the same on all replicas of a group, for they are part of what replicas compute.
"""

from __future__ import annotations

import msgspec

from coterie.kernel.clock import Duration, seconds


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Durations are microseconds; sizes are bytes."""

    # Commands and results.
    command_bytes_max: int = 512 << 10
    """The largest command; a larger one is refused to its caller. Keep it below the group's
    `payload_bytes_max`."""
    result_bytes_max: int = 256 << 10
    """The largest result of an update; an update that answers more fails and is undone."""
    error_chars_max: int = 1000
    """An error's message is cut here."""
    waiting_commands_max: int = 100_000
    """How many commands may gather in a turn; beyond it a call is refused."""

    # Sessions.
    sessions_max: int = 10_000
    """At the limit the session that was not used for longest is evicted for a new one."""
    window_requests_max: int = 1024
    """How many results a session keeps above the number its client said it needs no more; at the
    limit a new request is refused until the client says so of more."""
    window_bytes_max: int = 1 << 20
    """How many bytes of results a session keeps; at the limit a new request is refused."""
    sessions_bytes_max: int = 64 << 20
    """Bytes of results in all sessions; at the limit sessions are evicted, oldest use first."""

    # Clients that know nothing of replication (ONUS).
    clients_max: int = 10_000
    """Of how many clients the last reply is kept; at the limit a new client is refused."""
    client_lease: Duration = seconds(60)
    """A client is forgotten when it has been silent for so much group time. Whoever sends a
    request again must have stopped before half of it has passed."""
    replies_bytes_max: int = 64 << 20
    """Bytes of replies kept; at the limit new requests are refused."""

    # Group time.
    leap: Duration = seconds(5)
    """A clock that moves by more than this against group time has jumped, and is not followed."""
    tick_interval: Duration = seconds(1)
    """How often time passes for a class that defines `on_tick`."""

    # State.
    digest_interval: int = 1000
    """A digest of the state is reported every so many positions, times one more for each
    `digest_bytes` of state, so that its cost stays a fixed part of the whole; 0 is never."""
    compare_digests: bool = False
    """Whether replicas tell each other their digests, and one that has strayed stops."""
    digest_bytes: int = 64 << 10
    """Each so many bytes of state make digests rarer (`digest_interval`)."""
    digest_bytes_max: int = 8 << 20
    """A larger state is digested on demand only: encoding it would hold up the replica."""
    dump_interval: int = 0
    """Every so many positions the state is given to whoever keeps dumps; 0 is never."""
    chunk_bytes: int = 256 << 10
    """The largest chunk of a snapshot."""
    follow_entries: int = 256
    """How far the authoritative copy may stay behind what is settled, when nobody asks for it."""
    undo_log_bytes: int = 8 << 20
    """How much is kept for undoing an update that fails half-way; beyond it (or the size of the
    state, if that is more) a new starting point is taken."""


DEFAULT_HOST_SETTINGS = HostSettings()
