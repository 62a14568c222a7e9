"""`coterie bench objects`: what a program sees that calls a replicated object over the network.

Replicas are processes as `coterie replica` runs them, with their journals, and their clients are
another process; all on this machine. Parts:

- *one client* makes one call after the other: how long each takes; then one consistent query after
  the other;
- *calls*: many sessions share two connections with one call outstanding each (multiplexed); 128
  clients with a connection and one call outstanding each; calls made together (packed);
- *fail-over*: the replica that puts calls into order is killed, ten times, with default settings,
  while three clients call; the longest time any of them waited;
- *memory* of a replica after all that;
- *PySyncObj*, when it is installed: the same object and the same calls, made inside its leader,
  because it has no clients apart from its nodes;
- *peers*, if they are asked for: what is installed of etcd, NATS JetStream and Redis, three servers
  each, with the same calls.
"""

from __future__ import annotations

import asyncio
import tempfile
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.harness.controller import (
    BenchError,
    free_ports,
    samples,
    surviving,
    worker_pool,
)
from coterie.bench.harness.deployment import deployed, fail_over_figures
from coterie.bench.harness.disk import file_system, sync_ms
from coterie.bench.harness.figures import Figure, Target, rate
from coterie.bench.harness.gathering import Gathered
from coterie.bench.harness.machine import Others, describe_machine
from coterie.bench.harness.protocol import (
    Alone,
    ConnectClients,
    ConnectPeers,
    JoinPySyncObj,
    Latencies,
    Load,
    Serve,
)
from coterie.bench.harness.yardstick import Yardstick, yardstick
from coterie.bench.suites.order import profile_place
from coterie.bench.workloads.measuring import Timing, measure_load
from coterie.bench.workloads.peers.callers import SYSTEMS
from coterie.bench.workloads.peers.systems import SERVERS, find, running
from coterie.bench.workloads.pysyncobj import pysyncobj_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.bench.harness.controller import Worker
    from coterie.bench.workloads.peers.systems import FoundSystem

PARTS = ("calls", "fail-over", "pysyncobj", "peers")
JOURNALS = {"on": "none", "sync turn": "turn"}
"""What the table calls them, and the journal's mode of syncing."""
RATE_TARGETS = {
    ("packed", "on"): Target(450_000),
    ("multiplexed", "on"): Target(120_000),
    ("128 connections", "on"): Target(20_000),
    ("packed", "sync turn"): Target(300_000),
}
"""Calls in a second that three replicas are meant to reach with 100 bytes each."""
ECHOES_MAX = 3
"""How many raw round trips between two cores a call of one client may take."""
READS = "one client, consistent queries"
P99_MAX = Target(800, is_floor=False)
FAIL_OVER_MAX = Target(300, is_floor=False)
PACK_BYTES_MAX = 128 << 10
ALONE_TURNS = 3
TARGET_REPLICAS = 3
TARGET_BYTES = 100


class ObjectsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, and for how long."""

    parts: tuple[str, ...] = ("calls", "fail-over", "pysyncobj")
    stack: str = "SAFE:DYNSEQ:PVSYNC"
    replicas: tuple[int, ...] = (3, 5)
    message_bytes: tuple[int, ...] = (100, 1000)
    timing: Timing = Timing()
    alone: int = 2000
    """How many calls one client makes."""
    alone_warm_up: int = 300
    multiplexed: tuple[int, int] = (2, 1024)
    """Connections, and sessions on all of them."""
    connections: int = 128
    packed: tuple[int, int, int] = (2, 32, 250)
    """Connections, sessions, and calls made together in each."""
    kills: int = 10
    kill_pause: float = 0.7
    pysyncobj_calls: int = 2000
    """How many calls are outstanding at PySyncObj, where nothing else limits them."""


QUICK = ObjectsPlan(
    replicas=(3,),
    message_bytes=(100,),
    timing=Timing(seconds=0.5, warm_up=0.3, repeats=2),
    alone=500,
    kills=2,
)


class ObjectsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured in one run."""

    machine: dict[str, str | int]
    disk: str
    sync_ms: float
    busy_cores: float
    pysyncobj: str
    """The version of PySyncObj that was measured, if any was."""
    peers: dict[str, str] = {}
    """The other systems that were measured: their versions, and what an answer of theirs says."""
    plan: ObjectsPlan
    echo_ms: float
    echo_ms_repeats: list[float]
    echoes: str
    """The round trips in words."""
    figures: list[Figure]
    troubles: list[str] = []
    """Which parts could not be measured, and why."""


async def measure(
    plan: ObjectsPlan, progress: Callable[[str], None], *, profile: Path | None = None
) -> ObjectsReport:
    """Do everything in *plan*, saying what is done.

    With *profile*, replicas and clients write cProfile's statistics there; the figures suffer.
    """
    machine = describe_machine()
    others = Others()
    gathered = Gathered(progress)
    add = gathered.add
    troubles: list[str] = []
    pysyncobj = pysyncobj_version() if "pysyncobj" in plan.parts else ""

    async with yardstick() as stick:
        await stick.measure()
        if "calls" in plan.parts:
            for size, journal in product(plan.replicas, JOURNALS):
                with surviving(f"calls with {size} replicas", troubles, progress):
                    await _measure_calls(plan, size, journal, stick, add, profile)
        if "fail-over" in plan.parts:
            with surviving("fail-over", troubles, progress):
                await _measure_fail_over(plan, add)
        if pysyncobj:
            with surviving("PySyncObj", troubles, progress):
                await _measure_pysyncobj(plan, stick, add)
        peers = _installed_peers(troubles) if "peers" in plan.parts else []
        for found in peers:
            with surviving(found.system.name, troubles, progress):
                await _measure_peer(plan, found, stick, add)
    return ObjectsReport(
        machine=machine,
        disk=file_system(tempfile.gettempdir()),
        sync_ms=sync_ms(),
        busy_cores=others.busy_cores(),
        pysyncobj=pysyncobj,
        peers={f"{found.system.name} {found.version}": found.system.promise for found in peers},
        plan=plan,
        echo_ms=median(stick.trips_ms),
        echo_ms_repeats=stick.trips_ms,
        echoes=str(stick),
        figures=gathered.figures,
        troubles=troubles,
    )


def _latencies(  # noqa: PLR0913, PLR0917 -- the parts of a figure
    found: Latencies,
    echo_ms: float,
    size: int,
    message_bytes: int,
    journal: str,
    section: str = "one client",
) -> list[Figure]:
    """Make the two figures of one client."""
    has_target = (size, message_bytes, journal) == (TARGET_REPLICAS, TARGET_BYTES, "on")
    targets = (Target(ECHOES_MAX * echo_ms * 1000, is_floor=False), P99_MAX)
    return [
        Figure(
            section=section,
            what=what,
            replicas=size,
            message_bytes=message_bytes,
            journal=journal,
            value=value,
            unit="us",
            echoes=value / (echo_ms * 1000),
            target=target if has_target else None,
        )
        for (what, value), target in zip(
            (("p50", found.median_us), ("p99", found.p99_us)), targets, strict=True
        )
    ]


async def _in_turns(stick: Yardstick, clients: Worker, alone: Alone) -> tuple[float, Latencies]:
    """Measure the yardstick and calls in turns, so that both meet the same machine."""
    alone = msgspec.structs.replace(alone, count=max(alone.count // ALONE_TURNS, 1))
    trips: list[float] = []
    calls: list[Latencies] = []
    for _ in range(ALONE_TURNS):
        trips.append(await stick.measure())
        calls.append(await clients.call_alone(alone))
    return median(trips), Latencies(
        median_us=median(each.median_us for each in calls),
        p99_us=median(each.p99_us for each in calls),
        cpu_us=median(each.cpu_us for each in calls),
    )


async def _measure_calls(  # noqa: PLR0913, PLR0917 -- in one place
    plan: ObjectsPlan,
    size: int,
    journal: str,
    stick: Yardstick,
    add: Callable[[Figure], None],
    profile: Path | None,
) -> None:
    place = profile_place(profile, "objects", size, journal)
    order = Serve(stack=plan.stack, sync=JOURNALS[journal], profile=place)
    async with deployed(size, order) as (service, clients):

        async def connect(connections: int) -> None:
            clients.tell(ConnectClients(service.addresses, connections, place))
            await clients.ready()

        await connect(1)
        for message_bytes in plan.message_bytes:
            echo_ms, found = await _in_turns(
                stick, clients, Alone(plan.alone, plan.alone_warm_up, message_bytes)
            )
            for figure in _latencies(found, echo_ms, size, message_bytes, journal):
                add(figure)
        # What a query answers is a few bytes, whatever was put before it.
        reads = Alone(plan.alone, plan.alone_warm_up, TARGET_BYTES, reads=True)
        echo_ms, found = await _in_turns(stick, clients, reads)
        for figure in _latencies(found, echo_ms, size, TARGET_BYTES, journal, READS):
            add(figure)
        for name, connections, load in _loads(plan):
            await connect(connections)
            echo_ms = await stick.measure()
            loaded = await measure_load(clients, service.workers, load, plan.timing)
            has_target = (size, load.message_bytes) == (TARGET_REPLICAS, TARGET_BYTES)
            add(
                rate(
                    section="calls",
                    what=name,
                    replicas=size,
                    message_bytes=load.message_bytes,
                    journal=journal,
                    rates=loaded.rates,
                    echo_ms=echo_ms,
                    cpu_us=loaded.cpu_us,
                    client_cpu_us=loaded.caller_cpu_us,
                    target=RATE_TARGETS.get((name, journal)) if has_target else None,
                )
            )
        memory = [sampled.memory_bytes / 1e6 for sampled in await samples(service.workers)]
        add(
            Figure(
                section="memory",
                what="a replica after all calls",
                replicas=size,
                journal=journal,
                value=median(memory),
                unit="MB",
                repeats=memory,
            )
        )


def _loads(plan: ObjectsPlan) -> list[tuple[str, int, Load]]:
    """Give the loads, each with its name and its number of connections."""
    loads: list[tuple[str, int, Load]] = []
    for message_bytes in plan.message_bytes:
        connections, sessions = plan.multiplexed
        loads.append(
            ("multiplexed", connections, Load(sessions, 1, message_bytes, is_packed=False))
        )
        many = plan.connections
        loads.append((f"{many} connections", many, Load(many, 1, message_bytes, is_packed=False)))
        connections, sessions, calls = plan.packed
        calls = min(calls, PACK_BYTES_MAX // message_bytes)
        loads.append(("packed", connections, Load(sessions, calls, message_bytes, is_packed=True)))
    return loads


async def _measure_fail_over(plan: ObjectsPlan, add: Callable[[Figure], None]) -> None:
    """Kill the orderer again and again while a client at each replica calls."""
    size = plan.replicas[0]
    order = Serve(stack=plan.stack, sync="none", is_patient=False)
    async with deployed(size, order) as (service, clients):
        clients.tell(ConnectClients(service.addresses, size))
        await clients.ready()
        clients.tell(Load(size, 1, plan.message_bytes[0], is_packed=False))
        await clients.ready()
        gaps = await service.gaps_ms(clients, kills=plan.kills, pause=plan.kill_pause)
    for figure in fail_over_figures(gaps, size, FAIL_OVER_MAX):
        add(figure)


async def _measure_pysyncobj(
    plan: ObjectsPlan, stick: Yardstick, add: Callable[[Figure], None]
) -> None:
    size = plan.replicas[0]
    for batches in (True, False):
        async with worker_pool(size) as started:
            ports = free_ports(size)
            for worker, port in zip(started.workers, ports, strict=True):
                worker.tell(JoinPySyncObj(port, [each for each in ports if each != port], batches))
            for worker in started.workers:
                await worker.ready()
            leader = await _leader(started.workers)
            how = "" if batches else ", without batching"
            for message_bytes in plan.message_bytes:
                echo_ms = await stick.measure()
                # With batching a call waits for its clock, so a few calls tell.
                few = (
                    Alone(20, 2, message_bytes) if batches else Alone(plan.alone, 50, message_bytes)
                )
                for figure in _latencies(
                    await leader.call_alone(few), echo_ms, size, message_bytes, ""
                ):
                    add(
                        msgspec.structs.replace(
                            figure,
                            section="PySyncObj",
                            what=f"one call after the other{how}, {figure.what}",
                        )
                    )
                load = Load(1, plan.pysyncobj_calls, message_bytes, is_packed=False)
                loaded = await measure_load(leader, started.workers, load, plan.timing)
                add(
                    rate(
                        section="PySyncObj",
                        what=f"{plan.pysyncobj_calls} calls outstanding{how}",
                        replicas=size,
                        message_bytes=message_bytes,
                        rates=loaded.rates,
                        echo_ms=echo_ms,
                        cpu_us=loaded.cpu_us,
                    )
                )


def _installed_peers(troubles: list[str]) -> list[FoundSystem]:
    """Look which of the other systems can be measured; that none can is a trouble."""
    found = [each for each in map(find, SYSTEMS.values()) if each is not None]
    if not found:
        programs = ", ".join(system.program for system in SYSTEMS.values())
        packages = " ".join(system.package for system in SYSTEMS.values())
        troubles.append(
            f"peers: none of {programs} is installed; on Debian: apt-get install {packages}"
        )
    return found


async def _measure_peer(
    plan: ObjectsPlan, found: FoundSystem, stick: Yardstick, add: Callable[[Figure], None]
) -> None:
    """Measure one other system with the calls of our own clients."""
    system = found.system
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        async with worker_pool(1) as started, running(found, Path(folder)) as port:
            [clients] = started.workers

            async def connect(connections: int) -> None:
                clients.tell(ConnectPeers(system.name, port, connections))
                await clients.ready()

            await connect(1)
            for message_bytes in plan.message_bytes:
                alone = Alone(plan.alone, plan.alone_warm_up, message_bytes)
                echo_ms, latencies = await _in_turns(stick, clients, alone)
                for figure in _latencies(latencies, echo_ms, SERVERS, message_bytes, ""):
                    add(
                        msgspec.structs.replace(
                            figure, section=system.name, what=f"one client, {figure.what}"
                        )
                    )
            for name, connections, load in _loads(plan):
                if load.is_packed and not system.packs:
                    continue
                await connect(connections)
                echo_ms = await stick.measure()
                loaded = await measure_load(clients, [], load, plan.timing)
                add(
                    rate(
                        section=system.name,
                        what=name,
                        replicas=SERVERS,
                        message_bytes=load.message_bytes,
                        rates=loaded.rates,
                        echo_ms=echo_ms,
                        client_cpu_us=loaded.caller_cpu_us,
                    )
                )


async def _leader(workers: list[Worker]) -> Worker:
    for _ in range(100):
        for worker, sampled in zip(workers, await samples(workers), strict=True):
            if sampled.is_orderer:
                return worker
        await asyncio.sleep(0.1)
    raise BenchError("PySyncObj has chosen no leader in ten seconds: run again")
