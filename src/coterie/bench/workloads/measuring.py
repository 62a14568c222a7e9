"""How a load is measured: warm up, then look several times at what was done since."""

from __future__ import annotations

import asyncio
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coterie.bench.harness.controller import samples
from coterie.bench.harness.protocol import Latencies, StopLoad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.bench.harness.controller import Worker
    from coterie.bench.harness.protocol import Load, TransactTogether


LOOK_MAX = 60.0
"""After so many seconds without a single call the rate is 0."""


def summarize(times: Sequence[float], cpu_seconds: float) -> Latencies:
    """Give the middle of some times, and the end of them, in microseconds."""
    ordered = sorted(times)
    count = len(ordered)
    return Latencies(
        median_us=ordered[count // 2] * 1e6,
        p99_us=ordered[min(count * 99 // 100, count - 1)] * 1e6,
        cpu_us=cpu_seconds / count * 1e6,
    )


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """For how long each load is measured."""

    seconds: float = 1.0
    warm_up: float = 0.4
    repeats: int = 3

    def __str__(self) -> str:
        return (
            f"medians of {self.repeats} times {self.seconds:g} s after {self.warm_up:g} s to "
            "warm up"
        )


class Loaded(NamedTuple):
    """What a load has shown: calls per second, and processor time for each, in microseconds."""

    rates: list[float]
    cpu_us: float
    """Processor time of all replicas together for each call."""
    caller_cpu_us: float


async def measure_load(
    caller: Worker, replicas: Sequence[Worker], load: Load | TransactTogether, timing: Timing
) -> Loaded:
    """Have *caller* make calls, and look at it and at the replicas."""
    caller.tell(load)
    await caller.ready()
    await asyncio.sleep(timing.warm_up)
    watched = list(dict.fromkeys([caller, *replicas]))
    await samples(watched)
    rates: list[float] = []
    costs: list[float] = []
    caller_costs: list[float] = []
    for _ in range(timing.repeats):
        calls, took, spent, caller_spent = 0, 0.0, 0.0, 0.0
        # A short look on a busy machine may see nothing done: then it lasts longer.
        while not calls and took < LOOK_MAX:
            await asyncio.sleep(timing.seconds)
            sampled = dict(zip(watched, await samples(watched), strict=True))
            calls += sampled[caller].calls
            took += sampled[caller].seconds
            spent += sum(sampled[replica].cpu_seconds for replica in replicas)
            caller_spent += sampled[caller].cpu_seconds
        rates.append(calls / took)
        costs.append(spent / max(calls, 1) * 1e6)
        caller_costs.append(caller_spent / max(calls, 1) * 1e6)
    caller.tell(StopLoad())
    await caller.ready()
    return Loaded(rates, median(costs), median(caller_costs))
