"""`coterie bench vsr`: what viewstamped replication costs, and what it costs when a primary dies.

Cohorts are processes as `coterie replica` runs them, with their journals, and their clients are
another process; all on this machine. Parts:

- *calls*: one client after the other for the latency, many together for the rate; calls that are a
  transaction of their own, transactions over two groups, and, beside them in the same processes,
  the same class under a stack that puts its calls into order;
- *claim*: the paper says that remote calls are as fast as without replication, and that prepare
  usually does not wait. So calls inside a transaction, and its end, are timed in a replicated group
  and in a group of one cohort; and the cohorts say how many prepares waited for backups;
- *fail-over*: the primary is killed while clients work, for several numbers of cohorts; the longest
  time that any of them waited.
"""

from __future__ import annotations

import tempfile
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.harness.controller import surviving
from coterie.bench.harness.deployment import deployed, fail_over_figures
from coterie.bench.harness.disk import file_system, sync_ms
from coterie.bench.harness.figures import Figure, Target, rate
from coterie.bench.harness.gathering import Gathered
from coterie.bench.harness.machine import Others, describe_machine
from coterie.bench.harness.protocol import (
    ConnectAccounts,
    Latencies,
    ServeAccounts,
    Transact,
    TransactTogether,
)
from coterie.bench.harness.yardstick import Yardstick, yardstick
from coterie.bench.suites.order import profile_place
from coterie.bench.workloads.measuring import Timing, measure_load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coterie.bench.harness.controller import Worker

PARTS = ("calls", "claim", "fail-over")
FAIL_OVER_MAX = Target(1000, is_floor=False)
"""How long, in milliseconds, three cohorts may take to go on without their primary."""
FAIL_OVER_COHORTS = 3

LATENCY_WAYS = (
    ("one call", "replicated"),
    ("one call", "unreplicated"),
    ("one call", "ordered"),
    ("two groups", "replicated"),
    ("two groups", "unreplicated"),
)
CLAIM_WAYS = ("call inside", "end")


class VsrPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, and for how long."""

    parts: tuple[str, ...] = PARTS
    stack: str = "SAFE:DYNSEQ:PVSYNC"
    """What the class is compared under."""
    replicas: tuple[int, ...] = (3, 5)
    timing: Timing = Timing()
    alone: int = 1000
    """How many one client runs, one after the other."""
    alone_warm_up: int = 100
    together: int = 128
    """How many run at a time, for the rate."""
    fail_over: tuple[int, ...] = (3, 5, 7)
    kills: int = 5
    kill_pause: float = 1.5


QUICK = VsrPlan(
    replicas=(3,),
    timing=Timing(seconds=0.5, warm_up=0.3, repeats=2),
    alone=200,
    alone_warm_up=50,
    fail_over=(3,),
    kills=2,
)


class VsrReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured in one run."""

    machine: dict[str, str | int]
    disk: str
    sync_ms: float
    busy_cores: float
    plan: VsrPlan
    echo_ms: float
    echo_ms_repeats: list[float]
    echoes: str
    """The round trips in words."""
    figures: list[Figure]
    troubles: list[str] = []
    """Which parts could not be measured, and why."""


async def measure(
    plan: VsrPlan, progress: Callable[[str], None], *, profile: Path | None = None
) -> VsrReport:
    """Do everything in *plan*, saying what is done.

    With *profile*, cohorts and clients write cProfile's statistics there; the figures suffer.
    """
    machine = describe_machine()
    others = Others()
    gathered = Gathered(progress)
    add = gathered.add
    troubles: list[str] = []

    async with yardstick() as stick:
        await stick.measure()
        if "calls" in plan.parts or "claim" in plan.parts:
            for size in plan.replicas:
                with surviving(f"calls with {size} cohorts", troubles, progress):
                    await _measure_calls(plan, size, stick, add, profile)
        if "fail-over" in plan.parts:
            for size in plan.fail_over:
                with surviving(f"fail-over with {size} cohorts", troubles, progress):
                    await _measure_fail_over(plan, size, add)
    return VsrReport(
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


def named(way: str, kind: str) -> str:
    """Say what was measured, in words for a table."""
    words = {
        "one call": "a call that is a transaction",
        "two groups": "a transaction over two groups",
        "call inside": "a call inside a transaction",
        "end": "the end of a transaction",
    }
    if kind == "ordered":
        return "a call that is put into order"
    return words[way] + (", one cohort" if kind == "unreplicated" else "")


def latencies(  # noqa: PLR0913, PLR0917 -- what they are of
    section: str, way: str, kind: str, found: Latencies, size: int, echo_ms: float
) -> list[Figure]:
    """Make the two figures of one client."""
    return [
        Figure(
            section=section,
            what=f"{named(way, kind)}, {what}",
            replicas=1 if kind == "unreplicated" else size,
            value=value,
            unit="us",
            echoes=value / (echo_ms * 1000),
        )
        for what, value in (("p50", found.median_us), ("p99", found.p99_us))
    ]


async def _measure_calls(
    plan: VsrPlan, size: int, stick: Yardstick, add: Callable[[Figure], None], profile: Path | None
) -> None:
    place = profile_place(profile, "vsr", size, "on")
    async with deployed(size, ServeAccounts(stack=plan.stack, profile=place)) as (
        deployment,
        clients,
    ):
        clients.tell(ConnectAccounts(deployment.addresses, place))
        await clients.ready()
        if "calls" in plan.parts:
            for way, kind in LATENCY_WAYS:
                await _measure_alone("one client", way, kind, plan, size, stick, clients, add)
            for way, kind in LATENCY_WAYS:
                echo_ms = await stick.measure()
                crowd = TransactTogether(way, kind, plan.together)
                loaded = await measure_load(clients, deployment.workers, crowd, plan.timing)
                add(
                    rate(
                        section="many clients",
                        what=named(way, kind),
                        replicas=1 if kind == "unreplicated" else size,
                        rates=loaded.rates,
                        echo_ms=echo_ms,
                        cpu_us=loaded.cpu_us,
                        client_cpu_us=loaded.caller_cpu_us,
                    )
                )
        if "claim" in plan.parts:
            for way in CLAIM_WAYS:
                for kind in ("replicated", "unreplicated"):
                    await _measure_alone("claim", way, kind, plan, size, stick, clients, add)
            counted = [await worker.count() for worker in deployment.workers]
            prepares = sum(each.prepares for each in counted)
            waited = sum(each.waited for each in counted)
            add(
                Figure(
                    section="claim",
                    what="prepares that waited for backups",
                    replicas=size,
                    value=100 * waited / max(prepares, 1),
                    unit="%",
                )
            )


async def _measure_alone(  # noqa: PLR0913, PLR0917 -- in one place
    section: str,
    way: str,
    kind: str,
    plan: VsrPlan,
    size: int,
    stick: Yardstick,
    clients: Worker,
    add: Callable[[Figure], None],
) -> None:
    echo_ms = await stick.measure()
    # A long transaction has many calls in it.
    share = 10 if way in CLAIM_WAYS else 1
    order = Transact(way, kind, max(plan.alone // share, 1), plan.alone_warm_up // share)
    found = await clients.transact(order)
    for figure in latencies(section, way, kind, found, size, echo_ms):
        add(figure)


async def _measure_fail_over(plan: VsrPlan, size: int, add: Callable[[Figure], None]) -> None:
    """Kill the primary again and again while clients work."""
    async with deployed(size, ServeAccounts(stack=plan.stack, is_patient=False)) as (
        deployment,
        clients,
    ):
        clients.tell(ConnectAccounts(deployment.addresses))
        await clients.ready()
        clients.tell(TransactTogether("one call", "replicated", 3))
        await clients.ready()
        gaps = await deployment.gaps_ms(clients, kills=plan.kills, pause=plan.kill_pause)
    target = FAIL_OVER_MAX if size == FAIL_OVER_COHORTS else None
    for figure in fail_over_figures(gaps, size, target):
        add(figure)
