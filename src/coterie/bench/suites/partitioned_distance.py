"""Three replicas and two, far apart, over a wire in user space (**transis** slide 4)."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coterie.bench.harness.controller import worker_pool
from coterie.bench.harness.figures import Figure
from coterie.bench.harness.protocol import Alone, ConnectClients, Latencies, Serve
from coterie.bench.harness.wire import Wire, apart
from coterie.stacks import is_partitioned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from coterie.bench.harness.controller import Worker, WorkerPool

SITES = ("abc", "de")
IDS = "".join(SITES)
MESSAGE_BYTES = 100
CALLS_MAX = 100
"""One call takes some round trips."""
WARM_UP = 5
REPLICAS_PORT, CLIENTS_PORT = 7000, 7001


class FarApart:
    """The replicas of one group, at two sites."""

    def __init__(self, wire: Wire, started: WorkerPool, folder: str) -> None:
        self.wire = wire
        self._started = started
        self._folder = folder

    async def found(self, stack: str) -> None:
        """Start all replicas, and wait until they are one."""
        hosts = {id: self.wire.address(id) for id in IDS}
        ports = dict.fromkeys(IDS, (REPLICAS_PORT, CLIENTS_PORT))
        replicas: list[Worker] = []
        for id in IDS:
            replicas += await self._started.start(by=self.wire.inside(id))
            order = Serve(
                id=id, ports=ports, hosts=hosts, stack=stack, folder=self._folder, sync="none"
            )
            replicas[-1].tell(order)
        for replica in replicas:
            await replica.ready()

    async def call_at(self, site: str, alone: Alone) -> Latencies:
        """Have a client on the first machine of a site make calls, at the nearest replica."""
        [client] = await self._started.start(by=self.wire.inside(site[0]))
        addresses = [f"{self.wire.address(id)}:{CLIENTS_PORT}" for id in site]
        client.tell(ConnectClients(addresses, 1, is_near=True))
        await client.ready()
        found = await client.call_alone(alone)
        await client.end()
        return found


@asynccontextmanager
async def far_apart(stack: str, delay_ms: float) -> AsyncIterator[FarApart]:
    """Run a group at two sites that are so far apart."""
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        async with Wire(IDS) as wire, worker_pool() as started:
            await wire.rule(delay_ms=apart(SITES, delay_ms))
            group = FarApart(wire, started, folder)
            await group.found(stack)
            yield group


async def measure_distance(
    stacks: Sequence[str], delay_ms: float, calls: int, add: Callable[[Figure], None]
) -> None:
    """Measure calls of one client at each site; and cut off, in red, where that can be."""
    alone = Alone(min(calls, CALLS_MAX), WARM_UP, MESSAGE_BYTES)
    for stack in stacks:
        async with far_apart(stack, delay_ms) as group:
            for site in SITES:
                found = await group.call_at(site, alone)
                add(_figure(f"{stack}, {delay_ms:g} ms apart, a client at the {len(site)}", found))
            await group.wire.rule(sides=SITES)
            found = await group.call_at(SITES[0], alone)
            add(_figure(f"{stack}, cut off, a client at the {len(SITES[0])}", found))
            if is_partitioned(stack):
                red = Alone(alone.count, WARM_UP, MESSAGE_BYTES, colour="red")
                found = await group.call_at(SITES[1], red)
                add(_figure(f"{stack}, cut off, a client at the {len(SITES[1])}, red", found))


def _figure(what: str, found: Latencies) -> Figure:
    return Figure(
        section="distance",
        what=f"{what}, p50",
        replicas=len(IDS),
        value=found.median_us / 1000,
        unit="ms",
    )
