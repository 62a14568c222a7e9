"""Virtual time: a heap of events, a network to lose frames in, and a digest over all that happens.

    time = VirtualTime(seed=7)
    time.at(seconds(3), print, "three seconds later")
    time.run(seconds(10))

Everything random in a run is drawn from generators that the seed names, each for one purpose, so
that one part of a run can change without changing what another draws.
"""

from __future__ import annotations

import heapq
from random import Random
from typing import TYPE_CHECKING
from zlib import crc32

from coterie.kernel.clock import Duration, milliseconds
from coterie.simulation.world.network import SimulatedNetwork

if TYPE_CHECKING:
    from collections.abc import Callable


class VirtualTime:
    """One run of virtual time, reproducible by its seed."""

    def __init__(self, *, seed: int) -> None:
        self.seed = seed
        self.now = 0
        self.random = Random(f"{seed}/simulation")  # noqa: S311 -- reproducible on purpose
        self.network = SimulatedNetwork(Random(f"{seed}/network"))  # noqa: S311
        self.trace: Callable[[str], None] | None = None
        self.events = 0
        self.digest = 0
        """A running checksum over everything that happened: equal runs have equal digests."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._serial = 0

    def at(self, wait: int, function: Callable[..., None], *arguments: object) -> None:
        """Have something happen *wait* microseconds from now."""
        self._serial += 1
        time = self.now + wait if wait > 0 else self.now
        heapq.heappush(self._heap, (time, self._serial, function, arguments))

    def run(self, duration: Duration) -> None:
        """Let time pass."""
        end = self.now + duration
        heap = self._heap
        pop = heapq.heappop
        while heap and heap[0][0] <= end:
            time, _, function, arguments = pop(heap)
            self.now = time
            self.events += 1
            function(*arguments)
        self.now = end

    def run_until(self, condition: Callable[[], bool], *, within: Duration) -> bool:
        """Let time pass until *condition* holds; say whether it did within the time."""
        end = self.now + within
        while not condition():
            if self.now >= end:
                return False
            self.run(min(milliseconds(10), Duration(end - self.now)))
        return True

    def note(self, what: str) -> None:
        """Put something that happened on the digest and, when tracing, on the trace."""
        self.digest = crc32(what.encode(), self.digest ^ self.now & 0xFFFFFFFF)
        if self.trace is not None:
            self.trace(f"{self.now / 1e6:12.6f} {what}")

    def note_frame(self, source: str, destination: str, frame: bytes) -> None:
        """Put a frame on the digest: most of what happens, so nothing is put into words in vain."""
        self.digest = crc32(frame, self.digest ^ self.now & 0xFFFFFFFF)
        if self.trace is not None:
            self.note(f"{source} sends {destination} {len(frame)} bytes, {crc32(frame):08x}")
