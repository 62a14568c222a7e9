"""What a worker does that is a client of another system, or many: the calls of our own clients."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from coterie.bench.workloads.closed_loop import ClosedLoop
from coterie.bench.workloads.measuring import summarize
from coterie.bench.workloads.peers.etcd import Etcd
from coterie.bench.workloads.peers.nats import Nats
from coterie.bench.workloads.peers.redis import Redis

if TYPE_CHECKING:
    from coterie.bench.harness.protocol import Alone, ConnectPeers, Latencies, Load
    from coterie.bench.workloads.peers.systems import PeerLine, PeerSystem

SYSTEMS: dict[str, PeerSystem] = {system.name: system for system in (Etcd(), Nats(), Redis())}
"""The systems there are, by their names."""


class PeerCallers(ClosedLoop):
    """Connections to one system, and tasks that write without end."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[PeerLine] = []

    async def connect(self, order: ConnectPeers) -> None:
        """Open so many connections, in place of those there were."""
        await self.close()
        system = SYSTEMS[order.system]
        for _ in range(order.connections):
            self._lines.append(await system.connect(order.port))

    async def close(self) -> None:
        """Close all connections."""
        lines, self._lines = self._lines, []
        for line in lines:
            await line.close()

    async def call_alone(self, alone: Alone) -> Latencies:
        """Make one write after the other, and time each."""
        line, data = self._lines[0], bytes(alone.message_bytes)
        times: list[float] = []
        cpu_began = 0.0
        for number in range(alone.warm_up + alone.count):
            if number == alone.warm_up:
                cpu_began = time.process_time()
                times.clear()
            began = time.perf_counter()
            await line.put(data)
            times.append(time.perf_counter() - began)
        return summarize(times, time.process_time() - cpu_began)

    async def start(self, load: Load) -> None:
        """Have tasks write, one for each session."""
        self.begin(load.sessions, lambda number: self._write(number, load))

    async def _write(self, number: int, load: Load) -> None:
        line = self._lines[number % len(self._lines)]
        data = bytes(load.message_bytes)
        together = [data] * load.calls
        while not self.is_stopping:
            if load.is_packed:
                await line.put_all(together)
            else:
                await line.put(data)
            self.count(number, load.calls)
