"""What a worker does that is a client, or many: calls over the network, as a program makes them."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from coterie.bench.harness.protocol import (
    Alone,
    ConnectClients,
    ConnectPeers,
    Latencies,
    Load,
    OrderDone,
    StopLoad,
    TakeSample,
)
from coterie.bench.harness.sampling import Source, profiling, sampling
from coterie.bench.harness.worker_io import answer
from coterie.bench.workloads.closed_loop import ClosedLoop
from coterie.bench.workloads.measuring import summarize
from coterie.bench.workloads.objects import Box
from coterie.bench.workloads.rounds import GROUP
from coterie.client import ClientSettings
from coterie.client.connecting import open_client
from coterie.client.sessions.colours import ColoursSession
from coterie.objects import define
from coterie.runtime.garbage import calm_collector

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.bench.harness.worker_io import Orders
    from coterie.client.group import GroupClient
    from coterie.client.sessions.stack import ClientSession

PUT, READ = (define(Box).method(name) for name in ("put", "read"))
DEADLINE = 20.0


class Callers(ClosedLoop):
    """Clients of one group, and tasks that call without end."""

    def __init__(self) -> None:
        super().__init__()
        self._clients: list[GroupClient] = []
        self._open = AsyncExitStack()

    async def connect(self, order: ConnectClients) -> None:
        """Open so many clients, each with a connection of its own."""
        await self.close()
        settings = ClientSettings(nearest=order.is_near)
        for number in range(order.connections):
            # Each begins with another replica, as clients of a busy service would.
            turn = number % len(order.addresses)
            addresses = order.addresses[turn:] + order.addresses[:turn]
            client = open_client(addresses, group=GROUP, settings=settings)
            self._clients.append(await self._open.enter_async_context(client))

    async def close(self) -> None:
        """Close all clients."""
        clients, self._clients = self._clients, []
        if clients:
            await self._open.aclose()

    async def call_alone(self, alone: Alone) -> Latencies:
        """Make one call after the other, and time each."""
        [session] = await self._sessions(1)
        call: Callable[..., asyncio.Future[object]] = session.call
        if alone.colour:
            coloured = ColoursSession(self._clients[0])
            self._clients[0].add_session(coloured)
            call = partial(coloured.call, colour=alone.colour)
        method, arguments = PUT, PUT.encode([bytes(alone.message_bytes)], {})
        if alone.reads:
            method, arguments = READ, READ.encode([], {})
            call = self._clients[0].query
        times: list[float] = []
        cpu_began = 0.0
        for number in range(alone.warm_up + alone.count):
            if number == alone.warm_up:
                cpu_began = time.process_time()
                times.clear()
            began = time.perf_counter()
            await call(method.name, arguments, method.decode_result, deadline=DEADLINE)
            times.append(time.perf_counter() - began)
        return summarize(times, time.process_time() - cpu_began)

    async def start(self, load: Load) -> None:
        """Have tasks call, one for each session."""
        sessions = await self._sessions(load.sessions)
        call = self._call_packed if load.is_packed else self._call
        self.begin(len(sessions), lambda number: call(number, sessions[number], load))

    async def _sessions(self, count: int) -> list[ClientSession]:
        clients = self._clients
        sessions = [clients[number % len(clients)].session() for number in range(count)]
        await asyncio.gather(*(session.open() for session in sessions))
        return sessions

    async def _call(self, number: int, session: ClientSession, load: Load) -> None:
        arguments = PUT.encode([bytes(load.message_bytes)], {})
        name, decode = PUT.name, PUT.decode_result
        while not self.is_stopping:
            await session.call(name, arguments, decode, deadline=DEADLINE)
            self.count(number, 1)

    async def _call_packed(self, number: int, session: ClientSession, load: Load) -> None:
        arguments = [PUT.encode([bytes(load.message_bytes)], {})] * load.calls
        name, decode = PUT.name, PUT.decode_result
        while not self.is_stopping:
            results = await session.call_many(name, arguments, decode, deadline=DEADLINE)
            assert isinstance(results, list)
            failed = [result for result in results if isinstance(result, Exception)]
            if failed:
                raise failed[0]
            self.count(number, load.calls)


class AnyCallers(Source, Protocol):
    """Clients of some system."""

    async def connect(self, order: Any, /) -> None:  # noqa: ANN401 -- the order of its own kind
        """Open connections, in place of those there were."""

    async def close(self) -> None:
        """Close all connections."""

    async def call_alone(self, alone: Alone) -> Latencies:
        """Make one call after the other, and time each."""

    async def start(self, load: Load) -> None:
        """Have tasks call, one for each session."""

    async def stop(self) -> None:
        """Let all calls end, and make no more."""


async def run_clients(
    callers: AnyCallers, connect: ConnectClients | ConnectPeers, orders: Orders
) -> None:
    """Be clients until there are no more orders."""
    place = connect.profile if isinstance(connect, ConnectClients) else ""
    try:
        await callers.connect(connect)
        calm_collector()
        answer(OrderDone())
        with profiling(place, "clients") as profile, sampling(callers) as sampler:
            async for order in orders:
                match order:
                    case ConnectClients() | ConnectPeers():
                        await callers.connect(order)
                        answer(OrderDone())
                    case Alone():
                        profile()
                        answer(await callers.call_alone(order))
                    case Load():
                        await callers.start(order)
                        answer(OrderDone())
                    case TakeSample():
                        profile()
                        answer(sampler.take())
                    case StopLoad():
                        await callers.stop()
                        answer(OrderDone())
                    case _:
                        raise AssertionError(order)
    finally:
        await callers.close()
