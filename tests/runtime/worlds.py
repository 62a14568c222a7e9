"""The worlds in which a transport is tested: simulated, real TCP, and streams in memory.

A `World` has ends (processes reduced to a transport and an inbox) that can be started and stopped,
and links between them that can be cut, held and mended.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from itertools import permutations
from typing import TYPE_CHECKING, Protocol, Self

import msgspec
from tests.patience import PATIENCE
from tests.runtime.proxy import Proxy

from coterie.kernel.clock import milliseconds
from coterie.kernel.errors import FrameError
from coterie.kernel.wire import Envelope, Frame, decode_frame, encode_frame
from coterie.runtime.address import Address
from coterie.runtime.in_memory import MemoryHost, MemoryNetwork
from coterie.runtime.settings import TransportSettings
from coterie.runtime.transport import TcpTransport
from coterie.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.runtime.port import Transport

FRAME_BYTES_MAX = 1 << 20
QUEUE_BYTES_MAX = 4 << 20
SETTINGS = TransportSettings(
    queue_bytes_max=QUEUE_BYTES_MAX,
    retry_max=milliseconds(50),
    # The ends of these tests send no heartbeats, so silence means nothing here.
    silence_max=milliseconds(60_000),
)


class End:
    """A process as a transport sees it."""

    def __init__(self, id: str, incarnation: int) -> None:
        self.id = id
        self.incarnation = incarnation
        self.frames: list[Frame] = []
        self.refused: list[str] = []
        self.transport: Transport

    def frame_arrived(self, frame: Frame, *, alone: bool = False) -> None:  # noqa: ARG002 -- as drivers have it
        self.frames.append(frame)

    def peer_refused(self, peer: str) -> None:
        self.refused.append(peer)

    def frame(self, *messages: bytes, group: str = "g") -> bytes:
        """A frame of this process; each message becomes one of its envelopes."""
        raws = [Envelope(group, 1, [encode_text(message)]) for message in messages]
        return encode_frame(Frame(self.id, self.incarnation, None, raws))

    def send(self, destination: str, *messages: bytes) -> None:
        self.transport.send(destination, self.frame(*messages))
        self.transport.flush()

    def heard(self, sender: str) -> list[bytes]:
        """All messages that came from a process, in order."""
        return [
            decode_text(envelope.messages[0])
            for frame in self.frames
            if frame.process == sender
            for envelope in frame.envelopes
        ]

    def counter(self, name: str) -> int:
        return self.transport.counters.get(f"transport.{name}", 0)


class World(Protocol):
    """Ends and links."""

    ends: dict[str, End]

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def start(self, id: str, incarnation: int = 1) -> End:
        """Start a process; its links come up by and by."""

    async def stop(self, id: str) -> None:
        """End a process without a word."""

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until *condition* holds; fail if it never does."""

    async def pass_time(self) -> None:
        """Let a moment pass in which frames that can arrive do."""

    async def linked(self, one: str, other: str) -> None:
        """Let time pass until frames get through both ways."""

    def cut(self, one: str, other: str) -> None:
        """Have a link lose everything."""

    def hold(self, one: str, other: str) -> None:
        """Have a link carry nothing for a while."""

    def mend(self, one: str, other: str) -> None:
        """End cutting and holding."""

    async def inject(self, id: str, data: bytes) -> None:
        """Have a stranger send bytes to a process."""


# ---- simulated


class SimulatedTransport:
    """The simulated network behind the transport port."""

    def __init__(self, world: SimulatedWorld, id: str) -> None:
        self.counters: dict[str, int] = {}
        self._world = world
        self._id = id
        self._pending: list[tuple[str, bytes]] = []

    def send(self, destination: str, frame: bytes) -> None:
        self.multicast((destination,), frame)

    def multicast(self, destinations: Sequence[str], frame: bytes) -> None:
        if len(frame) > FRAME_BYTES_MAX:
            raise FrameError("size", f"{len(frame)} bytes are over the limit {FRAME_BYTES_MAX}")
        for destination in destinations:
            if destination in self._world.names:
                self._pending.append((destination, frame))
            else:
                self.count("frames_to_unknown_peer")

    def flush(self) -> None:
        network = self._world.simulation.network
        for destination, frame in self._pending:
            held = network._held.get((self._id, destination), ())
            if sum(map(len, held)) > QUEUE_BYTES_MAX:
                self.count("frames_dropped_queue_full")
            else:
                network.carry(self._id, destination, frame, self._world.arrive)
        self._pending.clear()

    def count(self, name: str) -> None:
        self.counters[f"transport.{name}"] = self.counters.get(f"transport.{name}", 0) + 1


class SimulatedWorld:
    """Virtual time and a network without chance, so that frames keep their order."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.ends: dict[str, End] = {}
        self.simulation = Simulation(seed=1, stack="VSYNC")
        self.simulation.network.delay_spread = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def start(self, id: str, incarnation: int = 1) -> End:
        end = self.ends[id] = End(id, incarnation)
        end.transport = SimulatedTransport(self, id)
        return end

    async def stop(self, id: str) -> None:
        del self.ends[id]

    async def until(self, condition: Callable[[], bool]) -> None:
        came = self.simulation.run_until(condition, within=milliseconds(10_000))
        assert came, "it never happened"

    async def pass_time(self) -> None:
        self.simulation.run(milliseconds(1))

    async def linked(self, one: str, other: str) -> None:
        pass

    def cut(self, one: str, other: str) -> None:
        self.simulation.network.cut([(one, other), (other, one)])

    def hold(self, one: str, other: str) -> None:
        self.simulation.network.clog([(one, other), (other, one)])

    def mend(self, one: str, other: str) -> None:
        links = [(one, other), (other, one)]
        self.simulation.network.mend(links)
        self.simulation.network.unclog(links, self.arrive)

    async def inject(self, id: str, data: bytes) -> None:
        self.arrive("stranger", id, data, 1)

    def arrive(self, source: str, destination: str, data: bytes, delay: int) -> None:
        del source
        self.simulation.at(delay, self._take, destination, data)

    def _take(self, destination: str, data: bytes) -> None:
        end = self.ends.get(destination)
        if end is None:
            return
        try:
            frame = decode_frame(data, frame_bytes_max=FRAME_BYTES_MAX)
        except FrameError as error:
            assert isinstance(end.transport, SimulatedTransport)
            end.transport.count(f"frames_dropped_{error.kind}")
        else:
            end.frame_arrived(frame)


# ---- real


class TcpWorld:
    """Loopback, with a proxy for each direction in which a connection can be opened."""

    def __init__(self, *names: str, settings: TransportSettings = SETTINGS) -> None:
        self.names = names
        self.ends: dict[str, End] = {}
        self._settings = settings
        self._proxies: dict[tuple[str, str], Proxy] = {}
        self._stack = AsyncExitStack()
        self._guests: list[asyncio.StreamWriter] = []
        self._open: dict[str, tuple[TcpTransport, asyncio.TaskGroup]] = {}

    async def __aenter__(self) -> Self:
        for pair in permutations(self.names, 2):
            self._proxies[pair] = await self._stack.enter_async_context(Proxy())
        return self

    async def __aexit__(self, *_: object) -> None:
        for id in list(self._open):
            await self.stop(id)
        await self._stack.aclose()
        await asyncio.sleep(0)  # the loop closes sockets in its next round

    async def start(self, id: str, incarnation: int = 1) -> End:
        end = self.ends[id] = End(id, incarnation)
        peers = [peer for peer in self.names if peer != id]
        transport = TcpTransport(
            id=id,
            incarnation=incarnation,
            cluster="test",
            listen=Address("127.0.0.1", 0),
            peers={peer: Address("127.0.0.1", self._proxies[id, peer].port) for peer in peers},
            receiver=end,
            frame_bytes_max=FRAME_BYTES_MAX,
            settings=self._settings,
        )
        tasks = asyncio.TaskGroup()
        await tasks.__aenter__()
        await transport.open(tasks)
        self._open[id] = (transport, tasks)
        end.transport = transport
        for peer in peers:
            await self._proxies[peer, id].aim(transport.address.port)
        return end

    async def stop(self, id: str) -> None:
        transport, tasks = self._open.pop(id)
        for peer in self.names:
            if peer != id:
                await self._proxies[peer, id].aim(None)
        await transport.close()
        await tasks.__aexit__(None, None, None)

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"it never happened; {self._describe()}"
            await asyncio.sleep(0.002)

    async def pass_time(self) -> None:
        await asyncio.sleep(0)

    async def linked(self, one: str, other: str) -> None:
        ends = [self._open[id][0] for id in (one, other)]
        await self.until(lambda: ends[0].is_up(other) and ends[1].is_up(one))

    def cut(self, one: str, other: str) -> None:
        self._proxies[one, other].cut()
        self._proxies[other, one].cut()

    def hold(self, one: str, other: str) -> None:
        self._proxies[one, other].hold()
        self._proxies[other, one].hold()

    def mend(self, one: str, other: str) -> None:
        self._proxies[one, other].mend()
        self._proxies[other, one].mend()

    async def inject(self, id: str, data: bytes) -> None:
        reader, writer = await self.connect(self._open[id][0].address)
        writer.write(data)
        with suppress(ConnectionResetError):
            await reader.read()  # until we are sent away

    async def connect(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a bare connection, which ends with the world at the latest."""
        reader, writer = await asyncio.open_connection(*address)
        self._stack.callback(writer.transport.abort)
        self._guests.append(writer)
        return reader, writer

    def _describe(self) -> str:
        return "; ".join(f"{end.id}: {end.transport.counters}" for end in self.ends.values())


# ---- in memory


class MemoryWorld:
    """The same transport over streams in memory."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.ends: dict[str, End] = {}
        self.network = MemoryNetwork()
        self._open: dict[str, tuple[MemoryHost, TcpTransport, asyncio.TaskGroup]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.network.heal()
        for id in list(self._open):
            await self.stop(id)

    async def start(self, id: str, incarnation: int = 1) -> End:
        end = self.ends[id] = End(id, incarnation)
        host = self.network.host(id)
        transport = TcpTransport(
            id=id,
            incarnation=incarnation,
            cluster="test",
            listen=Address(id, 1),
            peers={peer: Address(peer, 1) for peer in self.names if peer != id},
            receiver=end,
            frame_bytes_max=FRAME_BYTES_MAX,
            settings=SETTINGS,
            network=host,
        )
        tasks = asyncio.TaskGroup()
        await tasks.__aenter__()
        await transport.open(tasks)
        self._open[id] = (host, transport, tasks)
        end.transport = transport
        return end

    async def stop(self, id: str) -> None:
        host, transport, tasks = self._open.pop(id)
        host.crash()
        await transport.close()
        await tasks.__aexit__(None, None, None)

    async def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "it never happened"
            await asyncio.sleep(0.002)

    async def pass_time(self) -> None:
        await asyncio.sleep(0)

    async def linked(self, one: str, other: str) -> None:
        ends = [self._open[id][1] for id in (one, other)]
        await self.until(lambda: ends[0].is_up(other) and ends[1].is_up(one))

    def cut(self, one: str, other: str) -> None:
        self.network.cut(one, other)
        self.network.reset(one, other)

    def hold(self, one: str, other: str) -> None:
        self.network.cut(one, other)

    def mend(self, one: str, other: str) -> None:
        del one, other
        self.network.heal()

    async def inject(self, id: str, data: bytes) -> None:
        stranger = await self.network.host("stranger").connect(Stranger, Address(id, 1))
        stranger.transport.write(data)
        await stranger.ended  # until we are sent away


class Stranger(asyncio.Protocol):
    """Listens to nothing."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(exc)


def encode_text(message: bytes) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(message))


def decode_text(raw: msgspec.Raw) -> bytes:
    return msgspec.msgpack.decode(raw, type=bytes)
