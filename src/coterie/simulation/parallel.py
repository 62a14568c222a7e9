"""Many seeds on all cores."""

from __future__ import annotations

import gc
import multiprocessing
import os
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from coterie.simulation.campaign import SeedRun, run_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coterie.simulation.campaign import Options


T = TypeVar("T")


def run_many(seeds: Iterable[int], options: Options, *, jobs: int = 0) -> Iterator[SeedRun]:
    """Run every seed and give the runs as they end, in any order."""
    return run_each(partial(run_seed, options=options), seeds, jobs=jobs)


def run_each(run: Callable[[int], T], seeds: Iterable[int], *, jobs: int = 0) -> Iterator[T]:
    """Do *run*, which other processes must be able to import, with every seed."""
    jobs = jobs or available_cores()
    if jobs == 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_prepare) as pool:
        yield from pool.imap_unordered(partial(_run, run), seeds)


def available_cores() -> int:
    """Give the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _prepare() -> None:
    """Make a worker ready: what is loaded now stays, and garbage is collected between runs."""
    gc.collect()
    gc.freeze()
    gc.disable()


def _run(run: Callable[[int], T], seed: int) -> T:
    outcome = run(seed)
    gc.collect()
    return outcome
