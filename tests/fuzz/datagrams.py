"""Hostile datagrams: messages of clients that know nothing of replication, wrong inside.

Real hosts and a real port for datagrams, in simulated time and without sockets: what would be sent
is kept. Whatever arrives, from anybody, nothing raises in a turn or outside one, what waits is
bounded, and a polite client of the same port is answered.
"""

from __future__ import annotations

import json
import time
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec
from tests.fuzz.control import json_of
from tests.fuzz.mutations import NUMBERS, mutate
from tests.fuzz.tally import Tally

from coterie.kernel.clock import milliseconds, seconds
from coterie.protocol.datagrams import (
    HEAD,
    MAGIC,
    STREAM_BYTES_MAX,
    MessageKind,
    ReplyStatus,
    decode_message,
)
from coterie.runtime.address import Address
from coterie.service import datagrams
from coterie.service.datagrams import DatagramPort
from coterie.simulation.engines.servers.trial import ServerSimulation
from coterie.simulation.engines.stack.clients import SimulatedObject

if TYPE_CHECKING:
    from coterie.objects import Answer, ObjectHost
    from coterie.simulation.engines.stack.host import Host

STACK = "ONUS:SAFE:DYNSEQ:PVSYNC"
POLITE = 2**40
POLITE_EVERY = 50
PATIENCE = seconds(20)
WAITING_MAX = datagrams.CONNECTIONS_MAX * datagrams.CONNECTIONS_MAX


class _Sent:
    """The socket of a port: keeps what leaves."""

    def __init__(self) -> None:
        self.replies: dict[tuple[int, int], ReplyStatus] = {}

    def is_closing(self) -> bool:
        return False

    def sendto(self, data: bytes, address: tuple[str, int]) -> None:
        host, port = address
        assert host, "an address is a host and a port"
        assert 0 < port < 1 << 16, "an address is a host and a port"
        reply = decode_message(data)
        self.replies[reply.client, reply.number] = ReplyStatus(reply.status)


class _Stream:
    """The other end of a connection."""

    def __init__(self) -> None:
        self.is_over = False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        del name
        return ("127.0.0.1", 9)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_over

    def write(self, data: bytes) -> None:
        assert len(data) <= STREAM_BYTES_MAX + 4

    def close(self) -> None:
        self.is_over = True

    abort = close


class Connected(NamedTuple):
    """A connection to a port."""

    made: Any
    stream: _Stream


class Server:
    """One replica, and its port for datagrams."""

    def __init__(self, host: Host) -> None:
        self.sent = _Sent()
        self.host = host
        self.port = DatagramPort(Address("127.0.0.1", 7), None, host.id)
        self.port._own = cast("Any", self.sent)
        replica = host.replica
        assert replica is not None
        self.context = replica.context
        self.port.hosted = cast("Any", SimpleNamespace(ask=host.ask, replica=replica))
        found = host.ledger
        assert isinstance(found, SimulatedObject)
        found.answer = self._answer  # type: ignore[method-assign]
        found.engine_host.front.answer = self._answer  # type: ignore[method-assign]
        self.connections: list[Connected] = []

    def _answer(self, answers: list[Answer]) -> None:
        for answer in answers:
            if answer.reply_to:
                self.port.answer(answer)

    def connect(self) -> Connected:
        """Connect to the port."""
        made, stream = datagrams._Connection(self.port), _Stream()
        made.connection_made(cast("Any", stream))
        return Connected(made, stream)

    def say(self, data: bytes, random: Random) -> None:
        """Say something by a datagram, the multicast, or a connection."""
        kind = random.random()
        if kind < 0.6:
            self.port.take(
                data,
                f"10.0.0.{random.randrange(9)}:{random.randrange(1, 1 << 16)}",
                is_multicast=kind < 0.3,
            )
            return
        self.connections = [each for each in self.connections if not each[1].is_over]
        if not self.connections or (kind > 0.97 and len(self.connections) < 300):
            self.connections.append(self.connect())
        made, stream = random.choice(self.connections)
        size = random.choice(NUMBERS) if random.random() < 0.02 else len(data)
        made.data_received((size & 0xFFFFFFFF).to_bytes(4, "big") + data)
        if stream.is_over or random.random() < 0.02:
            stream.close()
            made.connection_lost(None)


PLACES = ("zz", "a:b", ":", ":1", "10.0.0.1:99999999", "10.0.0.1:-1", "\x00:1", "10.0.0.1:0", "é:7")
"""Where a peer says that answers go, and nothing can."""


def lie(server: Server, random: Random) -> None:
    """Take a request as a peer passes it on that lies about where it came from."""
    place, number = random.choice(PLACES), random.randrange(1, 60)
    arguments = msgspec.msgpack.encode([1])
    server.host.ask(lambda host: _take(host, number, arguments, place))


def _take(host: ObjectHost, number: int, arguments: bytes, place: str) -> None:
    host.request(number % 5 + 4, number, "add", arguments, place)


def wrong_message(random: Random) -> bytes:
    """Give a message that is nearly a request."""
    client, number = random.choice((1, 2, 3, random.getrandbits(63))), random.randrange(1, 60)
    call: object = random.choice((["add", 1], ["total"], ["add", -3], ["nothing", [], {}]))
    if random.random() < 0.7:
        call = mutate(call, random, changes=random.choice((1, 1, 2)))
    body = json_of(call) if random.random() < 0.9 else random.randbytes(random.randrange(30))
    kind, status = random.choice((1, 1, 1, 1, 3, 4, 2, 9)), random.choice((0, 0, 7))
    if random.random() < 0.15:
        client = random.choice(NUMBERS) & 0xFFFFFFFFFFFFFFFF
    if random.random() < 0.15:
        number = random.choice(NUMBERS) & 0xFFFFFFFFFFFFFFFF
    data = HEAD.pack(MAGIC, kind, status, client, number) + body
    if random.random() < 0.1:
        at = random.randrange(len(data) + 1)
        return random.choice((data[:at], data[at:], data + data, b""))
    return data


def fuzz(seed: int, inputs: int) -> Tally:
    """Say wrong things to the ports of a group."""
    random = Random(f"{seed}/datagrams")  # noqa: S311 -- reproducible on purpose
    tally = Tally()
    simulation = ServerSimulation(seed=seed, stack=STACK, has_object=True, object_kind="counter")
    group = simulation.group("a", "b", "c")
    assert simulation.run_until(group.is_whole, within=PATIENCE)
    servers = [Server(host) for host in group]
    clock = SimpleNamespace(monotonic=lambda: simulation.now / seconds(1))
    datagrams_time, datagrams.time = datagrams.time, clock  # type: ignore[assignment, attr-defined]
    try:
        for number in range(1, inputs + 1):
            server = random.choice(servers)
            if random.random() < 0.03:
                lie(server, random)
            else:
                server.say(wrong_message(random), random)
            if number % 8 == 0:
                simulation.run(milliseconds(1))
                for server in servers:
                    server.port.turn_ended()
            if number % POLITE_EVERY == 0:
                tally.latencies.append(_ask_politely(simulation, servers, number))
                for server in servers:
                    server.sent.replies.clear()
                    assert len(server.port._waiting) <= WAITING_MAX
            tally.inputs += 1
    finally:
        datagrams.time = datagrams_time  # type: ignore[attr-defined]
    tally.outcomes["taken, or passed over"] = inputs
    return tally


def _ask_politely(simulation: ServerSimulation, servers: list[Server], number: int) -> float:
    """Send a request as the service's own clients do; give how long the answer took."""
    begun, work = simulation.now, time.process_time()
    request = (
        HEAD.pack(MAGIC, MessageKind.REQUEST, 0, POLITE, number) + json.dumps(["add", 1]).encode()
    )

    def is_answered() -> bool:
        for server in servers:
            server.port.turn_ended()
        return any((POLITE, number) in server.sent.replies for server in servers)

    for server in servers:
        server.port.take(request, "10.1.1.1:9", is_multicast=True)
    assert simulation.run_until(is_answered, within=PATIENCE), "a polite client is not answered"
    status = next(
        s.sent.replies[POLITE, number] for s in servers if (POLITE, number) in s.sent.replies
    )
    assert status is ReplyStatus.DONE
    return (simulation.now - begun) / seconds(1) + time.process_time() - work
