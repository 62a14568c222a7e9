"""The gateway: the edge as a process of its own, which holds the clients' connections.

It listens where the program listens. What a client sends is put on record, then given to all
replicas; what the program writes is held back until the orders that it rests on are on record
(`coterie.llft.edge`). Whoever leads may die: the clients notice nothing but a pause.

Its own death breaks their connections. Then all of them end for the program, in order; what was
released stays released, and the ports are opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sys
from typing import TYPE_CHECKING, cast

from coterie.agents.app import (
    ANSWER_BYTES,
    LISTENING,
    SIGNALS,
    ClientName,
    DialledName,
    number_of,
)
from coterie.agents.edge_memory import GatewayMemory, WholeMemory
from coterie.agents.living import LlftLife
from coterie.journal.engines.llft import LLFT
from coterie.kernel.claims import OrderKind
from coterie.kernel.errors import BadMessage
from coterie.kernel.layers import Layer
from coterie.kernel.records import OrdersFreed
from coterie.kernel.replica import Replica
from coterie.llft.connections import EDGE, EdgeLine
from coterie.llft.edge import Edge
from coterie.program.wire import WireKind
from coterie.runtime.descriptors import FOR_CLIENTS, descriptors_for

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from coterie.agents.deployment import ProgramDeployment
    from coterie.journal.disk import FileDisk
    from coterie.journal.engines.llft import LlftFound
    from coterie.kernel.claims import Order
    from coterie.kernel.layers import Context
    from coterie.kernel.views import Member
    from coterie.llft.memory import EdgeMemory
    from coterie.llft.messages import CarryBytes

_WAITING_MAX = 64 << 10
"""So much of a client's input may wait here before it is read no more."""
BACKLOG_MAX = 100
"""So many are let in before any of them is looked at; as many descriptors are kept free of clients
(`coterie.runtime.descriptors`)."""
REOPEN_SECONDS = 0.5
"""How often a port of an earlier life is tried again while another process has it."""
_VALUE_BYTES_MAX = 20
_CONN_FIRST = 16
OWN = ("1", "2", SIGNALS)
"""Standard output, standard error, signals: connections that are there from the beginning."""


class GatewayEdge(Edge):
    """The engine's edge, with what real programs need beside it."""

    def __init__(
        self,
        context: Context,
        *,
        memory: EdgeMemory,
        is_whole: bool,
        **parts: Any,  # noqa: ANN401 -- what the engine's has
    ) -> None:
        self._consumed: dict[str, int] = {}
        """How much of the input of connections of this life the program has read."""
        self._is_whole = is_whole
        super().__init__(context, memory=memory, **parts)

    def start(self) -> None:
        """Begin; only clients' connections have ended with the last life."""
        if self._is_whole:
            self._report(OrdersFreed, orders=0, inputs=0, delivered={})
        for conn, line in self.lines.items():
            line.is_client = any(name.parse(conn) for name in (ClientName, DialledName))
        for conn in OWN:
            self._own(conn)
        super().start()

    def _own(self, conn: str) -> None:
        """See to it that a connection is there that no client has opened."""
        if conn not in self.lines:
            line = self.lines[conn] = EdgeLine(None)
            self._changed(conn, line)

    def arrive(self, conn: str) -> None:
        """Take a client in, or what the program asked for; it learns that in order."""
        if conn not in self.lines:
            self.open(conn)
        if self.lines[conn].is_open:
            self._input(conn, b"")

    def note(self, conn: str, data: bytes) -> None:
        """Tell the program something, in order with all else that it is told."""
        self._own(conn)
        self._input(conn, data)

    def took(self, conn: str, count: int) -> None:
        """Learn that a client has taken more; whoever leads may wait for that."""
        super().took(conn, count)
        self._send(self.replicas, self._reflected([]))

    def _input_end(self, conn: str, *, is_reset: bool = False) -> None:
        line = self.lines[conn]
        if line.end_number and is_reset and not line.is_closing:
            # It had only said that it writes no more; now it does not read, either.
            self._input(conn, b"", is_end=True, is_reset=True)
            line.end_number = self.last_input
        super()._input_end(conn, is_reset=is_reset)

    def _stored(self, order: Order) -> None:
        self._count(order)
        super()._stored(order)

    def _count(self, order: Order) -> None:
        if order.kind is OrderKind.TOOK:
            self._consumed[order.conn] = self._consumed.get(order.conn, 0) + order.value
        elif order.kind is OrderKind.CLOSED:
            self._consumed.pop(order.conn, None)

    def room(self, conn: str) -> int:
        """Say how much input there is room for: the program has read what stored orders say."""
        line = self.lines.get(conn)
        received = 0 if line is None else line.received
        return self.settings.window - (received - self._consumed.get(conn, 0))

    def _on_carry(self, sender: Member, message: CarryBytes) -> None:
        """Refuse what edges of other programs say: real programs meet over real connections."""
        del sender, message
        raise BadMessage("bytes from program to program")

    def _credits(self) -> dict[str, int]:
        return {conn: each.delivered for conn, each in self.lines.items() if not each.is_closing}


class _Client(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, gateway: Gateway, listener: int, conn: str = "") -> None:
        self._gateway, self._listener = gateway, listener
        self.conn = conn
        """Its name; one that the program asked for has it from the beginning."""
        self.input = bytearray()
        self.has_ended = False
        self.held = 0
        """Output that is written and not taken yet."""
        self._is_full = False
        self._is_turned_away = False
        self._is_tls = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=0)
        if not self.conn and _is_last(self.transport):
            self._is_turned_away = True
            self._gateway.turned_away += 1
            self.transport.abort()
            return
        self._is_tls = self.transport.get_extra_info("sslcontext") is not None
        self._gateway.arrived(self, self._listener)

    def data_received(self, data: bytes) -> None:
        self.input += data
        if len(self.input) > _WAITING_MAX:
            self.transport.pause_reading()
        self._gateway.driver.call(self.pass_on)

    def eof_received(self) -> bool:
        self.has_ended = True
        self._gateway.driver.call(self.pass_on)
        return not self._is_tls  # which has no half of a connection

    def connection_lost(self, error: Exception | None) -> None:
        del error
        if not self._is_turned_away:
            self._gateway.lost(self)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        count, self.held = self.held, 0
        if count:
            self._gateway.driver.call(lambda: self._gateway.engine.took(self.conn, count))

    def pass_on(self) -> None:
        """Give the edge what it has room for; called inside a turn."""
        engine = self._gateway.engine
        if self.input:
            taken = engine.take(self.conn, bytes(self.input))
            del self.input[:taken]
        if self.input:
            self._gateway.blocked.add(self)
            return
        self._gateway.blocked.discard(self)
        if not self.transport.is_closing():
            self.transport.resume_reading()
        if self.has_ended:
            self.has_ended = False
            engine.finish(self.conn)

    def write(self, data: bytes) -> int:
        """Note that there is output; say how much of it counts as taken at once."""
        if self._is_full:
            self.held += len(data)
            return 0
        return len(data)


class Gateway(LlftLife):
    """The edge of a program, its clients, its ports and its standard output."""

    memory_kind = GatewayMemory

    def __init__(
        self,
        deployment: ProgramDeployment,
        say: Callable[[str, dict[str, object]], None],
        *,
        is_whole: bool = True,
    ) -> None:
        super().__init__(deployment, "edge", deployment.name + EDGE)
        self._tls = deployment.tls.context() if deployment.tls is not None else None
        self.memory_kind = WholeMemory if is_whole else GatewayMemory
        self._say = say
        self.engine: GatewayEdge
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The status with which the program has exited."""
        self._clients: dict[str, _Client] = {}
        self._servers: dict[int, asyncio.Server] = {}
        self._wanted: set[int] = set()
        """Listeners that the program has not closed."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_conn = _CONN_FIRST
        self._effects: list[Callable[[], None]] = []
        self.blocked: set[_Client] = set()
        self.turned_away = 0
        """How many clients were, as hardly any descriptors were left."""

    def recover(self, disk: FileDisk) -> LlftFound:
        """Read what earlier lives left; all of it, if this one is to be whole."""
        if self.memory_kind is WholeMemory:
            return LLFT.recover_whole(disk, self.group, self.id)
        return super().recover(disk)

    def build(self, context: Context, memory: GatewayMemory) -> Replica:
        """Build the edge; the ports that the program listens at are opened again."""
        deployment = self.deployment
        self.engine = GatewayEdge(
            context,
            program=deployment.name,
            replicas=list(deployment.replicas),
            roster=deployment.roster,
            memory=memory,
            is_whole=isinstance(memory, WholeMemory),
            outside=self,
            calls={},
            settings=deployment.settings,
        )
        names = [name for conn in memory.lines if (name := ClientName.parse(conn)) is not None]
        self._last_conn = max([_CONN_FIRST, *(name.number for name in names)])
        self._ports = {
            conn: int.from_bytes(data, signed=True) for conn, data in memory.answers.items()
        }
        for order in memory.told.values():
            self.told(order)
        return Replica(context, Layer(context), [self.engine], self.engine)

    def close(self) -> None:
        """Close the ports."""
        for server in self._servers.values():
            server.close()

    # ---- what the engine calls, inside a turn; its effects come after it

    def wrote(self, conn: str, data: bytes) -> int:
        """Have bytes written."""
        if conn in {"1", "2"}:
            stream = sys.stdout.buffer if conn == "1" else sys.stderr.buffer

            def show() -> None:
                with contextlib.suppress(OSError):  # whoever read it is gone
                    stream.write(data)
                    stream.flush()

            self._effects.append(show)
            return len(data)
        client = self._clients.get(conn)
        if client is None:
            return len(data)
        self._effects.append(lambda: client.transport.write(data))
        return client.write(data)

    def told(self, order: Order) -> None:
        """Do what the program asks of its edge."""
        # Programs say such things by their agents; a damaged one could say anything.
        word, _, rest = order.data.partition(b" ")
        words, number = rest.decode(errors="replace"), number_of(order.conn)
        client = self._clients.get(order.conn)
        try:
            value = int(word[:_VALUE_BYTES_MAX])
        except ValueError:
            self._say("made no sense", {"kind": order.value, "connection": order.conn})
            return
        match order.value:
            case WireKind.LISTEN if number is not None:
                self._effects.append(lambda: self._later(self._open(number, value, words)))
            case WireKind.CONNECT if self._is_new(order.conn):
                self.engine.open(order.conn)
                self._effects.append(lambda: self._later(self._dial(order.conn)))
            case WireKind.SHUT if client is not None:
                self._effects.append(lambda: _shut(client.transport))
            case WireKind.CLOSED:
                self._effects.append(lambda: self._deafen(order.conn))
            case WireKind.EXITED:
                self._effects.append(lambda: self._exit(value))
            case WireKind.SAID | WireKind.REFUSED:
                fields: dict[str, object] = {"text": words}
                self._effects.append(lambda: self._say("said", fields))
            case _:
                pass

    def _is_new(self, conn: str) -> bool:
        return conn not in self.engine.lines and DialledName.parse(conn) is not None

    def closed(self, conn: str) -> None:
        """Have a client find its connection closed, behind everything that was written."""
        client = self._clients.get(conn)
        if client is not None:
            self._effects.append(client.transport.close)

    def broke(self, conn: str) -> None:
        """Break a connection."""
        client = self._clients.get(conn)
        if client is not None:
            self._effects.append(client.transport.abort)

    def turn_ended(self) -> None:
        """Carry out what the turn has brought."""
        effects, self._effects = self._effects, []
        for each in effects:
            each()
        if any(self.engine.room(client.conn) > 0 for client in self.blocked):
            self.driver.call(self._pass_on)

    def _pass_on(self) -> None:
        for client in list(self.blocked):
            client.pass_on()

    def _exit(self, status: int) -> None:
        if not self.ended.done():
            self.ended.set_result(status)

    # ---- clients

    def arrived(self, client: _Client, listener: int) -> None:
        """Take a client in, or a connection that the program asked for."""
        if not client.conn:
            self._last_conn += 1
            peer = client.transport.get_extra_info("peername") or ("", 0)
            client.conn = str(ClientName(self._last_conn, listener, f"{peer[0]} {peer[1]}"))
        self._clients[client.conn] = client
        self.driver.call(lambda: self.engine.arrive(client.conn))

    def lost(self, client: _Client) -> None:
        """Let a client go."""
        self.driver.call(lambda: self._forget(client))

    def _forget(self, client: _Client) -> None:
        self.blocked.discard(client)
        self._clients.pop(client.conn, None)
        self.engine.end(client.conn, is_reset=True)

    def signal(self, number: int) -> None:
        """Send the program a signal, in its place in the order."""
        self.driver.call(lambda: self.engine.note(SIGNALS, bytes([number])))

    # ---- ports

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, conn: str) -> None:
        """Connect to the outside for the program, if whoever runs it allows that."""
        name = DialledName.parse(conn)
        assert name is not None, "agents name what programs ask for"
        try:
            if not await self._may_dial(name):
                where = f"{name.host}:{name.port}"
                text = f"the program connects to {where}: allow it by --allow-connect {where}"
                self._say("refused", {"text": text})
                raise ConnectionRefusedError
            _, client = await asyncio.get_running_loop().create_connection(
                lambda: _Client(self, 0, conn), name.host, name.port
            )
            line = self.engine.lines.get(conn)
            if line is None or not line.is_open:
                client.transport.close()  # the program has closed it meanwhile
        except (OSError, ValueError, OverflowError):  # also a host or a port that cannot be
            self.driver.call(lambda: self.engine.end(conn, is_reset=True))

    async def _may_dial(self, name: DialledName) -> bool:
        """Say whether an address is allowed, by its name or as what a name stands for."""
        for each in self.deployment.allow_connect:
            host, _, port = each.rpartition(":")
            if int(port) != name.port:
                continue
            if host == name.host:
                return True
            with contextlib.suppress(OSError):
                rows = await asyncio.get_running_loop().getaddrinfo(host, name.port)
                if any(row[4][0] == name.host for row in rows):
                    return True
        return False

    async def _open(self, listener: int, port: int, words: str) -> None:
        backlog, _, host = words.partition(" ")
        known, has_told = self._known_port(listener), False
        self._wanted.add(listener)
        while listener not in self._servers:
            try:
                server = await asyncio.get_running_loop().create_server(
                    lambda: _Client(self, listener),
                    host or None,
                    known or port,
                    backlog=min(max(1, int(backlog)), BACKLOG_MAX),
                    ssl=self._tls,
                )
            except OSError as error:
                if not has_told:
                    self._say("no port", {"port": known or port, "reason": str(error.strerror)})
                if known and error.errno == errno.EADDRINUSE:
                    # The program has it by its own account, so it cannot be told that it has not.
                    has_told = True
                    await asyncio.sleep(REOPEN_SECONDS)
                    if listener in self._wanted:
                        continue
                    return
                number = error.errno if (error.errno or 0) > 0 else errno.EADDRNOTAVAIL
                self._answer(listener, -int(number or errno.EADDRINUSE))
                return
            except (ValueError, OverflowError) as error:  # no such host, port or backlog can be
                self._answer(listener, -errno.EINVAL)
                self._say("no port", {"port": known or port, "reason": str(error)})
                return
            self._servers[listener] = server
        port = self._servers[listener].sockets[0].getsockname()[1]
        self._say("listens", {"port": port})
        self._answer(listener, port)

    def _known_port(self, listener: int) -> int:
        """Give the port that an earlier life of this edge had opened."""
        return max(0, self._ports.get(f"{LISTENING}{listener}", 0))

    def _answer(self, listener: int, value: int) -> None:
        data = value.to_bytes(ANSWER_BYTES, signed=True)
        self.driver.call(lambda: self.engine.note(f"{LISTENING}{listener}", data))

    def _deafen(self, conn: str) -> None:
        number = number_of(conn)
        if number is None:
            return
        self._wanted.discard(number)
        server = self._servers.pop(number, None)
        if server is not None:
            server.close()

    # ---- for `status`

    def seen(self) -> dict[str, object]:
        """Say how the edge is."""
        engine = self.engine
        return {
            "orders": engine.log.end,
            "held": engine.log.end - engine.log.base,
            "inputs": len(engine.inputs),
            "leader": engine.fence.life.id,
            "claim": str(engine.fence),
            "guard": str(engine.settings.guard),
            "clients": len(self._clients),
            "turned_away": self.turned_away,
            "ports": [server.sockets[0].getsockname()[1] for server in self._servers.values()],
            "roster": [
                {"id": life.member.id, "whole": life.is_whole} for life in engine.roster.lives
            ],
        }


def _is_last(transport: asyncio.Transport) -> bool:
    """Say whether a client would take one of the last descriptors: they are the journal's."""
    found = transport.get_extra_info("socket")
    return found is not None and found.fileno() >= descriptors_for(FOR_CLIENTS)


def _shut(transport: asyncio.Transport) -> None:
    with contextlib.suppress(OSError):
        if not transport.is_closing() and transport.can_write_eof():
            transport.write_eof()
