"""A process of a deployment in memory: the real driver, transport and clients' port, no sockets.

    network = MemoryNetwork()
    process = MemoryProcess(network, "r1", 1, ("r1", "r2", "r3"), put)
    await process.ready
    async with connect(Counter, client_address("r1"), network=network.host("client")) as counter:
        ...
    process.kill()

What `coterie.local` and the demo run is all of the product but the wires and, unless they are
asked for, the journals.
"""

from __future__ import annotations

import abc
import asyncio
from typing import TYPE_CHECKING

from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.runtime.address import Address
from coterie.runtime.in_memory import MemoryNetwork
from coterie.runtime.process import LiveProcess
from coterie.service.port import ClientPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coterie.kernel.settings import Settings
    from coterie.kernel.views import ReplicaId
    from coterie.runtime.port import Recorder

_PEERS = 1
_CLIENTS = 2
"""The ports of every host."""
_LINKS_SECONDS = 0.05
"""How long a process waits for its peers before its first turn; they usually start with it."""


def client_address(id: ReplicaId) -> str:
    """Say where the process of that id takes clients."""
    return str(Address(id, _CLIENTS))


class MemoryProcess:
    """One life of one process, from now on until it is killed.

    *put* is called with the process and its port before anything arrives, to host replicas there.
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        network: MemoryNetwork,
        id: ReplicaId,
        incarnation: int,
        ids: Sequence[ReplicaId],
        put: Callable[[LiveProcess, ClientPort], None],
        *,
        cluster: str = "local",
        recorder: Recorder | None = None,
        settings: Settings = DEFAULT_SETTINGS,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.id = id
        self.incarnation = incarnation
        self.ready: asyncio.Future[None] = loop.create_future()
        """Done when clients are taken; raises what kept the process from starting."""
        self._network = network.host(id)
        self._ids = tuple(ids)
        self._put = put
        self._cluster = cluster
        self._recorder = recorder
        self._settings = settings
        self._is_killed = asyncio.Event()
        self._live: LiveProcess | None = None
        self._port: ClientPort | None = None
        self._running = loop.create_task(self._run(), name=f"process {id}")

    def kill(self) -> None:
        """End at once, as `kill -9` does; `ended` waits until nothing is left of it."""
        if self._live is not None:
            self._live.driver.stop()
        self._network.crash()
        self._is_killed.set()

    def know(self, ids: Sequence[ReplicaId]) -> None:
        """Speak with these processes, and no others, from now on."""
        gone = set(self._ids) - set(ids)
        self._ids = tuple(ids)
        if self._live is not None and self._port is not None:
            self._live.transport.meet({id: Address(id, _PEERS) for id in ids})
            for id in gone:
                self._live.transport.part(id)
            self._port.move({id: client_address(id) for id in ids})

    async def ended(self) -> None:
        """Wait for the end; raises `TurnFailed` if it was none of ours."""
        await self._running

    async def _run(self) -> None:
        try:
            if not self._is_killed.is_set():
                await self._live_on()
        except BaseException as error:
            if not self.ready.done() and isinstance(error, Exception):
                self.ready.set_exception(error)
            raise
        finally:
            self._network.crash()
            self.ready.cancel()

    async def _live_on(self) -> None:
        id = self.id
        async with LiveProcess(
            id=id,
            incarnation=self.incarnation,
            cluster=self._cluster,
            listen=Address(id, _PEERS),
            peers={peer: Address(peer, _PEERS) for peer in self._ids if peer != id},
            recorder=self._recorder,
            settings=self._settings,
            network=self._network,
            links_first=_LINKS_SECONDS,
        ) as live:
            port = ClientPort(
                replica=id,
                incarnation=self.incarnation,
                listen=Address(id, _CLIENTS),
                addresses={each: client_address(each) for each in self._ids},
                cluster=self._cluster,
                driver=live.driver,
                network=self._network,
            )
            self._put(live, port)
            live.driver.answering.append(port.turn_ended)
            live.driver.turn_ended.append(port.turn_ended)
            async with port:
                self._live, self._port = live, port
                self.ready.set_result(None)
                await self._is_killed.wait()


class MemoryDeployment(abc.ABC):
    """Processes on one network in memory, which can be killed, started and cut off."""

    def __init__(self, ids: Sequence[ReplicaId]) -> None:
        self.ids = tuple(ids)
        self.network = MemoryNetwork()
        self._lives = dict.fromkeys(ids, 0)
        self._running: dict[ReplicaId, MemoryProcess] = {}
        self._ending: list[MemoryProcess] = []

    @abc.abstractmethod
    def put(self, live: LiveProcess, port: ClientPort) -> None:
        """Host replicas in a process that starts."""

    def recorder(self, id: ReplicaId) -> Recorder | None:
        """Give what keeps the records of a process that starts; by default nothing does."""
        del id
        return None

    @property
    def addresses(self) -> list[str]:
        """Where clients are taken, on the network in memory."""
        return [client_address(id) for id in self.ids]

    @property
    def running(self) -> tuple[ReplicaId, ...]:
        """The processes that are up."""
        return tuple(self._running)

    def start(self, id: ReplicaId) -> None:
        """Start a process, in a new life."""
        if id not in self._running:
            self._lives[id] += 1
            self._running[id] = MemoryProcess(
                *(self.network, id, self._lives[id], self.ids, self.put),
                recorder=self.recorder(id),
            )

    def kill(self, id: ReplicaId) -> None:
        """Kill a process, with all it knew."""
        process = self._running.pop(id, None)
        if process is not None:
            process.kill()
            self._ending.append(process)

    def put_up(self, id: ReplicaId) -> None:
        """Start a process that was not there before."""
        self.ids = (*self.ids, id)
        self._lives[id] = 0
        self._tell_ids()
        self.start(id)

    def take_down(self, id: ReplicaId) -> None:
        """End a process for good."""
        self.ids = tuple(other for other in self.ids if other != id)
        self.kill(id)
        self._tell_ids()

    def _tell_ids(self) -> None:
        for process in self._running.values():
            process.know(self.ids)

    def cut(self, *sides: Iterable[ReplicaId]) -> None:
        """Let the processes of one side hear only each other; clients reach all of them."""
        self.network.cut(*sides)

    def heal(self) -> None:
        """Let all processes hear each other again."""
        self.network.heal()

    async def close(self) -> None:
        """Stop everything; raises `TurnFailed` if a process stopped by itself."""
        for id in list(self._running):
            self.kill(id)
        ends = await asyncio.gather(
            *(process.ended() for process in self._ending), return_exceptions=True
        )
        for end in ends:
            if end is not None:
                raise end
