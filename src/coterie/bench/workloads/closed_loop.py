"""Tasks of a client that go on without end, and the longest time that any of them waited."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from coterie.bench.harness.sampling import Nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class ClosedLoop(Nothing):
    """A `Source` of samples. A task is one call after the other until `is_stopping`."""

    def __init__(self) -> None:
        self.answered = 0
        self.is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._gap = 0.0
        self._last: dict[int, float] = {}

    def begin(self, count: int, work: Callable[[int], Coroutine[None, None, None]]) -> None:
        """Have so many tasks work, each with a number."""
        self.is_stopping = False
        self._last = dict.fromkeys(range(count), time.perf_counter())
        self._tasks = [asyncio.create_task(work(number)) for number in range(count)]

    def count(self, number: int, calls: int) -> None:
        """Note that a task has had so many calls answered."""
        now = time.perf_counter()
        self._gap = max(self._gap, now - self._last[number])
        self._last[number] = now
        self.answered += calls

    def take_gap(self) -> float:
        """Give the longest time that any task waited since this was asked last."""
        now = time.perf_counter()
        waiting = max((now - last for last in self._last.values()), default=0.0)
        longest, self._gap = max(self._gap, waiting), 0.0
        # Who waits now began to wait earlier; what is left of that belongs to the next sample.
        return longest

    async def stop(self) -> None:
        """Let all calls end, and make no more."""
        self.is_stopping = True
        tasks, self._tasks = self._tasks, []
        await asyncio.gather(*tasks)
        self._last = {}
