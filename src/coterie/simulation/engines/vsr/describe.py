"""Records of cohorts as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.records import (
    Catastrophe,
    ConfigurationForced,
    EventsKnown,
    Forced,
    InvitationAccepted,
    InvitationsMade,
    MembersChanged,
    StateAt,
    StateTaken,
    ViewFormed,
    ViewStarted,
)
from coterie.simulation.wording import describe_life, names, span

if TYPE_CHECKING:
    from coterie.kernel.records import Record


def describe(record: Record) -> str:  # noqa: C901, PLR0911 -- one answer a kind
    """Say what a record says, in a few words."""
    match record:
        case InvitationsMade(view=view):
            return f"invites to view {view}"
        case InvitationAccepted(view=view, crashed=crashed, known=known):
            return f"accepts view {view}" + (", crashed" if crashed else f", knowing {known}")
        case ViewFormed(view=view, primary=primary, members=members):
            return f"forms view {view} {names(members)}, led by {primary}"
        case ViewStarted(view=view, primary=primary, members=members):
            return f"is active in view {view} {names(members)}, led by {primary}"
        case EventsKnown(view=view, first=first, events=events):
            return f"knows {span(first, len(events))} of {view}"
        case StateTaken(source=source, history=history):
            return f"takes over the state of {source} at {history[-1]}"
        case Forced(view=view, number=number):
            return f"has forced {number} of {view}"
        case Catastrophe(view=view, crashed=crashed):
            return f"cannot form {view}: {names(crashed)} have lost their state"
        case StateAt(known=known, digest=digest):
            return f"has state {digest.hex()[:12]} at {known}"
        case MembersChanged(view=view, members=members):
            return f"has {names(members)} in view {view} now"
        case ConfigurationForced(known=known, configuration=now):
            return f"counts by {now.number} ({', '.join(now.members)}) from {known} on"
        case _:
            return describe_life(record)
