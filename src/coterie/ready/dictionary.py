"""A dictionary whose items can be compared and set, and can expire."""

from __future__ import annotations

from heapq import nsmallest
from typing import ClassVar, Generic, TypeVar

import msgspec

from coterie.objects import now, query, update
from coterie.ready import expiry
from coterie.ready.limits import Full, Key, Limit, Seconds, microseconds, weigh

V = TypeVar("V")


class Item(msgspec.Struct, Generic[V], frozen=True, array_like=True):
    """A value as it is kept."""

    value: V
    version: int
    expires: int | None
    weight: int


class Found(msgspec.Struct, Generic[V], frozen=True):
    """A value with its version, and the group time (microseconds) at which it expires."""

    value: V
    version: int
    expires: int | None


class Dictionary(Generic[V]):
    """Values by name.

    Each change of an item gives it a *version*, a number that no item had before: so whoever puts
    a value on condition of a version knows that nobody changed the item meanwhile, not even to
    what it was.

    An item with *expires_in* (seconds) is gone when so much group time has passed, whether anybody
    calls or not: from that moment nothing shows it, and with the next tick its place is free.

    `class Prices(Dictionary[int])` takes integers only; a plain `Dictionary` takes anything that
    can be encoded, and such values are slower to copy.
    """

    items_max: ClassVar[int] = 1_000_000
    bytes_max: ClassVar[int] = 256 << 20

    items: dict[str, Item[V]] = {}  # noqa: RUF012 -- each object has its own copy
    agenda: list[tuple[int, str]] = []  # noqa: RUF012
    last_version: int = 0
    weight: int = 0

    @update
    def put(self, key: Key, value: V, *, expires_in: Seconds | None = None) -> int:
        """Set an item; give its new version. Raises `Full`."""
        weight = weigh(key) + weigh(value)
        self._check_room(key, weight)
        return self._store(key, value, weight, expires_in)

    @update
    def put_if(
        self, key: Key, value: V, version: int, *, expires_in: Seconds | None = None
    ) -> int | None:
        """Set an item that has this version, 0 if it is to be new; give the new version.

        Gives None, and changes nothing, if it has another. Raises `Full`.
        """
        item = self._living(key)
        if version != (item.version if item is not None else 0):
            return None
        weight = weigh(key) + weigh(value)
        self._check_room(key, weight)
        return self._store(key, value, weight, expires_in)

    @update
    def compare_and_set(
        self, key: Key, expected: V | None, value: V, *, expires_in: Seconds | None = None
    ) -> bool:
        """Set an item that has the *expected* value, None if it is to be new; say whether it had.

        Raises `Full`.
        """
        item = self._living(key)
        if expected != (item.value if item is not None else None):
            return False
        weight = weigh(key) + weigh(value)
        self._check_room(key, weight)
        self._store(key, value, weight, expires_in)
        return True

    @update
    def touch(self, key: Key, *, expires_in: Seconds | None = None) -> bool:
        """Give an item another time to expire, or none; say whether there is such an item."""
        item = self._living(key)
        if item is None:
            return False
        self._store(key, item.value, item.weight, expires_in)
        return True

    @update
    def delete(self, key: Key) -> bool:
        """Remove an item; say whether it was there."""
        is_there = self._living(key) is not None
        if key in self.items:
            self._remove(key)
        return is_there

    @query
    def get(self, key: Key) -> V | None:
        """Give a value; None if there is no such item."""
        item = self._living(key)
        return item.value if item is not None else None

    @query
    def find(self, key: Key) -> Found[V] | None:
        """Give a value and what else is known of it; None if there is no such item."""
        item = self._living(key)
        return Found(item.value, item.version, item.expires) if item is not None else None

    @query
    def keys(self, *, prefix: Key = "", after: Key = "", limit: Limit = 100) -> list[str]:
        """Give up to *limit* keys in alphabetical order, those that come after *after*.

        It looks at all keys, so it takes some milliseconds for every ten thousand.
        """
        found = (key for key in self.items if key.startswith(prefix))
        return nsmallest(
            limit,
            (key for key in found if (key > after or not after) and self._living(key) is not None),
        )

    @query
    def count(self) -> int:
        """Give how many items there are, with those that expired since the last tick."""
        return len(self.items)

    def on_tick(self) -> None:
        """Free the places of what has expired."""
        for when, key in expiry.ended(self.agenda, now()):
            item = self.items.get(key)
            if item is not None and item.expires == when:
                self._remove(key)

    def _living(self, key: str) -> Item[V] | None:
        item = self.items.get(key)
        if item is None or item.expires is None or item.expires > now():
            return item
        return None

    def _check_room(self, key: str, weight: int) -> None:
        old = self.items.get(key)
        if old is None and len(self.items) >= self.items_max:
            raise Full(f"there are {self.items_max} items (items_max): delete some first")
        if self.weight + weight - (old.weight if old is not None else 0) > self.bytes_max:
            raise Full(f"the items weigh {self.weight} bytes, and bytes_max is {self.bytes_max}")

    def _store(self, key: str, value: V, weight: int, expires_in: float | None) -> int:
        old = self.items.get(key)
        expires = None if expires_in is None else now() + microseconds(expires_in)
        self.last_version += 1
        self.weight += weight - (old.weight if old is not None else 0)
        self.items[key] = Item(value, self.last_version, expires, weight)
        if expires is not None:
            expiry.enter(self.agenda, expires, key)
            expiry.sweep(self.agenda, len(self.items), self._is_due)
        return self.last_version

    def _remove(self, key: str) -> None:
        self.weight -= self.items.pop(key).weight

    def _is_due(self, when: int, key: str) -> bool:
        item = self.items.get(key)
        return item is not None and item.expires == when
