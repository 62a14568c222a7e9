"""The paper's clients of a served object (**objects** section 7.3, figure 8).

    with connect_paper("127.0.0.1:7001", group="value") as system:
        client = ValueClient(system, "reader")
        print(client.read().result(timeout=5))

`connect_paper` gives the `System` that a `coterie.objects.paper.Client` is made with. It has
connections to all replicas, because each may answer: a request goes to one of them, the answers of
all come to `receive_reply_callback`, in the thread of the system. As in the paper a request has no
outcome: who hears nothing asks again.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Never

from coterie.client.access import find_access
from coterie.client.blocking import LoopThread
from coterie.client.replicas import Replicas
from coterie.client.settings import DEFAULT_CLIENT_SETTINGS
from coterie.kernel.errors import CoterieError
from coterie.protocol.messages import News, PaperListen, PaperReply, PaperRequest
from coterie.runtime.network import TCP

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Sequence

    from coterie.client.access import Access
    from coterie.client.channel import Channel
    from coterie.client.settings import ClientSettings
    from coterie.objects import Answer
    from coterie.objects.paper import Client, ObjectId, ObjectReplica
    from coterie.protocol.messages import FromReplica
    from coterie.runtime.network import Network


class ClientSystem:
    """What carries requests to the replicas and answers back; made inside an event loop."""

    def __init__(
        self, addresses: Sequence[str], *, group: str, access: Access, settings: ClientSettings
    ) -> None:
        self.settings = settings
        self._clients: dict[str, Client] = {}
        self._replicas = Replicas(self, addresses, group=group, access=access, settings=settings)

    async def open(self) -> None:
        """Find a replica, and seek the others."""
        await self._replicas.find_home()
        self._replicas.want_all()

    async def close(self) -> None:
        """End all connections."""
        await self._replicas.close()

    # ---- what clients ask for (`coterie.objects.paper.System`)

    def send_request(self, client: Client, request: bytes) -> None:
        """Bring a request to one of the replicas, one that takes updates if there is one."""
        if client.id not in self._clients:
            for channel in self._replicas.ready():
                channel.send(PaperListen(client.id))
        self._clients[client.id] = client
        chosen = self._replicas.choose(None)
        if chosen is not None:
            chosen.send(PaperRequest(client.id, request))

    def join(self, replica: ObjectReplica, *, optimistic: bool, max_group_size: int) -> Never:
        """Refuse: replicas are where they are served."""
        del replica, optimistic, max_group_size
        raise CoterieError("replicas are made by `coterie serve`, which has them join")

    def reply(self, client: str, origin: ObjectId, reply: bytes) -> None:
        """Hand an answer to a client."""
        found = self._clients.get(client)
        if found is not None:
            found.receive_reply_callback(origin, reply)

    # ---- what channels report

    def on_ready(self, channel: Channel) -> None:
        welcome = channel.welcome
        assert welcome is not None, "a channel is ready when it was made welcome"
        self._replicas.learn(welcome.peers)
        self._replicas.on_ready(channel)
        for id in self._clients:
            channel.send(PaperListen(id))

    def on_lost(self, channel: Channel) -> None:
        self._replicas.on_lost(channel)

    def on_answers(self, channel: Channel, answers: Sequence[Answer]) -> None:
        """Nothing is asked for in this way."""

    def on_message(self, channel: Channel, message: FromReplica) -> None:
        match message:
            case PaperReply(client=client, origin=origin, reply=reply):
                self.reply(client, origin, reply)
            case News(peers=peers):
                self._replicas.learn(peers)
                if not channel.is_primary:
                    self._replicas.prefer_another(channel)
            case _:
                pass


class _InThread:
    """A `ClientSystem` in a thread of its own, for clients in any thread."""

    def __init__(self, thread: LoopThread, system: ClientSystem) -> None:
        self._thread = thread
        self._system = system
        self.join = system.join
        self.reply = system.reply

    def send_request(self, client: Client, request: bytes) -> None:
        """Bring a request to one of the replicas."""
        self._thread.loop.call_soon_threadsafe(self._system.send_request, client, request)


@contextmanager
def connect_paper(  # noqa: PLR0913 -- all by name
    addresses: str | Sequence[str],
    *,
    group: str = "",
    secret: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    network: Network = TCP,
    settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
) -> Iterator[_InThread]:
    """Connect to an object with the paper's interface; `with` gives the system for its clients."""
    seeds = [addresses] if isinstance(addresses, str) else list(addresses)
    thread = LoopThread()

    async def opened() -> ClientSystem:
        access = find_access(seeds, secret=secret, tls=tls, network=network)
        system = ClientSystem(seeds, group=group, access=access, settings=settings)
        await system.open()
        return system

    try:
        system = thread.run(opened())
        try:
            yield _InThread(thread, system)
        finally:
            thread.run(system.close())
    finally:
        thread.stop()
