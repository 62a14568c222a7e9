"""Records as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.records import (
    Catastrophe,
    Delivered,
    Delivery,
    EntriesAccepted,
    EventsKnown,
    Forced,
    HistoryAdopted,
    InvitationAccepted,
    InvitationsMade,
    MembersChanged,
    PrimaryAccepted,
    PrimaryConfirmed,
    Recovered,
    Replied,
    RolledBack,
    Sent,
    Settled,
    Started,
    StateAt,
    StateDigest,
    StateTaken,
    Stopped,
    TransitionalInstalled,
    ViewEnded,
    ViewFormed,
    ViewInstalled,
    ViewProposed,
    ViewStarted,
    VsrRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.records import EngineRecord, Record
    from coterie.kernel.views import Member


def names(members: Iterable[Member]) -> str:
    """Give members as one short word."""
    return "{" + ",".join(str(member) for member in members) + "}"


def describe(record: Record) -> str:  # noqa: PLR0911 -- one answer a kind
    """Say what a record says, in a few words."""
    match record:
        case Started(stack=stack):
            return f"started with {stack}"
        case Stopped():
            return "stopped"
        case ViewProposed(view=view, members=members, after=after):
            return f"proposes view {view} {names(members)} after {after}"
        case ViewInstalled(view=view, members=members, previous=previous, transitional=together):
            return f"installs view {view} {names(members)}, from {previous} with {names(together)}"
        case TransitionalInstalled(view=view, members=members):
            return f"enters the transitional part of {view} {names(members)}"
        case Sent(view=view, first=first, count=count, safe=safe):
            return f"casts {_span(first, count)} in {view}{' (safe)' if safe else ''}"
        case Delivered(view=view, sender=sender, first=first, count=count, number=number):
            place = f" at {number}" if number else ""
            part = {
                Delivery.REGULAR: "",
                Delivery.TRANSITIONAL: ", transitional",
                Delivery.AFTER_HOLE: ", after a hole",
            }[record.delivery]
            return f"delivers {sender}:{_span(first, count)} in {view}{place}{part}"
        case _:
            if isinstance(record, VsrRecord):
                return _describe_cohort(record)
            return _describe_engine(record)


def _describe_engine(record: EngineRecord) -> str:  # noqa: C901, PLR0911 -- one answer a kind
    match record:
        case PrimaryAccepted(view=view, version=version):
            return f"accepts primary view {view} with history {version}"
        case PrimaryConfirmed(view=view, position=position, accepted_by=accepted_by):
            return f"knows primary view {view} confirmed by {names(accepted_by)} at {position}"
        case EntriesAccepted(run=run):
            count = len(run.payloads)
            place = _span(run.position, count)
            return f"accepts {run.origin}:{_span(run.first, count)} at {place} in {run.view}"
        case HistoryAdopted(source=source, version=version, kept=kept, restored=restored):
            state = f", state at {restored}" if restored else ""
            return f"adopts history {version} of {source}, keeps {kept}{state}"
        case Settled(position=position):
            return f"settles {position}"
        case RolledBack(position=position):
            return f"rolls back to {position}"
        case StateDigest(position=position, digest=digest):
            return f"has state {digest.hex()[:12]} at {position}"
        case Replied(replies=replies):
            answers = [f"{each.session}/{each.request} {each.standing.name}" for each in replies]
            return f"answers {', '.join(answers).lower()}"
        case Recovered(version=version):
            return f"is recovered by hand with history {version}"
        case ViewEnded(view=view, counts=counts, transitional_counts=late):
            return f"is done with {view}: {sum(counts)} delivered, {sum(late)} of them late"


def _describe_cohort(record: VsrRecord) -> str:  # noqa: C901, PLR0911 -- one answer a kind
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
            return f"knows {_span(first, len(events))} of {view}"
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


def _span(first: int, count: int) -> str:
    return f"{first}" if count == 1 else f"{first}-{first + count - 1}"
