"""Who is in touch: members, view ids, views, viewstamps, configurations.

A *view* says which members of a group are in touch, as one member sees it. Its id is totally
ordered along every member's life: a proposer takes a number above all that it or any member it
asks has seen, and its own name breaks ties. A *configuration* says who belongs to the group and
is what quorums are counted against (`coterie.kernel.configuration`).
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from coterie.kernel.decoding import Count, Int64

ReplicaId = str
"""The name of a replica, which is the name of the process that hosts it."""


class Member(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """One life of one replica: its name and how many times it has started."""

    id: ReplicaId
    incarnation: Int64

    def __str__(self) -> str:
        return self.id if self.incarnation == 1 else f"{self.id}#{self.incarnation}"


class ViewId(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """The name of a view: a number, and the life of the member that proposed it."""

    number: Int64
    proposer: ReplicaId
    incarnation: Int64

    def __str__(self) -> str:
        life = "" if self.incarnation == 1 else f"#{self.incarnation}"
        return f"{self.number}.{self.proposer}{life}"


NO_VIEW = ViewId(0, "", 0)
"""Below every real view id: what a member that has promised nothing yet has promised."""


class Viewstamp(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """Where an entry was ordered: the view, and its number (from 1) in that view."""

    view: ViewId
    number: Int64

    def __str__(self) -> str:
        return f"{self.view}:{self.number}"


class Configuration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who belongs to a group; `coterie.kernel.configuration` says how it changes.

    A group whose members never changed has one of these, number 1; what else there is to say of a
    later one is in `ChangedConfiguration`.
    """

    number: Count
    members: tuple[ReplicaId, ...]

    @property
    def learners(self) -> tuple[ReplicaId, ...]:
        """Those who are told everything, and count for nothing yet."""
        return ()

    @property
    def before(self) -> tuple[ReplicaId, ...]:
        """The members before, while the group is *joint*: a quorum must be one of both."""
        return ()

    @property
    def gone(self) -> tuple[ReplicaId, ...]:
        """Former members, whose ids are never used again."""
        return ()

    @property
    def majority(self) -> int:
        """The least count of members of which any two such sets share one."""
        return len(self.members) // 2 + 1

    @property
    def everyone(self) -> tuple[ReplicaId, ...]:
        """All who belong to the group in any way, each once."""
        if not self.before and not self.learners:
            return self.members
        return tuple(dict.fromkeys((*self.members, *self.before, *self.learners)))

    def is_quorum(self, replicas: Collection[ReplicaId]) -> bool:
        """Say whether *replicas* decide: a majority of the members, and of those before."""
        return _has_majority(self.members, replicas) and (
            not self.before or _has_majority(self.before, replicas)
        )


class ReplicaAddresses(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a replica is found; what the addresses mean is for drivers to know."""

    id: ReplicaId
    peers: str
    """Where other replicas reach it."""
    clients: str
    """Where clients do."""


class ChangedConfiguration(Configuration, frozen=True, array_like=True, gc=False):
    """A configuration that follows another one."""

    learners: tuple[ReplicaId, ...] = ()
    before: tuple[ReplicaId, ...] = ()
    gone: tuple[ReplicaId, ...] = ()
    addresses: tuple[ReplicaAddresses, ...] = ()
    """Where those are found who belong to it, as far as whoever proposed it knew."""


def _has_majority(members: tuple[ReplicaId, ...], replicas: Collection[ReplicaId]) -> bool:
    return 2 * sum(1 for replica in members if replica in replicas) > len(members)


class View(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A regular view, as it is delivered to the layers above VSYNC.

    `members` are in rank order: those of the proposer's side first, the longest-standing first
    among them. `previous` and `values` run parallel to it: the view each member comes from, and
    what the layers above VSYNC at that member had to say when the view was formed.
    """

    id: ViewId
    members: tuple[Member, ...]
    previous: tuple[ViewId, ...]
    values: tuple[bytes, ...]
    configuration: Configuration

    def rank(self, member: Member) -> int:
        """Give the place of *member* in this view; it must be in it."""
        return self.members.index(member)

    def came_along(self, member: Member) -> tuple[Member, ...]:
        """Give the members that come from the same previous view as *member*, itself included.

        This is the transitional set: between the two views they delivered the same messages.
        """
        origin = self.previous[self.rank(member)]
        return tuple(
            other
            for other, previous in zip(self.members, self.previous, strict=True)
            if previous == origin
        )

    def __str__(self) -> str:
        return f"{self.id}{{{','.join(str(member) for member in self.members)}}}"
