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
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from coterie.journal.stable import Stable
from coterie.kernel.errors import CoterieError, Refused
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.ready.locations import LOCATIONS
from coterie.runtime.address import parse_address
from coterie.runtime.events import log
from coterie.runtime.in_memory import MemoryNetwork
from coterie.runtime.process import LiveProcess
from coterie.runtime.security import SecurityError, read_secrets
from coterie.service.acquaintances import Acquaintances
from coterie.service.disk_marks import DiskMarks, found_groups
from coterie.service.engines.family import Slot
from coterie.service.folder import open_folder
from coterie.service.limits import port_settings
from coterie.service.operate.metrics import MetricsPort
from coterie.service.port import ClientPort
from coterie.service.recorder import JournalRecorder
from coterie.service.registering import Registrar, located
from coterie.service.security import (
    CertificateWatch,
    SecretWatch,
    check_certificate,
    load_clients,
    load_security,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from coterie.journal.disk import FileDisk
    from coterie.journal.keeper import Keeper
    from coterie.kernel.settings import Settings
    from coterie.objects import Definition
    from coterie.service.config import ClusterConfig, GroupConfig
    from coterie.service.engines.family import Start
    from coterie.service.engines.hosted import HostedReplica


LEAVE_SECONDS = 1.0
"""How long a process that stops waits for the others to know."""


def load_objects(config: ClusterConfig) -> dict[str, Definition]:
    """Load the class of every group; raises `ClassNotFound` or `NotReplicable`."""
    return {name: load_object(group) for name, group in config.all_groups.items()}


def load_object(group: GroupConfig) -> Definition:
    """Load the class of one group; raises `ClassNotFound` or `NotReplicable`."""
    return group.family.load(group)


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
        self.hosted: dict[str, HostedReplica] = {}
        """The replicas here, by the names of their groups."""
        self.keepers: dict[str, Keeper] = {}
        self.removed = asyncio.Event()
        """Set when the groups have gone on without this process for good."""
        self.refused = asyncio.Event()
        """Set when it was founded beside others that have met it before: it must not go on."""
        self._refusal = ""
        self._removed_from: set[str] = set()
        self._starts: dict[str, Start] = {}
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
        security = load_security(config, id)
        clients = load_clients(config, security)
        if security.tls is not None:
            check_certificate(security.tls)
        incarnation = self._begin_lives(disk)
        marks = DiskMarks(disk, id)
        marks.refused = self._founded_apart
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
                marks=marks,
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
            driver=self.live.driver,
            clients=clients,
            audited=[name for name, group in groups.items() if group.audit],
            tls=security.tls,
            settings=port_settings(config.limits),
        )
        self.port = port
        for name, start in self._starts.items():
            self.hosted[name] = start.host(self.live, port, self._objects[name])
        self.live.driver.answering.append(port.turn_ended)
        self.live.driver.turn_ended.append(port.turn_ended)
        await stack.enter_async_context(port)
        for hosted in self.hosted.values():
            if hosted.way_in is not None:
                await stack.enter_async_context(hosted.way_in)
        if mine.metrics:
            metrics = MetricsPort(self, parse_address(mine.metrics))
            await stack.enter_async_context(metrics)
        registrar = await self._start_registrar(stack)
        secrets = None
        if not security.is_open:
            secrets = SecretWatch(config, id, self.live.transport, port)
            stack.callback(asyncio.create_task(secrets.run()).cancel)
        acquaintances = Acquaintances(config, self.live, port, secrets)
        if registrar is not None:
            acquaintances.met.append(registrar.moved.set)
        self.live.driver.turn_ended.append(acquaintances.turn_ended)
        self.live.driver.turn_ended.append(self._look_for_removal)
        if security.tls is not None:
            watch = CertificateWatch(security.tls, (self.live.transport, port))
            stack.callback(asyncio.create_task(watch.run()).cancel)

    async def _start_registrar(self, stack: AsyncExitStack) -> Registrar | None:
        """Have the location service told where the groups here are, if there is one."""
        port = self.port
        if LOCATIONS not in self.hosted:
            return None
        inside = MemoryNetwork()
        address = await port.listen_inside(inside)
        registrar = Registrar(self.config, self.id, address, inside.host(self.id))
        run = registrar.run(lambda: located(self.hosted, port.addresses))
        stack.push_async_callback(_end, asyncio.create_task(run))
        return registrar

    def _begin_lives(self, disk: FileDisk) -> int:
        """Begin a life in every journal, all with the same number; give it."""
        groups = self._groups_left(disk)
        if self._found:
            try:
                found_groups(disk, self.config, self.id, groups)
            except ValueError as error:
                raise CoterieError(
                    f"{error}; start it without founding, and it goes on from what is there"
                ) from None
        for name, group in groups.items():
            self._check_joining(disk, name)
            self._starts[name] = group.family.start(disk, Slot(self.config, name, self.id))
        incarnation = max(start.incarnation for start in self._starts.values())
        for name, start in self._starts.items():
            self.keepers[name] = start.begin(incarnation)
        return incarnation

    def _groups_left(self, disk: FileDisk) -> dict[str, GroupConfig]:
        """Give the groups that the replica was not removed from; raises if there is none."""
        groups = self.config.groups_at(self.id)
        left = {
            name: group
            for name, group in groups.items()
            if not Stable(disk, name, self.id).values.is_removed
        }
        if not left:
            names = ", ".join(groups.keys() - {LOCATIONS})
            raise CoterieError(
                f"replica {self.id} was removed from {names}, and its disk says so: ids are never "
                "used again, so add a replica with a new id and a dir of its own (coterie add)"
            )
        for name in groups.keys() - left.keys():
            log(logging.WARNING, "not started: it was removed", group=name, replica=self.id)
        return left

    def _check_joining(self, disk: FileDisk, group: str) -> None:
        """Refuse a disk that began another group: what it knows is no part of the one it joins."""
        joins = group in self.config.replicas[self.id].joins
        if joins and Stable(disk, group, self.id).values.is_founder:
            raise CoterieError(
                f"replica {self.id} is to join {group}, and its disk founded a {group} of its own: "
                "two histories are never made one, so give the replica an empty dir and a new id"
            )

    def _founded_apart(self, peer: str, reason: str) -> None:
        """Go no further where others knew us before, unless it is too late: then stay apart."""
        mine = [each for name, each in self.hosted.items() if name != LOCATIONS]
        if any(each.version.position for each in mine):
            log(logging.ERROR, "founded apart", replica=self.id, peer=peer, reason=reason)
            return
        self._refusal = reason
        self.refused.set()

    def check_refusal(self) -> None:
        """Raise `CoterieError` if this process was founded beside others that knew it."""
        if self.refused.is_set():
            raise CoterieError(
                f"{self._refusal}. Nothing was done here: the group has a history, and goes on "
                "where it is"
            )

    def check_secret(self, id: str) -> None:
        """See to it that a newcomer can show who it is; raises `Refused` with what is missing."""
        security = self.config.security
        if security.replica_secrets:
            try:
                read_secrets(security.secret_between(self.id, id))
            except SecurityError as error:
                raise Refused(
                    f"{id} could not show to {self.id} who it is: {error}; write the secrets with "
                    "coterie secrets FILE, and take to each machine those with its name in theirs"
                ) from None

    def _look_for_removal(self) -> None:
        """Mark the disk where the replica of a group was removed; tell when none is left."""
        for name, hosted in self.hosted.items():
            if hosted.is_removed and name not in self._removed_from:
                self._removed_from.add(name)
                hosted.mark_removed()
                log(logging.WARNING, "removed", group=name, replica=self.id)
                # The location service goes on here until it has learned to do without this process.
                if self.hosted.keys() <= self._removed_from:
                    self.removed.set()

    async def leave(self) -> None:
        """Leave all groups in good order, as far as that takes no longer than a moment."""
        loop = asyncio.get_running_loop()
        left: asyncio.Future[None] = loop.create_future()

        def turn_ended() -> None:
            if all(each.has_left for each in self.hosted.values()) and not left.done():
                left.set_result(None)

        self.live.driver.turn_ended.append(turn_ended)
        for each in self.hosted.values():
            each.leave()
        await asyncio.wait([left], timeout=LEAVE_SECONDS)

    async def wait_failed(self) -> None:
        """Wait, perhaps for ever, and raise what stopped the process."""
        await self.live.driver.wait_failed()


async def _end(task: asyncio.Task[None]) -> None:
    """End a task, and wait until it has let go of what it holds."""
    task.cancel()
    await asyncio.wait([task])
