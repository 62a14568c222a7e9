"""One process of a deployment: a replica of every group, their journals, and the way in.

    async with ReplicaProcess(config, "a", objects=load_objects(config)) as process:
        print("clients are taken at", process.port.address)
        await process.wait_failed()

What happens when it starts, in this order: the folder is locked; every group's journal is read
and a new life begun in it; the replicas are built on what was found; the sockets are opened. So a
process that cannot keep its promises says so before anybody hears of it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from coterie.journal.keeper import JournalKeeper, KeeperSettings
from coterie.journal.recovery import recover
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings
from coterie.kernel.errors import CoterieError
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration
from coterie.objects import HostSettings
from coterie.runtime.address import parse_address
from coterie.runtime.driver import clock
from coterie.runtime.process import LiveProcess
from coterie.service.classes import load_class
from coterie.service.folder import open_folder
from coterie.service.hosted import HostedObject
from coterie.service.metrics import MetricsPort
from coterie.service.port import ClientPort
from coterie.service.recorder import JournalRecorder
from coterie.service.security import keep_certificates_fresh, load_security

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from coterie.journal.disk import FileDisk
    from coterie.kernel.settings import Settings
    from coterie.objects import Definition
    from coterie.service.config import ClusterConfig


LEAVE_SECONDS = 1.0
"""How long a process that stops waits for the others to know."""


def load_objects(config: ClusterConfig) -> dict[str, Definition]:
    """Load the class of every group; raises `ClassNotFound` or `NotReplicable`."""
    return {name: load_class(group.class_) for name, group in config.groups.items()}


class ReplicaProcess:
    """Everything that runs under one id. *found* makes it one of those its groups begin with."""

    def __init__(
        self,
        config: ClusterConfig,
        id: str,
        *,
        objects: Mapping[str, Definition],
        found: bool = False,
        settings: Settings = DEFAULT_SETTINGS,
    ) -> None:
        if id not in config.replicas:
            known = ", ".join(config.ids)
            raise CoterieError(f"there is no replica {id!r} in the configuration; it has {known}")
        self.config = config
        self.id = id
        self.hosted: dict[str, HostedObject] = {}
        self.keepers: dict[str, JournalKeeper] = {}
        self._objects = objects
        self._found = found
        self._settings = settings
        self._stack = AsyncExitStack()
        self.live: LiveProcess
        self.port: ClientPort

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(kind, error, traceback)

    async def _start(self, stack: AsyncExitStack) -> None:
        config, id = self.config, self.id
        mine = config.replicas[id]
        disk = stack.enter_context(open_folder(Path(mine.dir), id, config.groups))
        security = load_security(config.security)
        incarnation = self._begin_lives(disk)
        self.live = await stack.enter_async_context(
            LiveProcess(
                id=id,
                incarnation=incarnation,
                cluster=config.cluster,
                listen=parse_address(mine.listen),
                peers={
                    other: replica.peer_address
                    for other, replica in config.replicas.items()
                    if other != id
                },
                recorder=JournalRecorder(self.keepers),
                settings=self._settings,
                security=security,
            )
        )
        port = ClientPort(
            replica=id,
            incarnation=incarnation,
            listen=parse_address(mine.clients),
            addresses={
                other: str(replica.client_address) for other, replica in config.replicas.items()
            },
            secret=security.secret,
            tls=None if security.tls is None else security.tls.server,
        )
        self.port = port
        for name, group in config.groups.items():
            front = port.front(name)
            hosted = self.hosted[name] = HostedObject(
                self.live,
                group=name,
                definition=self._objects[name],
                stack=group.stack,
                configuration=Configuration(1, config.ids),
                front=front,
                keeper=self.keepers[name],
                settings=HostSettings(dump_interval=group.dump_interval),
            )
            front.attach(hosted)
        self.live.driver.turn_ended.append(port.turn_ended)
        await stack.enter_async_context(port)
        if mine.metrics:
            metrics = MetricsPort(self, parse_address(mine.metrics))
            await stack.enter_async_context(metrics)
        if security.tls is not None:
            fresh = asyncio.create_task(keep_certificates_fresh(security.tls))
            stack.callback(fresh.cancel)

    def _begin_lives(self, disk: FileDisk) -> int:
        """Begin a life in every journal, all with the same number; give it."""
        groups = self.config.groups
        if self._found:
            for name in groups:
                try:
                    found_group(disk, name, self.id)
                except ValueError as error:
                    raise CoterieError(
                        f"{error}; start it without founding, and it goes on from what is there"
                    ) from None
        recoveries = [recover(disk, name, self.id) for name in groups]
        incarnation = max(recovery.incarnation for recovery in recoveries)
        if any(each.incarnation == 1 and not each.is_founder for each in recoveries):
            # An empty disk that founds nothing replaces one that is lost. Nobody here knows how
            # many lives there were; each took more than a second.
            incarnation = max(incarnation, int(time.time()))
        for name, group in groups.items():
            self.keepers[name] = JournalKeeper(
                disk,
                name,
                self.id,
                KeeperSettings(journal=JournalSettings(sync=group.sync)),
                incarnation_min=incarnation,
                at=clock(),
            )
        return incarnation

    async def leave(self) -> None:
        """Leave all groups in good order, as far as that takes no longer than a moment."""
        loop = asyncio.get_running_loop()
        left: asyncio.Future[None] = loop.create_future()

        def turn_ended() -> None:
            if all(hosted.has_left for hosted in self.hosted.values()) and not left.done():
                left.set_result(None)

        self.live.driver.turn_ended.append(turn_ended)
        for hosted in self.hosted.values():
            hosted.leave()
        await asyncio.wait([left], timeout=LEAVE_SECONDS)

    async def wait_failed(self) -> None:
        """Wait, perhaps for ever, and raise what stopped the process."""
        await self.live.driver.wait_failed()
