"""What a cohort of viewstamped replication reports."""

from __future__ import annotations

from coterie.kernel.decoding import Int64
from coterie.kernel.records.base import Record
from coterie.kernel.views import ChangedConfiguration, Member, ViewId, Viewstamp


class InvitationsMade(Record, tag=32, frozen=True, kw_only=True):
    """This cohort manages a view change, and has promised no lower view from now on.

    On stable storage before an invitation leaves.
    """

    view: ViewId


class InvitationAccepted(Record, tag=33, frozen=True, kw_only=True):
    """This cohort accepted an invitation, and has promised no lower view from now on.

    On stable storage before the acceptance leaves.
    """

    view: ViewId
    crashed: bool
    known: Viewstamp
    """The last event it knows; of a crashed cohort only the view counts."""
    was_primary: bool


class ViewFormed(Record, tag=34, frozen=True, kw_only=True):
    """This cohort, as manager, found that a view can be formed, and with whom."""

    view: ViewId
    primary: Member
    members: tuple[Member, ...]


class ViewStarted(Record, tag=35, frozen=True, kw_only=True):
    """This cohort is active in a view whose initial state it holds.

    On stable storage before it acknowledges anything in the view.
    """

    view: ViewId
    primary: Member
    members: tuple[Member, ...]
    history: tuple[Viewstamp, ...]


class EventsKnown(Record, tag=36, frozen=True, kw_only=True):
    """This cohort knows events, numbered from `first` in `view`, and its state reflects them."""

    view: ViewId
    first: Int64
    events: list[bytes]


class StateTaken(Record, tag=37, frozen=True, kw_only=True):
    """This cohort took over the whole state of a primary; its own is void."""

    view: ViewId
    source: Member
    history: tuple[Viewstamp, ...]


class Forced(Record, tag=38, frozen=True, kw_only=True):
    """This primary knows that a majority of cohorts knows its events up to `number`."""

    view: ViewId
    number: Int64


class Catastrophe(Record, tag=39, frozen=True, kw_only=True):
    """All cohorts answered this manager, and too many have lost their state to go on."""

    view: ViewId
    normal: tuple[Member, ...]
    crashed: tuple[Member, ...]


class StateAt(Record, tag=40, frozen=True, kw_only=True):
    """The digest of this cohort's state right after an event."""

    known: Viewstamp
    digest: bytes


class MembersChanged(Record, tag=41, frozen=True, kw_only=True):
    """This primary took a cohort into its view, or left one out, without a view change."""

    view: ViewId
    members: tuple[Member, ...]


class ConfigurationForced(Record, tag=42, frozen=True, kw_only=True):
    """This cohort knows that an event that changed the members is forced: it counts for good."""

    known: Viewstamp
    """Where the event stands; of a state that was taken over, where that ends."""
    configuration: ChangedConfiguration


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
    | ConfigurationForced
)
"""What viewstamped replication reports."""
