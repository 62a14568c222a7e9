"""NATS JetStream: a stream with three replicas, in files.

A message is acknowledged when a majority of the stream's replicas has it (Raft). Its files are
synced by the system, as our journals are with `sync = "none"`.
"""

from __future__ import annotations

import asyncio
import json
import re
from secrets import token_hex
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CREATE = {
    "name": "BOX",
    "subjects": ["box"],
    "num_replicas": 3,
    "storage": "file",
    "discard": "old",
    "max_msgs": 100_000,
}
HELLO = b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB %b.* 1\r\n'


class NatsLine(asyncio.Protocol):
    """One connection; an acknowledgement names the number of its message in its subject."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._buffer = b""
        self._inbox = b"inbox-" + token_hex(8).encode()  # subjects are the whole cluster's
        self._sent = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._loop = asyncio.get_running_loop()
        self._to_write: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._transport.write(HELLO % self._inbox)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        at = 0
        while True:
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            if data.startswith(b"MSG ", at):
                _, subject, *_, size = data[at:end].split(b" ")
                after = end + 2 + int(size)
                if len(data) < after + 2:
                    break
                self._acknowledged(int(subject.rpartition(b".")[2]), data[end + 2 : after])
                at = after + 2
                continue
            if data.startswith(b"PING", at):
                self._transport.write(b"PONG\r\n")
            at = end + 2
        self._buffer = data[at:]

    def _acknowledged(self, number: int, body: bytes) -> None:
        future = self._waiting.pop(number)
        if future.done():
            return
        if b'"error"' in body:
            future.set_exception(ConnectionError(body[:200].decode("utf-8", "replace")))
        else:
            future.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError(str(exc or "closed")))

    def ask(self, subject: bytes, data: bytes) -> asyncio.Future[bytes]:
        """Publish to a subject; what answers comes as the future's result."""
        self._sent += 1
        number = self._sent
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[number] = future
        if not self._to_write:
            self._loop.call_soon(self._flush)
        self._to_write.append(
            b"PUB %b %b.%d %d\r\n%b\r\n" % (subject, self._inbox, number, len(data), data)
        )
        return future

    def _flush(self) -> None:
        self._transport.write(b"".join(self._to_write))
        self._to_write.clear()

    async def put(self, data: bytes) -> None:
        await self.ask(b"box", data)

    async def put_all(self, data: Sequence[bytes]) -> None:
        await asyncio.gather(*(self.ask(b"box", each) for each in data))

    async def close(self) -> None:
        self._transport.close()


class Nats:
    """Three servers in one cluster."""

    name = "NATS JetStream"
    program = "nats-server"
    package = "nats-server"
    promise = "known to two servers of three (Raft), in files that the system syncs"
    packs = True

    def version(self, words: str) -> str:
        found = re.search(r"v([0-9.]+)", words)
        return found[1] if found else "?"

    def commands(self, program: str, ports: Sequence[int], folder: Path) -> list[list[str]]:
        clients, links = ports[:3], ports[3:]
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in links)
        commands: list[list[str]] = []
        for number, (port, link) in enumerate(zip(clients, links, strict=True)):
            file = folder / f"{number}.conf"
            file.write_text(
                f"server_name: n{number}\nlisten: 127.0.0.1:{port}\n"
                f'jetstream {{ store_dir: "{folder / str(number)}" }}\n'
                f"cluster {{ name: bench, listen: 127.0.0.1:{link}, routes: [{routes}] }}\n",
                encoding="utf-8",
            )
            commands.append([program, "-c", str(file)])
        return commands

    async def leader(self, ports: Sequence[int]) -> int:
        line = await self.connect(ports[0])
        try:
            async with asyncio.timeout(2):
                said = await line.ask(b"$JS.API.STREAM.CREATE.BOX", json.dumps(CREATE).encode())
        except TimeoutError:
            raise ConnectionError("JetStream is not there yet") from None
        finally:
            await line.close()
        leader = json.loads(said).get("cluster", {}).get("leader")
        if not leader:
            raise ConnectionError("the stream has no leader yet")
        return ports[int(leader[1:])]

    async def connect(self, port: int) -> NatsLine:
        _, line = await asyncio.get_running_loop().create_connection(NatsLine, "127.0.0.1", port)
        return line
