"""The messages of VSYNC, as they travel between the replicas of one group.

Packets of a view are numbered from 1 by their sender; vectors of numbers are in rank order.
"""

from __future__ import annotations

import msgspec

from coterie.kernel.views import ChangedConfiguration, Configuration, Member, ViewId


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Data(_Message, tag=1, frozen=True):
    """A packet from its sender, with what the sender has received so far."""

    view: ViewId
    number: int
    first: int
    received: list[int]
    is_urgent: bool
    """Whether receivers should acknowledge in the same turn (someone waits for stability)."""
    header: bytes
    payloads: list[bytes]


class Repair(_Message, tag=2, frozen=True):
    """A packet sent again, by its sender or by any member that has it."""

    view: ViewId
    rank: int
    number: int
    first: int
    header: bytes
    payloads: list[bytes]


class Ack(_Message, tag=3, frozen=True):
    """What a member has received; its own entry says how much it has sent."""

    view: ViewId
    received: list[int]
    wants_answer: bool
    """Whether the sender still misses acknowledgements and asks for them again."""


class Nak(_Message, tag=4, frozen=True):
    """A request for packets: (rank of their sender, first number, last number)."""

    view: ViewId
    wanted: list[tuple[int, int, int]]


class Direct(_Message, tag=5, frozen=True):
    """A message of a layer above, to one member of the view."""

    view: ViewId
    body: bytes


class Alive(_Message, tag=6, frozen=True):
    """The contact of a view tells everyone that the view exists."""

    view: ViewId
    members: tuple[Member, ...]
    value: bytes


class MergeRequest(_Message, tag=7, frozen=True):
    """The contact of a view asks the contact of another to propose a joint view."""

    view: ViewId
    members: tuple[Member, ...]
    value: bytes


class Propose(_Message, tag=8, frozen=True):
    """A proposer asks the members of a new view to stop in their old one."""

    view: ViewId
    members: tuple[Member, ...]


class Refuse(_Message, tag=9, frozen=True):
    """A member has promised itself to a later view already."""

    view: ViewId
    promised: ViewId


class Flush(_Message, tag=10, frozen=True):
    """A member has stopped in `previous`: what it received there, and what it knows stable."""

    view: ViewId
    previous: ViewId
    previous_members: tuple[Member, ...]
    received: list[int]
    stable: list[int]
    value: bytes
    configuration: Configuration


class Cut(_Message, tag=11, frozen=True):
    """What those who come from one view must all have before they go on together.

    `holders` names, by rank, a member that has all packets of that sender up to the cut.
    """

    view: ViewId
    cut: list[int]
    holders: list[Member]


class Ready(_Message, tag=12, frozen=True):
    """A member has everything up to the cut."""

    view: ViewId


class Install(_Message, tag=13, frozen=True):
    """The new view is complete. `cut` and `stable` are those of the receiver's old view."""

    view: ViewId
    members: tuple[Member, ...]
    previous: tuple[ViewId, ...]
    values: tuple[bytes, ...]
    configuration: Configuration
    cut: list[int]
    stable: list[int]


class Leave(_Message, tag=14, frozen=True):
    """A member leaves the group on purpose."""

    view: ViewId


class Removed(_Message, tag=15, frozen=True):
    """The receiver was removed from the group while it was away."""

    view: ViewId
    configuration: ChangedConfiguration


VsyncMessage = (
    Data
    | Repair
    | Ack
    | Nak
    | Direct
    | Alive
    | MergeRequest
    | Propose
    | Refuse
    | Flush
    | Cut
    | Ready
    | Install
    | Leave
    | Removed
)
