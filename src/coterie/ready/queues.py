"""A queue whose consumers may die."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import ClassVar, Generic, TypeVar

import msgspec

from coterie.objects import now, query, update
from coterie.ready import expiry
from coterie.ready.limits import Full, Name, Seconds, microseconds, weigh

V = TypeVar("V")


class Item(msgspec.Struct, Generic[V], frozen=True, array_like=True):
    """What is in the queue, waiting or claimed."""

    value: V
    weight: int
    attempts: int
    """How often it was claimed."""


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """Who works on an item, and until when."""

    consumer: str
    attempt: int
    expires: int


class Claimed(msgspec.Struct, Generic[V], frozen=True):
    """An item to work on: *number* and *attempt* together say who may confirm it."""

    number: int
    attempt: int
    value: V


class QueueCounts(msgspec.Struct, frozen=True):
    """How many items wait, and how many are claimed."""

    waiting: int
    claimed: int


class Queue(Generic[V]):
    """First in, first out.

    `take` gives an item away for good: if its consumer dies, it is lost. `claim` lends it until it
    is confirmed. An item whose consumer does not confirm in time, by group time, goes back to its
    place; its next consumer is given a higher attempt, and the late one is told that it is too
    late. So each item is confirmed once, and worked on at least once.

    `class Jobs(Queue[Job])` takes jobs only; a plain `Queue` takes anything that can be encoded,
    and such items are slower to copy.
    """

    items_max: ClassVar[int] = 100_000
    bytes_max: ClassVar[int] = 256 << 20

    items: dict[int, Item[V]] = {}  # noqa: RUF012 -- each object has its own copy
    waiting: list[int] = []  # noqa: RUF012
    """A heap of numbers."""
    claims: dict[int, Claim] = {}  # noqa: RUF012
    agenda: list[tuple[int, int]] = []  # noqa: RUF012
    last: int = 0
    weight: int = 0

    @update
    def put(self, value: V) -> int:
        """Put a value at the end; give its number. Raises `Full`."""
        weight = weigh(value)
        if len(self.items) >= self.items_max:
            raise Full(f"there are {self.items_max} items (items_max): take some first")
        if self.weight + weight > self.bytes_max:
            raise Full(f"the items weigh {self.weight} bytes, and bytes_max is {self.bytes_max}")
        self.last += 1
        self.weight += weight
        self.items[self.last] = Item(value, weight, 0)
        heappush(self.waiting, self.last)
        return self.last

    @update
    def take(self) -> V | None:
        """Take the first item out for good; None if none is waiting."""
        self._give_back_what_is_late()
        return self._remove(heappop(self.waiting)).value if self.waiting else None

    @update
    def claim(self, consumer: Name, lease: Seconds = 30.0) -> Claimed[V] | None:
        """Borrow the first item, to be confirmed within *lease* seconds; None if none waits."""
        self._give_back_what_is_late()
        if not self.waiting:
            return None
        number = heappop(self.waiting)
        item = self.items[number]
        attempt = item.attempts + 1
        self.items[number] = Item(item.value, item.weight, attempt)
        self._lend(number, Claim(consumer, attempt, now() + microseconds(lease)))
        return Claimed(number, attempt, item.value)

    @update
    def confirm(self, number: int, attempt: int) -> bool:
        """Say that the work is done; False if the item has been given to somebody else."""
        if not self._is_claimed(number, attempt):
            return False
        del self.claims[number]
        self._remove(number)
        return True

    @update
    def extend(self, number: int, attempt: int, lease: Seconds = 30.0) -> bool:
        """Take more time, from now; False if the item has been given to somebody else."""
        if not self._is_claimed(number, attempt):
            return False
        consumer = self.claims[number].consumer
        self._lend(number, Claim(consumer, attempt, now() + microseconds(lease)))
        return True

    @update
    def give_back(self, number: int, attempt: int) -> bool:
        """Put a claimed item back in its place; False if it has been given to somebody else."""
        if not self._is_claimed(number, attempt):
            return False
        del self.claims[number]
        heappush(self.waiting, number)
        return True

    @query
    def peek(self) -> V | None:
        """Show the first item; None if none is waiting."""
        return self.items[self.waiting[0]].value if self.waiting else None

    @query
    def counts(self) -> QueueCounts:
        """Give how many items there are."""
        return QueueCounts(len(self.waiting), len(self.claims))

    def on_tick(self) -> None:
        """Put back what was not confirmed in time."""
        self._give_back_what_is_late()

    def _give_back_what_is_late(self) -> None:
        if self.agenda:
            for when, number in expiry.ended(self.agenda, now()):
                if self._is_due(when, number):
                    del self.claims[number]
                    heappush(self.waiting, number)

    def _lend(self, number: int, claim: Claim) -> None:
        self.claims[number] = claim
        expiry.enter(self.agenda, claim.expires, number)
        expiry.sweep(self.agenda, len(self.claims), self._is_due)

    def _remove(self, number: int) -> Item[V]:
        item = self.items.pop(number)
        self.weight -= item.weight
        return item

    def _is_claimed(self, number: int, attempt: int) -> bool:
        claim = self.claims.get(number)
        return claim is not None and claim.attempt == attempt

    def _is_due(self, when: int, number: int) -> bool:
        claim = self.claims.get(number)
        return claim is not None and claim.expires == when
