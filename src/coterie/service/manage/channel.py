"""What an instance of the manager and an agent say to each other over TCP, and who may.

    manager  ManagerHello   which host, and a nonce
    agent    AgentHello     a nonce of its own
    manager  ShownSecret    that it knows the secret
    agent    ShownSecret    that it knows it, too
    manager  AgentRequest   an order, with a number; any number of them
    agent    AgentReply     the answer to that number

Both ends know one secret, which is shown and never sent (`coterie.protocol.proof`). What follows on
the connection is not protected by it, as between replicas. Frames are those of
`coterie.kernel.framing`, with the magic "CA". What an agent cannot read, or will not, closes the
connection and is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.errors import CoterieError, FrameError
from coterie.kernel.framing import FrameReader, Framing
from coterie.manager.orders import AgentAnswer, AgentOrder
from coterie.protocol.proof import make_nonce, meeting_of_manager
from coterie.runtime.events import EventLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from coterie.runtime.address import Address

FRAME_BYTES_MAX = 1 << 20
CONNECTIONS_MAX = 32
REQUESTS_MAX = 64
"""How many orders may be under way."""
GREETING_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""A manager that is there looks around every second. One that says nothing for so long may have
lost its machine, and its connections would be kept for good."""
_READ_BYTES = 1 << 16

_FRAMING = Framing(
    b"CA",
    1,
    protocol="the manager's protocol",
    foreign="whoever answers there does not speak Coterie's protocol",
    others={
        b"CO": "this is where replicas talk to each other: use the address of the agent",
        b"CC": "this is where replicas take clients: use the address of the agent",
    },
)


class ManagerHello(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """What a manager says first."""

    host: str
    nonce: bytes


class AgentHello(msgspec.Struct, frozen=True, tag=2, array_like=True):
    """What an agent answers."""

    nonce: bytes


class ShownSecret(msgspec.Struct, frozen=True, tag=3, array_like=True):
    """The proof that somebody knows the secret."""

    proof: bytes


class AgentRequest(msgspec.Struct, frozen=True, tag=4, array_like=True):
    """An order."""

    number: int
    order: AgentOrder


class AgentReply(msgspec.Struct, frozen=True, tag=5, array_like=True):
    """What came of it."""

    number: int
    answer: AgentAnswer


_FromManager = ManagerHello | ShownSecret | AgentRequest
_FromAgent = AgentHello | ShownSecret | AgentReply
_from_manager: Decoder[_FromManager] = Decoder(_FromManager)
_from_agent: Decoder[_FromAgent] = Decoder(_FromAgent)
_encode = msgspec.msgpack.Encoder().encode


class NoAgent(CoterieError):
    """No agent answers, or it is not the one that is meant."""


async def _bodies(
    reader: asyncio.StreamReader, *, silent_max: float | None = None
) -> AsyncIterator[bytes]:
    frames = FrameReader(_FRAMING, frame_bytes_max=FRAME_BYTES_MAX)
    while True:
        async with asyncio.timeout(silent_max):
            data = await reader.read(_READ_BYTES)
        if not data:
            return
        for body in frames.feed(data):
            yield bytes(body)


def _send(writer: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    writer.write(_FRAMING.encode(_encode(message)))


class AgentPort:
    """Where an agent takes orders, from whoever knows the secret."""

    def __init__(
        self,
        host: str,
        secrets: Sequence[bytes],
        obey: Callable[[AgentOrder], Awaitable[AgentAnswer]],
        *,
        silent_max: float = SILENT_SECONDS,
    ) -> None:
        self.events = EventLogger(host=host)
        self._silent_max = silent_max
        self._host = host
        self._secrets = secrets
        self._obey = obey
        self._connections: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.Task[None], None] = {}
        """Connections that have not shown the secret yet; the oldest comes first."""
        self._answering: set[asyncio.Task[None]] = set()
        """Orders under way. What has begun is carried out, whatever becomes of the connection: half
        an order may be a process that nobody looks after."""

    @contextlib.asynccontextmanager
    async def listening(self, address: Address) -> AsyncIterator[None]:
        """Take orders as long as the block lasts."""
        try:
            server = await asyncio.start_server(self._accept, address.host, address.port)
        except OSError as error:
            raise CoterieError(f"the agent cannot listen at {address}: {error.strerror}") from None
        try:
            yield
        finally:
            server.close()
            tasks = [*self._connections, *self._answering]
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._connections.add(task)
        address = str(writer.get_extra_info("peername"))
        warn = self.events.warn
        try:
            if self._has_room(address):
                self._strangers[task] = None
                await self._serve(reader, writer)
        except (FrameError, msgspec.DecodeError) as error:
            warn("not understood", counter="malformed", address=address, reason=str(error))
        except NoAgent as error:
            warn("not let in", counter="wrong_secret", address=address, reason=str(error))
        except (OSError, TimeoutError, StopAsyncIteration):
            self.events.count("broken_off")
        except asyncio.CancelledError:
            self.events.count("ended")  # only the port itself ends a connection, with itself
        finally:
            self._connections.discard(task)
            self._strangers.pop(task, None)
            writer.close()

    def _has_room(self, address: str) -> bool:
        """Make room for a connection; who has not shown the secret for longest gives way."""
        if len(self._connections) <= CONNECTIONS_MAX:
            return True
        self.events.warn("too many connections", counter="too_many", address=address)
        oldest = next(iter(self._strangers), None)
        if oldest is None:
            return False
        del self._strangers[oldest]
        oldest.cancel()
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies = _bodies(reader, silent_max=self._silent_max)
        async with asyncio.timeout(GREETING_SECONDS):
            await self._greet(bodies, writer)
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._strangers.pop(task, None)
        running = self._answering
        async for body in bodies:
            request = _from_manager.decode(body)
            if not isinstance(request, AgentRequest):
                raise msgspec.DecodeError("an order was expected")
            if len(running) >= REQUESTS_MAX:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            answering = asyncio.ensure_future(self._answer(request, writer))
            running.add(answering)
            answering.add_done_callback(running.discard)

    async def _greet(self, bodies: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
        hello = _from_manager.decode(await anext(bodies))
        if not isinstance(hello, ManagerHello):
            raise msgspec.DecodeError("a greeting was expected")
        nonce = make_nonce()
        _send(writer, AgentHello(nonce))
        shown = _from_manager.decode(await anext(bodies))
        if not isinstance(shown, ShownSecret):
            raise msgspec.DecodeError("a proof was expected")
        # The name is ours, not the one that was said: so nobody is taken for the agent of another.
        meeting = meeting_of_manager(self._host, hello.nonce, nonce)
        secret = meeting.which(self._secrets, shown.proof, by_dialler=True)
        if secret is None:
            raise NoAgent(f"whoever connects, for host {hello.host!r}, does not know the secret")
        _send(writer, ShownSecret(meeting.proof(secret, by_dialler=False)))

    async def _answer(self, request: AgentRequest, writer: asyncio.StreamWriter) -> None:
        answer = await self._obey(request.order)
        if writer.is_closing():
            return
        _send(writer, AgentReply(request.number, answer))
        with contextlib.suppress(OSError):
            await writer.drain()


class AgentLink:
    """A manager's way to one agent: one connection, opened when it is needed."""

    def __init__(self, host: str, address: Address, secret: bytes) -> None:
        self.host = host
        self.address = address
        self._secret = secret
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[AgentAnswer]] = {}
        self._opening = asyncio.Lock()
        self._next = 1

    async def ask(self, order: AgentOrder, *, seconds: float) -> AgentAnswer:
        """Give an order; raises `NoAgent` if nothing comes back in time."""
        try:
            async with asyncio.timeout(seconds):
                async with self._opening:
                    if self._writer is None:
                        await self._open()
                assert self._writer is not None, "it was opened"
                number, self._next = self._next, self._next + 1
                answered: asyncio.Future[AgentAnswer] = asyncio.get_running_loop().create_future()
                self._waiting[number] = answered
                try:
                    _send(self._writer, AgentRequest(number, order))
                    return await answered
                finally:
                    self._waiting.pop(number, None)
        except (OSError, TimeoutError) as error:
            # A connection on which nothing comes is not waited for a second time.
            await self.close()
            raise NoAgent(f"the agent of {self.host} does not answer: {error!r}") from None

    async def close(self) -> None:
        """Let go of the connection."""
        reading, self._reading = self._reading, None
        writer, self._writer = self._writer, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
        if writer is not None:
            writer.close()

    async def _open(self) -> None:
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        bodies = _bodies(reader)
        try:
            await self._greet(bodies, writer)
        except (FrameError, msgspec.DecodeError, StopAsyncIteration) as error:
            writer.close()
            raise NoAgent(f"the agent of {self.host} cannot be spoken to: {error!r}") from None
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        self._reading = asyncio.ensure_future(self._read(bodies, writer))

    async def _greet(self, bodies: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
        nonce = make_nonce()
        _send(writer, ManagerHello(self.host, nonce))
        hello = _from_agent.decode(await anext(bodies))
        if not isinstance(hello, AgentHello):
            raise msgspec.DecodeError("a greeting was expected")
        meeting = meeting_of_manager(self.host, nonce, hello.nonce)
        _send(writer, ShownSecret(meeting.proof(self._secret, by_dialler=True)))
        shown = _from_agent.decode(await anext(bodies))
        if not isinstance(shown, ShownSecret) or not meeting.is_proof(
            self._secret, shown.proof, by_dialler=False
        ):
            raise msgspec.DecodeError("it does not know the secret")

    async def _read(self, bodies: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, FrameError, msgspec.DecodeError):
            async for body in bodies:
                reply = _from_agent.decode(body)
                if isinstance(reply, AgentReply) and reply.number in self._waiting:
                    waiting = self._waiting.pop(reply.number)
                    if not waiting.done():
                        waiting.set_result(reply.answer)
        writer.close()
        self._writer = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("the connection has ended"))
