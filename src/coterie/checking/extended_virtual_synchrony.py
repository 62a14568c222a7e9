"""The rules of extended virtual synchrony, **transis** slides 20 to 23."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.history import Violation, message_of
from coterie.kernel.records import Delivery

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.checking.history import Era, GroupHistory, MemberLife, Message
    from coterie.kernel.records import Delivered
    from coterie.kernel.views import Member


def safe_delivery(history: GroupHistory) -> Iterator[Violation]:
    """Slide 20: a safe message is delivered by every process of its configuration or none.

    In the regular view that is every member of the view, in the transitional part every member
    that comes along; a process that crashes in the view is excused. What comes after a hole is
    marked and carries no such promise.
    """
    sent_safe = {
        (record.view, message_of(record)): record.safe
        for _, era in history.eras()
        for record in era.sent
    }
    for view, eras in history.by_view().items():
        delivered = {
            life.member: (life, era, {message_of(record): record for record in era.delivered})
            for life, era in eras
        }
        for life, era in eras:
            for record in era.delivered:
                safe = sent_safe.get((view, message_of(record)), record.safe)
                if safe != record.safe:
                    yield Violation(
                        "safe delivery",
                        f"{life.member} delivered {record.sender}:{record.first} in {view} as if "
                        f"it had been sent {'agreed' if safe else 'safe'}",
                    )
                if safe:
                    for other in _bound_by(record, era):
                        yield from _check_safe(history, life, record, other, delivered.get(other))


def _bound_by(record: Delivered, era: Era) -> tuple[Member, ...]:
    """Give the members that a safe delivery binds."""
    if record.delivery is Delivery.REGULAR:
        return era.installed.members
    if record.delivery is Delivery.TRANSITIONAL and era.transitional:
        return era.transitional[0][1].members
    return ()


def _check_safe(
    history: GroupHistory,
    life: MemberLife,
    record: Delivered,
    other: Member,
    found: tuple[MemberLife, Era, dict[Message, Delivered]] | None,
) -> Iterator[Violation]:
    if found is None:
        # To be counted on, it must have been in the view, unless all it told is lost.
        if other in history.lives:
            yield Violation(
                "safe delivery",
                f"{life.member} delivered {record.sender}:{record.first} as safe in {record.view}, "
                f"which {other} never installed",
            )
        return
    other_life, other_era, delivered = found
    theirs = delivered.get(message_of(record))
    if theirs is None and other_era.successor is None:
        # Whoever is still in the view may deliver it yet; liveness is checked elsewhere.
        return
    if theirs is None or theirs.number != record.number:
        yield Violation(
            "safe delivery",
            f"{life.member} delivered {record.sender}:{record.first} as safe in {record.view} "
            f"({record.delivery.name.lower()}), and {other_life.member} went on "
            f"{'without it' if theirs is None else 'with it in another place'}",
        )


def transitional_set(history: GroupHistory) -> Iterator[Violation]:
    """Slide 21: those who came along are exactly those who went from the one view to the other."""
    for (first, second), went in history.together().items():
        members = {life.member for life, _ in went}
        for life, era in went:
            successor = era.successor
            assert successor is not None
            claimed = set(successor.transitional)
            both = set(era.installed.members) & set(successor.members)
            if not members <= claimed or not claimed <= both:
                yield Violation(
                    "transitional set",
                    f"{life.member} went from {first} to {second} with "
                    f"{sorted(map(str, claimed))}; {sorted(map(str, members))} did",
                )
    for life, era in history.eras():
        for other in era.installed.transitional:
            other_era = history.lives[other].era_of(era.view) if other in history.lives else None
            if other_era is not None and other_era.installed.previous != era.installed.previous:
                yield Violation(
                    "transitional set",
                    f"{other} is said to come to {era.view} with {life.member}, but came from "
                    f"{other_era.installed.previous}",
                )


def transitional_view(history: GroupHistory) -> Iterator[Violation]:
    """Slide 21: one transitional view stands before each regular one and divides the old view."""
    for life, era in history.eras():
        successor = era.successor
        if successor is None:
            continue
        if len(era.transitional) != 1:
            yield Violation(
                "transitional view",
                f"{life.member} left {era.view} with {len(era.transitional)} transitional views",
            )
            continue
        before, record = era.transitional[0]
        if record.members != successor.transitional:
            yield Violation(
                "transitional view",
                f"{life.member} left {era.view} with {len(record.members)} members, but "
                f"{len(successor.transitional)} came along",
            )
        for delivered in era.delivered:
            if delivered.delivery is Delivery.AFTER_HOLE and delivered.sender not in record.members:
                yield Violation(
                    "transitional view",
                    f"{life.member} delivered {delivered.sender}:{delivered.first} in {era.view} "
                    "after a hole, though its sender did not come along",
                )
        for place, delivered in enumerate(era.delivered):
            if (delivered.delivery is Delivery.REGULAR) != (place < before):
                yield Violation(
                    "transitional view",
                    f"{life.member} delivered {delivered.sender}:{delivered.first} in {era.view} "
                    f"as {delivered.delivery.name.lower()} on the wrong side",
                )


def transitional_agreement(history: GroupHistory) -> Iterator[Violation]:
    """Slide 23: who goes on together delivers the same in the transitional view in between."""
    for (first, second), went in history.together().items():
        expected = _transitional_part(went[0][1])
        for life, era in went[1:]:
            if _transitional_part(era) != expected:
                yield Violation(
                    "transitional agreement",
                    f"{went[0][0].member} and {life.member} went from {first} to {second} but "
                    "placed the transitional view differently",
                )


def _transitional_part(era: Era) -> list[tuple[object, ...]]:
    return [
        (*message_of(record), record.delivery)
        for record in era.delivered
        if record.delivery is not Delivery.REGULAR
    ]
