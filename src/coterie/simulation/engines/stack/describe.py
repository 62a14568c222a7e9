"""Records of stacks as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.records import (
    ConfigurationSettled,
    Delivered,
    Delivery,
    EntriesAccepted,
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Recovered,
    Replied,
    RolledBack,
    Sent,
    Settled,
    StateDigest,
    TransitionalInstalled,
    ViewEnded,
    ViewInstalled,
    ViewProposed,
)
from coterie.simulation.wording import describe_life, names, span

if TYPE_CHECKING:
    from coterie.kernel.records import Record


def describe(record: Record) -> str:
    """Say what a record says, in a few words."""
    match record:
        case ViewProposed(view=view, members=members, after=after):
            return f"proposes view {view} {names(members)} after {after}"
        case ViewInstalled(view=view, members=members, previous=previous, transitional=together):
            return f"installs view {view} {names(members)}, from {previous} with {names(together)}"
        case TransitionalInstalled(view=view, members=members):
            return f"enters the transitional part of {view} {names(members)}"
        case Sent(view=view, first=first, count=count, safe=safe):
            return f"casts {span(first, count)} in {view}{' (safe)' if safe else ''}"
        case Delivered(view=view, sender=sender, first=first, count=count, number=number):
            place = f" at {number}" if number else ""
            part = {
                Delivery.REGULAR: "",
                Delivery.TRANSITIONAL: ", transitional",
                Delivery.AFTER_HOLE: ", after a hole",
            }[record.delivery]
            return f"delivers {sender}:{span(first, count)} in {view}{place}{part}"
        case _:
            return _describe_engine(record)


def _describe_engine(record: Record) -> str:  # noqa: C901, PLR0911 -- one answer a kind
    match record:
        case PrimaryAccepted(view=view, version=version):
            return f"accepts primary view {view} with history {version}"
        case PrimaryConfirmed(view=view, position=position, accepted_by=accepted_by):
            return f"knows primary view {view} confirmed by {names(accepted_by)} at {position}"
        case EntriesAccepted(run=run):
            count = len(run.payloads)
            place = span(run.position, count)
            return f"accepts {run.origin}:{span(run.first, count)} at {place} in {run.view}"
        case HistoryAdopted(source=source, version=version, kept=kept, restored=restored):
            state = f", state at {restored}" if restored else ""
            return f"adopts history {version} of {source}, keeps {kept}{state}"
        case Settled(position=position):
            return f"settles {position}"
        case ConfigurationSettled(position=position, configuration=now):
            joint = f" with {','.join(now.before)}" if now.before else ""
            return f"counts by {','.join(now.members)}{joint} from {position} on"
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
        case _:
            return describe_life(record)
