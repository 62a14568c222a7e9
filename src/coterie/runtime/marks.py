"""What processes show each other of their disks, so that nothing founded twice is taken for one.

A replica whose folder was emptied, and that was started as a founder once more, says that it knows
the empty history and is sound; so would a second one, and the two would be a majority. Nobody can
tell from what they say. But who met them before can: each founder has a *mark*, drawn with its
folder, and is known by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.kernel.views import ReplicaId

MARK_BYTES = 16


class Marks:
    """Shows no mark, and asks for none; for processes that keep nothing."""

    mark: bytes = b""
    """Ours; empty if this process founded nothing."""

    def why_not(self, peer: ReplicaId, mark: bytes) -> str:
        """Say why a peer that shows *mark* is not the one that is known, or nothing."""
        del peer, mark
        return ""

    def met(self, peer: ReplicaId, mark: bytes) -> None:
        """Learn that a peer is there, and shows *mark*; raises `OSError` if that is not kept."""

    def sent_away(self, peer: ReplicaId, reason: str) -> None:
        """Learn that a peer takes us for another one than it knew, and why."""


NO_MARKS = Marks()
