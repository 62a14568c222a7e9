"""The module: what a cohort replicates, and what the cohort needs of it.

The paper's word for a unit of data and the code that manipulates it. Its state is a function of
the events it has been told to perform, in their order, and of nothing else: the primary performs
an event when it adds it to the buffer, a backup when it hears of it, by the same code. What a
primary holds beside that (calls that are still running) is void when its view ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from coterie.kernel.cohorts import EventSpan
from coterie.kernel.records import InvitationAccepted, InvitationsMade, ViewStarted
from coterie.kernel.views import NO_VIEW, Member, ViewId, Viewstamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coterie.kernel.records import Record, VsrRecord
    from coterie.vsr.views.cohort import Cohort
    from coterie.vsr.views.messages import CohortView


class CohortPast(msgspec.Struct, frozen=True, kw_only=True):
    """What a cohort brings from its earlier lives.

    `max_viewid` and `cur_viewid` are on stable storage. The state is there only if the group
    keeps its events on disk (4.2); without it the cohort accepts invitations as crashed.
    """

    max_viewid: ViewId = NO_VIEW
    """The highest view it may have promised."""
    cur_viewid: ViewId = NO_VIEW
    """The last view it was active in."""
    led: ViewId = NO_VIEW
    """The last view it was the primary of."""
    history: tuple[Viewstamp, ...] = ()
    """What the state reflects; empty if there is none."""
    chunks: tuple[bytes, ...] = ()
    base: tuple[Viewstamp, ...] = ()
    """What the chunks reflect, if that is less; with no chunks, the empty state."""
    spans: tuple[EventSpan, ...] = ()
    """The events that lead from there to the history."""

    @property
    def has_state(self) -> bool:
        """Whether the state it knew is here: a cohort that never was active has lost nothing."""
        return bool(self.history) or self.cur_viewid == NO_VIEW


def remember(memory: CohortPast, record: Record | VsrRecord) -> CohortPast:
    """Give what is on stable storage after a record was written to it (design 10 f)."""
    match record:
        case InvitationsMade(view=view) | InvitationAccepted(view=view):
            return replace(memory, max_viewid=view)
        case ViewStarted(view=view, primary=primary, member=member):
            led = view if primary == member else memory.led
            return replace(memory, max_viewid=view, cur_viewid=view, led=led)
        case _:
            return memory


class Module(Protocol):
    """What stands on a cohort."""

    def attach(self, cohort: Cohort) -> None:
        """Learn which cohort this is the module of."""

    def read(self, events: Sequence[bytes]) -> Sequence[Any]:
        """Read events. Raises `BadMessage` if one of them is none."""

    def perform(self, known: Viewstamp, events: Sequence[Any]) -> None:
        """Change the state by events; *known* is where the last of them stands."""

    def snapshot(self) -> Iterator[bytes]:
        """Give the state at this moment, in chunks, however late they are taken."""

    def restore(self, chunks: Sequence[bytes]) -> None:
        """Take over a whole state. Raises `BadMessage`, changing nothing, if it is none."""

    def lead(self, view: CohortView) -> None:
        """Learn that this cohort is now the active primary of a view."""

    def follow(self) -> None:
        """Learn that this cohort is no primary any more: calls in progress are void."""

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        """Read a message that is none of the cohort's own."""

    def receive(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- its own kinds
        """Take one message of those it decodes."""

    def hear_stranger(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- its own kinds
        """Take one message of a process that is not known here."""

    def finish_turn(self) -> None:
        """Do what gathered up during the turn."""
