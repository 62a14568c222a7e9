"""A network within one process: streams between hosts that are only names.

    network = MemoryNetwork()
    a, b = network.host("a"), network.host("b")
    listener = await b.listen(Server, Address("b", 1))
    client = await a.connect(Client, Address("b", 1))
    network.cut("a", "b")                   # nothing passes until network.heal()
    b.crash()                               # as kill -9 does: the streams end, nobody listens

A `MemoryHost` is a `coterie.runtime.network.Network` seen from one life of one host, and behaves as
TCP does between machines. Bytes arrive in order, at the next pass of the loop or later, in one
piece or joined with others; who writes faster than the other end reads is told to pause. Nobody
listening means refused. A stream across a cut stays open and holds back what is written until the
cut is healed, and so does an attempt to connect: to notice is the business of those who use it.
Nothing is left to chance: the same calls in the same order give the same deliveries.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import socket
from typing import TYPE_CHECKING, Any, TypeVar

from coterie.runtime.address import Address
from coterie.runtime.listening import EVERYBODY

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from coterie.runtime.listening import ListenTerms

P = TypeVar("P", bound=asyncio.Protocol)

HIGH_BYTES = 64 << 10
"""How much may be on its way before the writer is told to pause, unless it says otherwise."""


class MemoryNetwork:
    """All hosts, and what is cut between them."""

    def __init__(self) -> None:
        self.listeners: dict[Address, _Listener] = {}
        self._sides: dict[str, int] = {}
        self._ends: dict[_End, None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._ports = itertools.count(1024)

    def host(self, name: str) -> MemoryHost:
        """Give the network as one life of a host sees it."""
        return MemoryHost(self, name)

    def cut(self, *sides: Iterable[str]) -> None:
        """Let bytes pass within each side only; hosts that are on none reach all."""
        self._sides = {host: number for number, side in enumerate(sides) for host in side}
        self._go_on()

    def heal(self) -> None:
        """Let all bytes pass."""
        self.cut()

    def reset(self, one: str, other: str) -> None:
        """End all streams between two hosts at once; both sides notice."""
        for end in list(self._ends):
            if {end.host_name, end.peer_host_name} == {one, other}:
                end.abort()

    def is_cut(self, one: str, other: str) -> bool:
        """Say whether nothing passes between two hosts."""
        sides = self._sides
        return one in sides and other in sides and sides[one] != sides[other]

    # ---- what hosts and ends call

    async def wait_changed(self) -> None:
        """Wait until other hosts are cut off than now."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def free_port(self) -> int:
        """Give a port that nobody has."""
        return next(self._ports)

    def add(self, end: _End) -> None:
        """Take note of a stream's end."""
        self._ends[end] = None

    def remove(self, end: _End) -> None:
        """Forget a stream's end."""
        self._ends.pop(end, None)

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
        for end in self._ends:
            end.schedule()


class MemoryHost:
    """The network, for one life of one host."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self.name = name
        self.network = network
        self.ends: dict[_End, None] = {}
        self._listeners: list[_Listener] = []
        self.is_down = False
        """Whether this life is over."""

    async def connect(
        self, make: Callable[[], P], address: Address, *, tls: ssl.SSLContext | None = None
    ) -> P:
        """Open a stream; raises `ConnectionRefusedError` if nobody listens there."""
        _refuse_tls(tls)
        network = self.network
        while network.is_cut(self.name, address.host):
            await network.wait_changed()
        listener = network.listeners.get(address)
        if listener is None or self.is_down:
            raise _error(errno.ECONNREFUSED)  # who is down has nobody to tell
        protocol, accepted = make(), listener.make()
        here = _End(self, protocol, Address(self.name, network.free_port()), address)
        there = _End(listener.host, accepted, address, here.address)
        here.join(there)
        there.join(here)
        loop = asyncio.get_running_loop()
        made: asyncio.Future[None] = loop.create_future()
        loop.call_soon(here.start)
        loop.call_soon(there.start)
        loop.call_soon(made.set_result, None)
        try:
            await made
        except asyncio.CancelledError:
            here.abort()
            raise
        return protocol

    async def listen(
        self,
        make: Callable[[], asyncio.Protocol],
        at: Address | socket.socket,
        admission: ListenTerms = EVERYBODY,
    ) -> _Listener:
        """Take streams at an address of this host."""
        _refuse_tls(admission.tls)
        if self.is_down:
            raise _error(errno.ENETDOWN)
        network = self.network
        if isinstance(at, socket.socket) or at.host != self.name:
            raise _error(errno.EADDRNOTAVAIL)
        address = at if at.port else Address(at.host, network.free_port())
        if address in network.listeners:
            raise _error(errno.EADDRINUSE)
        listener = network.listeners[address] = _Listener(self, make, address)
        self._listeners.append(listener)
        return listener

    def crash(self) -> None:
        """End this life at once: what has been written still arrives, and then all streams end."""
        self.is_down = True
        for listener in self._listeners:
            listener.stop()
        for end in list(self.ends):
            end.close()


class _Listener:
    """What takes streams at one address."""

    def __init__(
        self, host: MemoryHost, make: Callable[[], asyncio.Protocol], address: Address
    ) -> None:
        self.host = host
        self.make = make
        self._address = address

    @property
    def address(self) -> Address:
        return self._address

    def stop(self) -> None:
        listeners = self.host.network.listeners
        if listeners.get(self._address) is self:
            del listeners[self._address]

    async def close(self) -> None:
        self.stop()
        await asyncio.sleep(0)  # those who are in get their turn


class _End(asyncio.Transport):
    """One end of a stream: the transport of the protocol there."""

    def __init__(
        self, host: MemoryHost, protocol: asyncio.Protocol, address: Address, peer: Address
    ) -> None:
        super().__init__({"peername": tuple(peer), "sockname": tuple(address)})
        self.address = address
        self._host = host
        self.host_name = host.name
        self.peer_host_name = peer.host
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._other: _End
        self._arriving: list[bytes] = []
        self._arriving_bytes = 0
        self._is_over = False
        """Whether nothing more comes after what is arriving."""
        self._is_reading = True
        self._is_scheduled = False
        self._is_closing = False
        self._is_full = False
        """Whether the protocol was told to pause writing."""
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4

    # ---- from the beginning to the end

    def join(self, other: _End) -> None:
        """Learn what the other end is."""
        self._other = other

    def start(self) -> None:
        """Tell the protocol that the stream is there."""
        self._host.network.add(self)
        self._host.ends[self] = None
        self._protocol.connection_made(self)
        if self._host.is_down:
            self.close()

    def close(self) -> None:
        """End the stream; what was written still arrives."""
        if not self._is_closing:
            self._is_closing = True
            self._other.end()
            self._loop.call_soon(self._lose)

    def abort(self) -> None:
        """End the stream at once; what is on its way is lost."""
        if not self._is_closing:
            self._other.lose_arriving()
            self.close()

    def _lose(self) -> None:
        self._host.network.remove(self)
        self._host.ends.pop(self, None)
        self.lose_arriving()
        self._protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self._is_closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    # ---- writing

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._is_closing or not data:
            return
        other = self._other
        other.take(bytes(data))
        if not self._is_full and other.arriving_bytes > self._high:
            self._is_full = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._other.arriving_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def drained(self) -> None:
        """Learn that the other end has read."""
        if self._is_full and self._other.arriving_bytes <= self._low and not self._is_closing:
            self._is_full = False
            self._protocol.resume_writing()

    # ---- reading

    @property
    def arriving_bytes(self) -> int:
        """How much is on its way to this end."""
        return self._arriving_bytes

    def take(self, data: bytes) -> None:
        """Have bytes arrive."""
        if not self._is_closing:
            self._arriving.append(data)
            self._arriving_bytes += len(data)
            self.schedule()

    def end(self) -> None:
        """Learn, after what is on its way, that nothing more comes."""
        self._is_over = True
        self.schedule()

    def lose_arriving(self) -> None:
        """Let what is on its way be lost."""
        self._arriving.clear()
        self._arriving_bytes = 0

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.schedule()

    def schedule(self) -> None:
        """Deliver at the next pass of the loop."""
        if not self._is_scheduled and not self._is_closing:
            self._is_scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_scheduled = False
        if self._host.network.is_cut(self.host_name, self.peer_host_name) or not self.is_reading():
            return
        if self._arriving:
            data = b"".join(self._arriving)
            self.lose_arriving()
            self._other.drained()
            self._protocol.data_received(data)
        if self._is_over and not self._arriving and self.is_reading():
            self._protocol.eof_received()
            self.close()


def _refuse_tls(tls: object) -> None:
    if tls is not None:
        raise ValueError("nothing leaves this process, so nothing is encrypted: give no tls")


def _error(code: int) -> OSError:
    """Give the error that a system gives; `OSError` makes the right kind of it."""
    return OSError(code, os.strerror(code))
