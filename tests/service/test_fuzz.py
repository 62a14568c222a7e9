"""Whatever a client sends, the replica goes on serving the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests import idle_time
from tests.seeded import seeded
from tests.service.groups import Counter, PortGroup

import coterie
from coterie.client import open_client
from coterie.protocol.frames import encode_frame
from coterie.protocol.messages import Ask, Hello, Query, Update, UpdateBatch, encode

if TYPE_CHECKING:
    from random import Random

ASKS = 300


def number(random: Random) -> int:
    return random.choice([1, 2, 3, 63, 64, 65, random.randrange(1, 1 << 63), (1 << 63) - 1])


def value(random: Random, depth: int = 0) -> object:
    kind = random.randrange(12 if depth < 5 else 8)
    if kind < 8:
        options = (None, True, -1, 1 << 63, 0.5, float("nan"), "né", b"\xff", "x" * 300)
        return random.choice(options)
    if kind == 8:
        deep: object = []
        for _ in range(random.choice([3, 70, 400])):
            deep = [deep]
        return deep
    items = [value(random, depth + 1) for _ in range(random.randrange(4))]
    return items if kind < 11 else {str(each): each for each in items}


def arguments(random: Random) -> msgspec.Raw:
    good = random.choice([[1, "x"], [1], []])
    return msgspec.Raw(msgspec.msgpack.encode(good if random.random() < 0.5 else value(random)))


def method(random: Random) -> str:
    return random.choice(["add", "read", "names", "fail", "on_tick", "__init__", "", "é" * 200])


def ask(random: Random, sessions: list[object]) -> Ask:
    def session() -> int:
        known = random.choice(sessions)
        assert isinstance(known, int)
        return known if random.random() < 0.8 else number(random)

    def some(limit: int = 4) -> range:
        return range(random.randrange(limit))

    return Ask(
        random.choice([0, 1 << 53]),
        [
            Update(session(), number(random), number(random), method(random), arguments(random))
            for _ in some()
        ],
        [
            UpdateBatch(
                session(),
                number(random),
                number(random),
                method(random),
                msgspec.Raw(msgspec.msgpack.encode([arguments(random) for _ in some()])),
            )
            for _ in some(2)
        ],
        [
            Query(
                random.randrange(1 << 32),
                random.choice(["dirty", "weak", "consistent", "x"]),
                method(random),
                arguments(random),
            )
            for _ in some()
        ],
        [random.randrange(1 << 32) for _ in some(2)],
        [session()] if random.random() < 0.1 else [],
        [(session(), number(random)) for _ in some(2)],
        [(session(), number(random)) for _ in some(2)],
        [1 for _ in some(2)],
    )


@pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "DYNSEQ:PVSYNC"])
@pytest.mark.parametrize("seed", range(3))
def test_absurd_requests_do_no_harm(seed: int, stack: str) -> None:
    async def story() -> None:
        random = seeded("absurd requests", stack, seed)
        async with PortGroup(stack=stack) as group:
            for id in group.addresses:
                async with open_client(group.addresses[id]) as client:
                    sessions = [client.session() for _ in range(4)]
                    known = [await session.open() for session in sessions]
                    _, writer = await asyncio.open_connection("127.0.0.1", group.ports[id])
                    writer.write(encode_frame(encode([Hello("counter", b"")])))
                    for _ in range(ASKS):
                        writer.write(encode_frame(encode([ask(random, known)])))
                        if random.random() < 0.1:
                            await asyncio.sleep(0)
                    writer.close()
            for address in group.addresses.values():
                async with coterie.connect(Counter, address) as counter:
                    await counter.add(1)
            for replica in group.replicas.values():
                assert not replica.driver._is_stopped
                assert not replica.driver._failed.done()

    idle_time.run(story())
