"""Which versions of the class the replicas of a group know, so that all change over at once.

A replica whose class has versions announces, by an ordered entry, all that it knows. This table is
part of the replicated state, so every replica finds at the same place in the order that the last
one has announced the next version, and changes over right there. A replica that never announced
anything has a class without versions, which is version 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.views import ReplicaId

KnownVersions = tuple[tuple[int, int], ...]
"""The versions a replica knows, each with the fingerprint of its class."""


class Announcements:
    """What each replica of the group announced last."""

    def __init__(self, announced: Sequence[tuple[ReplicaId, KnownVersions]] = ()) -> None:
        self._known: dict[ReplicaId, KnownVersions] = dict(announced)

    def take(self, replica: ReplicaId, known: KnownVersions, members: Sequence[ReplicaId]) -> None:
        """Note what a replica knows; forget those that are not in the group any more."""
        self._known[replica] = known
        self._known = {each: self._known[each] for each in members if each in self._known}

    def of(self, replica: ReplicaId) -> KnownVersions | None:
        """Give what a replica announced last."""
        return self._known.get(replica)

    def fingerprints(self, version: int, members: Sequence[ReplicaId]) -> set[int]:
        """Give the fingerprints of a version that all *members* know; none if some do not."""
        found = [dict(self._known.get(each, ())).get(version) for each in members]
        return set() if None in found else {each for each in found if each is not None}

    def knows(self, replica: ReplicaId, version: int, fingerprint: int) -> bool:
        """Say whether a replica announced this very class of this version."""
        return (version, fingerprint) in self._known.get(replica, ())

    def to_list(self) -> list[tuple[ReplicaId, KnownVersions]]:
        """Give everything, for snapshots and digests."""
        return sorted(self._known.items())

    def copy(self) -> Announcements:
        """Give an equal table that shares nothing that can change."""
        return Announcements(self.to_list())
