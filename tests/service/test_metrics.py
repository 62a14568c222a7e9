"""Figures and health of a replica process, over HTTP."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.patience import PATIENCE

from coterie.objects import define, update
from coterie.runtime.loop import run
from coterie.service.config import ClusterConfig, GroupConfig, ReplicaConfig
from coterie.service.operate import metrics
from coterie.service.operate.founding import free_port
from coterie.service.operate.metrics import MetricsPort
from coterie.service.process import ReplicaProcess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Counter:
    value: int = 0

    @update
    def add(self, amount: int) -> int:
        self.value += amount
        return self.value


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        return [free_port(held) for _ in range(count)]


@asynccontextmanager
async def lonely(folder: Path, ids: str) -> AsyncIterator[tuple[ReplicaProcess, MetricsPort]]:
    """The first of a group of replicas, of which no other is there."""
    ports = free_ports(2 * len(ids))
    config = ClusterConfig(
        cluster="test",
        groups={"sums": GroupConfig(class_="x:Counter")},
        replicas={
            id: ReplicaConfig(
                listen=f"127.0.0.1:{ports[2 * index]}",
                clients=f"127.0.0.1:{ports[2 * index + 1]}",
                dir=str(folder / id),
            )
            for index, id in enumerate(ids)
        },
    )
    async with AsyncExitStack() as stack:
        process = ReplicaProcess(config, ids[0], objects={"sums": define(Counter)}, found=True)
        await stack.enter_async_context(process)
        listener = socket.create_server(("127.0.0.1", 0))
        port = await stack.enter_async_context(MetricsPort(process, listener))
        yield process, port


async def get(port: MetricsPort, request: str = "GET /metrics HTTP/1.1\r\n\r\n") -> tuple[str, str]:
    """Give the first line and the body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
    writer.write(request.encode())
    async with asyncio.timeout(PATIENCE):
        answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return head.split("\r\n")[0], body


def test_figures_have_names_help_types_and_labels(tmp_path: Path) -> None:
    async def story() -> None:
        async with lonely(tmp_path, "a") as (process, port):
            async with asyncio.timeout(PATIENCE):
                while not process.hosted["sums"].is_primary:  # noqa: ASYNC110 -- it is watched
                    await asyncio.sleep(0.01)
            status, body = await get(port)
            assert status == "HTTP/1.1 200 OK"
            assert 'coterie_primary_role{replica="a",group="sums",role="primary"} 1' in body
            assert 'coterie_primary_role{replica="a",group="sums",role="minority"} 0' in body
            assert re.search(r'coterie_journal_records\{replica="a",group="sums"\} \d+', body)
            line = re.compile(
                r"# (HELP|TYPE) coterie_\w+ .+|coterie_[a-z_]+\{[a-z_]+=\".*\"\} [0-9.e+-]+"
            )
            assert all(line.fullmatch(each) for each in body.splitlines()), body
            kinds = dict(re.findall(r"# TYPE (\w+) (\w+)", body))
            named = set(re.findall(r"^(coterie_\w+)\{", body, re.MULTILINE))
            assert named == set(kinds)
            assert all((kinds[name] == "counter") == name.endswith("_total") for name in named)
            assert (await get(port, "GET /healthz HTTP/1.0\r\n\r\n"))[0] == "HTTP/1.1 200 OK"

    run(story())


def test_health_says_what_is_wrong(tmp_path: Path) -> None:
    async def story() -> None:
        async with lonely(tmp_path, "abc") as (process, port):
            async with asyncio.timeout(PATIENCE):
                while process.hosted["sums"].status is None:  # noqa: ASYNC110 -- it is watched
                    await asyncio.sleep(0.01)
            status, body = await get(port, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert status == "HTTP/1.1 503 Service Unavailable"
            found = msgspec.json.decode(body)
            assert found["status"] == "not ok"
            assert found["reasons"]["sums"] in {"minority", "forming"}

    run(story())


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ("GET /nothing HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("nonsense\r\n\r\n", "400"),
        ("GET /metrics HTTP/1.1\r\n" + "x" * 5000, "431"),
        ("HEAD /metrics HTTP/1.1\r\n\r\n", "200"),
        ("GET /metrics?name=x HTTP/1.1\r\n\r\n", "200"),
    ],
)
def test_what_else_is_asked(tmp_path: Path, request_: str, status: str) -> None:
    async def story() -> None:
        async with lonely(tmp_path, "a") as (_, port):
            line, body = await get(port, request_)
            assert line.split()[1] == status
            assert bool(body) != request_.startswith("HEAD")

    run(story())


def test_who_says_nothing_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "REQUEST_SECONDS_MAX", 0.05)

    async def story() -> None:
        async with lonely(tmp_path, "a") as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
            writer.write(b"GET /met")
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(ConnectionError):
                    await _read_to_the_end(reader)
            writer.close()
            assert port.open_connections == 0

    run(story())


async def _read_to_the_end(reader: asyncio.StreamReader) -> None:
    if not await reader.read():
        raise ConnectionResetError


def test_only_so_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "CONNECTIONS_MAX", 2)

    async def story() -> None:
        async with lonely(tmp_path, "a") as (_, port):
            waiting = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(2)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(ConnectionError):
                    await _read_to_the_end(reader)
            for _, each in [*waiting, (reader, writer)]:
                each.close()

    run(story())
