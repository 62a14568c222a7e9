"""Five replicas in this process, with real journals and client ports and a network to be cut.

Everything is as in a deployment but the wires between the replicas: frames are handed over in
memory, and a switch decides whether they arrive.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from coterie.assembly import make_process
from coterie.journal.disk import FileDisk
from coterie.journal.format import Sync
from coterie.journal.keeper import JournalKeeper, KeeperSettings
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration
from coterie.kernel.wire import decode_frame
from coterie.objects import HostSettings, define
from coterie.runtime.driver import Driver, clock
from coterie.service.hosted import HostedObject
from coterie.service.port import ClientPort
from coterie.service.recorder import JournalRecorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from coterie.kernel.replica import Replica

GROUP = "exchange"


class _Wires:
    """The transport of one replica."""

    def __init__(self, exchange: SwitchedGroup, id: str) -> None:
        self._exchange = exchange
        self._id = id
        self.counters: dict[str, int] = {}

    def send(self, destination: str, frame: bytes) -> None:
        self._exchange.carry(self._id, destination, frame)

    def multicast(self, destinations: Sequence[str], frame: bytes) -> None:
        for destination in destinations:
            self._exchange.carry(self._id, destination, frame)

    def flush(self) -> None:
        pass


class _Seat:
    """A process with its driver, as `HostedObject` needs it."""

    def __init__(self, id: str, keeper: JournalKeeper, ids: Sequence[str]) -> None:
        self.process = make_process(id, keeper.incarnation, ids, DEFAULT_SETTINGS)
        recorder = JournalRecorder({GROUP: keeper})
        self.driver = Driver(self.process, recorder, asyncio.get_running_loop())

    def host(self, replica: Replica) -> None:
        self.process.host(replica)


class _Running:
    """A replica that is up."""

    def __init__(self, seat: _Seat, hosted: HostedObject, port: ClientPort) -> None:
        self.driver = seat.driver
        self.hosted = hosted
        self.port = port


class SwitchedGroup:
    """The replicas, and the switch. `async with` starts and stops them."""

    def __init__(self, cls: type, ids: Sequence[str], *, stack: str, folder: Path) -> None:
        self.ids = tuple(ids)
        self.folder = folder
        self.stack = stack
        self._definition = define(cls)
        self._listeners = {id: socket.create_server(("127.0.0.1", 0)) for id in ids}
        self.addresses = {
            id: f"127.0.0.1:{listener.getsockname()[1]}" for id, listener in self._listeners.items()
        }
        self._running: dict[str, _Running] = {}
        self._side = dict.fromkeys(ids, 0)
        for id in ids:
            found_group(FileDisk(folder / id), GROUP, id)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stop)
            for id in self.ids:
                await self.start(id)
            stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        for id in list(self._running):
            await self.kill(id)
        for listener in self._listeners.values():
            listener.close()

    # ---- replicas

    async def start(self, id: str) -> None:
        """Start a replica; it goes on from what its journal says."""
        keeper = JournalKeeper(
            FileDisk(self.folder / id),
            GROUP,
            id,
            KeeperSettings(journal=JournalSettings(sync=Sync.NONE)),
            at=clock(),
        )
        seat = _Seat(id, keeper, self.ids)
        port = ClientPort(
            replica=id,
            incarnation=keeper.incarnation,
            listen=self._listeners[id].dup(),
            addresses=self.addresses,
        )
        hosted = HostedObject(
            seat,
            group=GROUP,
            definition=self._definition,
            stack=self.stack,
            configuration=Configuration(1, self.ids),
            front=port.front(GROUP),
            keeper=keeper,
            settings=HostSettings(dump_interval=500, digest_interval=100),
        )
        port.front(GROUP).attach(hosted)
        seat.driver.turn_ended.append(port.turn_ended)
        await port.__aenter__()
        self._running[id] = _Running(seat, hosted, port)
        seat.driver.start(_Wires(self, id))

    async def kill(self, id: str) -> None:
        """End a replica at once; its journal keeps what was written."""
        running = self._running.pop(id)
        running.driver.stop()
        await running.port.__aexit__(None, None, None)
        await running.driver.wait_idle()

    def __getitem__(self, id: str) -> HostedObject:
        return self._running[id].hosted

    @property
    def running(self) -> tuple[str, ...]:
        """The replicas that are up, in alphabetical order."""
        return tuple(sorted(self._running))

    def is_whole(self, ids: Iterable[str] | None = None) -> bool:
        """Say whether these replicas (all that run) are in one primary view of exactly them."""
        wanted = sorted(self._running if ids is None else ids)
        for id in wanted:
            status = self[id].status if id in self._running else None
            if status is None or not self[id].is_primary:
                return False
            if sorted(member.id for member in status.members) != wanted:
                return False
        return True

    async def wait_whole(self, ids: Iterable[str] | None = None, *, seconds: float = 20) -> None:
        """Wait until these replicas (all that run) are in one primary view."""
        wanted = None if ids is None else list(ids)
        async with asyncio.timeout(seconds):
            while not self.is_whole(wanted):  # noqa: ASYNC110 -- replicas are watched, not asked
                await asyncio.sleep(0.01)

    # ---- the switch

    def cut(self, *sides: Iterable[str]) -> None:
        """Let frames pass within each side only."""
        for number, side in enumerate(sides):
            for id in side:
                self._side[id] = number

    def heal(self) -> None:
        """Let all frames pass."""
        self._side = dict.fromkeys(self.ids, 0)

    def carry(self, source: str, destination: str, frame: bytes) -> None:
        """Hand a frame over, if the switch lets it pass."""
        running = self._running.get(destination)
        if running is not None and self._side[source] == self._side[destination]:
            limit = DEFAULT_SETTINGS.frame_bytes_max
            running.driver.frame_arrived(decode_frame(frame, frame_bytes_max=limit))
