"""The transport of a client of transactions: what its process says goes to the ports of replicas.

There is one line to each replica, opened when the first frame goes there and opened again when it
was lost and another frame goes. As with every transport, what cannot go is dropped: the protocol
above sends again. Only what comes while a line is being opened waits for it, within limits.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import msgspec

from coterie.client.channel import Channel
from coterie.client.connections import Connections
from coterie.protocol.messages import Carry, News

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coterie.client.access import Access
    from coterie.client.settings import ClientSettings
    from coterie.objects import Answer
    from coterie.protocol.messages import FromReplica, Peer

WAITING_MAX = 256
"""How many frames wait for a line that is being opened."""


class _Line:
    """The way to one replica."""

    def __init__(self, replica: str, address: str, group: str) -> None:
        self.replica = replica
        self.address = address
        self.group = group
        """One that is there, to say hello to."""
        self.channel: Channel | None = None
        self.dialling: asyncio.Task[None] | None = None
        self.waiting: list[bytes] = []
        self.failures = 0
        self.retry_at = 0.0


class PortTransport:
    """All lines of one client; what comes is given to *receive*, with who sent it."""

    def __init__(
        self,
        receive: Callable[[str, msgspec.Raw], None],
        access: Access,
        settings: ClientSettings,
    ) -> None:
        self.settings = settings
        self.counters: dict[str, int] = {}
        self._receive = receive
        self._access = access
        self._connections = Connections(access)
        self._loop = asyncio.get_running_loop()
        self._random = Random()  # noqa: S311 -- spreads attempts in time, protects nothing
        self._lines: dict[str, _Line] = {}
        self._is_closed = False

    def learn(self, group: str, peers: Iterable[Peer]) -> None:
        """Learn where the replicas of a group take clients."""
        for peer in peers:
            line = self._lines.get(peer.id)
            if line is None:
                self._lines[peer.id] = _Line(peer.id, peer.address, group)
            elif peer.address and peer.address != line.address:
                line.address = peer.address
                line.retry_at = 0.0

    # ---- the transport of a process (`coterie.runtime.port`)

    def send(self, destination: str, frame: bytes) -> None:
        """Send what a turn has for a replica: the body of a frame (see `Process.admit`)."""
        line = self._lines.get(destination)
        if line is None or self._is_closed:
            return
        if line.channel is not None:
            if not line.channel.send(Carry(msgspec.Raw(frame))):
                self._count("transport.frames_dropped_no_link")
            return
        if line.dialling is None and line.retry_at <= self._loop.time() and line.address:
            dial = self._dial(line)
            line.dialling = self._loop.create_task(dial, name=f"dial {line.address}")
        if line.dialling is None or len(line.waiting) >= WAITING_MAX:
            self._count("transport.frames_dropped_no_link")
        else:
            line.waiting.append(frame)

    def multicast(self, destinations: Sequence[str], frame: bytes) -> None:
        """Send the same frame to several replicas."""
        for destination in destinations:
            self.send(destination, frame)

    def flush(self) -> None:
        """Everything has left already: a turn makes one frame for each replica."""

    def _count(self, name: str) -> None:
        self.counters[name] = self.counters.get(name, 0) + 1

    # ---- lines

    async def _dial(self, line: _Line) -> None:
        channel = Channel(self, line.address, line.group, self._access.secret)
        channel.replica = line.replica
        try:
            # Why there is none does not matter: it is tried again when the next frame is to go.
            await self._connections.dial(channel, self.settings.connect_timeout)
        finally:
            line.dialling = None
        if channel.is_ready and channel.replica == line.replica:
            line.failures = 0
            line.channel = channel
            waiting, line.waiting = line.waiting, []
            for frame in waiting:
                channel.send(Carry(msgspec.Raw(frame)))
        else:
            if channel.is_ready:
                channel.close()  # another replica is there now
            line.waiting.clear()
            self._failed(line)

    def _failed(self, line: _Line) -> None:
        settings = self.settings
        pause = min(settings.retry_first * 2 ** min(line.failures, 20), settings.retry_max)
        line.failures += 1
        line.retry_at = self._loop.time() + pause * self._random.uniform(0.5, 1.5)

    async def close(self) -> None:
        """End all lines."""
        self._is_closed = True
        dials = [line.dialling for line in self._lines.values() if line.dialling is not None]
        await self._connections.close(dials, self.settings.retry_max)

    # ---- what channels report

    def on_ready(self, channel: Channel) -> None:
        """Learn who the replicas are, from one of them."""
        welcome = channel.welcome
        assert welcome is not None, "a channel is ready when it was made welcome"
        self.learn(welcome.group, welcome.peers)

    def on_lost(self, channel: Channel) -> None:
        """Do without a line until the next frame."""
        self._connections.lost(channel)
        for line in self._lines.values():
            if line.channel is channel:
                line.channel = None
                self._failed(line)

    def on_answers(self, channel: Channel, answers: Sequence[Answer]) -> None:
        """Nothing is asked for in this way."""

    def on_message(self, channel: Channel, message: FromReplica) -> None:
        """Take what a replica says."""
        match message:
            case Carry(body=body):
                self._receive(channel.replica, body)
            case News(peers=peers):
                self.learn("", peers)
            case _:
                pass
