"""Who is in touch: members, view ids, views, viewstamps, configurations.

A *view* says which members of a group are in touch, as one member sees it. Its id is totally
ordered along every member's life: a proposer takes a number above all that it or any member it
asks has seen, and its own name breaks ties. A *configuration* says who belongs to the group and
is what quorums are counted against; it travels in the view because later engines change it
while running.
"""

from __future__ import annotations

import msgspec

ReplicaId = str
"""The name of a replica, which is the name of the process that hosts it."""


class Member(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """One life of one replica: its name and how many times it has started."""

    id: ReplicaId
    incarnation: int

    def __str__(self) -> str:
        return self.id if self.incarnation == 1 else f"{self.id}#{self.incarnation}"


class ViewId(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """The name of a view: a number, and the life of the member that proposed it."""

    number: int
    proposer: ReplicaId
    incarnation: int

    def __str__(self) -> str:
        life = "" if self.incarnation == 1 else f"#{self.incarnation}"
        return f"{self.number}.{self.proposer}{life}"


NO_VIEW = ViewId(0, "", 0)
"""Below every real view id: what a member that has promised nothing yet has promised."""


class Viewstamp(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """Where an entry was ordered: the view, and its number (from 1) in that view."""

    view: ViewId
    number: int

    def __str__(self) -> str:
        return f"{self.view}:{self.number}"


class Configuration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The replicas a group consists of; a higher number replaces a lower one."""

    number: int
    members: tuple[ReplicaId, ...]

    @property
    def majority(self) -> int:
        """The least count of replicas of which any two such sets share one."""
        return len(self.members) // 2 + 1

    def has_majority(self, replicas: frozenset[ReplicaId] | set[ReplicaId]) -> bool:
        """Say whether *replicas* contain a majority of this configuration."""
        return sum(1 for replica in self.members if replica in replicas) >= self.majority


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
