"""The port at which a process takes clients, for all groups it hosts.

    port = ClientPort(replica="a", incarnation=1, listen=address, addresses={"a": ...})
    front = port.front("seats")
    front.attach(HostedObject(..., front=front))
    live.driver.turn_ended.append(port.turn_ended)
    async with port:
        ...

The port writes to clients in `turn_ended` only: by then everything that the turn's answers promise
is in the journal, and the turn's frames are on their way to the peers.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Self

from coterie.client.locations import LOCATIONS
from coterie.client.proof import check_secret
from coterie.runtime.address import Address
from coterie.runtime.events import Events
from coterie.runtime.listening import stop_listening
from coterie.runtime.transport import ListenError
from coterie.service.caller import Caller
from coterie.service.cohort_front import CohortFront
from coterie.service.front import ObjectFront
from coterie.service.guests import Guests
from coterie.service.settings import DEFAULT_PORT_SETTINGS, PortSettings

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from coterie.service.caller import GroupFront


class ClientPort:
    """Listens for clients; `async with` opens and closes it.

    *addresses* says where each replica takes clients, this one included, as clients reach them.
    With a *secret*, both ends must know it; with *tls*, connections are encrypted as it says.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        *,
        replica: str,
        incarnation: int,
        listen: Address | socket.socket,
        addresses: Mapping[str, str],
        cluster: str = "",
        guests: Guests | None = None,
        secret: bytes | None = None,
        tls: ssl.SSLContext | None = None,
        settings: PortSettings = DEFAULT_PORT_SETTINGS,
    ) -> None:
        if secret is not None:
            check_secret(secret)
        self.replica = replica
        self.incarnation = incarnation
        self.addresses = dict(addresses)
        self.cluster = cluster
        self.guests = Guests() if guests is None else guests
        self.secret = secret
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.events = Events(port=replica)
        self.fronts: dict[str, GroupFront] = {}
        self._listen = listen
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._callers: dict[Caller, None] = {}
        self._numbers = 0
        self._to_flush: dict[Caller, None] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None

    def front(self, group: str) -> ObjectFront:
        """Give the front of a group, which is to be attached to its replica."""
        front = self.fronts.get(group)
        if not isinstance(front, ObjectFront):
            front = self.fronts[group] = ObjectFront(self, group)
        return front

    def cohort_front(self, group: str) -> CohortFront:
        """Give the front of a group under **vsr**, which is to be attached to its cohort."""
        front = self.fronts.get(group)
        if not isinstance(front, CohortFront):
            front = self.fronts[group] = CohortFront(self, group)
        return front

    def find(self, group: str) -> GroupFront | None:
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
        assert self._server is not None
        return Address(*self._server.sockets[0].getsockname()[:2])

    @property
    def counters(self) -> dict[str, int]:
        """What has happened so far; `docs/clients.md` explains each name."""
        return {"port.callers": len(self._callers), **self.events.counters}

    # ---- opening and closing

    async def __aenter__(self) -> Self:
        def accept() -> Caller:
            self._numbers += 1
            return Caller(self, self._numbers)

        try:
            if isinstance(self._listen, socket.socket):
                made = self.loop.create_server(accept, sock=self._listen, ssl=self._tls)
            else:
                host, number = self._listen
                made = self.loop.create_server(accept, host, number, ssl=self._tls)
            self._server = await made
        except OSError as error:
            reason = error.strerror or str(error)
            raise ListenError(f"cannot take clients at {self._listen}: {reason}") from error
        self._sweep()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take no more clients, let the last answers leave for a short while, and hang up."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        try:
            if self._server is not None:
                await stop_listening(self._server)
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
