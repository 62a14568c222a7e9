"""Whether this replica is still like the others, found out while it runs.

Replicas digest their authoritative state at the same places: at positions of the order, or at
viewstamps under viewstamped replication. With `compare_digests` each says its digest to the others;
where commands are ordered by an entry (`Compare`), once for each digest that follows an executed
call, so that it costs nothing beside the calls; under viewstamped replication by a message, since
events have one place for ever. Where a majority of the group has one
digest and this replica another, this one has strayed: its class, its libraries or its machine are
not like the others'. It must not answer any more, and stops (`ReplicaBroken`). Where no digest has
a majority nobody can say who is right; then all say so, and go on.

Nothing of this is replicated state: digests are remembered for the last few places, and a
replica that has taken over a state has none to compare with until its next digest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from coterie.kernel.views import Viewstamp

if TYPE_CHECKING:
    from coterie.kernel.views import ReplicaId

POSITIONS_MAX = 8
"""Of how many places digests are remembered."""

Place = TypeVar("Place", int, Viewstamp)
T = TypeVar("T")


class Comparison(Generic[Place]):
    """The digests of one group's replicas, as one of them knows them."""

    def __init__(self, me: ReplicaId, members: tuple[ReplicaId, ...], majority: int) -> None:
        self._me = me
        self._members = members
        self._majority = majority
        self._own: dict[Place, bytes] = {}
        self._said: dict[Place, dict[ReplicaId, bytes]] = {}
        self.note = ""
        """What is wrong though this replica may be right; taken by whoever reports it."""

    def count_by(self, members: tuple[ReplicaId, ...], majority: int) -> None:
        """Take the word of these replicas from now on."""
        self._members = members
        self._majority = majority

    def digested(self, position: Place, digest: bytes) -> str:
        """Note the digest of this replica; give why it has strayed, if it has."""
        _keep(self._own, position, digest)
        return self._judge(position)

    def said(self, replica: ReplicaId, position: Place, digest: bytes) -> str:
        """Note what a replica said of itself; give why this one has strayed, if it has."""
        if replica not in self._members:
            return ""
        said = self._said.get(position)
        if said is None:
            said = {}
            _keep(self._said, position, said)
        said[replica] = digest
        return self._judge(position)

    def forget(self) -> None:
        """Have nothing to compare with: another state was taken over."""
        self._own.clear()

    def _judge(self, position: Place) -> str:
        said = list(self._said.get(position, {}).values())
        for digest in said:
            if said.count(digest) >= self._majority:
                own = self._own.get(position, digest)
                if own == digest:
                    return ""
                return (
                    f"the state of {self._me} at {_name(position)} is not that of the other"
                    f" replicas (digest {own.hex()[:8]}, theirs {digest.hex()[:8]}): its class,"
                    " Python or libraries differ, or an update is not deterministic; compare them,"
                    " then start it with an empty folder, so that it takes the others' state"
                )
        if len(said) == len(self._members):
            self.note = (
                f"the replicas have different states at {_name(position)}, and no state has a"
                " majority: an update of the class is not deterministic"
            )
        return ""


def _name(place: int | Viewstamp) -> str:
    return f"position {place}" if isinstance(place, int) else f"event {place}"


def _keep(kept: dict[Place, T], at: Place, what: T) -> None:
    kept[at] = what
    while len(kept) > POSITIONS_MAX:
        del kept[min(kept)]
