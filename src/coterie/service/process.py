"""One process of a deployment: a replica of each of its groups, their journals, and the way in.

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

from coterie.client.locations import LOCATIONS
from coterie.journal.cohort_keeper import CohortKeeper
from coterie.journal.cohorts import recover_cohort
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
from coterie.service.config import directory_of
from coterie.service.folder import open_folder
from coterie.service.guests import Guests
from coterie.service.hosted import HostedObject
from coterie.service.hosted_cohort import HostedCohort
from coterie.service.metrics import MetricsPort
from coterie.service.port import ClientPort
from coterie.service.recorder import JournalRecorder
from coterie.service.registering import register
from coterie.service.security import keep_certificates_fresh, load_security
from coterie.transactional import ObjectExecutor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from coterie.journal.disk import FileDisk
    from coterie.journal.keeper import Keeper
    from coterie.kernel.settings import Settings
    from coterie.objects import Definition
    from coterie.service.config import ClusterConfig, GroupConfig


LEAVE_SECONDS = 1.0
"""How long a process that stops waits for the others to know."""


def load_objects(config: ClusterConfig) -> dict[str, Definition]:
    """Load the class of every group; raises `ClassNotFound` or `NotReplicable`."""
    return {name: load_object(group) for name, group in config.all_groups.items()}


def load_object(group: GroupConfig) -> Definition:
    """Load the class of one group; raises `ClassNotFound` or `NotReplicable`."""
    definition = load_class(group.class_, may_wait=group.is_vsr)
    if group.is_vsr:
        ObjectExecutor(definition.cls)  # some classes that stacks run cannot be run here
    return definition


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
        self.cohorts: dict[str, HostedCohort] = {}
        """The groups under **vsr**."""
        self.keepers: dict[str, Keeper] = {}
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
        groups = config.groups_at(id)
        disk = stack.enter_context(open_folder(Path(mine.dir), id, groups))
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
            cluster=config.cluster,
            guests=Guests(self.live.driver, [each for each in groups if groups[each].is_vsr]),
            secret=security.secret,
            tls=None if security.tls is None else security.tls.server,
        )
        self.port = port
        for name, group in groups.items():
            if group.is_vsr:
                self._host_cohort(name)
            else:
                self._host_object(name, group)
        self.live.driver.turn_ended.append(port.turn_ended)
        await stack.enter_async_context(port)
        if mine.metrics:
            metrics = MetricsPort(self, parse_address(mine.metrics))
            await stack.enter_async_context(metrics)
        if LOCATIONS in self.hosted:
            registering = asyncio.create_task(register(config, id, security))
            stack.push_async_callback(_end, registering)
        if security.tls is not None:
            fresh = asyncio.create_task(keep_certificates_fresh(security.tls))
            stack.callback(fresh.cancel)

    def _host_object(self, name: str, group: GroupConfig) -> None:
        front, keeper = self.port.front(name), self.keepers[name]
        assert isinstance(keeper, JournalKeeper), "a group with a stack"
        hosted = self.hosted[name] = HostedObject(
            self.live,
            group=name,
            definition=self._objects[name],
            stack=group.ordered_by,
            configuration=Configuration(1, self.config.members(name)),
            front=front,
            keeper=keeper,
            settings=HostSettings(dump_interval=group.dump_interval),
        )
        front.attach(hosted)

    def _host_cohort(self, name: str) -> None:
        front, keeper = self.port.cohort_front(name), self.keepers[name]
        assert isinstance(keeper, CohortKeeper), "a group under vsr"
        hosted = self.cohorts[name] = HostedCohort(
            self.live,
            group=name,
            definition=self._objects[name],
            directory=directory_of(self.config),
            front=front,
            keeper=keeper,
        )
        front.attach(hosted)

    def _begin_lives(self, disk: FileDisk) -> int:
        """Begin a life in every journal, all with the same number; give it."""
        groups = self.config.groups_at(self.id)
        directory = directory_of(self.config)
        if self._found:
            for name in groups:
                try:
                    found_group(disk, name, self.id, directory.get(name))
                except ValueError as error:
                    raise CoterieError(
                        f"{error}; start it without founding, and it goes on from what is there"
                    ) from None
        incarnation = 1
        for name, group in groups.items():
            if group.is_vsr:
                cohort = recover_cohort(disk, name, self.id, directory[name])
                incarnation = max(incarnation, cohort.incarnation)
                continue
            recovery = recover(disk, name, self.id)
            incarnation = max(incarnation, recovery.incarnation)
            if recovery.incarnation == 1 and not recovery.is_founder:
                # An empty disk that founds nothing replaces one that is lost. Nobody here knows
                # how many lives there were; each took more than a second.
                incarnation = max(incarnation, int(time.time()))
        for name, group in groups.items():
            settings = KeeperSettings(journal=JournalSettings(sync=group.sync))
            self.keepers[name] = (
                CohortKeeper(
                    *(disk, name, self.id, directory[name], settings), incarnation_min=incarnation
                )
                if group.is_vsr
                else JournalKeeper(
                    *(disk, name, self.id, settings), incarnation_min=incarnation, at=clock()
                )
            )
        return incarnation

    @property
    def groups(self) -> dict[str, HostedObject | HostedCohort]:
        """All groups that have a replica here, by name."""
        return {**self.hosted, **self.cohorts}

    async def leave(self) -> None:
        """Leave all groups in good order, as far as that takes no longer than a moment."""
        loop = asyncio.get_running_loop()
        left: asyncio.Future[None] = loop.create_future()

        def turn_ended() -> None:
            if all(each.has_left for each in self.groups.values()) and not left.done():
                left.set_result(None)

        self.live.driver.turn_ended.append(turn_ended)
        for each in self.groups.values():
            each.leave()
        await asyncio.wait([left], timeout=LEAVE_SECONDS)

    async def wait_failed(self) -> None:
        """Wait, perhaps for ever, and raise what stopped the process."""
        await self.live.driver.wait_failed()


async def _end(task: asyncio.Task[None]) -> None:
    """End a task, and wait until it has let go of what it holds."""
    task.cancel()
    await asyncio.wait([task])
