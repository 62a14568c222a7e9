"""Links and connections: what a process knows of each peer, and of each open socket.

A `Link` stands for one peer as long as the process lives. A `Connection` is one TCP connection
from its greeting to its end; the one over which both sides have said hello is the link's. What a
connection brings is reported to the transport, which decides.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Any, cast

from coterie.kernel.errors import FrameError
from coterie.kernel.wire import FrameStream
from coterie.protocol.hello import (
    Greeting,
    GreetingReader,
    PeerFarewell,
    PeerHello,
    PeerProof,
    encode_greeting,
)
from coterie.protocol.proof import make_nonce
from coterie.runtime.address import Address
from coterie.runtime.network import send_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.kernel.views import ReplicaId
    from coterie.protocol.proof import Meeting
    from coterie.runtime.transport import TcpTransport


class Link:
    """What this process knows of its connection to one peer."""

    __slots__ = (
        "address",
        "connection",
        "incarnation",
        "is_former",
        "lost",
        "peer",
        "pending",
        "up_since",
        "wake",
        "was_up",
    )

    def __init__(self, peer: ReplicaId, address: Address) -> None:
        self.peer = peer
        self.address = address
        self.is_former = False
        """Whether the peer is one no more: it is let in, so that it is told, and not sought."""
        self.connection: Connection | None = None
        """The connection over which hellos were exchanged, while it lives."""
        self.incarnation = 0
        """The highest life of the peer that said hello here."""
        self.was_up = False
        """Whether a refusal would be news: the peer was there and was not yet reported gone."""
        self.up_since = 0.0
        self.lost = asyncio.Event()
        """Set while the link is down."""
        self.lost.set()
        self.wake = asyncio.Event()
        """Set when there is reason to try again now rather than at the end of the pause."""
        self.pending: list[bytes] = []
        """What this turn has sent and the next flush will write."""


class Next(enum.Enum):
    """What may follow a greeting."""

    NOTHING = "nothing: the connection is over"
    GREETING = "another greeting"
    FRAMES = "frames"


class Connection(asyncio.Protocol):
    """One TCP connection, from its greeting to its end."""

    def __init__(
        self, owner: TcpTransport, link: Link | None = None, *, knocks: bool = False
    ) -> None:
        self.link = link
        """The peer at the other end; for an accepted connection known after its hello."""
        self.knocks = knocks
        self.nonce = b""
        """Ours, where a secret has to be shown."""
        self.unproven: tuple[Greeting, Meeting] | None = None
        """The hello of a dialler that has not shown yet that it knows the secret."""
        self.shown: tuple[ReplicaId, bytes] | None = None
        """Which secret the two ends have shown each other, and with whom it is shared."""
        self.read_at = 0.0
        self.settled: asyncio.Future[None] = owner.loop.create_future()
        """Done when the connection is the link to its peer, or never will be."""
        self.ended: asyncio.Future[None] = owner.loop.create_future()
        self._owner = owner
        self._greeting = GreetingReader()
        self._reader: FrameStream | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport

    @property
    def address(self) -> str:
        """Where the other end is, for the log."""
        name = self.transport.get_extra_info("peername")
        return str(Address(*name[:2])) if isinstance(name, tuple) else "an unknown address"

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """What the other end has shown, where connections are encrypted."""
        shown: Mapping[str, Any] | None = self.transport.get_extra_info("peercert")
        return shown

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's bear no such class
        owner = self._owner
        owner.connections[self] = None
        self.read_at = owner.loop.time()
        timeout = owner.settings.hello_timeout / 1e6
        self._deadline = owner.loop.call_later(timeout, owner.on_greeting_late, self)
        send_at_once(transport)
        if self.link is None:
            owner.on_accepted(self)
        elif not owner.security.is_trusted(transport):
            self.transport.abort()  # withdrawn while the connection was being made
        else:
            if owner.security.secrets is not None:
                self.nonce = make_nonce()
            mark = owner.marks.mark
            peer = self.link.peer
            self.greet(PeerHello(owner.cluster, peer, self.knocks, self.nonce, mark=mark))

    def data_received(self, data: bytes) -> None:
        owner = self._owner
        self.read_at = owner.loop.time()
        if self._reader is None:
            data = self._read_greetings(data)
        reader = self._reader
        if reader is None or not data:
            return
        frame = reader.whole(data)
        if frame is not None:
            owner.on_frame(self, frame, alone=True)
            return
        try:
            for item in reader.feed(data):
                if isinstance(item, FrameError):
                    owner.on_bad_frame(self, item)
                else:
                    owner.on_frame(self, item)
        except FrameError as error:
            # The stream is out of step: where the next frame begins is not known any more.
            owner.on_bad_frame(self, error)
            owner.abort(self)

    def _read_greetings(self, data: bytes) -> bytes:
        """Take greetings until frames may follow; give what comes after them."""
        owner = self._owner
        while True:
            try:
                complete = self._greeting.feed(data)
            except FrameError as error:
                owner.on_bad_frame(self, error)
                self.transport.abort()
                return b""
            if complete is None:
                return b""
            greeting, data = complete
            match owner.on_greeting(self, greeting):
                case Next.NOTHING:
                    self._forget_deadline()
                    return b""
                case Next.FRAMES:
                    self._forget_deadline()
                    self._reader = FrameStream(frame_bytes_max=owner.frame_bytes_max)
                    return data
                case Next.GREETING:
                    pass

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._forget_deadline()
        self.ended.set_result(None)
        self.settle()
        self._owner.on_lost(self)

    def greet(self, says: PeerHello | PeerFarewell | PeerProof) -> None:
        """Send our greeting."""
        owner = self._owner
        self.transport.write(encode_greeting(Greeting(owner.id, owner.incarnation, says)))

    def settle(self) -> None:
        """Let whoever opened the connection go on."""
        if not self.settled.done():
            self.settled.set_result(None)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
