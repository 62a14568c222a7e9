"""A set of names."""

from __future__ import annotations

from heapq import nsmallest
from typing import ClassVar

from coterie.objects import query, update
from coterie.ready.limits import Full, Key, Limit


class Set:
    """Strings, each at most once."""

    items_max: ClassVar[int] = 1_000_000

    items: set[str] = set()  # noqa: RUF012 -- each object has its own copy

    @update
    def add(self, item: Key) -> bool:
        """Put *item* in; give whether it is new. Raises `Full`."""
        if item in self.items:
            return False
        if len(self.items) >= self.items_max:
            raise Full(f"there are {self.items_max} items (items_max): remove some first")
        self.items.add(item)
        return True

    @update
    def remove(self, item: Key) -> bool:
        """Take *item* out; give whether it was there."""
        if item not in self.items:
            return False
        self.items.remove(item)
        return True

    @query
    def contains(self, item: Key) -> bool:
        """Say whether *item* is there."""
        return item in self.items

    @query
    def members(self, *, after: Key = "", limit: Limit = 100) -> list[str]:
        """Give up to *limit* items in alphabetical order, those that come after *after*."""
        return nsmallest(limit, (item for item in self.items if item > after or not after))

    @query
    def count(self) -> int:
        """Give how many items there are."""
        return len(self.items)
