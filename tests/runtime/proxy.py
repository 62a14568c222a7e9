"""A TCP relay that stands between two processes and can be cut, held, and mended.

- *cut*: connections are closed, and new ones closed at once: a link that says it is down;
- *held*: connections stay, new ones are accepted, but no byte comes through: a link that is down
  and says nothing, or a machine that is gone;
- *aimed at nothing*: connections are refused, as by a machine whose process has died.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Self

CHUNK_BYTES = 1 << 16


class Proxy:
    """One relay in front of one listener. `async with` starts and ends it."""

    def __init__(self) -> None:
        self._socket = reserve_port()
        self.port: int = self._socket.getsockname()[1]
        self.target: int | None = None
        self.is_cut = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._relays: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aim(None)
        self._socket.close()
        if self._relays:
            await asyncio.wait(self._relays)

    async def aim(self, target: int | None) -> None:
        """Relay to this port from now on; with None, refuse connections."""
        self.target = target
        self._drop()
        if target is None and self._server is not None:
            self._server.close()
            self._server = None
            self._socket = reserve_port(self.port)
        elif target is not None and self._server is None:
            self._server = await asyncio.start_server(self._accept, sock=self._socket)

    def cut(self) -> None:
        """Close everything, now and until mended."""
        self.is_cut = True
        self._drop()

    def hold(self) -> None:
        """Let nothing through until mended, and let nobody notice."""
        self._flowing.clear()

    def mend(self) -> None:
        """End cutting and holding; what was held goes on its way."""
        self.is_cut = False
        self._flowing.set()

    def _drop(self) -> None:
        for relay in self._relays:
            relay.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        try:
            await self._relay(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._relays.discard(task)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._flowing.wait()
        ahead_reader, ahead_writer = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            pumps = [
                asyncio.ensure_future(self._pump(reader, ahead_writer)),
                asyncio.ensure_future(self._pump(ahead_reader, writer)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            ahead_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()
        # Let the last bytes go before the connection is taken down.
        writer.close()
        await writer.wait_closed()


def reserve_port(port: int = 0) -> socket.socket:
    """Hold a port of this machine, by default a free one, without listening there yet."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", port))
    return held
