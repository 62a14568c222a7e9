"""`coterie bench partitioned`: what service on every side of a cut costs, beside what it replaces.

Replicas are processes as `coterie replica` runs them, their clients are another; all on this
machine. Parts:

- *green*: calls in a primary component beside `SAFE:DYNSEQ:PVSYNC`, with journals left to the
  system and with `sync = "turn"`, in one run;
- *syncs*: how often replicas force their disks while calls are made, as a trace of their system
  calls has it (needs `strace`): the slides promise no forced write in the path of an action;
- *two-phase*: slides 14 and 33 compare with two-phase commit: ours is that of viewstamped
  replication with `sync = "turn"`, a transaction over two groups;
- *slides*: agreed and safe delivery at 100 and at 400 messages a second, and as many as there can
  be, for 6, 10 and 18 members (slide 19);
- *distance*: three replicas and two, 40 ms apart (slide 4), and cut off (needs root);
- *groups*: slide 18 has one daemon for all groups of a machine, where ours has membership and order
  for each: what 1, 100 and 1,000 groups take in a process, and what it costs when one dies;
- *merge*: how long a merge takes for so many red actions, and what the second copy of the object
  costs where something is red (`coterie.bench.suites.partitioned_merge`).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.harness.controller import samples, surviving, worker_pool
from coterie.bench.harness.deployment import deployed
from coterie.bench.harness.disk import file_system, sync_ms
from coterie.bench.harness.figures import Figure, rate
from coterie.bench.harness.gathering import Gathered
from coterie.bench.harness.machine import Others, describe_machine
from coterie.bench.harness.protocol import (
    Alone,
    ConnectAccounts,
    ConnectClients,
    Join,
    Latencies,
    Load,
    Pace,
    Rounds,
    Serve,
    ServeAccounts,
    Transact,
)
from coterie.bench.harness.tracing import count_syncs
from coterie.bench.harness.yardstick import Yardstick, yardstick
from coterie.bench.suites.partitioned_distance import measure_distance
from coterie.bench.suites.partitioned_merge import measure_merge
from coterie.bench.workloads.measuring import Timing, measure_load
from coterie.stacks import COLOURS_STACKS

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS = ("green", "syncs", "two-phase", "slides", "distance", "groups", "merge")
BESIDE = "SAFE:DYNSEQ:PVSYNC"
MESSAGE_BYTES = 100
SLIDE_STACKS = ("TOKEN:VSYNC", "DYNSEQ:VSYNC")
BURST = 100


class PartitionedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, and for how long."""

    parts: tuple[str, ...] = PARTS
    stacks: tuple[str, ...] = (BESIDE, *COLOURS_STACKS)
    replicas: tuple[int, ...] = (3, 5)
    timing: Timing = Timing()
    alone: int = 1000
    alone_warm_up: int = 100
    sessions: int = 256
    """How many call at a time, one call outstanding each, on two connections."""
    packed: int = 64
    """How many calls of a session travel together, where they are packed."""
    members: tuple[int, ...] = (6, 10, 18)
    rates: tuple[float, ...] = (100, 400)
    """Messages a second, of all members together."""
    pace_seconds: float = 5.0
    rounds: int = 20
    delay_ms: float = 40.0
    groups: tuple[int, ...] = (1, 100, 1000)
    idle_seconds: float = 5.0
    reds: tuple[int, ...] = (0, 100, 1000, 10_000)
    states_mb: tuple[int, ...] = (1, 10, 50)


QUICK = PartitionedPlan(
    replicas=(3,),
    timing=Timing(seconds=0.5, warm_up=0.3, repeats=2),
    alone=100,
    alone_warm_up=20,
    members=(6,),
    pace_seconds=1.0,
    groups=(1, 20),
    idle_seconds=1.0,
    rounds=5,
    reds=(0, 100),
    states_mb=(1,),
)


class PartitionedReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured in one run."""

    machine: dict[str, str | int]
    disk: str
    sync_ms: float
    busy_cores: float
    plan: PartitionedPlan
    echo_ms: float
    echo_ms_repeats: list[float]
    echoes: str
    """The round trips in words."""
    figures: list[Figure]
    troubles: list[str] = []
    """Which parts could not be measured, and why."""


async def measure(plan: PartitionedPlan, progress: Callable[[str], None]) -> PartitionedReport:
    """Do everything in *plan*, saying what is done."""
    machine = describe_machine()
    others = Others()
    gathered = Gathered(progress)
    add = gathered.add
    troubles: list[str] = []
    async with yardstick() as stick:
        await stick.measure()
        await _measure_parts(plan, stick, add, troubles, progress)
    return PartitionedReport(
        machine=machine,
        disk=file_system(tempfile.gettempdir()),
        sync_ms=sync_ms(),
        busy_cores=others.busy_cores(),
        plan=plan,
        echo_ms=median(stick.trips_ms),
        echo_ms_repeats=stick.trips_ms,
        echoes=str(stick),
        figures=gathered.figures,
        troubles=troubles,
    )


async def _measure_parts(
    plan: PartitionedPlan,
    stick: Yardstick,
    add: Callable[[Figure], None],
    troubles: list[str],
    progress: Callable[[str], None],
) -> None:
    for size in plan.replicas:
        for sync in ("none", "turn"):
            for stack in plan.stacks:
                with surviving(f"{stack}, sync {sync}", troubles, progress):
                    await _measure_calls(plan, stack, size, sync, stick, add)
    if "two-phase" in plan.parts:
        with surviving("two-phase", troubles, progress):
            await _measure_two_phase(plan, plan.replicas[0], stick, add)
    slides = [(stack, size) for stack in SLIDE_STACKS for size in plan.members]
    for stack, size in slides if "slides" in plan.parts else ():
        with surviving(f"slides, {size} members", troubles, progress):
            await _measure_slides(plan, stack, size, add)
    if "distance" in plan.parts:
        with surviving("distance", troubles, progress):
            await measure_distance(plan.stacks, plan.delay_ms, plan.alone, add)
    for count in plan.groups if "groups" in plan.parts else ():
        with surviving(f"{count} groups", troubles, progress):
            await _measure_groups(plan, count, add)
    if "merge" in plan.parts:
        await measure_merge(plan.reds, plan.states_mb, add)


def _latencies(  # noqa: PLR0913 -- all by name
    *, section: str, what: str, found: Latencies, size: int, journal: str = "", echo_ms: float = 0
) -> list[Figure]:
    return [
        Figure(
            section=section,
            what=f"{what}, {which}",
            replicas=size,
            journal=journal,
            value=value,
            unit="us",
            echoes=value / (echo_ms * 1000) if echo_ms else 0.0,
        )
        for which, value in (("p50", found.median_us), ("p99", found.p99_us))
    ]


# ---- calls in a primary component


async def _measure_calls(  # noqa: PLR0913, PLR0917 -- in one place
    plan: PartitionedPlan,
    stack: str,
    size: int,
    sync: str,
    stick: Yardstick,
    add: Callable[[Figure], None],
) -> None:
    if not {"green", "syncs"} & set(plan.parts):
        return
    async with deployed(size, Serve(stack=stack, sync=sync)) as (service, clients):
        clients.tell(ConnectClients(service.addresses, 1))
        await clients.ready()
        alone = Alone(plan.alone, plan.alone_warm_up, MESSAGE_BYTES)
        if "green" in plan.parts:
            echo_ms = await stick.measure()
            found = await clients.call_alone(alone)
            for figure in _latencies(
                section="green, one client",
                what=stack,
                found=found,
                size=size,
                journal=f"sync {sync}",
                echo_ms=echo_ms,
            ):
                add(figure)
            clients.tell(ConnectClients(service.addresses, 2))
            await clients.ready()
            for name, load in (
                ("multiplexed", Load(plan.sessions, 1, MESSAGE_BYTES, is_packed=False)),
                ("packed", Load(8, plan.packed, MESSAGE_BYTES, is_packed=True)),
            ):
                echo_ms = await stick.measure()
                loaded = await measure_load(clients, service.workers, load, plan.timing)
                add(
                    rate(
                        section=f"green, {name}",
                        what=stack,
                        replicas=size,
                        journal=f"sync {sync}",
                        rates=loaded.rates,
                        echo_ms=echo_ms,
                        cpu_us=loaded.cpu_us,
                        client_cpu_us=loaded.caller_cpu_us,
                    )
                )
        if "syncs" in plan.parts and size == plan.replicas[0]:
            async with count_syncs([worker.pid for worker in service.workers]) as syncs:
                await clients.call_alone(alone)
            made = alone.count + alone.warm_up
            add(
                Figure(
                    section="syncs",
                    what=f"{stack}, forced writes of all replicas for a call",
                    replicas=size,
                    journal=f"sync {sync}",
                    value=syncs.count / made,
                    unit="",
                )
            )


async def _measure_two_phase(
    plan: PartitionedPlan, size: int, stick: Yardstick, add: Callable[[Figure], None]
) -> None:
    order = ServeAccounts(stack=COLOURS_STACKS[0], sync="turn")
    async with deployed(size, order) as (service, clients):
        clients.tell(ConnectAccounts(service.addresses))
        await clients.ready()
        for what, way, kind in (
            ("two-phase commit over two groups", "two groups", "replicated"),
            ("a call that is a transaction", "one call", "replicated"),
            (f"the same class under {COLOURS_STACKS[0]}", "one call", "ordered"),
        ):
            echo_ms = await stick.measure()
            found = await clients.transact(Transact(way, kind, plan.alone, plan.alone_warm_up))
            for figure in _latencies(
                section="two-phase",
                what=what,
                found=found,
                size=size,
                journal="sync turn",
                echo_ms=echo_ms,
            ):
                add(figure)


# ---- slide 18


async def _measure_groups(plan: PartitionedPlan, count: int, add: Callable[[Figure], None]) -> None:
    size = plan.replicas[0]
    order = Serve(stack=COLOURS_STACKS[0], sync="none", groups=count)
    async with deployed(size, order) as (service, _):
        await samples(service.workers)
        await asyncio.sleep(plan.idle_seconds)
        idle = await samples(service.workers)
        victim, *others = service.workers
        began = time.perf_counter()
        await victim.kill()
        await asyncio.gather(*(worker.with_members(size - 1) for worker in others))
        took = time.perf_counter() - began
        after = await samples(others)
    found = (
        ("memory of a process", idle[0].memory_bytes / (1 << 20), "MB"),
        ("idle", 100 * median(each.cpu_seconds / each.seconds for each in idle), "% of a core"),
        ("a member dies: until all groups go on", took * 1000, "ms"),
        ("a member dies: longest pause", max(each.pause_seconds for each in after) * 1000, "ms"),
    )
    for what, value, unit in found:
        add(
            Figure(
                section="groups in a process",
                what=f"{count:,}: {what}",
                replicas=size,
                value=value,
                unit=unit,
            )
        )


# ---- slide 19


async def _measure_slides(
    plan: PartitionedPlan, stack: str, size: int, add: Callable[[Figure], None]
) -> None:
    ids = "abcdefghijklmnopqrstuvwxyz"[:size]
    async with worker_pool(size) as started:
        members = dict(zip(ids, started.workers, strict=True))
        for id, worker in members.items():
            peers = {peer: members[peer].listening.port for peer in ids if peer != id}
            worker.tell(Join(id, peers, stack))
        for worker in started.workers:
            await worker.ready()
        for in_all in plan.rates:
            for is_safe in (False, True):
                pace = Pace(
                    rate=in_all / size,
                    seconds=plan.pace_seconds,
                    warm_up=1.0,
                    message_bytes=1000,
                    is_safe=is_safe,
                )
                for worker in started.workers:
                    worker.tell(pace)
                found = [await worker.latencies() for worker in started.workers]
                add(
                    Figure(
                        section="slide 19",
                        what=f"{stack}, {in_all:g} messages/s, {'safe' if is_safe else 'agreed'}",
                        replicas=size,
                        message_bytes=1000,
                        value=median(each.median_us for each in found) / 1000,
                        unit="ms",
                        repeats=[each.median_us / 1000 for each in found],
                    )
                )
        for worker in started.workers:
            worker.tell(Rounds(plan.rounds, 5, BURST, 1000))
        measured = [await worker.measured() for worker in started.workers]
        rates = [size * BURST * plan.rounds / each.seconds for each in measured]
        add(
            rate(
                section="slide 19, saturated",
                what=f"{stack}, agreed, all members together",
                replicas=size,
                message_bytes=1000,
                rates=rates,
                echo_ms=0.0,
            )
        )
