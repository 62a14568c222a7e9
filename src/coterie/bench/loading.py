"""How a load is measured: warm up, then look several times at what was done since."""

from __future__ import annotations

import asyncio
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.conductor import samples
from coterie.bench.words import Load, Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.bench.conductor import Worker


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


async def measure_load(
    caller: Worker, workers: Sequence[Worker], load: Load, timing: Timing
) -> tuple[list[float], float]:
    """Have *caller* make calls; give calls per second, and CPU time of *workers* for each in us."""
    caller.tell(load)
    await caller.ready()
    await asyncio.sleep(timing.warm_up)
    watched = list(dict.fromkeys([caller, *workers]))
    await samples(watched)
    rates: list[float] = []
    costs: list[float] = []
    for _ in range(timing.repeats):
        await asyncio.sleep(timing.seconds)
        sampled = dict(zip(watched, await samples(watched), strict=True))
        calls, took = sampled[caller].calls, sampled[caller].seconds
        rates.append(calls / took)
        spent = sum(sampled[worker].cpu_seconds for worker in workers)
        costs.append(spent / max(calls, 1) * 1e6)
    caller.tell(Stop())
    await caller.ready()
    return rates, median(costs)
