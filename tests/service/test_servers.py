"""Clients that know nothing of replication, as separate programs, before real servers."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import signal
import socket
import struct
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.patience import PATIENCE
from tests.service.served import Served

from coterie.protocol.datagrams import (
    HEAD,
    MAGIC,
    REPLY_BYTES_MAX,
    REQUEST_BYTES_MAX,
    BadDatagram,
    Message,
    MessageKind,
    ReplyStatus,
    decode_call,
    decode_message,
    encode_message,
    reply_to,
    result_body,
)
from coterie.service.state_folder import read_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EXAMPLES = Path(__file__).parents[2] / "examples"
COUNTER = "from coterie.ready import Counter\n"
ONUS = ("--stack", "ONUS:SAFE:DYNSEQ:PVSYNC")


class ServedCounter(Served):
    """A group of counters."""

    name = "ledger"
    words = ("coterie.ready:Counter", "--name", "ledger")

    @property
    def datagrams(self) -> list[str]:
        """Where clients are taken that know nothing of replication."""
        return [each.datagrams for each in read_config(self.place).replicas.values()]


def example_client() -> Any:  # noqa: ANN401 -- a module
    """Give the module of the example."""
    spec = importlib.util.spec_from_file_location("service_client", EXAMPLES / "service_client.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def use(addresses: list[str], times: int) -> list[Any]:
    """Make some calls with the example's client, one after the other."""
    service = example_client().Service(*addresses, deadline=PATIENCE)
    try:
        service.bind("add", "total")
        return [service.call("add", 1) for _ in range(times)]
    finally:
        service.close()


@asynccontextmanager
async def plain_server() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLES / "plain_server.py", "127.0.0.1:0", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            line = await process.stdout.readline()
        yield line.decode().split()[-1]
    finally:
        process.kill()
        await process.wait()


async def node(addresses: list[str], times: int) -> list[Any]:
    """Make some calls with the example's client in Node."""
    process = await asyncio.create_subprocess_exec(
        *("node", str(EXAMPLES / "service_client.mjs"), ",".join(addresses), "add", "1"),
        f"times={times}",
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        out, _ = await process.communicate()
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.slow  # real processes
def test_a_client_cannot_tell_one_server_from_a_group_that_is_killed_around_it(
    tmp_path: Path,
) -> None:
    asyncio.run(_one_server_and_then_a_group(tmp_path))


async def _one_server_and_then_a_group(tmp_path: Path) -> None:
    async with plain_server() as address:
        assert await asyncio.to_thread(use, [address], 5) == [1, 2, 3, 4, 5]
        if shutil.which("node"):
            assert await node([address], 3) == [6, 7, 8]
    async with ServedCounter(tmp_path, *ONUS) as served:
        await served.until_primary(3)
        addresses = served.datagrams
        calling = asyncio.create_task(asyncio.to_thread(use, addresses, 400))
        for id in "abc":
            before = len(served.events)
            served.signal(signal.SIGKILL, id)
            await served.until_primary(3, after=before)
        answers = await calling
        assert answers == list(range(1, 401)), "each exactly once, in order"
        count = len(answers)
        if shutil.which("node"):
            told = asyncio.create_task(node(addresses, 200))
            served.signal(signal.SIGKILL, "b")
            assert await told == list(range(count + 1, count + 201))


@pytest.mark.slow  # real processes
def test_connections_malformed_messages_and_members(tmp_path: Path) -> None:
    asyncio.run(_connections_and_malformed_messages(tmp_path))


async def _connections_and_malformed_messages(tmp_path: Path) -> None:
    async with ServedCounter(tmp_path, *ONUS) as served:
        await served.until_primary(3)
        host, _, port = served.datagrams[0].rpartition(":")

        def attack() -> list[Any]:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.settimeout(PATIENCE)
                for bad in (b"", b"COT1", b"x" * 40, b"y" * (REQUEST_BYTES_MAX + 1)):
                    sender.sendto(bad, (host, int(port)))
                head = HEAD.pack(MAGIC, 1, 0, 7, 1)
                heard = []
                for body in (b"{", b"[]", b'["nothing"]', b'["add", "x"]', b'["add", 1e999]'):
                    sender.sendto(head + body, (host, int(port)))
                    heard.append(decode_message(sender.recv(65536)).status)
                return heard

        def connect() -> list[Any]:
            answers = []
            with socket.create_connection((host, int(port)), timeout=PATIENCE) as stream:
                for number in (1, 2, 2):
                    message = HEAD.pack(MAGIC, 1, 0, 99, number) + b'["add", 1]'
                    stream.sendall(struct.pack("!I", len(message)) + message)
                    (size,) = struct.unpack("!I", _exactly(stream, 4))
                    answers.append(json.loads(_exactly(stream, size)[HEAD.size :]))
            return answers

        assert await asyncio.to_thread(attack) == [ReplyStatus.REFUSED] * 5
        assert await asyncio.to_thread(connect) == [1, 2, 2], "the same again is the same answer"

        def members() -> list[str]:
            service = example_client().Service(*served.datagrams, deadline=PATIENCE)
            try:
                return sorted(service.members())
            finally:
                service.close()

        assert await asyncio.to_thread(members) == ["a", "b", "c"]


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += stream.recv(size - len(data))
    return data


# ---- the format


def test_a_message_comes_back_as_it_went() -> None:
    message = Message(MessageKind.REQUEST, 0, 7, 1, b'["add",1]')
    assert decode_message(encode_message(message)) == message
    assert decode_call(message.body) == ("add", b"\x91\x01")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"COT1", b"COT2" + bytes(18)),
        HEAD.pack(MAGIC, 9, 0, 1, 1),
        HEAD.pack(MAGIC, 1, 0, 0, 1),
        HEAD.pack(MAGIC, 1, 0, 1, 0),
        HEAD.pack(MAGIC, 1, 0, 1 << 63, 1),
        HEAD.pack(MAGIC, 1, 0, 1, 1 << 63),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(BadDatagram):
        decode_message(data)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[1]",
        b"[" * 2000,
        b"\xff",
        b'["a", 99999999999999999999999]',
        b'["' + b"a" * 999,
    ],
)
def test_what_is_no_call_is_refused(body: bytes) -> None:
    with pytest.raises(BadDatagram):
        decode_call(body)


def test_a_reply_that_is_too_large_says_so() -> None:
    request = Message(MessageKind.REQUEST, 0, 7, 1, b"")
    reply = decode_message(reply_to(request, ReplyStatus.DONE, b"1" * REPLY_BYTES_MAX))
    assert reply.status == ReplyStatus.FAILED
    assert json.loads(reply.body)[0] == "ReplyTooLarge"


def test_a_result_that_json_cannot_say_is_refused() -> None:
    with pytest.raises(BadDatagram):
        result_body(b"\x81\xc0\x01")  # {None: 1}
