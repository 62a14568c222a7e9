"""What group communication reports: lives, views, and messages sent and delivered in them."""

from __future__ import annotations

import enum

from coterie.kernel.decoding import Int64
from coterie.kernel.records.base import Record
from coterie.kernel.views import Configuration, Member, ViewId, Viewstamp


class Delivery(enum.IntEnum):
    """In which part of a view a message was delivered (**transis** slides 20-23)."""

    REGULAR = 0
    TRANSITIONAL = 1
    """After the transitional view: known to all who come along, perhaps to no one else."""
    AFTER_HOLE = 2
    """Behind a message that is lost to this component, or never ordered in it: the place may
    differ elsewhere, so it does not count for the strong prefix property."""


class Started(Record, tag=1, frozen=True, kw_only=True):
    """A replica began a life, with this stack."""

    stack: str
    configuration: Configuration
    is_zombie: bool = False
    """Whether it has lost what it knew in an earlier life, and may not be counted."""


class Stopped(Record, tag=2, frozen=True, kw_only=True):
    """A replica ended its life on purpose."""


class ViewProposed(Record, tag=3, frozen=True, kw_only=True):
    """This member proposed a view, while it was in the view `after`."""

    view: ViewId
    members: tuple[Member, ...]
    after: ViewId


class ViewInstalled(Record, tag=4, frozen=True, kw_only=True):
    """This member accepted a regular view; `transitional` came along from `previous`."""

    view: ViewId
    members: tuple[Member, ...]
    previous: ViewId
    transitional: tuple[Member, ...]


class TransitionalInstalled(Record, tag=5, frozen=True, kw_only=True):
    """The regular part of `view` is over here; what follows holds for `members` only."""

    view: ViewId
    members: tuple[Member, ...]


class Sent(Record, tag=6, frozen=True, kw_only=True):
    """This member multicast `count` messages, numbered from `first` along its life, in `view`."""

    view: ViewId
    first: Int64
    count: Int64
    safe: bool
    digest: Int64


class Delivered(Record, tag=7, frozen=True, kw_only=True):
    """This member delivered `count` messages of `sender` in `view`.

    `number` is the place of the first one in the order of the view, counted from 1; 0 where the
    stack gives no order or the delivery came after a hole.
    """

    view: ViewId
    sender: Member
    first: Int64
    count: Int64
    number: Int64
    safe: bool
    delivery: Delivery
    digest: Int64

    @property
    def viewstamp(self) -> Viewstamp:
        """Where the first message was ordered."""
        return Viewstamp(self.view, self.number)


GroupRecord = (
    Started | Stopped | ViewProposed | ViewInstalled | TransitionalInstalled | Sent | Delivered
)
"""What group communication reports."""
