"""How much a client may ask for in a second."""

from __future__ import annotations


class TokenBucket:
    """Gives so many tokens a second; what is not used is kept for a second, and no longer.

    Something that costs more than is there is let through as long as anything is there, and the
    rest is owed: so what is large is not refused for ever, and nobody gets more in the long run.
    """

    __slots__ = ("_at", "_tokens", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._tokens = self._most
        self._at: float | None = None

    @property
    def _most(self) -> float:
        return max(self.rate, 1.0)

    def take(self, count: int, now: float) -> bool:
        """Take tokens, *now* in seconds; say whether that may be."""
        if self._at is not None:
            self._tokens = min(self._most, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < min(count, 1):
            return False
        self._tokens -= count
        return True
