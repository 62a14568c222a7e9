"""Properties 3.3.1 to 3.3.6 of **objects**, and what every multicast owes besides.

Each check is a plain function from a history to the violations in it, named as in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.history import Violation, message_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.checking.history import GroupHistory, Message
    from coterie.kernel.views import Member, ViewId


def validity(history: GroupHistory) -> Iterator[Violation]:
    """3.3.1: an accepted view was proposed by some process, with these members."""
    proposed: dict[ViewId, tuple[Member, ...]] = {}
    for life in history.lives.values():
        for proposal in life.proposals:
            proposed[proposal.view] = proposal.members
    for life, era in history.eras():
        members = proposed.get(era.view)
        if members is None:
            yield Violation("validity", f"{life.member} installed {era.view}, proposed by no one")
        elif members != era.installed.members:
            yield Violation(
                "validity", f"{life.member} installed {era.view} with members not proposed"
            )


def self_inclusion(history: GroupHistory) -> Iterator[Violation]:
    """3.3.2: who proposes or accepts a view is in it."""
    for life in history.lives.values():
        for proposal in life.proposals:
            if life.member not in proposal.members:
                yield Violation("self-inclusion", f"{life.member} proposed {proposal.view}, not in")
        for era in life.eras:
            if life.member not in era.installed.members:
                yield Violation("self-inclusion", f"{life.member} installed {era.view}, not in it")


def view_causality(history: GroupHistory) -> Iterator[Violation]:
    """3.3.3: view messages are delivered in causal order.

    A proposal made after accepting a view has a higher id, and ids rise along every life; so a
    view is never accepted after one that its proposal depended on.
    """
    for life in history.lives.values():
        for proposal in life.proposals:
            if not proposal.after < proposal.view:
                yield Violation(
                    "view causality",
                    f"{life.member} proposed {proposal.view} while in {proposal.after}",
                )
        for era in life.eras:
            if era.successor is not None and not era.view < era.successor.view:
                yield Violation(
                    "view causality",
                    f"{life.member} installed {era.successor.view} after {era.view}",
                )


def agreement_on_view_ordering(history: GroupHistory) -> Iterator[Violation]:
    """3.3.4: two processes that accept the same two views accept them in the same order."""
    places = {
        life.member: {era.view: place for place, era in enumerate(life.eras)}
        for life in history.lives.values()
    }
    members = list(places)
    for index, one in enumerate(members):
        for other in members[index + 1 :]:
            shared = [view for view in places[one] if view in places[other]]
            theirs = [places[other][view] for view in shared]
            if theirs != sorted(theirs):
                yield Violation(
                    "agreement on view ordering",
                    f"{one} and {other} installed {[str(view) for view in shared]} differently",
                )


def agreement_on_successors(history: GroupHistory) -> Iterator[Violation]:
    """3.3.5: consecutive views of one process are consecutive wherever both are accepted."""
    views = history.by_view()
    for (first, second), went in history.together().items():
        for life, era in views[first]:
            successor = era.successor.view if era.successor is not None else None
            if successor == second or life.era_of(second) is None:
                continue
            yield Violation(
                "agreement on successors",
                f"{went[0][0].member} went from {first} to {second}, {life.member} from {first} "
                f"to {successor} and to {second} later",
            )


def view_atomicity(history: GroupHistory) -> Iterator[Violation]:
    """3.3.6: who goes from one view to the next together delivered the same set in between."""
    for (first, second), went in history.together().items():
        life, era = went[0]
        expected = set(era.messages())
        for other, other_era in went[1:]:
            difference = expected ^ set(other_era.messages())
            if difference:
                yield Violation(
                    "view atomicity",
                    f"{life.member} and {other.member} went from {first} to {second} together, "
                    f"but only one of them delivered {sorted(difference)[:3]}",
                )


def integrity(history: GroupHistory) -> Iterator[Violation]:
    """What is delivered was sent, in the same view, with this content, and comes only once."""
    sent = {
        (record.view, message_of(record))
        for life in history.lives.values()
        for era in life.eras
        for record in era.sent
    }
    for life in history.lives.values():
        seen = set()
        for era in life.eras:
            for record in era.delivered:
                message = message_of(record)
                if (record.view, message) not in sent:
                    yield Violation(
                        "integrity", f"{life.member} delivered {message} in {era.view}, not sent"
                    )
                if message[:3] in seen:
                    yield Violation("integrity", f"{life.member} delivered {message} twice")
                seen.add(message[:3])
    for stray in history.strays:
        yield Violation("integrity", f"{stray} outside of the view its member is in")


def self_delivery(history: GroupHistory) -> Iterator[Violation]:
    """A process delivers its own messages in the view it sent them in, unless it crashes."""
    for life, era in history.eras():
        if era.successor is None:
            continue
        delivered = set(era.messages())
        for record in era.sent:
            if message_of(record) not in delivered:
                yield Violation(
                    "self-delivery",
                    f"{life.member} left {era.view} without its own message {record.first}",
                )


def fifo(history: GroupHistory) -> Iterator[Violation]:
    """Messages of one sender are delivered in the order in which it sent them, without gaps."""
    sent = {
        (life.member, era.view): [message_of(record) for record in era.sent]
        for life, era in history.eras()
    }
    known = {message for messages in sent.values() for message in messages}
    for life in history.lives.values():
        latest: dict[Member, int] = {}
        seen: set[Message] = set()
        for era in life.eras:
            received: dict[Member, list[Message]] = {}
            for record in era.delivered:
                message = message_of(record)
                if message in seen or message not in known:
                    continue  # that is for integrity to say
                seen.add(message)
                received.setdefault(record.sender, []).append(message)
                if record.first <= latest.get(record.sender, 0):
                    yield Violation(
                        "first in, first out",
                        f"{life.member} delivered {record.sender}:{record.first} late "
                        f"in {era.view}",
                    )
                latest[record.sender] = record.first + record.count - 1
            for sender, messages in received.items():
                all_sent = sent.get((sender, era.view))
                if all_sent is not None and all_sent[: len(messages)] != messages:
                    yield Violation(
                        "first in, first out",
                        f"{life.member} left out messages of {sender} in {era.view}",
                    )
