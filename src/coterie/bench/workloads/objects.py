"""The objects that benchmarks replicate."""

from __future__ import annotations

from coterie.objects import query, update
from coterie.transactional import Table


class Box:
    """Holds the last thing put into it: the least an update can do."""

    data: bytes = b""
    count: int = 0

    @update
    def put(self, data: bytes) -> int:
        """Keep the data; give how often that was done."""
        self.data = data
        self.count += 1
        return self.count

    @query
    def read(self) -> int:
        """Give how often something was put."""
        return self.count


class Store:
    """A large dictionary of small values."""

    values: dict[int, bytes] = {}  # noqa: RUF012 -- copied for each object
    count: int = 0

    @update
    def put(self, data: bytes) -> int:
        """Keep the data under a key of its own, of a few; give how often that was done."""
        self.count += 1
        self.values[-(self.count % 100)] = data
        return self.count

    @update
    def fill(self, first: int, values: int, value_bytes: int) -> int:
        """Put many values of some bytes each, all different, from a key on."""
        for key in range(first, first + values):
            # Zeros alone would take no memory: systems give them out for nothing.
            self.values[key] = key.to_bytes(8) * (value_bytes // 8)
        return len(self.values)

    @query
    def size(self) -> int:
        """Give how many values there are."""
        return len(self.values)


class Accounts:
    """Balances by number, each with a lock of its own where there are transactions."""

    balances: Table[int, int] = {}  # noqa: RUF012 -- copied for each object

    @update
    def open(self, first: int, count: int) -> int:
        """Have some accounts exist: to make one takes a lock on which accounts there are."""
        for account in range(first, first + count):
            self.balances[account] = 0
        return count

    @update
    def add(self, account: int, amount: int) -> int:
        """Change a balance."""
        balance = self.balances.get(account, 0) + amount
        self.balances[account] = balance
        return balance


SUBJECTS: dict[str, type] = {cls.__name__: cls for cls in (Box, Store)}
