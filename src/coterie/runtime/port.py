"""The ports between the driver and the world: a transport for frames, a recorder for records.

Each has a real version in this folder. The simulated network stands behind the same transport
port in the tests, where one conformance suite runs over both.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.records import Record
    from coterie.kernel.views import ReplicaId
    from coterie.kernel.wire import Frame


class Transport(Protocol):
    """Carries frames to peers, as well as it can.

    A frame arrives whole or not at all. Between two processes frames arrive in order as long as
    the connection between them lives; after a loss the order starts anew. Nothing is kept for a
    peer that cannot be reached, and nothing waits: what cannot go is dropped and counted, and
    the protocols above repair it.
    """

    @property
    def counters(self) -> dict[str, int]:
        """What has happened so far, by names that begin with `transport.`."""

    def send(self, destination: ReplicaId, frame: bytes) -> None:
        """Send one encoded frame; raise `FrameError` of kind "size" if no peer would take it."""

    def multicast(self, destinations: Sequence[ReplicaId], frame: bytes) -> None:
        """Send the same frame to several peers."""

    def flush(self) -> None:
        """Let everything sent since the last flush leave, in one piece per peer."""


class Receiver(Protocol):
    """Who takes what a transport brings: the driver."""

    def frame_arrived(self, frame: Frame, *, alone: bool = False) -> None:
        """Take a frame; its sender is who it says, as far as the connection knows.

        *alone* says that nothing came with it over this connection.
        """

    def peer_refused(self, peer: ReplicaId) -> None:
        """Learn that the machine of a peer answers, but the process is not there any more."""


class Syncing(enum.Enum):
    """What has to happen before what was recorded survives the loss of the machine."""

    NOT_NOW = "nothing, at present"
    BEFORE_FRAMES = "a sync, and until it is done no frame of the turn leaves"
    BESIDE_TURNS = "a sync, while turns go on"


class Recorder(Protocol):
    """Keeps the records of a process."""

    def record(self, records: Sequence[Record]) -> None:
        """Write records down; unless they may follow, no frame of their turn leaves before."""

    def may_follow(self, records: Sequence[Record]) -> bool:
        """Say whether a turn's records promise nothing, so that they may follow its frames."""

    def syncing(self, now: int) -> Syncing:
        """Say what the driver, whose clock shows *now*, must do about what was recorded."""

    def sync(self) -> None:
        """Sync what was recorded; called in a thread of its own, one call at a time."""

    def close(self) -> None:
        """Write nothing more."""
