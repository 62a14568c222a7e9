"""Which connections between programs are gone for good, in memory that does not grow with them.

A program counts the connections that it opens, by name: `relay:0/0`, `relay:0/1` and so on. So
those that are gone lie beside each other, but for the few that are still in use, and are remembered
as ranges. A message that comes late must not open one of them anew.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from coterie.kernel.decoding import COUNT_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DIGITS_MAX = len(str(COUNT_MAX))


def count_of(conn: str) -> tuple[str, int] | None:
    """Take the name of a connection apart; nothing if whoever opened it did not count it."""
    name, _, count = conn.rpartition("/")
    is_count = name and count.isascii() and count.isdecimal() and len(count) < _DIGITS_MAX
    return (name, int(count)) if is_count and str(int(count)) == count else None


class GoneConnections:
    """The connections that are gone, by the part of their names before the count."""

    def __init__(self, ranges: Mapping[str, Sequence[tuple[int, int]]] | None = None) -> None:
        self._ranges = {name: list(each) for name, each in (ranges or {}).items()}
        """First and last counts, ascending, with gaps between them."""

    def __contains__(self, conn: str) -> bool:
        found = count_of(conn)
        if found is None:
            return False
        name, count = found
        ranges = self._ranges.get(name, [])
        place = bisect_right(ranges, count, key=_first) - 1
        return place >= 0 and count <= ranges[place][1]

    def add(self, conn: str) -> None:
        """Note that a connection, which has a count, is gone."""
        found = count_of(conn)
        assert found is not None, conn
        if conn in self:
            return
        name, count = found
        ranges = self._ranges.setdefault(name, [])
        place = bisect_right(ranges, count, key=_first)
        first = last = count
        if place < len(ranges) and ranges[place][0] == count + 1:
            last = ranges.pop(place)[1]
        if place > 0 and ranges[place - 1][1] == count - 1:
            place -= 1
            first = ranges.pop(place)[0]
        ranges.insert(place, (first, last))

    @property
    def ranges(self) -> dict[str, list[tuple[int, int]]]:
        """Give all of it, for a snapshot."""
        return {name: each.copy() for name, each in self._ranges.items()}


def _first(span: tuple[int, int]) -> int:
    return span[0]
