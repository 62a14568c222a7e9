"""Five replicas in this process, with real journals and a network to be cut.

Everything is as in a deployment but the wires: they are in memory, and a switch decides whether
what replicas say to each other arrives. Callers reach every replica.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from coterie.journal.disk import FileDisk
from coterie.journal.engines.stack_keeper import JournalKeeper
from coterie.journal.format import Sync
from coterie.journal.keeper import KeeperSettings
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings
from coterie.kernel.engine import Role
from coterie.kernel.views import Configuration
from coterie.objects import HostSettings, define
from coterie.runtime.driver import clock
from coterie.runtime.in_memory import MemoryNetwork
from coterie.service.engines.stack import HostedObject
from coterie.service.engines.stack_front import ObjectFront
from coterie.service.in_memory import MemoryProcess, client_address
from coterie.service.recorder import JournalRecorder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from coterie.runtime.in_memory import MemoryHost
    from coterie.runtime.process import LiveProcess
    from coterie.service.port import ClientPort

GROUP = "exchange"


class SwitchedGroup:
    """The replicas, and the switch. `async with` starts and stops them."""

    def __init__(self, cls: type, ids: Sequence[str], *, stack: str, folder: Path) -> None:
        self.ids = tuple(ids)
        self.folder = folder
        self.stack = stack
        self.addresses = {id: client_address(id) for id in ids}
        self._definition = define(cls)
        self._network = MemoryNetwork()
        self._running: dict[str, MemoryProcess] = {}
        self._hosted: dict[str, HostedObject] = {}
        for id in ids:
            found_group(FileDisk(folder / id), GROUP, id)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stop)
            for id in self.ids:
                self.start(id)
            for process in self._running.values():
                await process.ready
            stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _stop(self) -> None:
        for id in list(self._running):
            await self.kill(id)

    @property
    def callers(self) -> MemoryHost:
        """The network as callers see it."""
        return self._network.host("callers")

    # ---- replicas

    def start(self, id: str) -> None:
        """Start a replica; it goes on from what its journal says."""
        keeper = JournalKeeper(
            FileDisk(self.folder / id),
            GROUP,
            id,
            KeeperSettings(journal=JournalSettings(sync=Sync.NONE)),
            at=clock(),
        )

        def put(live: LiveProcess, port: ClientPort) -> None:
            front = ObjectFront(port, GROUP)
            self._hosted[id] = hosted = HostedObject(
                live,
                group=GROUP,
                definition=self._definition,
                stack=self.stack,
                configuration=Configuration(1, self.ids),
                front=front,
                keeper=keeper,
                settings=HostSettings(dump_interval=500, digest_interval=100),
            )
            front.attach(hosted)

        self._running[id] = MemoryProcess(
            self._network,
            id,
            keeper.incarnation,
            self.ids,
            put,
            recorder=JournalRecorder({GROUP: keeper}),
        )

    async def kill(self, id: str) -> None:
        """End a replica at once; its journal keeps what was written."""
        process = self._running.pop(id)
        del self._hosted[id]
        process.kill()
        await process.ended()

    def __getitem__(self, id: str) -> HostedObject:
        return self._hosted[id]

    @property
    def running(self) -> tuple[str, ...]:
        """The replicas that are up, in alphabetical order."""
        return tuple(sorted(self._running))

    def is_whole(self, ids: Iterable[str] | None = None) -> bool:
        """Say whether these replicas (all that run) are in one primary view of exactly them."""
        wanted = sorted(self._running if ids is None else ids)
        for id in wanted:
            hosted = self._hosted.get(id)
            status = None if hosted is None else hosted.status
            if status is None or status.role is not Role.PRIMARY:
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
        """Let bytes pass within each side only."""
        self._network.cut(*sides)

    def heal(self) -> None:
        """Let all bytes pass."""
        self._network.heal()
