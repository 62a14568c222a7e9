"""What it costs to bring a replica back that has lost everything, while the others serve.

Three replicas with default settings hold a state of some size, and a light load goes on at the
first. The last replica is killed, and later started anew with an empty disk, as a zombie: it must
be given the whole state. Measured are how long it learns, the longest time in which the load had
no answer, and the longest time in which a replica was kept from everything else.
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import TYPE_CHECKING

from coterie.bench.harness.controller import worker_pool
from coterie.bench.harness.figures import Figure, Target
from coterie.bench.harness.protocol import Fill, HostReplica, Load, StopLoad

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.bench.harness.controller import Worker
    from coterie.bench.harness.protocol import Sampled

IDS = "abc"
VALUE_BYTES = 1000
SETTLE_SECONDS = 1.0
LIGHT = Load(4, 16, 100, is_packed=False)
PAUSE_MAX = Target(250, is_floor=False)
SECTION = "transfer"


async def measure_transfer(stack: str, megabytes: int, add: Callable[[Figure], None]) -> None:
    """Kill a replica, bring it back, and give what that cost."""
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        async with worker_pool(len(IDS)) as started:
            first, second, third = started.workers
            ports = {
                id: worker.listening.port for id, worker in zip(IDS, started.workers, strict=True)
            }

            def host(id: str, folder: str, *, is_founder: bool) -> HostReplica:
                return HostReplica(
                    id=id,
                    peers={peer: port for peer, port in ports.items() if peer != id},
                    stack=stack,
                    subject="Store",
                    folder=folder,
                    is_founder=is_founder,
                    is_patient=False,
                    port=0 if is_founder else ports[id],
                )

            for id, worker in zip(IDS, started.workers, strict=True):
                worker.tell(host(id, f"{folder}/{id}", is_founder=True))
            for worker in started.workers:
                await worker.ready()
            empty = [(await worker.sample()).memory_bytes for worker in started.workers]
            first.tell(Fill(megabytes * 1_000_000 // VALUE_BYTES, VALUE_BYTES))
            await first.ready()
            full = [(await worker.sample()).memory_bytes for worker in started.workers]
            first.tell(LIGHT)
            await first.ready()
            await asyncio.sleep(SETTLE_SECONDS)
            await _samples(first, second)
            await asyncio.sleep(SETTLE_SECONDS)
            quiet, _ = await _samples(first, second)
            await third.kill()
            await asyncio.sleep(SETTLE_SECONDS)
            killed, _ = await _samples(first, second)
            [back] = await started.start()
            await _samples(first, second)
            back.tell(host("c", f"{folder}/c-again", is_founder=False))
            await back.ready()
            during = await _samples(first, second)
            learned = await back.sample()
            first.tell(StopLoad())
            await first.ready()
    grown = (sum(full) - sum(empty)) / len(full)
    for figure in (
        _figure("memory", "a replica with an empty object", sum(empty) / len(empty) / 1e6, "MB"),
        _figure("memory", "for each MB of state", grown / 1e6 / megabytes, "MB"),
        _figure(SECTION, "longest gap in service before", quiet.gap_seconds * 1000, "ms"),
        _figure(SECTION, "after a kill", killed.gap_seconds * 1000, "ms"),
        _figure(
            SECTION,
            f"during a transfer of {megabytes} MB",
            during[0].gap_seconds * 1000,
            "ms",
            PAUSE_MAX,
        ),
        _figure(
            SECTION,
            "longest pause of a replica that gives or serves",
            max(sample.pause_seconds for sample in during) * 1000,
            "ms",
            PAUSE_MAX,
        ),
        _figure(SECTION, "time to learn", learned.learning_seconds, "s"),
        _figure(SECTION, "rate", megabytes / max(learned.learning_seconds, 1e-9), "MB/s"),
        _figure("memory", "of the replica that learned", learned.memory_bytes / 1e6, "MB"),
    ):
        add(figure)


async def _samples(*workers: Worker) -> list[Sampled]:
    return [await worker.sample() for worker in workers]


def _figure(
    section: str, what: str, value: float, unit: str, target: Target | None = None
) -> Figure:
    return Figure(section=section, what=what, value=value, unit=unit, target=target)
