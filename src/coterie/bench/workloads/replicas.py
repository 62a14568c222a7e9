"""What a worker does that is a replica of an object, or all of them, with a load inside."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.bench.harness.protocol import (
    Fill,
    HostAllReplicas,
    HostReplica,
    Load,
    OrderDone,
    StopLoad,
    TakeSample,
)
from coterie.bench.harness.sampling import profiling, sampling
from coterie.bench.harness.worker_io import answer
from coterie.bench.workloads.load import LoadFront
from coterie.bench.workloads.objects import SUBJECTS
from coterie.bench.workloads.rounds import GROUP, PATIENT
from coterie.journal.disk import FileDisk
from coterie.journal.engines.stack_keeper import JournalKeeper
from coterie.journal.format import Sync
from coterie.journal.keeper import KeeperSettings
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings
from coterie.kernel.engine import Role
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration
from coterie.objects import define
from coterie.runtime.address import Address
from coterie.runtime.driver import clock
from coterie.runtime.garbage import calm_collector
from coterie.runtime.in_memory import MemoryNetwork
from coterie.runtime.process import LiveProcess
from coterie.service.engines.stack import HostedObject
from coterie.service.in_memory import MemoryProcess
from coterie.service.recorder import JournalRecorder

if TYPE_CHECKING:
    from coterie.bench.harness.worker_io import Orders
    from coterie.kernel.engine import Status
    from coterie.runtime.driver import Driver
    from coterie.service.port import ClientPort

FILL_AT_ONCE = 10_000


class Watch(LoadFront):
    """The load, which also notes how long the replica was a learner. A `Source` of samples."""

    def __init__(self) -> None:
        super().__init__()
        self.driver: Driver
        self.is_orderer = False
        self.learning_seconds = 0.0
        self._learning_since = 0.0

    @property
    def turns(self) -> int:
        return self.driver.turns

    def status_changed(self, status: Status) -> None:
        now = time.perf_counter()
        if self._learning_since:
            self.learning_seconds += now - self._learning_since
        self._learning_since = now if status.role is Role.LEARNER else 0.0
        super().status_changed(status)


async def be_replica(host: HostReplica, listener: socket.socket, orders: Orders) -> None:
    """Be a replica until there are no more orders."""
    if host.port:
        listener.close()
        listener = socket.create_server(("127.0.0.1", host.port))
    peers = {id: Address("127.0.0.1", port) for id, port in host.peers.items()}
    keeper = _open_journal(host) if host.folder else None
    watch = Watch()
    async with LiveProcess(
        id=host.id,
        incarnation=1 if keeper is None else keeper.incarnation,
        cluster=GROUP,
        listen=listener,
        peers=peers,
        recorder=None if keeper is None else JournalRecorder({GROUP: keeper}),
        settings=PATIENT if host.is_patient else DEFAULT_SETTINGS,
    ) as live:
        hosted = HostedObject(
            live,
            group=GROUP,
            definition=define(SUBJECTS[host.subject]),
            stack=host.stack,
            configuration=Configuration(1, tuple(sorted([host.id, *peers]))),
            front=watch,
            keeper=keeper,
        )
        watch.ask = hosted.ask
        watch.driver = live.driver
        live.driver.turn_ended.append(watch.turn_ended)
        while not _is_whole(hosted, len(peers) + 1):
            watch.changed.clear()
            await watch.changed.wait()
        await _serve(orders, watch, host.profile, host.id)


async def be_group(host: HostAllReplicas, orders: Orders) -> None:
    """Be all replicas of a group until there are no more orders; the first has the load."""
    ids = tuple(f"r{number}" for number in range(1, host.replicas + 1))
    hosted: dict[str, HostedObject] = {}
    watches = {id: Watch() for id in ids}

    def put(live: LiveProcess, _: ClientPort) -> None:
        watch = watches[live.id]
        hosted[live.id] = HostedObject(
            live,
            group=GROUP,
            definition=define(SUBJECTS[host.subject]),
            stack=host.stack,
            configuration=Configuration(1, ids),
            front=watch,
        )
        watch.ask = hosted[live.id].ask
        watch.driver = live.driver
        live.driver.turn_ended.append(watch.turn_ended)

    network = MemoryNetwork()
    processes = [MemoryProcess(network, id, 1, ids, put) for id in ids]
    try:
        for process in processes:
            await process.ready
        for id in ids:
            while not _is_whole(hosted[id], len(ids)):
                watches[id].changed.clear()
                await watches[id].changed.wait()
        await _serve(orders, watches[ids[0]], host.profile, "all")
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            await process.ended()


async def _serve(orders: Orders, watch: Watch, folder: str, name: str) -> None:
    """Say that the replica is ready, and obey."""
    calm_collector()
    answer(OrderDone())
    with profiling(folder, name) as profile, sampling(watch) as sampler:
        async for order in orders:
            match order:
                case Load():
                    await watch.start(order)
                    answer(OrderDone())
                case Fill():
                    for first in range(0, order.values, FILL_AT_ONCE):
                        count = min(FILL_AT_ONCE, order.values - first)
                        await watch.call_once("fill", first, count, order.value_bytes)
                    answer(OrderDone())
                case TakeSample():
                    profile()  # from the first sample on: the warm-up is over
                    answer(sampler.take())
                case StopLoad():
                    await watch.stop()
                    answer(OrderDone())
                case _:
                    raise AssertionError(order)


def _open_journal(host: HostReplica) -> JournalKeeper:
    disk = FileDisk(Path(host.folder))
    if host.is_founder:
        found_group(disk, GROUP, host.id)
    return JournalKeeper(
        disk,
        GROUP,
        host.id,
        KeeperSettings(journal=JournalSettings(sync=Sync(host.sync))),
        # A disk that founds nothing replaces one that is lost; nobody here knows how many lives
        # there were, but each took more than a second.
        incarnation_min=1 if host.is_founder else int(time.time()),
        at=clock(),
    )


def _is_whole(hosted: HostedObject, size: int) -> bool:
    status = hosted.status
    return status is not None and status.role is Role.PRIMARY and len(status.members) == size
