"""The raw round trip that figures are compared with: between two cores, and on one."""

from __future__ import annotations

from contextlib import asynccontextmanager
from statistics import median
from typing import TYPE_CHECKING

from coterie.bench.harness.controller import worker_pool
from coterie.bench.harness.echo import usable_cores
from coterie.bench.harness.protocol import Echo, Pin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from coterie.bench.harness.controller import Worker

ECHO_BYTES = 100
ECHO_COUNT = 1000
ECHO_WARM_UP = 100


class Yardstick:
    """A pair of processes that measure the raw round trip whenever asked."""

    def __init__(self, server: Worker, client: Worker, cores: list[int]) -> None:
        self._server = server
        self._client = client
        self._cores = cores
        self.trips_ms: list[float] = []
        """The medians between two cores, which is what figures are compared with."""
        self.one_core_ms: list[float] = []
        """The medians with both processes on one core; none where nothing can be pinned."""

    async def measure(self) -> float:
        """Measure once more; give the milliseconds of one round trip between two cores."""
        for core in self._cores[:2]:
            self._client.tell(Pin(core))
            await self._client.ready()
            (self.one_core_ms if core == self._cores[0] else self.trips_ms).append(
                await self._trip_ms()
            )
        if len(self._cores) < 2:  # noqa: PLR2004 -- there are no two to go between
            self.trips_ms.append(await self._trip_ms())
        return self.trips_ms[-1]

    async def _trip_ms(self) -> float:
        port = self._server.listening.echo_port
        found = await self._client.echo(Echo(port, ECHO_COUNT, ECHO_WARM_UP, ECHO_BYTES))
        return found.median_us / 1000

    def __str__(self) -> str:
        between = f"{median(self.trips_ms) * 1000:.0f} us"
        if not self.one_core_ms:
            return f"Raw TCP round trip in the same run: {between}."
        on_one = f"{median(self.one_core_ms) * 1000:.0f} us"
        return f"Raw TCP round trip in the same run: {between} between two cores, {on_one} on one."


@asynccontextmanager
async def yardstick() -> AsyncIterator[Yardstick]:
    """Start the two processes of a yardstick, and end them with the block."""
    cores = usable_cores()
    async with worker_pool(2) as pair:
        server, client = pair.workers
        if cores:
            server.tell(Pin(cores[0]))
            await server.ready()
        yield Yardstick(server, client, cores)
