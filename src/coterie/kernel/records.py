"""The typed records in which a replica tells its own history.

Layers report what they did in the turn in which they did it; the driver stores the records
before any frame of that turn leaves. Checkers, reports and the pipeline read nothing else.
Times are the replica's own clock in microseconds; in simulation `true_time` of the recorder
stands beside them.
"""

from __future__ import annotations

import enum

import msgspec

from coterie.kernel.views import Configuration, Member, ViewId, Viewstamp


class Delivery(enum.IntEnum):
    """In which part of a view a message was delivered (**transis** slides 20-23)."""

    REGULAR = 0
    TRANSITIONAL = 1
    """After the transitional view: known to all who come along, perhaps to no one else."""
    AFTER_HOLE = 2
    """Behind a message that is lost to this component, or never ordered in it: the place may
    differ elsewhere, so it does not count for the strong prefix property."""


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    group: str
    member: Member
    at: int


class Started(_Record, tag=1, frozen=True):
    """A replica began a life, with this stack."""

    stack: str
    configuration: Configuration


class Stopped(_Record, tag=2, frozen=True):
    """A replica ended its life on purpose."""


class ViewProposed(_Record, tag=3, frozen=True):
    """This member proposed a view, while it was in the view `after`."""

    view: ViewId
    members: tuple[Member, ...]
    after: ViewId


class ViewInstalled(_Record, tag=4, frozen=True):
    """This member accepted a regular view; `transitional` came along from `previous`."""

    view: ViewId
    members: tuple[Member, ...]
    previous: ViewId
    transitional: tuple[Member, ...]


class TransitionalInstalled(_Record, tag=5, frozen=True):
    """The regular part of `view` is over here; what follows holds for `members` only."""

    view: ViewId
    members: tuple[Member, ...]


class Sent(_Record, tag=6, frozen=True):
    """This member multicast `count` messages, numbered from `first` along its life, in `view`."""

    view: ViewId
    first: int
    count: int
    safe: bool
    digest: int


class Delivered(_Record, tag=7, frozen=True):
    """This member delivered `count` messages of `sender` in `view`.

    `number` is the place of the first one in the order of the view, counted from 1; 0 where the
    stack gives no order or the delivery came after a hole.
    """

    view: ViewId
    sender: Member
    first: int
    count: int
    number: int
    safe: bool
    delivery: Delivery
    digest: int

    @property
    def viewstamp(self) -> Viewstamp:
        """Where the first message was ordered."""
        return Viewstamp(self.view, self.number)


Record = Started | Stopped | ViewProposed | ViewInstalled | TransitionalInstalled | Sent | Delivered

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Give the record as MessagePack."""
    return _encoder.encode(record)


def decode_record(data: bytes) -> Record:
    """Read one record back."""
    return _decoder.decode(data)
