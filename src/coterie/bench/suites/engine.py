"""`coterie bench engine`: the replication engine with its host and its journal, without clients.

Five parts:

- *in process*: all replicas in one process, frames handed over by function calls;
- *loopback*: one process for each replica, TCP between them; without a journal, with one that is
  left to the system, and with one that is synced in every turn. The load comes from inside one
  replica, the orderer: `packed` is many calls of a session in one entry, `one by one` a call an
  entry. Replicas are patient with each other: there may be fewer cores than replicas;
- *transfer*: a replica is killed and comes back with an empty disk while the load goes on, with
  default settings; how long it learns, and how long anybody waits meanwhile; memory, too;
- *roll-back*: the host alone;
- *rounds*: figures 5 and 6 of **objects**, for the five stacks of its figure 4, without journals.

A command counts as committed when it is answered: executed by the host, authoritative under SAFE,
on record and as safe as the journal's mode says.
"""

from __future__ import annotations

import tempfile
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.harness.controller import surviving, worker_pool
from coterie.bench.harness.disk import file_system, sync_ms
from coterie.bench.harness.figures import Figure, Target, rate
from coterie.bench.harness.gathering import Gathered
from coterie.bench.harness.machine import Others, describe_machine
from coterie.bench.harness.protocol import HostAllReplicas, HostReplica, Load
from coterie.bench.harness.yardstick import Yardstick, yardstick
from coterie.bench.suites import order
from coterie.bench.suites.order import measure_rounds, profile_place
from coterie.bench.workloads.measuring import Timing, measure_load
from coterie.bench.workloads.rollback import RollBack
from coterie.bench.workloads.state_transfer import measure_transfer
from coterie.stacks import ENGINE_STACKS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PARTS = ("in-process", "loopback", "transfer", "roll-back", "rounds")
JOURNALS = {"off": "", "on": "none", "sync turn": "turn"}
"""What the table calls them, and the journal's mode of syncing."""
TARGETS = {
    ("loopback", "packed", 100, "on"): Target(500_000),
    ("loopback", "packed", 100, "sync turn"): Target(150_000),
}
"""Commands in a second that three replicas are meant to reach."""
PACK_BYTES_MAX = 256 << 10


class EnginePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, and for how long."""

    parts: tuple[str, ...] = PARTS
    stack: str = "SAFE:DYNSEQ:PVSYNC"
    replicas: tuple[int, ...] = (3, 5)
    message_bytes: tuple[int, ...] = (100, 1000)
    sessions: int = 16
    calls: int = 500
    """How many calls of a session are packed into an entry, unless that is too large."""
    single_calls: int = 64
    """How many calls of a session are outstanding one by one."""
    timing: Timing = Timing()
    state_mb: int = 100
    rounds: order.OrderPlan = order.OrderPlan(stacks=ENGINE_STACKS, repeats=3, hold_us=0)


QUICK = EnginePlan(
    replicas=(3,),
    timing=Timing(seconds=0.4, warm_up=0.2),
    state_mb=20,
    rounds=order.OrderPlan(stacks=ENGINE_STACKS, members=(3,), repeats=1, hold_us=0),
)


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured in one run."""

    machine: dict[str, str | int]
    disk: str
    sync_ms: float
    """A small write and its fdatasync, on the disk of the journals."""
    busy_cores: float
    """How many cores other work kept busy during the run."""
    plan: EnginePlan
    echo_ms: float
    echo_ms_repeats: list[float]
    echoes: str
    """The round trips in words."""
    figures: list[Figure]
    rounds: list[order.RoundsResult]
    troubles: list[str] = []
    """Which parts could not be measured, and why."""


def loads(plan: EnginePlan, message_bytes: int) -> list[tuple[str, Load]]:
    """Give the loads for messages of one size, by name."""
    packed = min(plan.calls, PACK_BYTES_MAX // message_bytes)
    return [
        ("packed", Load(plan.sessions, packed, message_bytes, is_packed=True)),
        ("one by one", Load(plan.sessions, plan.single_calls, message_bytes, is_packed=False)),
    ]


async def measure(
    plan: EnginePlan, progress: Callable[[str], None], *, profile: Path | None = None
) -> EngineReport:
    """Do everything in *plan*, saying what is done.

    With *profile*, replicas write cProfile's statistics there; the figures suffer from it.
    """
    machine = describe_machine()
    others = Others()
    gathered = Gathered(progress)
    add = gathered.add
    rounds: list[order.RoundsResult] = []
    troubles: list[str] = []

    async with yardstick() as stick:
        await stick.measure()
        for part in plan.parts:
            with surviving(part, troubles, progress):
                match part:
                    case "in-process":
                        await _measure_in_process(plan, stick, add, profile)
                    case "loopback":
                        await _measure_loopback(plan, stick, add, profile)
                    case "transfer":
                        await measure_transfer(plan.stack, plan.state_mb, add)
                    case "roll-back":
                        _measure_roll_back(plan, add)
                    case "rounds":
                        rounds += await measure_rounds(
                            plan.rounds, stick, progress, records=False, profile=profile
                        )
    return EngineReport(
        machine=machine,
        disk=file_system(tempfile.gettempdir()),
        sync_ms=sync_ms(),
        busy_cores=others.busy_cores(),
        plan=plan,
        echo_ms=median(stick.trips_ms),
        echo_ms_repeats=stick.trips_ms,
        echoes=str(stick),
        figures=gathered.figures,
        rounds=rounds,
        troubles=troubles,
    )


async def _measure_in_process(
    plan: EnginePlan, stick: Yardstick, add: Callable[[Figure], None], profile: Path | None
) -> None:
    """Measure *plan.stack*, and, with three replicas, what it costs to execute optimistically."""
    cases = [(plan.stack, size) for size in plan.replicas]
    if plan.stack.startswith("SAFE:"):
        cases.append((plan.stack.removeprefix("SAFE:"), plan.replicas[0]))
    for stack, size in cases:
        async with worker_pool(1) as started:
            [worker] = started.workers
            place = profile_place(profile, "in process", stack, size)
            worker.tell(HostAllReplicas(replicas=size, stack=stack, subject="Box", profile=place))
            await worker.ready()
            for message_bytes in plan.message_bytes:
                for name, load in loads(plan, message_bytes):
                    echo_ms = await stick.measure()
                    loaded = await measure_load(worker, [worker], load, plan.timing)
                    add(
                        rate(
                            section="in process",
                            what=name if stack == plan.stack else f"{name}, {stack}",
                            replicas=size,
                            message_bytes=message_bytes,
                            rates=loaded.rates,
                            echo_ms=echo_ms,
                            cpu_us=loaded.cpu_us,
                        )
                    )


async def _measure_loopback(
    plan: EnginePlan, stick: Yardstick, add: Callable[[Figure], None], profile: Path | None
) -> None:
    for size in plan.replicas:
        for journal, sync in JOURNALS.items():
            ids = "abcdefghijklmnopqrstuvwxyz"[:size]
            place = profile_place(profile, "loopback", size, journal)
            with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
                async with worker_pool(size) as started:
                    replicas = dict(zip(ids, started.workers, strict=True))
                    for id, worker in replicas.items():
                        worker.tell(
                            HostReplica(
                                id=id,
                                peers={
                                    peer: replicas[peer].listening.port
                                    for peer in ids
                                    if peer != id
                                },
                                stack=plan.stack,
                                subject="Box",
                                folder=f"{folder}/{id}" if sync else "",
                                sync=sync,
                                profile=place,
                            )
                        )
                    for worker in started.workers:
                        await worker.ready()
                    orderer = started.workers[0]
                    for message_bytes in plan.message_bytes:
                        for name, load in loads(plan, message_bytes):
                            echo_ms = await stick.measure()
                            loaded = await measure_load(orderer, started.workers, load, plan.timing)
                            target = TARGETS.get(("loopback", name, message_bytes, journal))
                            add(
                                rate(
                                    section="loopback",
                                    what=name,
                                    replicas=size,
                                    message_bytes=message_bytes,
                                    journal=journal,
                                    rates=loaded.rates,
                                    echo_ms=echo_ms,
                                    cpu_us=loaded.cpu_us,
                                    target=target if size == 3 else None,  # noqa: PLR2004
                                )
                            )


def _measure_roll_back(plan: EnginePlan, add: Callable[[Figure], None]) -> None:
    entries, message_bytes = 1000, plan.message_bytes[0]
    for megabytes in (0, plan.state_mb // 10, plan.state_mb):
        subject = RollBack(megabytes * 1000, 1000)
        for kept in (0, entries):
            times = [
                subject.measure(entries + kept, kept, message_bytes) * 1000
                for _ in range(plan.timing.repeats + 2)
            ]
            what = f"{entries} entries" + (f", {kept} kept" if kept else "")
            add(
                Figure(
                    section="roll-back",
                    what=f"{what}, {megabytes} MB of state",
                    message_bytes=message_bytes,
                    value=median(times),
                    unit="ms",
                    repeats=times,
                )
            )
