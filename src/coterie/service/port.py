"""The port at which a process takes clients, for all groups it hosts.

    port = ClientPort(replica="a", incarnation=1, listen=address, addresses={"a": ...})
    front = ObjectFront(port, "seats")
    front.attach(HostedObject(..., front=front))
    live.driver.answering.append(port.turn_ended)
    live.driver.turn_ended.append(port.turn_ended)
    async with port:
        ...

The port writes to clients in `turn_ended` only, as soon as the frames have left and once more for
what comes up when the turn has ended: by then everything that the turn's answers promise is in the
journal, and the turn's frames are on their way to the peers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from coterie.ready.locations import LOCATIONS
from coterie.runtime.address import Address
from coterie.runtime.events import EventLogger
from coterie.runtime.listening import ListenTerms
from coterie.runtime.network import TCP
from coterie.runtime.transport import ListenError
from coterie.service.caller import Caller
from coterie.service.known_clients import KnownClient
from coterie.service.settings import DEFAULT_PORT_SETTINGS, PortSettings
from coterie.service.transaction_clients import Guests

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Mapping
    from typing import Any

    from coterie.runtime.certificates import TlsFiles
    from coterie.runtime.driver import Driver
    from coterie.runtime.in_memory import MemoryNetwork
    from coterie.runtime.listening import TurnedAway
    from coterie.runtime.network import Listener, Network
    from coterie.service.engines.front import GroupFront
    from coterie.service.known_clients import KnownClients

_INSIDE = "inside"


class ClientPort:
    """Listens for clients; `async with` opens and closes it.

    *addresses* says where each replica takes clients, this one included, as clients reach them.
    With *clients*, only these are taken; with *tls*, connections are encrypted as it says. For the
    *audited* groups it is written down who calls what.
    *driver* is needed for clients that are processes of their own.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        *,
        replica: str,
        incarnation: int,
        listen: Address | socket.socket,
        addresses: Mapping[str, str],
        cluster: str = "",
        driver: Driver | None = None,
        clients: KnownClients | None = None,
        audited: Collection[str] = (),
        tls: TlsFiles | None = None,
        settings: PortSettings = DEFAULT_PORT_SETTINGS,
        network: Network = TCP,
    ) -> None:
        self.replica = replica
        self.incarnation = incarnation
        self.addresses = dict(addresses)
        self.cluster = cluster
        self.clients = clients
        self.audited = audited
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.events = EventLogger(port=replica)
        self.fronts: dict[str, GroupFront[Any]] = {}
        """The fronts of the groups at this port, by name: a front that is made is put here."""
        self.guests = Guests(driver, self.fronts)
        self._listen = listen
        self._tls = tls
        self._network = network
        self._listener: Listener | None = None
        self._callers: dict[Caller, None] = {}
        self._numbers = 0
        self._to_flush: dict[Caller, None] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None

    def find(self, group: str) -> GroupFront[Any] | None:
        """Give the front of a group by its name; no name is enough where there is one group."""
        if not group and len(self.fronts.keys() - {LOCATIONS}) == 1:
            [group] = self.fronts.keys() - {LOCATIONS}
        return self.fronts.get(group)

    def move(self, addresses: Mapping[str, str]) -> None:
        """Learn where the replicas take clients now, and tell the clients."""
        self.addresses = dict(addresses)
        for front in self.fronts.values():
            front.tell_news()
        self.turn_ended()

    @property
    def address(self) -> Address:
        """Where this port listens, with the number that the system chose if it was 0."""
        assert self._listener is not None
        return self._listener.address

    @property
    def counters(self) -> dict[str, int]:
        """What has happened so far; `docs/use/clients.md` explains each name."""
        return {"port.callers": self.callers, **self.events.counters}

    @property
    def callers(self) -> int:
        """How many clients are connected."""
        return len(self._callers)

    # ---- opening and closing

    async def __aenter__(self) -> Self:
        def accept() -> Caller:
            return self._accept()

        try:
            self._listener = await self._network.listen(accept, self._listen, self._terms())
        except OSError as error:
            reason = error.strerror or str(error)
            raise ListenError(f"cannot take clients at {self._listen}: {reason}") from error
        self._sweep()
        return self

    def _terms(self) -> ListenTerms:
        tls = self._tls
        return ListenTerms(
            tls=None if tls is None else lambda: tls.server,
            handshake_seconds=self.settings.hello_timeout / 1e6,
            room=lambda: self.settings.connections_max - len(self._callers),
            turned_away=self._on_turned_away,
        )

    def _on_turned_away(self, why: TurnedAway) -> None:
        name = why.value.replace("_", " ")
        self.events.warn(name, counter=f"port.{why.value}")

    def _accept(self, client: KnownClient | None = None) -> Caller:
        self._numbers += 1
        return Caller(self, self._numbers, client)

    async def listen_inside(self, network: MemoryNetwork) -> str:
        """Take this process itself as a client, over memory; give the address for that.

        Nobody else is there, so nothing has to be shown.
        """

        def accept() -> Caller:
            return self._accept(KnownClient(self.replica))

        listener = await network.host(_INSIDE).listen(accept, Address(_INSIDE, 0))
        return str(listener.address)

    async def __aexit__(self, *_: object) -> None:
        """Take no more clients, let the last answers leave for a short while, and hang up."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        try:
            if self._listener is not None:
                await self._listener.close()
            if self._callers:
                self._empty = self.loop.create_future()
                for caller in list(self._callers):
                    caller.flush()
                    caller.close()
                await asyncio.wait([self._empty], timeout=self.settings.close_timeout / 1e6)
        finally:
            for caller in list(self._callers):
                caller.abort()

    def _sweep(self) -> None:
        """Hang up on clients that have said nothing for too long, not even a ping."""
        idle_max = self.settings.idle_max / 1e6
        oldest = self.loop.time() - idle_max
        for caller in list(self._callers):
            if caller.read_at < oldest:
                self.events.count("port.callers_idle")
                caller.abort()
        self._sweeping = self.loop.call_later(idle_max / 4, self._sweep)

    # ---- callers

    def is_trusted(self, transport: asyncio.BaseTransport) -> bool:
        """Say whether nothing that a connection was let in for has been withdrawn since."""
        return self._tls is None or self._tls.is_trusted(transport)

    def end_untrusted(self) -> None:
        """Hang up on clients that were let in for something that has been withdrawn since."""
        for caller in list(self._callers):
            if not caller.is_trusted:
                self.events.warn("not trusted any more", counter="port.callers_withdrawn")
                caller.abort()

    def admit(self, caller: Caller) -> bool:
        """Take a new connection; say whether there is room for it."""
        self._callers[caller] = None
        return len(self._callers) <= self.settings.connections_max and self._empty is None

    def leave(self, caller: Caller) -> None:
        """Forget a connection that has ended."""
        self._callers.pop(caller, None)
        self._to_flush.pop(caller, None)
        if caller.front is not None:
            caller.front.remove(caller)
        self.guests.remove(caller)
        if self._empty is not None and not self._callers and not self._empty.done():
            self._empty.set_result(None)

    def has_something_for(self, caller: Caller) -> None:
        """Note that the running turn has something for a caller."""
        self._to_flush[caller] = None

    def turn_ended(self) -> None:
        """Let what the turn had for clients leave."""
        if self._to_flush:
            callers, self._to_flush = self._to_flush, {}
            for caller in callers:
                caller.flush()
