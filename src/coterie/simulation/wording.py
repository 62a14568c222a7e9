"""Words that the traces of all engines have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.records import Started, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.records import Record
    from coterie.kernel.views import Member


def names(members: Iterable[Member]) -> str:
    """Give members as one short word."""
    return "{" + ",".join(str(member) for member in members) + "}"


def span(first: int, count: int) -> str:
    """Give numbers in a row as one short word."""
    return f"{first}" if count == 1 else f"{first}-{first + count - 1}"


def describe_life(record: Record) -> str:
    """Say what a record says that replicas of every engine write; of another, what it is."""
    match record:
        case Started(stack=stack):
            return f"started with {stack}"
        case Stopped():
            return "stopped"
        case _:
            return type(record).__name__
