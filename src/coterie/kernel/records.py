"""The typed records in which a replica tells its own history.

Layers report what they did in the turn in which they did it; the driver stores the records
before any frame of that turn leaves. Checkers, reports and the pipeline read nothing else.
Times are the replica's own clock in microseconds; in simulation `true_time` of the recorder
stands beside them.
"""

from __future__ import annotations

import enum

import msgspec

from coterie.kernel.engine import Run, Standing, Version
from coterie.kernel.views import Configuration, Member, ViewId, Viewstamp


class Delivery(enum.IntEnum):
    """In which part of a view a message was delivered (**transis** slides 20-23)."""

    REGULAR = 0
    TRANSITIONAL = 1
    """After the transitional view: known to all who come along, perhaps to no one else."""
    AFTER_HOLE = 2
    """Behind a message that is lost to this component, or never ordered in it: the place may
    differ elsewhere, so it does not count for the strong prefix property."""


class _Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    # The subclasses are kw_only, these are not: so these are encoded first, and a field that a
    # later release adds is encoded last, where older readers pass over it.
    group: str
    member: Member
    at: int


class Started(_Record, tag=1, frozen=True, kw_only=True):
    """A replica began a life, with this stack."""

    stack: str
    configuration: Configuration
    is_zombie: bool = False
    """Whether it has lost what it knew in an earlier life, and may not be counted."""


class Stopped(_Record, tag=2, frozen=True, kw_only=True):
    """A replica ended its life on purpose."""


class ViewProposed(_Record, tag=3, frozen=True, kw_only=True):
    """This member proposed a view, while it was in the view `after`."""

    view: ViewId
    members: tuple[Member, ...]
    after: ViewId


class ViewInstalled(_Record, tag=4, frozen=True, kw_only=True):
    """This member accepted a regular view; `transitional` came along from `previous`."""

    view: ViewId
    members: tuple[Member, ...]
    previous: ViewId
    transitional: tuple[Member, ...]


class TransitionalInstalled(_Record, tag=5, frozen=True, kw_only=True):
    """The regular part of `view` is over here; what follows holds for `members` only."""

    view: ViewId
    members: tuple[Member, ...]


class Sent(_Record, tag=6, frozen=True, kw_only=True):
    """This member multicast `count` messages, numbered from `first` along its life, in `view`."""

    view: ViewId
    first: int
    count: int
    safe: bool
    digest: int


class Delivered(_Record, tag=7, frozen=True, kw_only=True):
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


class PrimaryAccepted(_Record, tag=8, frozen=True, kw_only=True):
    """This member holds the initial history of a primary view, and may be counted in it."""

    view: ViewId
    members: tuple[Member, ...]
    version: Version
    """Of the initial history."""


class PrimaryConfirmed(_Record, tag=9, frozen=True, kw_only=True):
    """This member knows that a majority accepted the primary view: entries may follow."""

    view: ViewId
    position: int
    accepted_by: tuple[Member, ...]


class EntriesAccepted(_Record, tag=10, frozen=True, kw_only=True):
    """This member took entries into its history, before it acknowledged them."""

    run: Run


class HistoryAdopted(_Record, tag=11, frozen=True, kw_only=True):
    """This member took over the history of another, for a primary view.

    Its own history above `kept` is void. If `restored` is not 0 the state at that position was
    taken over whole; entries between follow as `EntriesAccepted`.
    """

    view: ViewId
    source: Member
    version: Version
    kept: int
    restored: int


class Settled(_Record, tag=12, frozen=True, kw_only=True):
    """This member knows that everything up to `position` is authoritative."""

    position: int


class RolledBack(_Record, tag=13, frozen=True, kw_only=True):
    """What was delivered to the object above `position` is void."""

    position: int


class StateDigest(_Record, tag=14, frozen=True, kw_only=True):
    """The digest of the object's state right after the entry at `position`."""

    position: int
    digest: bytes


class Reply(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One answer to one request of a client."""

    session: int
    request: int
    position: int
    view: ViewId
    number: int
    """Where the request was executed first: its position, and its viewstamp."""
    standing: Standing
    asked_at: int
    """By the client's own clock."""
    digest: int
    """A checksum over the result, so that a replay can be compared with what was said."""
    count: int = 1
    """How many requests, numbered from `request` on, were executed as this one entry; the digest
    is then over all their results together."""

    @property
    def viewstamp(self) -> Viewstamp:
        """Where the request was ordered."""
        return Viewstamp(self.view, self.number)


class Replied(_Record, tag=15, frozen=True, kw_only=True):
    """This member answered clients."""

    replies: list[Reply]


class Recovered(_Record, tag=16, frozen=True, kw_only=True):
    """An operator ended a loss of memory by hand: this member's history counts from now on."""

    version: Version


class ViewEnded(_Record, tag=17, frozen=True, kw_only=True):
    """What an engine's stack delivered in a view that is over, entries and control alike.

    Counts are by rank in the view; a digest chains the identities in the order of delivery, and
    is 0 where the stack gives no order. What came after the transitional view stands apart; what
    came after a hole does not count.
    """

    view: ViewId
    counts: list[int]
    digest: int
    transitional_counts: list[int]
    transitional_digest: int


# ---- viewstamped replication (tags from 32 on)


class InvitationsMade(_Record, tag=32, frozen=True, kw_only=True):
    """This cohort manages a view change, and has promised no lower view from now on.

    On stable storage before an invitation leaves.
    """

    view: ViewId


class InvitationAccepted(_Record, tag=33, frozen=True, kw_only=True):
    """This cohort accepted an invitation, and has promised no lower view from now on.

    On stable storage before the acceptance leaves.
    """

    view: ViewId
    crashed: bool
    known: Viewstamp
    """The last event it knows; of a crashed cohort only the view counts."""
    was_primary: bool


class ViewFormed(_Record, tag=34, frozen=True, kw_only=True):
    """This cohort, as manager, found that a view can be formed, and with whom."""

    view: ViewId
    primary: Member
    members: tuple[Member, ...]


class ViewStarted(_Record, tag=35, frozen=True, kw_only=True):
    """This cohort is active in a view whose initial state it holds.

    On stable storage before it acknowledges anything in the view.
    """

    view: ViewId
    primary: Member
    members: tuple[Member, ...]
    history: tuple[Viewstamp, ...]


class EventsKnown(_Record, tag=36, frozen=True, kw_only=True):
    """This cohort knows events, numbered from `first` in `view`, and its state reflects them."""

    view: ViewId
    first: int
    events: list[bytes]


class StateTaken(_Record, tag=37, frozen=True, kw_only=True):
    """This cohort took over the whole state of a primary; its own is void."""

    view: ViewId
    source: Member
    history: tuple[Viewstamp, ...]


class Forced(_Record, tag=38, frozen=True, kw_only=True):
    """This primary knows that a majority of cohorts knows its events up to `number`."""

    view: ViewId
    number: int


class Catastrophe(_Record, tag=39, frozen=True, kw_only=True):
    """All cohorts answered this manager, and too many have lost their state to go on."""

    view: ViewId
    normal: tuple[Member, ...]
    crashed: tuple[Member, ...]


class StateAt(_Record, tag=40, frozen=True, kw_only=True):
    """The digest of this cohort's state right after an event."""

    known: Viewstamp
    digest: bytes


class MembersChanged(_Record, tag=41, frozen=True, kw_only=True):
    """This primary took a cohort into its view, or left one out, without a view change."""

    view: ViewId
    members: tuple[Member, ...]


GroupRecord = (
    Started | Stopped | ViewProposed | ViewInstalled | TransitionalInstalled | Sent | Delivered
)
"""What group communication reports."""

EngineRecord = (
    PrimaryAccepted
    | PrimaryConfirmed
    | EntriesAccepted
    | HistoryAdopted
    | Settled
    | RolledBack
    | StateDigest
    | Replied
    | Recovered
    | ViewEnded
)
"""What an engine and the host above it report."""

VsrRecord = (
    InvitationsMade
    | InvitationAccepted
    | ViewFormed
    | ViewStarted
    | EventsKnown
    | StateTaken
    | Forced
    | Catastrophe
    | StateAt
    | MembersChanged
)
"""What viewstamped replication reports."""

Record = GroupRecord | EngineRecord | VsrRecord

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Give the record as MessagePack."""
    return _encoder.encode(record)


def decode_record(data: bytes) -> Record:
    """Read one record back."""
    return _decoder.decode(data)
