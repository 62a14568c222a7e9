"""Every limit and interval of a client. `docs/use/clients.md` says what happens at each."""

from __future__ import annotations

import msgspec

from coterie.client.deadlines import check_deadline
from coterie.client.errors import NotDone


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals are seconds, as everywhere in front of users; sizes are bytes."""

    deadline: float = 5.0
    """How long a call may take that names no deadline of its own."""

    # Seeking replicas.
    nearest: bool = False
    """Whether to be with the replica that makes us welcome soonest, which is the nearest, or the
    one with least to do; good where replicas are far apart. Otherwise the one that puts calls
    into order, or one chosen by chance."""
    connect_timeout: float = 1.0
    """How long opening one connection, with all greetings, may take."""
    retry_first: float = 0.02
    """The pause after the first failed attempt to connect, or refused request; then doubled."""
    retry_max: float = 0.5
    """The longest such pause. All pauses vary by a half either way."""
    ping_interval: float = 0.5
    """How long a connection may be silent before the replica is asked whether it is there."""
    silence_max: float = 2.0
    """How long it may be silent before it is given up."""

    # Asking again.
    hedge_after: float = 0.25
    """A request without an answer for this long, or for a quarter of its deadline if that is
    less, is made again at another replica; the next time after twice as long."""
    settle_max: float = 10.0
    """How long an optimistic answer is followed until it is settled."""

    # Bounds.
    in_flight_max: int = 16_384
    """How many requests one client has outstanding; further ones wait in it."""
    in_flight_bytes_max: int = 16 << 20
    """How many bytes of arguments one client has outstanding; further calls wait in it."""
    queue_max: int = 100_000
    """How many calls may wait in one client; beyond it a call is refused at once."""
    frame_bytes_max: int = 16 << 20
    """The largest frame taken from a replica."""

    def __post_init__(self) -> None:
        """Refuse a deadline that no call could keep."""
        try:
            check_deadline(self.deadline)
        except NotDone:
            raise ValueError(
                f"deadline={self.deadline:g} leaves no time for any call: give seconds above 0"
            ) from None


DEFAULT_CLIENT_SETTINGS = ClientSettings()
