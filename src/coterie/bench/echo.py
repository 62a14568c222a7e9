"""The yardstick: a raw TCP round trip between two processes, on the same loop as the runtime."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class _Server(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class _Client(asyncio.Protocol):
    """Sends a message, waits until all of it is back, and sends the next."""

    def __init__(self, count: int, warm_up: int, message_bytes: int) -> None:
        self.done: asyncio.Future[tuple[float, float]] = asyncio.get_running_loop().create_future()
        self._count = count
        self._left = count + warm_up
        self._message = bytes(message_bytes)
        self._missing = 0
        self._began = (0.0, 0.0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._missing == 0:
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionResetError())

    def _next(self) -> None:
        if self._left == self._count:
            self._began = (time.perf_counter(), time.process_time())
        if self._left == 0:
            began, cpu_began = self._began
            self.done.set_result((time.perf_counter() - began, time.process_time() - cpu_began))
            return
        self._left -= 1
        self._missing = len(self._message)
        self._transport.write(self._message)


@asynccontextmanager
async def serve_echo() -> AsyncIterator[int]:
    """Run an echo server on a free port, and give the port."""
    server = await asyncio.get_running_loop().create_server(_Server, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def measure_echo(
    port: int, count: int, warm_up: int, message_bytes: int
) -> tuple[float, float]:
    """Give the seconds for *count* round trips, and our own processor time in them."""
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(
        lambda: _Client(count, warm_up, message_bytes), "127.0.0.1", port
    )
    try:
        return await client.done
    finally:
        transport.abort()
