"""The yardstick: a raw TCP round trip between two processes, on the same loop as the runtime.

How long it takes depends first of all on where the two run: on one core they take turns without
waking anybody, on two each message wakes another core, which takes three to five times as long.
So both are measured, with the processes pinned. What is compared with it is the one between two
cores, because replicas on several cores have to cross, too.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECONDS_MAX = 0.5
"""How long one look at the yardstick may take, on a machine where others do not let it run."""


class _Server(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class _Client(asyncio.Protocol):
    """Sends a message, waits until all of it is back, and sends the next."""

    def __init__(self, count: int, warm_up: int, message_bytes: int) -> None:
        self.done: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self._warm_up = warm_up
        self._left = count + warm_up
        self._message = bytes(message_bytes)
        self._missing = 0
        self._sent_at = 0.0
        self._ends_at = time.perf_counter() + SECONDS_MAX
        self._trips: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._missing == 0:
            self._trips.append(time.perf_counter() - self._sent_at)
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError())

    def _next(self) -> None:
        if self._left == 0 or (self._trips and time.perf_counter() > self._ends_at):
            # On a busy machine it does not get past warming up; any trip says more than none.
            self.done.set_result(self._trips[self._warm_up :] or self._trips)
            return
        self._left -= 1
        self._missing = len(self._message)
        self._sent_at = time.perf_counter()
        self._transport.write(self._message)


@asynccontextmanager
async def serve_echo() -> AsyncIterator[int]:
    """Run an echo server on a free port, and give the port."""
    server = await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def usable_cores() -> list[int]:
    """Give the cores on which this process may run; none where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def pin(core: int) -> None:
    """Have this process run on one core only."""
    os.sched_setaffinity(0, {core})


async def measure_echo(port: int, count: int, warm_up: int, message_bytes: int) -> list[float]:
    """Give the seconds of each of *count* round trips, or of those that `SECONDS_MAX` allows."""
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(
        lambda: _Client(count, warm_up, message_bytes), "127.0.0.1", port
    )
    try:
        return await client.done
    finally:
        transport.abort()
