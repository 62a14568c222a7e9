"""The way in for clients that know nothing of replication: datagrams, and connections beside them.

Three sockets, one format (`coterie.protocol.datagrams`). What comes to the *multicast* address
comes to all replicas, unless it is lost. What comes to this replica's own address, as a *datagram*
or on a *connection*, came here alone, so the layer ONUS sends it on to the others. Answers to
datagrams go out from this replica's own address; that of a connection stays on it.

Nothing that arrives raises: it is counted and dropped (`datagrams.malformed`, `.limited`), or
answered with a sentence where it says whom to answer. There is no authentication here, so the
address must be one that only those reach who may call (`docs/operate/security.md`).

Replies leave when the turn has ended, as all answers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
import time
from typing import TYPE_CHECKING, Self, cast

from coterie.kernel.errors import CoterieError, Refused
from coterie.objects.execution.outcomes import Done, Failed, NotTaken
from coterie.protocol.datagrams import (
    REPLY_BYTES_MAX,
    REQUEST_BYTES_MAX,
    STREAM_BYTES_MAX,
    BadDatagram,
    Message,
    MessageKind,
    ReplyStatus,
    decode_call,
    decode_message,
    reply_to,
    result_body,
)
from coterie.runtime.events import EventLogger
from coterie.service.rates import TokenBucket

if TYPE_CHECKING:
    from coterie.objects import Answer, ObjectHost
    from coterie.runtime.address import Address
    from coterie.service.engines.stack import HostedObject

RATE = 20_000
"""How many messages a second are taken in all."""
SOURCE_RATE = 5_000
"""How many of them from one address."""
SOURCES_MAX = 1_024
"""Of how many addresses it is known how much they sent; the rest share what is left."""
CONNECTIONS_MAX = 256
BUFFER_BYTES = 1 << 20
_LENGTH = struct.Struct("!I")
_CONNECTION = "connection"


class DatagramPort:
    """Takes requests for one group at one replica; `async with` opens and closes it."""

    def __init__(self, listen: Address, multicast: Address | None, replica: str) -> None:
        self._listen = listen
        self._multicast = multicast
        self._replica = replica
        self._events = EventLogger(datagrams=replica)
        self.hosted: HostedObject | None = None
        self._own: asyncio.DatagramTransport | None = None
        self._all = TokenBucket(RATE)
        self._sources: dict[str, TokenBucket] = {}
        self._replies: list[tuple[str, Message, ReplyStatus, object | bytes]] = []
        self._connections: dict[_Connection, None] = {}
        self._waiting: dict[tuple[int, int], _Connection] = {}
        self._closing = contextlib.AsyncExitStack()

    # ---- opening and closing

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        try:
            own = _bound(self._listen, shared=False)
            self._own, _ = await loop.create_datagram_endpoint(
                lambda: _Datagrams(self, is_multicast=False), sock=own
            )
            self._closing.callback(self._own.close)
            if self._multicast is not None:
                joined = _joined(self._multicast, self._listen)
                transport, _ = await loop.create_datagram_endpoint(
                    lambda: _Datagrams(self, is_multicast=True), sock=joined
                )
                self._closing.callback(transport.close)
            server = await loop.create_server(lambda: _Connection(self), *self._listen)
        except OSError as error:
            await self._closing.aclose()
            reason = error.strerror or str(error)
            raise CoterieError(f"cannot take datagrams at {self._listen}: {reason}") from error
        self._closing.callback(server.close)
        return self

    async def __aexit__(self, *error: object) -> None:
        for connection in list(self._connections):
            connection.close()
        await self._closing.aclose()

    def count(self, counter: str) -> None:
        """Count something, among the figures of the replica."""
        if self.hosted is not None:
            self.hosted.replica.context.count(counter)

    def refuse(self, reason: str, counter: str, **fields: str | int) -> None:
        """Count what is dropped, and log it now and then."""
        self.count(counter)
        self._events.warn(reason, counter="", **fields)

    # ---- what arrives

    def take(self, data: bytes, source: str, *, is_multicast: bool) -> None:
        """Take a datagram."""
        if len(data) > REQUEST_BYTES_MAX:
            self.refuse("a datagram is too large", "datagrams.malformed", bytes=len(data))
            return
        self._take(data, source.rpartition(":")[0], source, is_multicast=is_multicast)

    def take_from(self, connection: _Connection, data: bytes) -> None:
        """Take a message of a connection."""
        self._take(data, connection.source, _CONNECTION, is_multicast=False, of=connection)

    def _take(
        self,
        data: bytes,
        source: str,
        reply: str,
        *,
        is_multicast: bool,
        of: _Connection | None = None,
    ) -> None:
        if not self._is_within_rate(source):
            self.refuse("too many datagrams", "datagrams.limited", source=source)
            return
        try:
            message = decode_message(data)
            if message.kind is MessageKind.REPLY:
                raise BadDatagram("a reply came to where requests go")  # noqa: TRY301
        except BadDatagram as error:
            self.refuse("no message", "datagrams.malformed", error=str(error))
            return
        self.count("datagrams.taken")
        if of is not None:
            self._waiting[message.client, message.number] = of
            of.waits_for((message.client, message.number))
            if of in self._connections:
                self._connections[of] = self._connections.pop(of)  # heard of last
        hosted = self.hosted
        assert hosted is not None, "the port is opened when its replica is there"
        hosted.ask(lambda host: self._ask(host, message, reply, is_multicast=is_multicast))

    def _is_within_rate(self, source: str) -> bool:
        now = time.monotonic()
        bucket = self._sources.get(source)
        if bucket is None:
            if len(self._sources) >= SOURCES_MAX:
                self._sources.clear()  # all begin anew, which is at most a second's worth each
            bucket = self._sources[source] = TokenBucket(SOURCE_RATE)
        return bucket.take(1, now) and self._all.take(1, now)

    def _ask(self, host: ObjectHost, message: Message, reply: str, *, is_multicast: bool) -> None:
        """Do what a message asks for, inside a turn."""
        if message.kind is not MessageKind.REQUEST:
            self._describe(host, message, reply, is_multicast=is_multicast)
            return
        try:
            method, arguments = decode_call(message.body)
            host.request(
                message.client,
                message.number,
                method,
                arguments,
                reply,
                self._replica if reply == _CONNECTION else "",
                relay=not is_multicast,
            )
        except (Refused, BadDatagram) as error:
            if isinstance(error, BadDatagram):
                self.count("datagrams.malformed")
            if not is_multicast or self._has_onus(host, message.client):
                self._replies.append((reply, message, ReplyStatus.REFUSED, str(error)))

    def _has_onus(self, host: ObjectHost, client: int) -> bool:
        return host.synchroniser is not None and host.synchroniser.has_onus(client)

    def _describe(
        self, host: ObjectHost, message: Message, reply: str, *, is_multicast: bool
    ) -> None:
        """Say who the servers are, or what they can do: no order is needed for it (5)."""
        if is_multicast and not self._has_onus(host, message.client):
            return
        body: object
        if message.kind is MessageKind.MEMBERS:
            status = host.status
            body = {
                "view": "" if status is None else str(status.view),
                "role": "" if status is None else status.role.value,
                "members": [] if status is None else [member.id for member in status.members],
            }
        else:
            definition = host.definition
            body = {
                "name": definition.name,
                "version": definition.version,
                "fingerprint": definition.fingerprint,
                "methods": {
                    name: f"{method.kind.value} {method}"
                    for name, method in sorted(definition.methods.items())
                },
            }
        self._replies.append((reply, message, ReplyStatus.DONE, body))

    # ---- answers

    def answer(self, answer: Answer) -> None:
        """Take an answer of the host, inside a turn."""
        request = Message(MessageKind.REQUEST, 0, answer.session, answer.request, b"")
        match answer.outcome:
            case Done(result=result):
                try:
                    status, body = ReplyStatus.DONE, result_body(result)
                except BadDatagram as error:
                    failed = ["ResultNotJson", str(error)]
                    self._replies.append((answer.reply_to, request, ReplyStatus.FAILED, failed))
                    return
                self._replies.append((answer.reply_to, request, status, body))
            case Failed(error=name, message=text):
                told = [name, text]
                self._replies.append((answer.reply_to, request, ReplyStatus.FAILED, told))
            case NotTaken(reason=reason):
                self._replies.append((answer.reply_to, request, ReplyStatus.REFUSED, reason))
            case _:
                pass  # nobody waits for it any more

    def turn_ended(self) -> None:
        """Let what the turn had for clients leave."""
        if not self._replies:
            return
        replies, self._replies = self._replies, []
        for to, message, status, body in replies:
            if to == _CONNECTION:
                connection = self._waiting.pop((message.client, message.number), None)
                if connection is not None:
                    connection.reply(reply_to(message, status, body, bytes_max=STREAM_BYTES_MAX))
            elif self._own is not None and not self._own.is_closing():
                place = _place(to)
                if place is None:
                    self.count("datagrams.malformed")
                    continue
                self._own.sendto(reply_to(message, status, body, bytes_max=REPLY_BYTES_MAX), place)

    # ---- connections

    def opened(self, connection: _Connection) -> bool:
        """Take a connection, if there is room: who has been silent for longest gives way."""
        if len(self._connections) >= CONNECTIONS_MAX:
            self.refuse("too many connections", "datagrams.limited")
            silent = next((each for each in self._connections if not self._owes(each)), None)
            if silent is None:
                return False
            silent.abort()
            self.closed(silent, silent.waited)
        self._connections[connection] = None
        return True

    def _owes(self, connection: _Connection) -> bool:
        """Say whether a connection waits for an answer."""
        return any(self._waiting.get(id) is connection for id in connection.waited)

    def closed(self, connection: _Connection, waited: set[tuple[int, int]]) -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)
        for id in waited:
            if self._waiting.get(id) is connection:
                del self._waiting[id]


class _Datagrams(asyncio.DatagramProtocol):
    """One socket for datagrams."""

    def __init__(self, port: DatagramPort, *, is_multicast: bool) -> None:
        self._port = port
        self._is_multicast = is_multicast

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._port.take(data, f"{addr[0]}:{addr[1]}", is_multicast=self._is_multicast)

    def error_received(self, exc: Exception) -> None:
        del exc  # a reply that could not be sent is a lost one
        self._port.count("datagrams.lost")


class _Connection(asyncio.Protocol):
    """One client's connection: messages, each with its length."""

    def __init__(self, port: DatagramPort) -> None:
        self._port = port
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.waited: set[tuple[int, int]] = set()
        self.source = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods and not the class.
        self._transport = cast("asyncio.Transport", transport)
        self.source = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._port.opened(self):
            self.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > STREAM_BYTES_MAX:
                self._port.refuse("a message is too large", "datagrams.malformed")
                self.close()
                return
            end = _LENGTH.size + size
            if len(self._buffer) < end:
                return
            message = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            self._port.take_from(self, message)

    def waits_for(self, id: tuple[int, int]) -> None:
        """Remember what is to be forgotten with the connection; a client waits for one thing."""
        if len(self.waited) > CONNECTIONS_MAX:
            self._port.closed(self, self.waited)
            self.waited.clear()
            self._port.opened(self)
        self.waited.add(id)

    def reply(self, data: bytes) -> None:
        """Send a message; who does not read is hung up on."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > BUFFER_BYTES:
            self._port.count("datagrams.limited")
            transport.abort()
            return
        transport.write(_LENGTH.pack(len(data)) + data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._port.closed(self, self.waited)

    def abort(self) -> None:
        """Hang up at once."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


def _place(text: str) -> tuple[str, int] | None:
    """Read where a reply goes: another replica may have said it, and may be damaged."""
    host, _, port = text.rpartition(":")
    try:
        ipaddress.ip_address(host)
        number = int(port)
    except ValueError:
        return None
    return (host, number) if 0 < number < 1 << 16 else None


def _bound(address: Address, *, shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)  # noqa: FBT003 -- its own name for it
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(tuple(address))
    except OSError:
        made.close()
        raise
    return made


def _joined(multicast: Address, listen: Address) -> socket.socket:
    """Give a socket that gets what is sent to a multicast address, on the replica's own network."""
    made = _bound(multicast, shared=True)
    own = listen.host
    interface = "0.0.0.0" if not _is_ip(own) else own  # noqa: S104 -- the system chooses
    try:
        joining = socket.inet_aton(multicast.host) + socket.inet_aton(interface)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joining)
    except OSError:
        made.close()
        raise
    return made


def _is_ip(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 4  # noqa: PLR2004 -- IPv4
    except ValueError:
        return False
