"""Redis, replicated by its own replication, with WAIT.

A write is answered when the primary and one replica have it in memory. That is no consensus: when
the primary dies somebody else has to choose another, and may choose one that lacks the write. A
connection executes one command after the other, and WAIT holds it up; so what is asked for at the
same time on one connection goes together, with one WAIT behind it.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WAIT = b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n"
REPLICAS = 2


class RedisLine(asyncio.Protocol):
    """One connection. Everything that was asked for since the last answer is one batch."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._waiting: list[tuple[bytes, int, asyncio.Future[None]]] = []
        self._asked: list[asyncio.Future[None]] = []
        self._missing = 0
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        if b"-" in data[:1]:
            self._fail(data)
            return
        # Every answer is one short line: OK for a write, a number for WAIT.
        self._missing -= data.count(b"\n")
        if not self._missing:
            asked, self._asked = self._asked, []
            for future in asked:
                if not future.done():
                    future.set_result(None)
            self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(str(exc or "closed").encode())

    def _fail(self, words: bytes) -> None:
        for future in [*self._asked, *(each for _, _, each in self._waiting)]:
            if not future.done():
                future.set_exception(ConnectionError(words[:200].decode("utf-8", "replace")))

    def _go_on(self) -> None:
        if self._missing or not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._asked = [future for _, _, future in waiting]
        self._missing = 1 + sum(count for _, count, _ in waiting)
        self._transport.write(b"".join(written for written, _, _ in waiting) + WAIT)

    async def put(self, data: bytes) -> None:
        await self.put_all([data])

    async def put_all(self, data: Sequence[bytes]) -> None:
        written = b"".join(
            b"*3\r\n$3\r\nSET\r\n$3\r\nbox\r\n$%d\r\n%b\r\n" % (len(each), each) for each in data
        )
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((written, len(data), future))
        # Others of this turn of the loop come along.
        self._loop.call_soon(self._go_on)
        await future

    async def close(self) -> None:
        self._transport.close()


class Redis:
    """Three servers: a primary and two replicas, nothing on disk."""

    name = "Redis with WAIT"
    program = "redis-server"
    package = "redis-server"
    promise = "in the memory of the primary and one replica; no consensus, no disk"
    packs = True

    def version(self, words: str) -> str:
        found = re.search(r"v=([0-9.]+)", words)
        return found[1] if found else "?"

    def commands(self, program: str, ports: Sequence[int], folder: Path) -> list[list[str]]:
        primary, *replicas = ports[: REPLICAS + 1]
        common = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
        return [
            [program, "--port", str(primary), "--repl-diskless-sync-delay", "0", *common],
            *(
                [program, "--port", str(port), "--replicaof", "127.0.0.1", str(primary), *common]
                for port in replicas
            ),
        ]

    async def leader(self, ports: Sequence[int]) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[0])
        writer.write(b"*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n")
        said = await reader.read(8192)
        writer.close()
        if said.count(b"state=online") < REPLICAS:
            raise ConnectionError("the replicas are not there yet")
        return ports[0]

    async def connect(self, port: int) -> RedisLine:
        _, line = await asyncio.get_running_loop().create_connection(RedisLine, "127.0.0.1", port)
        return line
