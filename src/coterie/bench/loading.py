"""How a load is measured: warm up, then look several times at what was done since."""

from __future__ import annotations

import asyncio
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coterie.bench.conductor import samples
from coterie.bench.words import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.bench.conductor import Worker
    from coterie.bench.words import Crowd, Load


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
    """Of all replicas together."""
    caller_cpu_us: float


async def measure_load(
    caller: Worker, replicas: Sequence[Worker], load: Load | Crowd, timing: Timing
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
        await asyncio.sleep(timing.seconds)
        sampled = dict(zip(watched, await samples(watched), strict=True))
        calls, took = sampled[caller].calls, sampled[caller].seconds
        rates.append(calls / took)
        spent = sum(sampled[replica].cpu_seconds for replica in replicas)
        costs.append(spent / max(calls, 1) * 1e6)
        caller_costs.append(sampled[caller].cpu_seconds / max(calls, 1) * 1e6)
    caller.tell(Stop())
    await caller.ready()
    return Loaded(rates, median(costs), median(caller_costs))
