"""What cohorts of one group say to each other.

A message about a view names its id, so that one from another view is recognised and dropped. Tags
from `MODULE_TAGS` on are the module's, so that a message is read once, by whom it is for.
"""

from __future__ import annotations

import msgspec

from coterie.kernel.views import ChangedConfiguration, Member, ReplicaId, ViewId, Viewstamp

MODULE_TAGS = bytes([32])
"""The first tag that messages of a cohort's module have, as it stands in a message after the head
of an array of up to 15 fields."""


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class CohortView(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A view of **vsr**: its id, the primary, and all its members, the primary among them."""

    id: ViewId
    primary: Member
    members: tuple[Member, ...]

    def __str__(self) -> str:
        names = (f"{each}*" if each == self.primary else str(each) for each in self.members)
        return f"{self.id}{{{','.join(names)}}}"


# ---- changing views (figure 5)


class Invite(_Message, tag=1, frozen=True):
    """Join the view that I am forming."""

    view: ViewId
    insists: bool = False
    """I have heard from the primary whom you named: your view is over."""
    configuration: ChangedConfiguration | None = None
    """Who belongs to the group, if that has changed: you may have been away."""


class AcceptInvitation(_Message, tag=2, frozen=True):
    """I join, and will not take part in any lower view.

    A *crashed* acceptance comes from a cohort that has lost its state: `known` then names the
    last view it was active in, and no number. A normal one names the last event it knows.
    """

    view: ViewId
    crashed: bool
    known: Viewstamp
    was_primary: bool
    configuration: ChangedConfiguration | None = None
    """The last one in what I know, with all there is to say of it; of a crashed cohort nothing."""


class InitView(_Message, tag=3, frozen=True):
    """Manager to primary: start this view."""

    view: CohortView


class NewView(_Message, tag=4, frozen=True):
    """Primary to cohort: you are in this view, whose initial state this history leads to."""

    view: CohortView
    history: tuple[Viewstamp, ...]
    """The viewstamps of the history, up to the view's own."""
    changes: int = 0
    """How often the members of the view have changed since it began."""
    configuration: ChangedConfiguration | None = None
    """Who belongs to the group, if that has changed: you may have been away."""
    counted: tuple[ReplicaId, ...] = ()
    """Who counts by what the primary knows, forced or not, if members have changed: one of them
    that knows of no view has lost its disk."""


class Superseded(_Message, tag=5, frozen=True):
    """I have promised a higher view than the one you speak of."""

    highest: ViewId


class Declined(_Message, tag=12, frozen=True):
    """I stay in my view, whose primary has a majority."""

    view: ViewId
    """The view that the sender was invited to."""
    primary: Member


class NoMember(_Message, tag=13, frozen=True):
    """This configuration is forced; whoever it names as gone was removed from the group."""

    configuration: ChangedConfiguration


class WhoBelongs(_Message, tag=14, frozen=True):
    """I hear too few of those whom I know: say who belongs to the group, if that has changed."""

    number: int
    configuration: ChangedConfiguration | None = None
    """The last one in what I know, if that has changed: perhaps it is you who were away."""


# ---- the communication buffer


class NewEvents(_Message, tag=6, frozen=True):
    """Events of the view `of`, which the primary of `view` knows, from number `first` on."""

    view: ViewId
    of: ViewId
    first: int
    events: list[bytes]
    forced: int = -1
    """What the primary knows to be forced in its view."""


class AckEvents(_Message, tag=7, frozen=True):
    """I know the initial state of the view, and its events up to this number."""

    view: ViewId
    number: int
    changes: int = -1
    """How many changes of the view's members I have heard of; -1: I do not count them."""


# ---- bringing a cohort up to date


class FetchEvents(_Message, tag=8, frozen=True):
    """I know everything up to here: send what follows, or offer me the state."""

    view: ViewId
    after: Viewstamp | None
    """None: what I know is no part of your history."""


class CohortStateOffer(_Message, tag=9, frozen=True):
    """The events are gone; here is a state to fetch in chunks."""

    view: ViewId
    serial: int
    history: tuple[Viewstamp, ...]
    chunks: int
    """How many there are; 0 while the state is being encoded: the same offer comes again then."""


class FetchChunks(_Message, tag=10, frozen=True):
    """Send some chunks of an offered state, from `index` on."""

    view: ViewId
    serial: int
    index: int


class CohortStateChunk(_Message, tag=11, frozen=True):
    """One chunk of an offered state."""

    view: ViewId
    serial: int
    index: int
    chunk: bytes


CohortMessage = (
    Invite
    | AcceptInvitation
    | InitView
    | NewView
    | Superseded
    | Declined
    | NoMember
    | WhoBelongs
    | NewEvents
    | AckEvents
    | FetchEvents
    | CohortStateOffer
    | FetchChunks
    | CohortStateChunk
)
