"""Hostile clients: what clients say with something wrong inside, to a live group in this process.

The driver, the clients' port and the network are the product's; only the wires are in memory. Many
connections say one wrong thing each, then all are asked whether anybody is there. Whatever they
said, no turn raises, no replica dies, and a polite client of the same group goes on being served.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import AsyncExitStack
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, cast
from unittest import mock

import msgspec
from tests import idle_time
from tests.fuzz.mutations import mutate, put_together, take_apart
from tests.fuzz.tally import Tally

import coterie
from coterie.client.channel import Channel
from coterie.objects import query, update
from coterie.objects.execution.commands import Condition
from coterie.objects.execution.outcomes import Opened
from coterie.protocol.frames import encode_frame, frame_reader
from coterie.protocol.messages import (
    Answers,
    Ask,
    Farewell,
    FromClient,
    Hello,
    PaperListen,
    PaperRequest,
    Ping,
    Pong,
    Query,
    Update,
    UpdateBatch,
    UpdateIf,
    decode_from_replica,
    encode,
)
from coterie.runtime.address import parse_address
from coterie.stacks import COLOURS_STACKS, DEFAULT_STACK
from coterie.transactional import Table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coterie.runtime.in_memory import MemoryHost
    from coterie.service.in_memory import MemoryDeployment

CONNECTIONS = 24
POLITE_EVERY = 4
"""A polite client calls in every so many rounds of wrong words."""
POLITE = "polite"
ATTEMPTS_MAX = 30
ARGUMENTS = msgspec.Raw(msgspec.msgpack.encode(["x", 1]))
NONE = msgspec.Raw(msgspec.msgpack.encode([]))
CONDITIONS = (Condition("read", NONE, b"\x08" * 16), Condition("enter", ARGUMENTS, b""))


class Books:
    """What is called; it does not grow."""

    total: int = 0
    last: str = ""

    @update
    def enter(self, owner: str, amount: int) -> int:
        self.total = (self.total + amount) % 1000
        self.last = owner[:10]
        return self.total

    @query
    def read(self) -> int:
        return self.total


class Accounts:
    """The same for transactions: accounts have locks of their own."""

    amounts: Table[str, int] = {}  # noqa: RUF012 -- copied for each object

    @update
    def enter(self, owner: str, amount: int) -> int:
        name = owner if owner == POLITE else "others"
        self.amounts[name] = (self.amounts.get(name, 0) + amount) % 1000
        return self.amounts[name]

    @query
    def read(self, owner: str) -> int:
        return self.amounts.get(owner, 0)


class Hostile(asyncio.Protocol):
    """One connection of somebody who says what no client would."""

    def __init__(self, group: str, name: str) -> None:
        self.group = group
        self.name = name
        self.is_welcome = False
        self.is_over = False
        self.pongs = 0
        self.session = 1
        self.transport: asyncio.Transport
        self._reader = frame_reader(frame_bytes_max=1 << 26)

    def itself(self) -> Hostile:
        """Give this one to whoever connects it."""
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.say(Hello(self.group, b"n" * 16))
        self.say(Ping())

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.is_over = True

    def data_received(self, data: bytes) -> None:
        for body in self._reader.feed(data):
            for message in decode_from_replica(body):
                if isinstance(message, Pong):
                    self.pongs += 1
                elif isinstance(message, Farewell):
                    self.is_over = True
                elif isinstance(message, Answers):
                    for answer in message.answers:
                        if isinstance(answer.outcome, Opened):
                            self.session = answer.outcome.session

    def say(self, *messages: FromClient) -> None:
        self.transport.write(encode_frame(encode(list(messages))))


def said_by_clients(session: int, random: Random) -> FromClient:
    """Give something that a client of a stack may say."""
    number = random.randrange(1, 50)
    return random.choice(
        (
            Ask(0, [Update(session, number, 1, "enter", ARGUMENTS)]),
            Ask(0, [], [UpdateBatch(session, number, 1, "enter", _array(ARGUMENTS, 3))]),
            Ask(5, [], [], [Query(4, "consistent", "read", NONE), Query(5, "weak", "read", NONE)]),
            Ask(0, conditional=[UpdateIf(session, number, 1, "enter", ARGUMENTS, CONDITIONS)]),
            Ask(0, opens=[7]),
            Ask(0, closes=[session], watches=[(session, number)], unwatches=[(1, 1)], reports=[6]),
            Ping(),
            PaperListen("p"),
            PaperRequest("p", b"r"),
            Hello("books", b"n" * 16),
        )
    )


def _array(item: msgspec.Raw, count: int) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode([item] * count))


def fuzz(engine: str, seed: int, inputs: int) -> Tally:
    """Say wrong things to a live group."""
    tally = Tally()
    with mock.patch.object(Channel, "_write", _Overheard.write):
        _Overheard.bodies.clear()
        idle_time.run(_fuzz(engine, seed, inputs, tally))
    return tally


class _Overheard:
    """What clients of ours say."""

    bodies: ClassVar[deque[bytes]] = deque(maxlen=400)
    _write = Channel._write

    @staticmethod
    def write(channel: Channel, messages: list[FromClient]) -> None:
        _Overheard.bodies.append(encode(messages))
        _Overheard._write(channel, messages)


async def _fuzz(engine: str, seed: int, inputs: int, tally: Tally) -> None:
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context))
    async with AsyncExitStack() as stack:
        opened = OPENED[engine]
        deployment, group, call = await opened(stack)
        await call()
        crowd = _Crowd(deployment, group, engine, Random(f"{seed}/clients"))  # noqa: S311
        rounds = 0
        while tally.inputs < inputs:
            tally.inputs += await crowd.say_wrong_things(tally)
            rounds += 1
            if rounds % POLITE_EVERY == 0:
                # The clock of the loop counts waiting alone, and that of the process work alone.
                begun = time.process_time() + loop.time()
                await call()
                tally.latencies.append(time.process_time() + loop.time() - begun)
            assert not failures, failures[0]
            assert set(deployment.running) == set(deployment.ids)
        await crowd.hang_up()
        await call()
    assert not failures, failures[0]


async def _open_stack(
    stack: AsyncExitStack, name: str = DEFAULT_STACK
) -> tuple[MemoryDeployment, str, Callable[[], Awaitable[object]]]:
    books = await stack.enter_async_context(coterie.local(Books, stack=name))
    group = coterie.group_of(books)

    async def call() -> None:
        await books.enter.options(deadline=60)(POLITE, 1)
        await books.read.options(deadline=60)()

    return group, group.name, call


async def _open_colours(
    stack: AsyncExitStack,
) -> tuple[MemoryDeployment, str, Callable[[], Awaitable[object]]]:
    return await _open_stack(stack, COLOURS_STACKS[0])


async def _open_vsr(
    stack: AsyncExitStack,
) -> tuple[MemoryDeployment, str, Callable[[], Awaitable[object]]]:
    groups: Any = await stack.enter_async_context(coterie.local_groups(eu=Accounts, us=Accounts))

    async def call() -> None:
        # Who may call may hold a lock for a while, and then the transaction is made again.
        for _ in range(ATTEMPTS_MAX):
            try:
                async with groups.transaction() as t:
                    await t.eu.enter(POLITE, -1)
                    await t.us.enter(POLITE, 1)
            except coterie.TransactionAborted:
                continue
            return
        raise AssertionError(f"{ATTEMPTS_MAX} transactions of a polite client were aborted")

    return groups, "eu", call


OPENED: dict[str, Callable[[AsyncExitStack], Awaitable[Any]]] = {
    "stack": _open_stack,
    "vsr": _open_vsr,
    "colours": _open_colours,
}


class _Crowd:
    """All hostile connections."""

    def __init__(
        self, deployment: MemoryDeployment, group: str, engine: str, random: Random
    ) -> None:
        self._network: MemoryHost = deployment.network.host("hostile")
        self._addresses = [parse_address(each) for each in deployment.addresses]
        self._group = group
        self._engine = engine
        self._random = random
        self._connections: list[Hostile] = []
        self._names = 0

    async def say_wrong_things(self, tally: Tally) -> int:
        """Have everybody say one wrong thing; give how many did."""
        random = self._random
        self._connections = [each for each in self._connections if not each.is_over]
        while len(self._connections) < CONNECTIONS:
            address = random.choice(self._addresses)
            self._names += 1
            hostile = Hostile(self._group, f"@{self._names:x}")
            await self._network.connect(hostile.itself, address)
            self._connections.append(hostile)
        await self._all_answer(1)
        before = {each: each.pongs for each in self._connections if not each.is_over}
        for each in before:
            each.transport.write(encode_frame(self._wrong_words(each)))
            each.say(Ping())
        await self._all_answer(1, before)
        for each in before:
            tally.outcomes["sent away" if each.is_over else "answered, or passed over"] += 1
        return len(before)

    async def _all_answer(self, more: int, before: dict[Hostile, int] | None = None) -> None:
        """Wait until everybody knows that the replica has read what they said."""
        counted = before or {}
        for _ in range(100_000):
            if all(
                each.is_over or each.pongs >= counted.get(each, 0) + more
                for each in self._connections
            ):
                return
            await asyncio.sleep(0)
        raise AssertionError("a replica does not answer a ping any more")

    def _wrong_words(self, connection: Hostile) -> bytes:
        random = self._random
        if self._engine == "vsr" and random.random() < 0.8 and _Overheard.bodies:
            # Another client's words, said as one's own: nobody is called as somebody else is.
            body = _renamed(take_apart(random.choice(_Overheard.bodies)), connection.name)
        else:
            body = take_apart(encode([said_by_clients(connection.session, random)]))
        return put_together(mutate(body, random, changes=random.choice((1, 1, 1, 2, 3))))

    async def hang_up(self) -> None:
        """End all connections."""
        for each in self._connections:
            each.transport.abort()
        await asyncio.sleep(0)


def _renamed(value: object, name: str) -> object:
    if isinstance(value, list):
        value[:] = [_renamed(each, name) for each in value]
        return value
    if isinstance(value, str) and value.startswith("@"):
        return name
    return "x" if value == POLITE else value
