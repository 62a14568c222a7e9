"""Streams of bytes between addresses: what replicas and clients open connections over.

Everything above this seam is the same in a deployment, where the network is TCP, and in one
process, where it is memory (`coterie.runtime.in_memory`).
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Protocol, TypeVar

from coterie.runtime.listening import EVERYBODY, TcpListener, bind

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from coterie.runtime.address import Address
    from coterie.runtime.listening import ListenTerms

P = TypeVar("P", bound=asyncio.Protocol)


class Listener(Protocol):
    """What takes connections at an address."""

    @property
    def address(self) -> Address:
        """Where it listens, with the port that was chosen if it was 0."""

    async def close(self) -> None:
        """Take no more connections; those that were taken stay open."""


class Network(Protocol):
    """Opens connections; both ends are protocols of asyncio."""

    async def connect(
        self, make: Callable[[], P], address: Address, *, tls: ssl.SSLContext | None = None
    ) -> P:
        """Open a connection; raises `OSError` if nobody listens there, or it cannot be reached."""

    async def listen(
        self,
        make: Callable[[], asyncio.Protocol],
        at: Address | socket.socket,
        admission: ListenTerms = EVERYBODY,
    ) -> Listener:
        """Take connections; raises `OSError` if the address cannot be used."""


class TcpNetwork:
    """The network of the machine."""

    async def connect(
        self, make: Callable[[], P], address: Address, *, tls: ssl.SSLContext | None = None
    ) -> P:
        """Open a TCP connection."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(make, *address, ssl=tls)
        return protocol

    async def listen(
        self,
        make: Callable[[], asyncio.Protocol],
        at: Address | socket.socket,
        admission: ListenTerms = EVERYBODY,
    ) -> Listener:
        """Listen at an address, or on a socket that is bound already."""
        sockets = [at] if isinstance(at, socket.socket) else await bind(at)
        try:
            return TcpListener(sockets, make, admission)
        except OSError:
            for each in sockets:
                each.close()
            raise


TCP = TcpNetwork()


def send_at_once(transport: asyncio.BaseTransport) -> None:
    """Have small frames leave without waiting for more, where the system would let them wait."""
    connected = transport.get_extra_info("socket")
    if connected is not None and connected.family in {socket.AF_INET, socket.AF_INET6}:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
