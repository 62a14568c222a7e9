"""Property 3.4.1 of **objects**, and agreed delivery of **transis** slide 20."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.history import Violation, in_order, message_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.checking.history import GroupHistory, Message
    from coterie.kernel.views import Member


def strong_prefix(history: GroupHistory) -> Iterator[Violation]:
    """3.4.1: of two sequences delivered in one view, one is a prefix of the other.

    What came after a hole is left out. Numbers must be dense from 1, and one number has one
    message: together that is the prefix property.
    """
    for view, eras in history.by_view().items():
        places: dict[int, tuple[Message, Member]] = {}
        for life, era in eras:
            expected = 1
            for record in in_order(era):
                message = message_of(record)
                if record.number != expected:
                    yield Violation(
                        "strong prefix",
                        f"{life.member} delivered {message} at {record.number} of {view} "
                        f"where {expected} comes next",
                    )
                expected = record.number + record.count
                taken, by = places.setdefault(record.number, (message, life.member))
                if taken != message:
                    yield Violation(
                        "strong prefix",
                        f"at {record.number} of {view} {by} delivered {taken} "
                        f"and {life.member} delivered {message}",
                    )


def agreed_delivery(history: GroupHistory) -> Iterator[Violation]:
    """Who goes from one view to the next together delivered the same sequence in between."""
    for (first, second), went in history.together().items():
        life, era = went[0]
        expected = era.messages()
        for other, other_era in went[1:]:
            if other_era.messages() != expected:
                yield Violation(
                    "agreed delivery",
                    f"{life.member} and {other.member} went from {first} to {second} together, "
                    "but delivered in different orders",
                )
