"""Numbers that are given out once."""

from __future__ import annotations

from typing import Annotated

import msgspec

from coterie.objects import query, update
from coterie.ready.limits import NUMBER_MAX, Full

BlockSize = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]


class Block(msgspec.Struct, frozen=True):
    """The numbers from *first* to *last*, both included."""

    first: int
    last: int


class Sequence:
    """Gives out 1, 2, 3 …, each number to one caller only.

    Numbers rise in the order of the calls. A caller that needs many takes a block and gives them
    out itself; what it does not use is never given to anybody else.
    """

    last: int = 0

    @update
    def next(self) -> int:
        """Give the next number. Raises `Full` after 2**63 - 1."""
        if self.last >= NUMBER_MAX:
            raise Full("all numbers are given out")
        self.last += 1
        return self.last

    @update
    def take(self, count: BlockSize) -> Block:
        """Give *count* numbers at once. Raises `Full` if there are not so many."""
        if self.last > NUMBER_MAX - count:
            raise Full(f"there are only {NUMBER_MAX - self.last} numbers left")
        block = Block(self.last + 1, self.last + count)
        self.last = block.last
        return block

    @query
    def given(self) -> int:
        """Give the last number given out; 0 if there is none."""
        return self.last
