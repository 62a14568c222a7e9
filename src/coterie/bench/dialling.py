"""What a worker does that is a client, or many: calls over the network, as a program makes them."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from coterie.bench.endless import Endless
from coterie.bench.rowing import GROUP
from coterie.bench.sampling import profiling, sampling
from coterie.bench.speech import answer
from coterie.bench.subjects import Box
from coterie.bench.words import Alone, Dial, Latencies, Load, Ready, Sample, Stop
from coterie.client.connecting import open_client
from coterie.objects import define
from coterie.runtime.garbage import calm_collector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.bench.speech import Orders
    from coterie.client.group import GroupClient
    from coterie.client.session import Session

PUT = define(Box).method("put")
DEADLINE = 20.0


def summarize(times: Sequence[float], cpu_seconds: float) -> Latencies:
    """Give the middle of some times, and the end of them, in microseconds."""
    ordered = sorted(times)
    count = len(ordered)
    return Latencies(
        median_us=ordered[count // 2] * 1e6,
        p99_us=ordered[min(count * 99 // 100, count - 1)] * 1e6,
        cpu_us=cpu_seconds / count * 1e6,
    )


class Callers(Endless):
    """Clients of one group, and tasks that call without end."""

    def __init__(self) -> None:
        super().__init__()
        self._clients: list[GroupClient] = []
        self._open = AsyncExitStack()

    async def dial(self, dial: Dial) -> None:
        """Open so many clients, each with a connection of its own."""
        await self.close()
        for number in range(dial.connections):
            # Each begins with another replica, as clients of a busy service would.
            turn = number % len(dial.addresses)
            addresses = dial.addresses[turn:] + dial.addresses[:turn]
            client = open_client(addresses, group=GROUP)
            self._clients.append(await self._open.enter_async_context(client))

    async def close(self) -> None:
        """Close all clients."""
        clients, self._clients = self._clients, []
        if clients:
            await self._open.aclose()

    async def call_alone(self, alone: Alone) -> Latencies:
        """Make one call after the other, and time each."""
        [session] = await self._sessions(1)
        arguments = PUT.encode([bytes(alone.message_bytes)], {})
        times: list[float] = []
        cpu_began = 0.0
        for number in range(alone.warm_up + alone.count):
            if number == alone.warm_up:
                cpu_began = time.process_time()
                times.clear()
            began = time.perf_counter()
            await session.call(PUT.name, arguments, PUT.decode_result, deadline=DEADLINE)
            times.append(time.perf_counter() - began)
        return summarize(times, time.process_time() - cpu_began)

    async def start(self, load: Load) -> None:
        """Have tasks call, one for each session."""
        sessions = await self._sessions(load.sessions)
        call = self._call_packed if load.is_packed else self._call
        self.begin(len(sessions), lambda number: call(number, sessions[number], load))

    async def _sessions(self, count: int) -> list[Session]:
        clients = self._clients
        sessions = [clients[number % len(clients)].session() for number in range(count)]
        await asyncio.gather(*(session.open() for session in sessions))
        return sessions

    async def _call(self, number: int, session: Session, load: Load) -> None:
        arguments = PUT.encode([bytes(load.message_bytes)], {})
        name, decode = PUT.name, PUT.decode_result
        while not self.is_stopping:
            await session.call(name, arguments, decode, deadline=DEADLINE)
            self.count(number, 1)

    async def _call_packed(self, number: int, session: Session, load: Load) -> None:
        arguments = [PUT.encode([bytes(load.message_bytes)], {})] * load.calls
        name, decode = PUT.name, PUT.decode_result
        while not self.is_stopping:
            results = await session.call_many(name, arguments, decode, deadline=DEADLINE)
            assert isinstance(results, list)
            failed = [result for result in results if isinstance(result, Exception)]
            if failed:
                raise failed[0]
            self.count(number, load.calls)


async def be_clients(dial: Dial, orders: Orders) -> None:
    """Be clients until there are no more orders."""
    callers = Callers()
    try:
        await callers.dial(dial)
        calm_collector()
        answer(Ready())
        with profiling(dial.profile, "clients") as profile, sampling(callers) as sampler:
            async for order in orders:
                match order:
                    case Dial():
                        await callers.dial(order)
                        answer(Ready())
                    case Alone():
                        profile()
                        answer(await callers.call_alone(order))
                    case Load():
                        await callers.start(order)
                        answer(Ready())
                    case Sample():
                        profile()
                        answer(sampler.take())
                    case Stop():
                        await callers.stop()
                        answer(Ready())
                    case _:
                        raise AssertionError(order)
    finally:
        await callers.close()
