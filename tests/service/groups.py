"""A whole group in one event loop whose replicas take clients over real TCP.

Replicas talk to each other by function calls; between them and their clients are sockets, and, if
wanted, relays that can be cut and held (`tests.runtime.proxy`).
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from tests.patience import PATIENCE
from tests.runtime.proxy import Proxy, reserve_port

from coterie.assembly import make_process
from coterie.kernel.engine import Past, Role
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration
from coterie.kernel.wire import decode_frame
from coterie.objects import DEFAULT_HOST_SETTINGS, define, query, update
from coterie.runtime.driver import Driver
from coterie.runtime.recorder import NoRecorder
from coterie.service.engines.stack import HostedObject
from coterie.service.engines.stack_front import ObjectFront
from coterie.service.port import ClientPort
from coterie.service.settings import DEFAULT_PORT_SETTINGS

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from coterie.kernel.replica import Replica as KernelReplica
    from coterie.objects import HostSettings
    from coterie.service.known_clients import KnownClients
    from coterie.service.settings import PortSettings


class Full(Exception):
    """What the counter raises at its limit."""


class Counter:
    """Counts, and remembers who did."""

    value: int = 0
    log: list[str] = []  # noqa: RUF012 -- copied for each object

    @update
    def add(self, amount: int, by: str = "") -> int:
        """Add, and give the new value."""
        if amount > 1000:
            raise Full(f"{amount} is too much")
        self.value += amount
        if by:
            self.log.append(by)
        return self.value

    @query
    def read(self) -> int:
        """Give the value."""
        return self.value

    @query
    def names(self) -> list[str]:
        return self.log

    @query
    def blob(self, size: int) -> bytes:
        return bytes(size)

    @query
    def fail(self) -> int:
        raise Full("always")


class _Memory:
    """A transport that hands frames over within the process."""

    def __init__(self, group: PortGroup, id: str) -> None:
        self._group = group
        self._id = id
        self.counters: dict[str, int] = {}

    def send(self, destination: str, frame: bytes) -> None:
        self._group.carry(self._id, destination, frame)

    def multicast(self, destinations: Sequence[str], frame: bytes) -> None:
        for destination in destinations:
            self._group.carry(self._id, destination, frame)

    def flush(self) -> None:
        pass


class _Seat:
    """A process with its driver."""

    def __init__(self, group: PortGroup, id: str, incarnation: int) -> None:
        members = group.configuration.members
        self.process = make_process(id, incarnation, members, DEFAULT_SETTINGS)
        self.driver = Driver(self.process, NoRecorder(), asyncio.get_running_loop())

    def host(self, replica: KernelReplica) -> None:
        self.process.host(replica)


class Replica:
    """One replica with its port."""

    def __init__(self, group: PortGroup, id: str, incarnation: int) -> None:
        seat = _Seat(group, id, incarnation)
        self.driver = seat.driver
        self.port = ClientPort(
            replica=id,
            incarnation=incarnation,
            listen=group.sockets.pop(id),
            addresses=group.addresses,
            clients=group.clients,
            settings=group.port_settings,
        )
        front = ObjectFront(self.port, group.name)
        self.hosted = HostedObject(
            seat,
            group=group.name,
            definition=define(group.cls),
            stack=group.stack,
            configuration=group.configuration,
            front=front,
            past=Past(is_zombie=True) if incarnation > 1 else None,
            settings=group.settings,
        )
        front.attach(self.hosted)
        self.host = self.hosted.host
        self.driver.turn_ended.append(self.port.turn_ended)
        self.driver.turn_ended.append(group.turn_ended)
        self.driver.start(_Memory(group, id))

    @property
    def role(self) -> Role | None:
        return None if self.hosted.status is None else self.hosted.status.role


class PortGroup:
    """The group; `async with` starts and ends it."""

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        *,
        stack: str = "SAFE:DYNSEQ:PVSYNC",
        replicas: int = 3,
        cls: type = Counter,
        relayed: bool = False,
        clients: KnownClients | None = None,
        settings: HostSettings = DEFAULT_HOST_SETTINGS,
        port_settings: PortSettings = DEFAULT_PORT_SETTINGS,
    ) -> None:
        self.name = "counter"
        self.cls = cls
        self.stack = stack
        self.clients = clients
        self.settings = settings
        self.port_settings = port_settings
        self.configuration = Configuration(1, tuple(f"r{n}" for n in range(1, replicas + 1)))
        self.replicas: dict[str, Replica] = {}
        self.ports: dict[str, int] = {}
        self.sockets: dict[str, socket.socket] = {}
        """What a replica will listen at, while it does not run."""
        self.relays: dict[str, Proxy] = {}
        self.addresses: dict[str, str] = {}
        self.changed = asyncio.Event()
        self._relayed = relayed
        self._lives = dict.fromkeys(self.configuration.members, 0)
        self._apart: set[frozenset[str]] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for id in self.configuration.members:
            self.sockets[id] = reserve_port()
            number = self.ports[id] = self.sockets[id].getsockname()[1]
            if self._relayed:
                relay = await self._stack.enter_async_context(Proxy())
                await relay.aim(number)
                self.relays[id] = relay
                number = relay.port
            self.addresses[id] = f"127.0.0.1:{number}"
        for id in self.configuration.members:
            await self.start(id)
        await self.until(lambda: self.primaries == len(self.configuration.members))
        return self

    async def __aexit__(self, *_: object) -> None:
        for id in list(self.replicas):
            await self.kill(id)
        for held in self.sockets.values():
            held.close()
        await self._stack.aclose()

    async def start(self, id: str) -> None:
        """Start a replica; one that has been killed has forgotten everything."""
        self._lives[id] += 1
        replica = self.replicas[id] = Replica(self, id, self._lives[id])
        await replica.port.__aenter__()

    async def kill(self, id: str) -> None:
        """Kill a replica, with all it knew, and its connections with it."""
        replica = self.replicas.pop(id)
        replica.driver.stop()
        for caller in list(replica.port._callers):
            caller.abort()
        await replica.port.__aexit__()
        self.sockets[id] = reserve_port(self.ports[id])  # lest somebody else takes it

    def part(self, *sides: str) -> None:
        """Let replicas talk only to those on their own side, such as "r1 r2"."""
        groups = [set(side.split()) for side in sides]
        self._apart = {
            frozenset({a, b})
            for a in self.configuration.members
            for b in self.configuration.members
            if a != b and not any(a in side and b in side for side in groups)
        }

    def heal(self) -> None:
        self._apart.clear()

    def carry(self, source: str, destination: str, frame: bytes) -> None:
        replica = self.replicas.get(destination)
        apart = frozenset({source, destination}) in self._apart
        if replica is not None and source in self.replicas and not apart:
            limit = DEFAULT_SETTINGS.frame_bytes_max
            replica.driver.frame_arrived(decode_frame(frame, frame_bytes_max=limit))

    def turn_ended(self) -> None:
        self.changed.set()

    @property
    def primaries(self) -> int:
        return sum(replica.role is Role.PRIMARY for replica in self.replicas.values())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to become true of the replicas."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self.changed.clear()
                await self.changed.wait()
