"""Who may do how much in how much time."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from coterie.objects import now, query, update
from coterie.ready.limits import Full, Key

Tokens = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]

TOKEN = 1_000_000
"""One token, in the unit that levels are kept in: at a rate of one a second, a microsecond brings
one unit, so nothing is ever rounded."""

FULL_PER_TICK = 10_000
"""How many buckets a tick looks at."""


class Verdict(msgspec.Struct, frozen=True):
    """Whether it may be done; if not, in how many microseconds it could be, if nobody else came."""

    is_allowed: bool
    left: int
    """Whole tokens left."""
    retry_in: int


class RateLimiter:
    """A bucket of tokens for each key.

    A bucket holds up to `burst` tokens, and `rate` flow into it every second of group time. What
    is done costs tokens, and is refused if there are too few. A key that was never heard of, or
    not for long, has a full bucket, so full buckets are forgotten.

    The limits are part of the state: `configure` changes them for all keys at once.
    """

    keys_max: ClassVar[int] = 1_000_000

    rate: int = 10
    burst: int = 20
    buckets: dict[str, tuple[int, int]] = {}  # noqa: RUF012 -- each object has its own copy
    """The level of each bucket, and when it was that; those used last come last."""

    @update
    def configure(self, rate: Tokens, burst: Tokens) -> None:
        """Let *rate* tokens a second flow into each bucket, which then holds up to *burst*."""
        time = now()
        levels = {key: (self._level(key), time) for key in self.buckets}
        self.buckets = levels
        self.rate = rate
        self.burst = burst

    @update
    def acquire(self, key: Key, cost: Tokens = 1) -> Verdict:
        """Take *cost* tokens, if there are so many.

        Raises `Full` if too many keys are busy, `ValueError` if no bucket could ever pay.
        """
        if cost > self.burst:
            raise ValueError(f"{cost} tokens are more than a bucket holds, which is {self.burst}")
        if key not in self.buckets and len(self.buckets) >= self.keys_max:
            raise Full(f"{self.keys_max} keys are busy (keys_max): wait until some are not")
        level = self._level(key)
        missing = cost * TOKEN - level
        if missing > 0:
            return Verdict(is_allowed=False, left=level // TOKEN, retry_in=-(-missing // self.rate))
        level -= cost * TOKEN
        self.buckets.pop(key, None)
        self.buckets[key] = (level, now())
        return Verdict(is_allowed=True, left=level // TOKEN, retry_in=0)

    @query
    def left(self, key: Key) -> int:
        """Give how many whole tokens a key has."""
        return self._level(key) // TOKEN

    @query
    def busy(self) -> int:
        """Give how many keys are remembered."""
        return len(self.buckets)

    def on_tick(self) -> None:
        """Forget some buckets that are full again: those not used for longest are looked at."""
        for key in [key for _, key in zip(range(FULL_PER_TICK), self.buckets, strict=False)]:
            if self._level(key) >= self.burst * TOKEN:
                del self.buckets[key]

    def _level(self, key: str) -> int:
        full = self.burst * TOKEN
        found = self.buckets.get(key)
        if found is None:
            return full
        level, at = found
        return min(full, level + (now() - at) * self.rate)
