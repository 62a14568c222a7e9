"""Objects for both sides of a partition: what they were told on either side, they keep.

Their updates give no answer that another side could make untrue, and come to the same in any order.
So a caller that is answered *red* (engine COLOURS, outside of the primary component) may act on it:
when the sides meet, nothing of it turns out otherwise.

That holds at their limits, too, where refusing "whoever comes last" would not: what is refused is
refused because of its arguments alone, and what must make room is what was written longest ago,
whoever learns of it first. A `Bag` cannot forget anything, and says so.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import nsmallest
from typing import Annotated, ClassVar, Generic, TypeVar

import msgspec

from coterie.objects import query, update
from coterie.ready.counter import TOTAL_MAX
from coterie.ready.limits import Full, Key, Limit, in_bytes, weigh

V = TypeVar("V")

Time = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""When somebody wrote, by the writer's own clock: microseconds, or any number that rises."""

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]


class Written(msgspec.Struct, Generic[V], frozen=True, array_like=True):
    """What was written last under a name, or that it was deleted."""

    at: int
    is_there: bool
    value: V | None


class _Latest(Generic[V]):
    """What was written last under each name, of the names that were written last."""

    written: dict[str, Written[V]] = {}  # noqa: RUF012 -- each object has its own copy
    ages: list[tuple[int, str]] = []  # noqa: RUF012 -- sorted
    present: int = 0

    def _write(self, key: str, new: Written[V], items_max: int) -> None:
        old = self.written.get(key)
        if old is not None:
            if _rank(new) <= _rank(old):
                return
            del self.ages[bisect_left(self.ages, (old.at, key))]
            self.present -= old.is_there
        self.written[key] = new
        insort(self.ages, (new.at, key))
        self.present += new.is_there
        if len(self.ages) > items_max:
            # Everything that was forgotten is older than all that is kept: so an old write that
            # arrives late finds no room, as if it had come in time.
            _, oldest = self.ages.pop(0)
            self.present -= self.written.pop(oldest).is_there

    def _names(self, after: str, limit: int) -> list[str]:
        return nsmallest(
            limit,
            (
                key
                for key, item in self.written.items()
                if item.is_there and (key > after or not after)
            ),
        )


class LatestDictionary(_Latest[V], Generic[V]):
    """Values by name; of two writes the one with the later time stands, on every side.

    The writer says when it writes. Of writes at the same time a value wins over a deletion, and the
    larger of two values as they are encoded: anything will do that is the same everywhere.

    It knows `items_max` names, deleted ones among them, and forgets the one written longest ago. A
    value of more than `value_bytes_max` is refused with `Full`.
    """

    commuting: ClassVar[bool] = True
    items_max: ClassVar[int] = 100_000
    value_bytes_max: ClassVar[int] = 4_000

    @update
    def put(self, key: Key, value: V, at: Time) -> None:
        """Set an item, unless it was written later than *at*. Raises `Full`."""
        if weigh(value) > self.value_bytes_max:
            raise Full(f"a value has at most {self.value_bytes_max} bytes (value_bytes_max)")
        self._write(key, Written(at, is_there=True, value=value), self.items_max)

    @update
    def delete(self, key: Key, at: Time) -> None:
        """Remove an item, unless it was written later than *at*."""
        self._write(key, Written(at, is_there=False, value=None), self.items_max)

    @query
    def get(self, key: Key) -> V | None:
        """Give a value; None if there is no such item."""
        found = self.written.get(key)
        return None if found is None else found.value

    @query
    def written_at(self, key: Key) -> int | None:
        """Give when an item was written or deleted last; None if that is not known."""
        found = self.written.get(key)
        return None if found is None else found.at

    @query
    def keys(self, *, after: Key = "", limit: Limit = 100) -> list[str]:
        """Give up to *limit* keys in alphabetical order, those that come after *after*."""
        return self._names(after, limit)

    @query
    def count(self) -> int:
        """Give how many items there are."""
        return self.present


class LatestSet(_Latest[bool]):
    """Names, each in or out by whoever said so last, on every side; at the same time, in.

    It knows `items_max` names, removed ones among them, and forgets the one named longest ago.
    """

    commuting: ClassVar[bool] = True
    items_max: ClassVar[int] = 100_000

    @update
    def add(self, item: Key, at: Time) -> None:
        """Put *item* in, unless it was named later than *at*."""
        self._write(item, Written(at, is_there=True, value=None), self.items_max)

    @update
    def remove(self, item: Key, at: Time) -> None:
        """Take *item* out, unless it was named later than *at*."""
        self._write(item, Written(at, is_there=False, value=None), self.items_max)

    @query
    def contains(self, item: Key) -> bool:
        """Say whether *item* is in."""
        found = self.written.get(item)
        return found is not None and found.is_there

    @query
    def members(self, *, after: Key = "", limit: Limit = 100) -> list[str]:
        """Give up to *limit* items in alphabetical order, those that come after *after*."""
        return self._names(after, limit)

    @query
    def count(self) -> int:
        """Give how many items are in."""
        return self.present


class Bag:
    """How many there are of each name. What is taken out on two sides is taken out twice.

    So a number can go below zero, which is how an overbooking shows: `owed` names them, for whoever
    has to make good for it.

    At `items_max` names a new one is refused with `Full`, whoever comes first in the order; so it
    needs a stack with total order, and there alone may a red answer turn out otherwise.
    """

    items_max: ClassVar[int] = 1_000_000

    numbers: dict[str, int] = {}  # noqa: RUF012 -- each object has its own copy

    @update
    def add(self, item: Key, count: Count = 1) -> None:
        """Put *count* of an item in. Raises `Full`."""
        self._change(item, count)

    @update
    def remove(self, item: Key, count: Count = 1) -> None:
        """Take *count* of an item out, also if there are fewer. Raises `Full`."""
        self._change(item, -count)

    @query
    def count(self, item: Key) -> int:
        """Give how many there are of an item; below zero, how many too many were taken out."""
        return self.numbers.get(item, 0)

    @query
    def members(self, *, after: Key = "", limit: Limit = 100) -> list[str]:
        """Give up to *limit* items of which there are some, in alphabetical order."""
        return self._where(1, after, limit)

    @query
    def owed(self, *, after: Key = "", limit: Limit = 100) -> list[str]:
        """Give up to *limit* items of which more was taken out than there was."""
        return self._where(-1, after, limit)

    def _where(self, sign: int, after: str, limit: int) -> list[str]:
        found = (item for item, number in self.numbers.items() if number * sign > 0)
        return nsmallest(limit, (item for item in found if item > after or not after))

    def _change(self, item: str, count: int) -> None:
        number = self.numbers.get(item, 0) + count
        if item not in self.numbers and len(self.numbers) >= self.items_max:
            raise Full(f"there are {self.items_max} items (items_max): take some out first")
        if abs(number) > TOTAL_MAX:
            raise Full(f"{abs(number)} of {item!r} are more than a bag holds")
        if number:
            self.numbers[item] = number
        else:
            del self.numbers[item]


def _rank(written: Written[V]) -> tuple[int, bool, bytes]:
    return (written.at, written.is_there, in_bytes(written.value))
