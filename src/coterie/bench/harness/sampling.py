"""What a worker can say of itself: calls, processor time, pauses, memory; and its profile."""

from __future__ import annotations

import asyncio
import cProfile
import resource
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from coterie.bench.harness.protocol import Sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TICK_SECONDS = 0.005


class Source(Protocol):
    """What samples are taken of; all numbers are since the beginning, except the gap."""

    @property
    def answered(self) -> int:
        """How many calls were answered."""

    @property
    def turns(self) -> int:
        """How many turns were taken."""

    @property
    def learning_seconds(self) -> float:
        """How long the replica was a learner."""

    @property
    def is_orderer(self) -> bool:
        """Whether this replica puts messages into order at present."""

    def take_gap(self) -> float:
        """Give the longest time without an answer since this was asked last."""


class Nothing:
    """A source with nothing to say."""

    answered = 0
    turns = 0
    learning_seconds = 0.0

    @property
    def is_orderer(self) -> bool:
        return False

    def take_gap(self) -> float:
        return 0.0


class Pulse:
    """Finds out how long the loop was kept from everything else."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._longest = 0.0
        self._at = self._loop.time()
        self._timer = self._loop.call_later(TICK_SECONDS, self._beat)

    def _beat(self) -> None:
        self._note()
        self._timer = self._loop.call_later(TICK_SECONDS, self._beat)

    def _note(self) -> None:
        now = time.perf_counter()
        self._longest = max(self._longest, now - self._at - TICK_SECONDS)
        self._at = now

    def take(self) -> float:
        """Give the longest pause since this was asked last."""
        longest, self._longest = self._longest, 0.0
        return longest

    def stop(self) -> None:
        self._timer.cancel()


class Sampler:
    """Says what happened since it was asked last."""

    def __init__(self, source: Source, pulse: Pulse) -> None:
        self._source = source
        self._pulse = pulse
        self._last = self._now()

    def _now(self) -> tuple[float, float, int, int]:
        source = self._source
        return (time.perf_counter(), time.process_time(), source.answered, source.turns)

    def take(self) -> Sampled:
        """Take a sample."""
        last, self._last = self._last, self._now()
        took, cpu, calls, turns = (
            now - before for now, before in zip(self._last, last, strict=True)
        )
        source = self._source
        return Sampled(
            seconds=took,
            cpu_seconds=cpu,
            calls=int(calls),
            gap_seconds=source.take_gap(),
            pause_seconds=self._pulse.take(),
            turns=int(turns),
            memory_bytes=resident_bytes(),
            learning_seconds=source.learning_seconds,
            is_orderer=source.is_orderer,
        )


@contextmanager
def sampling(source: Source) -> Iterator[Sampler]:
    """Have a source sampled within the block."""
    pulse = Pulse()
    try:
        yield Sampler(source, pulse)
    finally:
        pulse.stop()


@contextmanager
def profiling(folder: str, name: str) -> Iterator[Callable[[], None]]:
    """Give what begins a profile, which is written at the end; without a folder, nothing is."""
    if not folder:
        yield lambda: None
        return
    profile = cProfile.Profile()
    try:
        yield profile.enable
    finally:
        profile.disable()
        profile.dump_stats(Path(folder) / f"{name}.pstats")


def resident_bytes() -> int:
    """Give how much memory this process takes."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # the most it ever took
    return pages * resource.getpagesize()
