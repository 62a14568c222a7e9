"""Systems beside us: their clients against servers that say what the real ones say."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from coterie.bench.harness.controller import BenchError
from coterie.bench.suites import objects
from coterie.bench.workloads.peers.callers import SYSTEMS
from coterie.bench.workloads.peers.etcd import _field, _fields
from coterie.bench.workloads.peers.nats import Nats
from coterie.bench.workloads.peers.redis import Redis
from coterie.bench.workloads.peers.systems import FoundSystem, find, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[int]:
    """Serve every connection until it ends; give the port."""
    ended: list[asyncio.Event] = []

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(asyncio.Event())
        mine = ended[-1]
        try:
            await serve(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            mine.set()

    async with await asyncio.start_server(serve_one, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for each in ended:
            await each.wait()


def test_redis_sends_what_was_asked_together_with_one_wait() -> None:
    batches: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            batches.append(data)
            writer.write(b"+OK\r\n" * data.count(b"SET") + b":1\r\n" * data.count(b"WAIT"))

    async def scene() -> None:
        async with served(serve) as port:
            line = await Redis().connect(port)
            await asyncio.gather(line.put(b"one"), line.put(b"two"), line.put_all([b"a", b"b"]))
            await line.put(b"three")
            await line.close()

    asyncio.run(scene())
    assert [(data.count(b"SET"), data.count(b"WAIT")) for data in batches] == [(4, 1), (1, 1)]


def test_a_redis_that_refuses_ends_the_call() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-READONLY You can't write against a read only replica.\r\n")

    async def scene() -> None:
        async with served(serve) as port:
            line = await Redis().connect(port)
            try:
                await line.put(b"one")
            finally:
                await line.close()

    with pytest.raises(ConnectionError, match="READONLY"):
        asyncio.run(scene())


def test_acknowledgements_of_nats_find_their_messages() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {}\r\nPING\r\n")
        replies: list[bytes] = []
        while line := await reader.readline():
            if line.startswith(b"PUB "):
                _, subject, reply, _ = line.split(b" ")
                await reader.readline()
                body = b'{"stream":"BOX","seq":1}'
                if subject != b"box":
                    body = json.dumps({"cluster": {"leader": "n2"}}).encode()
                replies.append(b"MSG %b 1 %d\r\n%b\r\n" % (reply, len(body), body))
            if len(replies) == 3 or (replies and b"STREAM" in line):
                for reply in reversed(replies):  # in another order, and in pieces
                    writer.write(reply[:7])
                    await writer.drain()
                    writer.write(reply[7:])
                replies.clear()

    async def scene() -> int:
        async with served(serve) as port:
            line = await Nats().connect(port)
            await line.put_all([b"a", b"b", b"c"])
            await line.close()
            return await Nats().leader([port, 1, 2, 3, 4, 5])

    assert asyncio.run(scene()) == 2


def test_messages_of_etcd_are_read_as_they_are_written() -> None:
    body = _field(1, b"box") + _field(2, bytes(300)) + bytes([4 << 3, 0x96, 0x01])
    assert dict(_fields(body)) == {1: b"box", 2: bytes(300), 4: 150}


def test_a_server_that_ends_at_its_start_is_told_with_its_words(tmp_path: Path) -> None:
    program = tmp_path / "redis-server"
    program.write_text("#!/bin/sh\necho 'Redis server v=7.0.1'\nexit 3\n", encoding="utf-8")
    program.chmod(0o755)

    async def scene() -> None:
        async with running(FoundSystem(Redis(), str(program), "7.0.1"), tmp_path):
            pytest.fail("it runs")

    with pytest.raises(BenchError, match=r"ended at its start: Redis server v=7.0.1"):
        asyncio.run(scene())


def test_who_has_none_of_them_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "find", lambda _system: None)
    troubles: list[str] = []
    assert objects._installed_peers(troubles) == []
    [trouble] = troubles
    assert "none of etcd, nats-server, redis-server is installed" in trouble
    assert trouble.endswith("apt-get install etcd-server nats-server redis-server")


@pytest.mark.slow  # real servers, where they are installed
@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_the_real_system_takes_writes(name: str, tmp_path: Path) -> None:
    found = find(SYSTEMS[name])
    if found is None:
        pytest.skip(f"{name} is not installed")

    async def scene() -> None:
        async with running(found, tmp_path) as port:
            line = await found.system.connect(port)
            await line.put(b"one")
            await line.put_all([b"two", b"three"])
            await line.close()

    asyncio.run(scene())
