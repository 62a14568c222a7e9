"""Named one-shot timers of one process, fired inside turns in a fixed order.

A timer set again under the same name replaces the earlier one. Timers due at the same moment
fire in the order in which they were set, so a run does not depend on hashing.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.clock import Instant

TimerName = tuple[str, ...]


class Timers:
    """A heap of deadlines with lazy deletion."""

    __slots__ = ("_heap", "_serial", "current")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimerName]] = []
        self.current: dict[TimerName, tuple[int, Callable[[], None]]] = {}
        """Those that wait to fire, by name."""
        self._serial = 0

    def set(self, name: TimerName, deadline: Instant, fire: Callable[[], None]) -> None:
        """Call *fire* in the first turn at or after *deadline*, once."""
        self._serial += 1
        self.current[name] = (self._serial, fire)
        heapq.heappush(self._heap, (deadline, self._serial, name))

    def is_set(self, name: TimerName) -> bool:
        """Say whether the timer *name* is waiting to fire."""
        return name in self.current

    def cancel(self, name: TimerName) -> None:
        """Forget the timer *name*; nothing happens if it is not set."""
        self.current.pop(name, None)

    def next_deadline(self) -> int | None:
        """Give the moment of the earliest timer, or None when none is set."""
        heap = self._heap
        while heap:
            deadline, serial, name = heap[0]
            current = self.current.get(name)
            if current is not None and current[0] == serial:
                return deadline
            heapq.heappop(heap)
        return None

    def fire_due(self, now: Instant) -> None:
        """Fire every timer due at *now*, including those set meanwhile for no later moment."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, serial, name = heapq.heappop(heap)
            current = self.current.get(name)
            if current is not None and current[0] == serial:
                del self.current[name]
                current[1]()
