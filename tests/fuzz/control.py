"""Hostile orders: lines at the control socket of a replica with something wrong inside.

Who may write into the folder may connect, and may have a broken tool. Whatever the line, it is
answered in a sentence, or the connection is closed; the replica goes on, and obeys.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
import time
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from tests import idle_time
from tests.fuzz.clients import Accounts, Books
from tests.fuzz.mutations import BROKEN_TEXT, DEEP, mutate
from tests.fuzz.tally import Tally

import coterie
from coterie.cli.commands.replica_session import ReplicaSession
from coterie.kernel.decoding import JsonDecoder
from coterie.service.operate.control import (
    LINE_BYTES_MAX,
    ControlAnswer,
    ControlOrder,
    Look,
    Recover,
    _obey,
    _short_path,
    listening,
)

SOCKET_EVERY = 64
"""Every so many lines go through the socket; the others to what reads its lines."""
_decode_answer = JsonDecoder(ControlAnswer).decode


def wrong_line(group: str, random: Random) -> bytes:
    """Give a line that is nearly an order."""
    order: ControlOrder = random.choice((Look(), Recover(group), Recover("")))
    kind = random.random()
    if kind < 0.6:
        value = mutate(msgspec.to_builtins(order), random, changes=random.choice((1, 1, 2, 3)))
        return json_of(value)
    line = bytearray(msgspec.json.encode(order))
    if kind < 0.9:
        at = random.randrange(len(line) + 1)
        line[at : at + random.randrange(3)] = random.choice(
            (b"\xff", b"\x00", b'"', b"\\ud800", b"{", b"[" * 5000, b"1e999", b"-", b",", b"}", b"")
        )
        return bytes(line)
    return bytes(line) * random.randrange(3) + random.randbytes(random.randrange(40))


def json_of(value: object) -> bytes:
    """Write any value as JSON, as far as it can be."""
    if isinstance(value, dict):
        items = (b"%s: %s" % (json_of(str(key)), json_of(each)) for key, each in value.items())
        return b"{" + b", ".join(items) + b"}"
    if isinstance(value, list):
        return b"[" + b", ".join(map(json_of, value)) + b"]"
    if value is DEEP:
        return b"[" * 5000 + b"]" * 5000
    if value is BROKEN_TEXT:
        return b'"a\xffb"'
    if isinstance(value, msgspec.Raw | bytes):
        return b'"' + bytes(value).replace(b'"', b"") + b'"'
    return msgspec.json.encode(value)


def fuzz(engine: str, seed: int, inputs: int) -> Tally:
    """Give wrong orders to a replica of a live group."""
    tally = Tally()
    idle_time.run(_fuzz(engine, seed, inputs, tally))
    return tally


async def _fuzz(engine: str, seed: int, inputs: int, tally: Tally) -> None:
    random = Random(f"{seed}/control")  # noqa: S311 -- reproducible on purpose
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context))
    async with contextlib.AsyncExitStack() as stack:
        hosted, call = await _open(engine, stack)
        group = next(iter(hosted))
        session = ReplicaSession(cast("Any", None), "a", found=False, until_eof=False, as_json=True)
        process = cast("Any", SimpleNamespace(hosted=hosted))

        async def obey(order: ControlOrder) -> ControlAnswer:
            return await session._obey(process, order)

        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        await stack.enter_async_context(listening(folder, obey))
        for number in range(inputs):
            line = wrong_line(group, random)
            if number % SOCKET_EVERY:
                answer = await _obey(line + b"\n", obey)
                assert answer.text, "an order that is refused is told why"
                tally.outcomes["refused"] += 1
            else:
                tally.outcomes[await _through_socket(folder, line, random)] += 1
                begun = time.process_time()
                await call()
                tally.latencies.append(time.process_time() - begun)
            tally.inputs += 1
            assert not failures, failures[0]
        answer = await _obey(msgspec.json.encode(Recover(group)), obey)
        assert answer.text
        await call()
    assert not failures, failures[0]


async def _open(engine: str, stack: contextlib.AsyncExitStack) -> tuple[dict[str, Any], Any]:
    if engine == "stack":
        books = await stack.enter_async_context(coterie.local(Books))
        group = coterie.group_of(books)
        return {group.name: group["r1"]}, lambda: books.enter.options(deadline=60)("x", 1)
    groups: Any = await stack.enter_async_context(coterie.local_groups(eu=Accounts))
    return {"eu": groups._hosted["m1"]["eu"]}, lambda: groups.eu.enter("x", 1)


async def _through_socket(folder: Path, line: bytes, random: Random) -> str:
    """Say a line as any program may; give what came of it in a word."""
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)  # noqa: FBT003 -- as it is called
    loop = asyncio.get_running_loop()
    with connection, _short_path(folder) as path:
        await loop.sock_connect(connection, path)
        kind = random.random()
        with contextlib.suppress(OSError):
            if kind < 0.1:
                return "hung up"
            if kind < 0.15:
                line = b" " * (LINE_BYTES_MAX + 10) + line
            await loop.sock_sendall(connection, line + b"\n")
            answer = b""
            while data := await loop.sock_recv(connection, 1 << 16):
                answer += data
            if answer:
                _decode_answer(answer)
                return "refused"
        return "closed"
