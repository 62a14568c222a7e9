"""Real processes on this machine that take clients, which can be killed and started again."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.harness.controller import BenchError, free_ports, samples, worker_pool
from coterie.bench.harness.figures import Figure
from coterie.bench.harness.protocol import StopLoad

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from coterie.bench.harness.controller import Worker, WorkerPool
    from coterie.bench.harness.figures import Target
    from coterie.bench.harness.protocol import Serve, ServeAccounts


class Deployment:
    """The processes, by their ids; each is told to begin by *order*, with its own id and place."""

    def __init__(self, started: WorkerPool, size: int, order: Serve | ServeAccounts) -> None:
        ids = "abcdefghijklmnopqrstuvwxyz"[:size]
        ports = free_ports(2 * size)
        self.replicas: dict[str, Worker] = {}
        self._pool = started
        self._ports = dict(zip(ids, zip(ports[:size], ports[size:], strict=True), strict=True))
        self._order = msgspec.structs.replace(order, ports=self._ports)

    @property
    def addresses(self) -> list[str]:
        """Where clients find the processes."""
        return [f"127.0.0.1:{clients}" for _, clients in self._ports.values()]

    @property
    def workers(self) -> list[Worker]:
        """The processes that run."""
        return list(self.replicas.values())

    async def found(self) -> None:
        """Start all processes of a new deployment."""
        for id in self._ports:
            await self._start(id, is_founder=True)
        for worker in self.workers:
            await worker.ready()

    async def _start(self, id: str, *, is_founder: bool) -> None:
        [worker] = await self._pool.start()
        self.replicas[id] = worker
        worker.tell(msgspec.structs.replace(self._order, id=id, is_founder=is_founder))

    async def restart(self, id: str) -> None:
        """Start a process again that was killed, and wait until it is back among the others."""
        await self._start(id, is_founder=False)
        await self.replicas[id].ready()

    async def leader(self) -> str:
        """Give the process that puts messages into order, or leads the first group."""
        for id, sampled in zip(self.replicas, await samples(self.workers), strict=True):
            if sampled.is_orderer:
                return id
        raise BenchError("no process says that it leads: run again")

    async def gaps_ms(self, clients: Worker, *, kills: int, pause: float) -> list[float]:
        """Kill who leads, again and again while clients work; give how long any of them waited."""
        gaps: list[float] = []
        for _ in range(kills):
            await asyncio.sleep(pause)
            await clients.sample()
            id = await self.leader()
            await self.replicas[id].kill()
            await asyncio.sleep(pause)
            gaps.append((await clients.sample()).gap_seconds * 1000)
            await self.restart(id)
        clients.tell(StopLoad())
        await clients.ready()
        return gaps


@asynccontextmanager
async def deployed(
    size: int, order: Serve | ServeAccounts
) -> AsyncIterator[tuple[Deployment, Worker]]:
    """Run processes, and one for their clients, with a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        async with worker_pool(1) as started:
            [clients] = started.workers
            order = msgspec.structs.replace(order, folder=folder)
            deployment = Deployment(started, size, order)
            await deployment.found()
            yield deployment, clients


def fail_over_figures(gaps: list[float], size: int, target: Target | None) -> list[Figure]:
    """Make the figures of several kills; the target is for the worst."""
    return [
        Figure(
            section="fail-over",
            what=f"longest wait of a client, {what} of {len(gaps)} kills",
            replicas=size,
            value=value,
            unit="ms",
            repeats=gaps,
            target=limit,
        )
        for what, value, limit in (("median", median(gaps), None), ("worst", max(gaps), target))
    ]
