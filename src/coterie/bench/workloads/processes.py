"""What a worker does that is a whole replica, as `coterie replica` runs it: with a client port."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coterie.bench.harness.protocol import AwaitMembers, OrderDone, Serve, TakeSample
from coterie.bench.harness.sampling import Nothing, profiling, sampling
from coterie.bench.harness.worker_io import answer
from coterie.bench.workloads.objects import Box
from coterie.bench.workloads.rounds import GROUP, PATIENT
from coterie.journal.format import Sync
from coterie.kernel.engine import Role
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.objects import define
from coterie.runtime.garbage import calm_collector
from coterie.service.config import ClusterConfig, GroupConfig, ReplicaConfig, SecurityConfig
from coterie.service.process import ReplicaProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.bench.harness.protocol import ServeAccounts
    from coterie.bench.harness.worker_io import Orders
    from coterie.kernel.engine import Status


LOOPBACK = "127.0.0.1"


class _Replica(Nothing):
    """What is said of the replica. A `Source` of samples."""

    def __init__(self, process: ReplicaProcess) -> None:
        self._process = process

    @property
    def status(self) -> Status | None:
        return self._process.hosted[GROUP].status

    def is_with(self, members: int) -> bool:
        """Whether every group here is in a primary view with so many members."""
        return all(
            hosted.status is not None
            and hosted.status.role is Role.PRIMARY
            and len(hosted.status.members) == members
            for hosted in self._process.hosted.values()
        )

    @property
    def is_orderer(self) -> bool:
        status = self.status
        return status is not None and status.members[0].id == self._process.id


async def until(process: ReplicaProcess, condition: Callable[[], bool]) -> None:
    """Wait until something is so, looking after every turn."""
    ended = asyncio.Event()
    process.live.driver.turn_ended.append(ended.set)
    while not condition():
        ended.clear()
        await ended.wait()
    process.live.driver.turn_ended.remove(ended.set)


def replicas_of(order: Serve | ServeAccounts) -> dict[str, ReplicaConfig]:
    """Describe the processes of a deployment."""
    return {
        id: ReplicaConfig(
            listen=f"{order.hosts.get(id, LOOPBACK)}:{port}",
            clients=f"{order.hosts.get(id, LOOPBACK)}:{clients}",
            dir=f"{order.folder}/{id}",
        )
        for id, (port, clients) in order.ports.items()
    }


async def be_served(serve: Serve, orders: Orders) -> None:
    """Be a replica until there are no more orders."""
    async with ReplicaProcess(
        _config(serve),
        serve.id,
        objects=dict.fromkeys(_groups(serve), define(Box)),
        found=serve.is_founder,
        settings=PATIENT if serve.is_patient else DEFAULT_SETTINGS,
    ) as process:
        replica = _Replica(process)
        size = len(process.config.replicas)
        await until(process, lambda: replica.is_with(size))
        calm_collector()
        answer(OrderDone())
        with profiling(serve.profile, serve.id) as profile, sampling(replica) as sampler:
            async for order in orders:
                if isinstance(order, AwaitMembers):
                    wanted = order.members
                    await until(process, lambda wanted=wanted: replica.is_with(wanted))  # type: ignore[misc]
                    answer(OrderDone())
                    continue
                assert isinstance(order, TakeSample), order
                profile()
                answer(sampler.take())


def _groups(serve: Serve) -> list[str]:
    return [GROUP, *(f"{GROUP}-{number}" for number in range(2, serve.groups + 1))]


def _config(serve: Serve) -> ClusterConfig:
    return ClusterConfig(
        cluster=GROUP,
        groups=dict.fromkeys(
            _groups(serve),
            GroupConfig(
                class_=f"{Box.__module__}:{Box.__name__}", stack=serve.stack, sync=Sync(serve.sync)
            ),
        ),
        replicas=replicas_of(serve),
        security=SecurityConfig(allow_open=bool(serve.hosts)),
    )
