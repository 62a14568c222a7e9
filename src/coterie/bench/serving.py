"""What a worker does that is a whole replica, as `coterie replica` runs it: with a client port."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coterie.bench.rowing import GROUP, PATIENT
from coterie.bench.sampling import Nothing, profiling, sampling
from coterie.bench.speech import answer
from coterie.bench.subjects import Box
from coterie.bench.words import Ready, Sample, Serve
from coterie.journal.format import Sync
from coterie.kernel.engine import Role
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.objects import define
from coterie.runtime.garbage import calm_collector
from coterie.service.config import ClusterConfig, GroupConfig, ReplicaConfig
from coterie.service.process import ReplicaProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.bench.speech import Orders
    from coterie.bench.words import Keep
    from coterie.kernel.engine import Status


class _Replica(Nothing):
    """What is said of the replica. A `Source` of samples."""

    def __init__(self, process: ReplicaProcess) -> None:
        self._process = process

    @property
    def status(self) -> Status | None:
        return self._process.hosted[GROUP].status

    @property
    def is_whole(self) -> bool:
        """Whether it is in a primary view with all others."""
        status = self.status
        size = len(self._process.config.replicas)
        return status is not None and status.role is Role.PRIMARY and len(status.members) == size

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


def replicas_of(order: Serve | Keep) -> dict[str, ReplicaConfig]:
    """Describe the processes of a deployment."""
    return {
        id: ReplicaConfig(
            listen=f"127.0.0.1:{port}",
            clients=f"127.0.0.1:{clients}",
            dir=f"{order.folder}/{id}",
        )
        for id, (port, clients) in order.ports.items()
    }


async def be_served(serve: Serve, orders: Orders) -> None:
    """Be a replica until there are no more orders."""
    async with ReplicaProcess(
        _config(serve),
        serve.id,
        objects={GROUP: define(Box)},
        found=serve.is_founder,
        settings=PATIENT if serve.is_patient else DEFAULT_SETTINGS,
    ) as process:
        replica = _Replica(process)
        await until(process, lambda: replica.is_whole)
        calm_collector()
        answer(Ready())
        with profiling(serve.profile, serve.id) as profile, sampling(replica) as sampler:
            async for order in orders:
                assert isinstance(order, Sample), order
                profile()
                answer(sampler.take())


def _config(serve: Serve) -> ClusterConfig:
    return ClusterConfig(
        cluster=GROUP,
        groups={
            GROUP: GroupConfig(
                class_=f"{Box.__module__}:{Box.__name__}", stack=serve.stack, sync=Sync(serve.sync)
            )
        },
        replicas=replicas_of(serve),
    )
