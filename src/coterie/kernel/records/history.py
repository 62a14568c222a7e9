"""What an engine that orders entries reports of its history, and its host of the object."""

from __future__ import annotations

import msgspec

from coterie.kernel.decoding import Int64
from coterie.kernel.engine import Run, Standing, Version
from coterie.kernel.records.base import Record
from coterie.kernel.views import ChangedConfiguration, Member, ViewId, Viewstamp


class PrimaryAccepted(Record, tag=8, frozen=True, kw_only=True):
    """This member holds the initial history of a primary view, and may be counted in it."""

    view: ViewId
    members: tuple[Member, ...]
    version: Version
    """How advanced the initial history is."""


class PrimaryConfirmed(Record, tag=9, frozen=True, kw_only=True):
    """This member knows that a majority accepted the primary view: entries may follow."""

    view: ViewId
    position: Int64
    accepted_by: tuple[Member, ...]


class EntriesAccepted(Record, tag=10, frozen=True, kw_only=True):
    """This member took entries into its history, before it acknowledged them."""

    run: Run


class HistoryAdopted(Record, tag=11, frozen=True, kw_only=True):
    """This member took over the history of another, for a primary view.

    Its own history above `kept` is void. If `restored` is not 0 the state at that position was
    taken over whole; entries between follow as `EntriesAccepted`.
    """

    view: ViewId
    source: Member
    version: Version
    kept: Int64
    restored: Int64


class Settled(Record, tag=12, frozen=True, kw_only=True):
    """This member knows that everything up to `position` is authoritative."""

    position: Int64


class RolledBack(Record, tag=13, frozen=True, kw_only=True):
    """What was delivered to the object above `position` is void."""

    position: Int64


class StateDigest(Record, tag=14, frozen=True, kw_only=True):
    """The digest of the object's state right after the entry at `position`."""

    position: Int64
    digest: bytes


class Reply(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One answer to one request of a client."""

    session: Int64
    request: Int64
    position: Int64
    view: ViewId
    number: Int64
    """Where the request was executed first: its position, and its viewstamp."""
    standing: Standing
    asked_at: Int64
    """When the request was made, by the client's own clock."""
    digest: Int64
    """A checksum over the result, so that a replay can be compared with what was said."""
    count: Int64 = 1
    """How many requests, numbered from `request` on, were executed as this one entry; the digest
    is then over all their results together."""

    @property
    def viewstamp(self) -> Viewstamp:
        """Where the request was ordered."""
        return Viewstamp(self.view, self.number)


class Replied(Record, tag=15, frozen=True, kw_only=True):
    """This member answered clients."""

    replies: list[Reply]


class Recovered(Record, tag=16, frozen=True, kw_only=True):
    """An operator ended a loss of memory by hand: this member's history counts from now on."""

    version: Version


class ViewEnded(Record, tag=17, frozen=True, kw_only=True):
    """What an engine's stack delivered in a view that is over, entries and control alike.

    Counts are by rank in the view; a digest chains the identities in the order of delivery, and
    is 0 where the stack gives no order. What came after the transitional view stands apart; what
    came after a hole does not count.
    """

    view: ViewId
    counts: list[Int64]
    digest: Int64
    transitional_counts: list[Int64]
    transitional_digest: Int64


class ConfigurationSettled(Record, tag=18, frozen=True, kw_only=True):
    """This member knows that from `position` on it is `configuration` by which quorums are counted.

    Reported in the turn in which it settles, when it comes with a state, and by a life that begins
    with one that is not the first.
    """

    position: Int64
    configuration: ChangedConfiguration


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
    | ConfigurationSettled
)
"""What an engine and the host above it report."""
