"""Which changes of a replica's role are told, and when: an operator's log is not a trace.

In a view change a replica passes through places that nobody can do anything about, and where a
machine is busy or a network bad there may be several view changes a second. So

- to be in service, in another view or with others than was told last, is told at once;
- to be out of service is told when it has lasted for `HOLD_SECONDS`;
- `BURST` changes may be told in a row, and one more every `REFILL_SECONDS`. What is told then is
  where the replica is by then, with the number of changes that were left out.

The last place is always told in the end. All view changes are in the journal.
"""

from __future__ import annotations

HOLD_SECONDS = 1.0
BURST = 10
REFILL_SECONDS = 6.0


class RolePace:
    """What was told of one group."""

    def __init__(self) -> None:
        self.seen: object = None
        """Where the replica is."""
        self._seen_at = 0.0
        self._told: object = None
        self._changes = 0
        self._budget = float(BURST)
        self._counted_at = 0.0

    def see(self, place: object, now: float) -> None:
        """Learn where the replica is now."""
        if place != self.seen:
            self.seen = place
            self._seen_at = now
            self._changes += 1

    def wait(self, now: float, *, is_in_service: bool) -> float | None:
        """Give how long to wait before its place is told; None if it is told already."""
        if self.seen == self._told:
            return None
        wait = 0.0 if is_in_service else self._seen_at + HOLD_SECONDS - now
        self._budget = min(BURST, self._budget + (now - self._counted_at) / REFILL_SECONDS)
        self._counted_at = now
        return max(0.0, wait, (1 - self._budget) * REFILL_SECONDS)

    def tell(self) -> int:
        """Note that its place is told; give how many changes before it were not."""
        self._told = self.seen
        self._budget -= 1
        left_out, self._changes = self._changes - 1, 0
        return left_out
