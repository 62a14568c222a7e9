"""A number that is added to."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from coterie.objects import query, update
from coterie.ready.limits import Full

Amount = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=1 << 31)]

TOTAL_MAX = 1 << 62


class Counter:
    """Counts, up and down.

    Additions commute, so it runs on any stack, also on `PVSYNC` alone; there, replicas may add in
    different orders, and `add` answers the total as one of them knew it.

    At the limit of 2**62, which takes two thousand million of the largest additions, `add` raises
    `Full`.
    """

    commuting: ClassVar[bool] = True

    value: int = 0

    @update
    def add(self, amount: Amount = 1) -> int:
        """Add *amount*, which may be negative; give the new total."""
        total = self.value + amount
        if abs(total) > TOTAL_MAX:
            raise Full(f"{self.value} and {amount} are more than a counter holds")
        self.value = total
        return total

    @query
    def total(self) -> int:
        """Give the total."""
        return self.value
