"""What workers do in the benchmark of viewstamped replication: keep accounts, and use them.

One deployment has five groups of the same class in the same processes, so that they are compared in
one run: two replicated groups, two of one cohort each (the unreplicated run that the paper compares
with), and one under a stack, whose calls are ordered.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from coterie.bench.harness.protocol import (
    Counted,
    CountPrepares,
    OrderDone,
    StopLoad,
    TakeSample,
    Transact,
    TransactTogether,
)
from coterie.bench.harness.sampling import Nothing, profiling, sampling
from coterie.bench.harness.worker_io import answer
from coterie.bench.workloads.clients import DEADLINE
from coterie.bench.workloads.closed_loop import ClosedLoop
from coterie.bench.workloads.measuring import summarize
from coterie.bench.workloads.objects import Accounts
from coterie.bench.workloads.processes import replicas_of, until
from coterie.bench.workloads.rounds import PATIENT
from coterie.client import ClientSettings, connect
from coterie.client.sessions.vsr.transactions import transaction
from coterie.journal.format import Sync
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.runtime.garbage import calm_collector
from coterie.service.config import ClusterConfig, GroupConfig
from coterie.service.process import ReplicaProcess, load_objects
from coterie.transactional import TransactionAborted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coterie.bench.harness.protocol import ConnectAccounts, Latencies, ServeAccounts
    from coterie.bench.harness.worker_io import Orders

GROUPS: dict[str, tuple[str, str]] = {
    "replicated": ("one", "two"),
    "unreplicated": ("solo", "duo"),
    "ordered": ("ordered", "ordered"),
}
"""By kind, the group that coordinates and a second one."""
ALONE = 100
"""How many accounts a client that is alone uses; the others are for many clients."""
CALLS = 10
"""How many calls a long transaction makes."""
PREPARES = "vsr.prepares"
WAITED = "vsr.prepares_waited"


def config_of(serve: ServeAccounts) -> ClusterConfig:
    """Describe the deployment; the primaries of the first and the second group are spread."""
    ids = sorted(serve.ports)
    kind = f"{Accounts.__module__}:{Accounts.__name__}"
    turned = (*ids[1:], ids[0])
    sync = Sync(serve.sync)
    return ClusterConfig(
        cluster="accounts",
        groups={
            "one": GroupConfig(class_=kind, engine="vsr", sync=sync, replicas=tuple(ids)),
            "two": GroupConfig(class_=kind, engine="vsr", sync=sync, replicas=turned),
            "solo": GroupConfig(class_=kind, engine="vsr", sync=sync, replicas=(ids[0],)),
            "duo": GroupConfig(class_=kind, engine="vsr", sync=sync, replicas=(turned[0],)),
            "ordered": GroupConfig(class_=kind, stack=serve.stack, sync=sync),
        },
        replicas=replicas_of(serve),
    )


class _Keeper(Nothing):
    """What is said of a process with accounts. A `Source` of samples."""

    def __init__(self, process: ReplicaProcess) -> None:
        self._process = process

    @property
    def is_whole(self) -> bool:
        """Whether all groups here have all their members."""
        process = self._process
        return all(
            hosted.status is not None
            and hosted.status.role.is_in_service
            and len(hosted.status.members) == len(process.config.members(name))
            for name, hosted in process.hosted.items()
        )

    @property
    def is_orderer(self) -> bool:
        """Whether the first group is led from here."""
        return self._process.hosted["one"].is_primary

    def count(self) -> Counted:
        """Give how often the replicated groups here were asked to prepare."""
        found = [self._process.hosted[name].replica.context.counters for name in ("one", "two")]
        return Counted(
            sum(counters.get(PREPARES, 0) for counters in found),
            sum(counters.get(WAITED, 0) for counters in found),
        )


async def run_accounts(serve: ServeAccounts, orders: Orders) -> None:
    """Be a process with accounts until there are no more orders."""
    config = config_of(serve)
    settings = PATIENT if serve.is_patient else DEFAULT_SETTINGS
    objects = load_objects(config)
    async with ReplicaProcess(
        config, serve.id, objects=objects, found=serve.is_founder, settings=settings
    ) as process:
        keeper = _Keeper(process)
        await until(process, lambda: keeper.is_whole)
        calm_collector()
        answer(OrderDone())
        with profiling(serve.profile, serve.id) as profile, sampling(keeper) as sampler:
            async for order in orders:
                profile()
                match order:
                    case TakeSample():
                        answer(sampler.take())
                    case CountPrepares():
                        answer(keeper.count())
                    case _:
                        raise AssertionError(order)


class TransferClients(ClosedLoop):
    """Clients of all groups, and tasks that use them without end."""

    def __init__(self) -> None:
        super().__init__()
        self._open = AsyncExitStack()
        self._groups: dict[str, Any] = {}

    async def connect(self, order: ConnectAccounts) -> None:
        """Connect to every group."""
        settings = ClientSettings(deadline=DEADLINE)
        only = {"solo": order.addresses[:1], "duo": order.addresses[1:2]}
        for name in dict.fromkeys(name for names in GROUPS.values() for name in names):
            addresses = only.get(name, order.addresses)
            group = connect(Accounts, addresses, group=name, settings=settings)
            self._groups[name] = await self._open.enter_async_context(group)

    async def close(self) -> None:
        """Close all connections."""
        await self._open.aclose()

    # ---- ways; each gives the times that it is about

    async def one_call(self, kind: str, account: int) -> list[float]:
        """Make a call that is a transaction of its own, or has its own place in the order."""
        began = time.perf_counter()
        await self._groups[GROUPS[kind][0]].add(account, 1)
        return [time.perf_counter() - began]

    async def two_groups(self, kind: str, account: int) -> list[float]:
        """Change two accounts, in two groups, or none."""
        one, two = GROUPS[kind]
        began = time.perf_counter()
        async with transaction(self._groups[one], self._groups[two]) as t:
            await t[one].add(account, -1)
            await t[two].add(account, 1)
        return [time.perf_counter() - began]

    async def inner_calls(self, kind: str, account: int) -> list[float]:
        """Time each call of a long transaction."""
        return (await self._long(kind, account))[:-1]

    async def end(self, kind: str, account: int) -> list[float]:
        """Time the end of a long transaction: prepare, and the coordinator's decision."""
        return (await self._long(kind, account))[-1:]

    async def _long(self, kind: str, account: int) -> list[float]:
        name = GROUPS[kind][0]
        times = []
        block = transaction(self._groups[name])
        async with block as t:
            # The first call also waits for the transaction's name.
            await t[name].add(account, 1)
            for _ in range(CALLS):
                began = time.perf_counter()
                await t[name].add(account, 1)
                times.append(time.perf_counter() - began)
            began = time.perf_counter()
        return [*times, time.perf_counter() - began]

    # ---- orders

    def _way(self, name: str) -> Callable[[str, int], Awaitable[list[float]]]:
        ways: dict[str, Callable[[str, int], Awaitable[list[float]]]] = {
            "one call": self.one_call,
            "two groups": self.two_groups,
            "call inside": self.inner_calls,
            "end": self.end,
        }
        return ways[name]

    async def transact(self, order: Transact) -> Latencies:
        """Run one transaction after the other, and time each."""
        way = self._way(order.way)
        times: list[float] = []
        cpu_began = 0.0
        for number in range(order.warm_up + order.count):
            if number == order.warm_up:
                cpu_began = time.process_time()
                times.clear()
            times += await way(order.kind, number % ALONE)
        return summarize(times, time.process_time() - cpu_began)

    async def start(self, order: TransactTogether) -> None:
        """Have tasks run transactions, each on an account of its own: locks are not measured."""
        for name in dict.fromkeys(GROUPS[order.kind]):
            await self._groups[name].open(ALONE, order.together)
        self.begin(order.together, lambda number: self._work(number, order))

    async def _work(self, number: int, order: TransactTogether) -> None:
        way = self._way(order.way)
        while not self.is_stopping:
            try:
                await way(order.kind, ALONE + number)
            except TransactionAborted:
                continue  # its coordinator died in it; the time until the next one counts
            self.count(number, 1)


async def run_transfer_clients(connect: ConnectAccounts, orders: Orders) -> None:
    """Be clients until there are no more orders."""
    clients = TransferClients()
    try:
        await clients.connect(connect)
        calm_collector()
        answer(OrderDone())
        with profiling(connect.profile, "clients") as profile, sampling(clients) as sampler:
            async for order in orders:
                profile()
                match order:
                    case Transact():
                        answer(await clients.transact(order))
                    case TransactTogether():
                        await clients.start(order)
                        answer(OrderDone())
                    case TakeSample():
                        answer(sampler.take())
                    case StopLoad():
                        await clients.stop()
                        answer(OrderDone())
                    case _:
                        raise AssertionError(order)
    finally:
        await clients.close()
