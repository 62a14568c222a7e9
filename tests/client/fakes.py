"""Replicas that do what a test tells them, at the end of a real socket."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import msgspec

from coterie.client.settings import ClientSettings
from coterie.kernel.engine import Standing
from coterie.kernel.views import ViewId
from coterie.objects.execution.outcomes import AllDone, Answer, Done, NotTaken, Opened
from coterie.protocol.frames import encode_frame, frame_reader
from coterie.protocol.messages import (
    Answers,
    Ask,
    FromReplica,
    Hello,
    Peer,
    Ping,
    Pong,
    Welcome,
    decode_from_client,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from coterie.objects import Outcome

QUICK = ClientSettings(
    deadline=5.0,
    connect_timeout=0.2,
    hedge_after=0.05,
    ping_interval=0.05,
    silence_max=0.2,
)
"""For tests in which a time-out has to pass."""

FAR = 0.02
"""Seconds: less than what a client allows for an attempt."""

VIEW = ViewId(1, "fake", 1)
AUTHORITATIVE = Standing.AUTHORITATIVE
OPTIMISTIC = Standing.OPTIMISTIC


def done(value: object, position: int = 1) -> Done:
    return Done(position, VIEW, position, msgspec.msgpack.encode(value))


class FakeReplica:
    """Says hello and opens sessions like a replica; *on_ask* decides about the rest.

    It keeps nothing: with `answer_updates` it gives every update its number as answer. It always
    answers `names()`, after everything said before it: a round trip for a test to wait for.
    """

    def __init__(self, id: str = "fake", role: str = "primary") -> None:
        self.id = id
        self.role = role
        self.class_name = "Counter"
        self.window = 1024
        self.majority = 1
        self.peers: list[Peer] = []
        self.preferred = ""
        self.asked: list[Ask] = []
        self.on_ask: Callable[[FakeReplica, Ask], None] = FakeReplica.answer_updates
        self.is_mute = False
        """Whether it accepts connections and never says a word."""
        self.is_far = False
        """Whether its welcome takes a while."""
        self.pongs = True
        self.connections: list[_Line] = []
        self.port = 0
        self.sessions = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def updates(self) -> list[tuple[int, int]]:
        """The updates asked for so far, as (session, number)."""
        return [(update.session, update.number) for ask in self.asked for update in ask.updates]

    def say(self, *messages: FromReplica) -> None:
        """Say something to the latest client."""
        self.connections[-1].say(*messages)

    def answer(
        self, session: int, request: int, outcome: Outcome, standing: Standing = AUTHORITATIVE
    ) -> None:
        self.say(Answers([Answer(session, request, outcome, standing)]))

    def answer_updates(self, ask: Ask) -> None:
        for update in ask.updates:
            self.answer(update.session, update.number, done(update.number, update.number))
        for batch in ask.batches:
            numbers = range(batch.first, batch.first + len(msgspec.msgpack.decode(batch.arguments)))
            results = [msgspec.msgpack.encode(number) for number in numbers]
            all_done = AllDone(1, VIEW, 1, batch.first, results)
            self.answer(batch.session, batch.first, all_done)

    def refuse_updates(self, ask: Ask) -> None:
        for update in ask.updates:
            self.answer(update.session, update.number, NotTaken("no majority"))

    def ignore(self, ask: Ask) -> None:
        pass

    def hang_up(self) -> None:
        for line in self.connections:
            line.transport.abort()

    def hello(self, hello: Hello) -> FromReplica:
        return Welcome(
            group=hello.group or "fakes",
            class_name=self.class_name,
            replica=self.id,
            incarnation=1,
            role=self.role,
            peers=self.peers,
            majority=self.majority,
            window_requests_max=self.window,
            frame_bytes_max=1 << 20,
            preferred=self.preferred,
        )

    def take(self, message: object) -> None:
        match message:
            case Hello():
                line, wait = self.connections[-1], FAR if self.is_far else 0.0
                asyncio.get_running_loop().call_later(wait, line.say, self.hello(message))
            case Ping():
                if self.pongs:
                    self.say(Pong())
            case Ask():
                self.asked.append(message)
                for token in message.opens:
                    self.sessions += 1
                    self.answer(0, token, Opened(self.sessions))
                self.on_ask(self, message)
                for query in message.queries:
                    if query.method == "names":
                        self.answer(0, query.token, done([]))
            case _:
                raise AssertionError(message)


class _Line(asyncio.Protocol):
    def __init__(self, replica: FakeReplica) -> None:
        self._replica = replica
        self._reader = frame_reader(frame_bytes_max=1 << 24)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._replica.connections.append(self)

    def data_received(self, data: bytes) -> None:
        if not self._replica.is_mute:
            for body in self._reader.feed(data):
                for message in decode_from_client(body):
                    self._replica.take(message)

    def say(self, *messages: FromReplica) -> None:
        self.transport.write(encode_frame(encode(list(messages))))


@asynccontextmanager
async def serving(*replicas: FakeReplica) -> AsyncIterator[None]:
    """Let fakes listen; each tells its clients of all."""
    loop = asyncio.get_running_loop()
    servers = []
    for replica in replicas:
        server = await loop.create_server(_make(replica), "127.0.0.1", 0)
        replica.port = server.sockets[0].getsockname()[1]
        servers.append(server)
    for replica in replicas:
        replica.peers = [Peer(each.id, each.address, is_in_view=True) for each in replicas]
    try:
        yield
    finally:
        for server in servers:
            server.close()
        for replica in replicas:
            replica.hang_up()


def _make(replica: FakeReplica) -> Callable[[], _Line]:
    return lambda: _Line(replica)
