"""The messages of PRIMARY and UNION: multicast ones, which make a view primary, and direct ones.

Multicast messages name their view, because a cast may wait past the end of the view it was meant
for; direct messages never leave their view.
"""

from __future__ import annotations

import msgspec

from coterie.kernel.engine import Run, Version
from coterie.kernel.views import ChangedConfiguration, Member, ViewId


class Credentials(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Multicast: what a member brings to a new view."""

    view: ViewId
    version: Version
    settled: int
    is_zombie: bool
    holds: list[tuple[Member, int]] = []
    """Where histories are sets: for every origin the number of its last entry."""
    is_by_hand: bool = False
    """Whether an operator said that this history is to count, whatever was lost."""
    forgot: list[tuple[Member, int]] = []
    """Where histories are sets: what of it is in the state only."""
    configuration: ChangedConfiguration | None = None
    """Where histories are sequences: the one in force at the end of it."""


class Accept(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Multicast: this member holds the initial history of the view and may be counted.

    For a member that had to fetch it, this is the paper's xfer_done.
    """

    view: ViewId


class AckEntries(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """Direct: all entries of this view up to `position` are in this member's history.

    The view it travels in and the position together name the last entry.
    """

    position: int
    wants_answer: bool


class SettledUpTo(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """Direct: everything up to `position` in this view's history is authoritative."""

    position: int


class FetchEntries(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """Direct: send entries above `after`, up to `up_to`; or the state, if `after` is negative."""

    after: int
    up_to: int
    mark: int
    """Names the history up to `after` (`Log.mark`); 0 where the receiver of this gave it."""


class Entries(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    """Direct: the answer; as many entries as fit into one message."""

    after: int
    runs: list[Run]


class StateOffer(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=7):
    """Direct: the entries are gone; here is the state at a later position, in chunks."""

    position: int
    origins: list[tuple[Member, int]]


class FetchChunk(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=8):
    """Direct: send one chunk of the state offered."""

    position: int
    index: int


class StateChunk(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=9):
    """Direct: one chunk of a state."""

    position: int
    index: int
    data: bytes
    is_last: bool


class FetchMissing(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=10):
    """Direct: send entries that are not in a set; `serial` tells the answer from earlier ones."""

    serial: int
    holds: list[tuple[Member, int]]
    needs_state: bool
    """Whether the state is wanted in any case."""


class Missing(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=11):
    """Direct: the answer; as many entries as fit into one message."""

    serial: int
    runs: list[Run]


class OtherHistory(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=12):
    """Direct: what the asker has up to `after` is not what the group's history has there.

    That happens only after an operator has accepted loss.
    """

    after: int


class Confirm(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=13):
    """Direct: say how far you have accepted in this view; somebody reads."""

    serial: int
    """Names the question among the sender's."""


class Confirmed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=14):
    """Direct: the answer; it says what `AckEntries` says, and that no later view is accepted."""

    serial: int
    position: int


class ForAbove(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=16):
    """Direct: something that the layer above says to its fellows."""

    body: bytes


PrimaryMessage = (
    Credentials
    | Accept
    | AckEntries
    | SettledUpTo
    | FetchEntries
    | Entries
    | StateOffer
    | FetchChunk
    | StateChunk
    | FetchMissing
    | Missing
    | OtherHistory
    | Confirm
    | Confirmed
    | ForAbove
)
