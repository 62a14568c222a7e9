"""`coterie bench order`: latency and throughput of multicast and total order, in rounds.

The method of **objects** section 6.2. All members send in rounds; a member begins its next round
when it has all messages of the present one from all members. With one message for each member and
round that gives the latency of a round, with a hundred the throughput. Messages have 100 bytes.
Members are processes on this machine that run the real runtime, with journals.

Each measurement is repeated and the median is reported, because a shared machine is sometimes
slow. Right before each one a raw TCP round trip is measured, because machines differ, and one
machine from minute to minute: the ratio to it says more than the figure.

Stacks with `TOKEN` are measured once more with the token kept for a millisecond before it is passed
on, of which section 6.3 expects more throughput for a longer round.
"""

from __future__ import annotations

import tempfile
from statistics import mean, median
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.harness.controller import worker_pool
from coterie.bench.harness.machine import describe_machine
from coterie.bench.harness.protocol import Join, Measured, Rounds
from coterie.bench.harness.yardstick import Yardstick, yardstick
from coterie.stacks import STACKS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MESSAGE_BYTES = 100
BURST = 100


class OrderPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure of the order of messages."""

    members: tuple[int, ...] = (2, 3, 4, 5)
    stacks: tuple[str, ...] = STACKS
    rounds: int = 100
    warm_up: int = 30
    repeats: int = 7
    hold_us: int = 1000
    """How long the token is kept where stacks with one are measured once more; 0: they are not."""


class RoundsResult(msgspec.Struct, frozen=True, kw_only=True):
    """The medians for one stack and number of members."""

    stack: str
    members: int
    latency_ms: float
    """How long a round of one message for each member takes."""
    latency_ms_repeats: list[float]
    latency_cpu_ms: float
    """Processor time of a member in such a round."""
    echo_ratio: float
    """The latency in raw TCP round trips, each measured right before."""
    messages_per_member: float
    """Messages that each member casts in a second, in rounds of a hundred."""
    messages_per_member_repeats: list[float]
    messages_in_all: float
    """Messages that all members together cast in a second; each member delivers as many."""
    cpu_us_per_delivery: float
    """Processor time of a member for each message it delivers, in rounds of a hundred."""
    turns_per_round: float
    """How many turns a member takes in a round of one message for each."""


class OrderReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured in one run."""

    machine: dict[str, str | int]
    plan: OrderPlan
    message_bytes: int
    burst: int
    echo_ms: float
    """The median of the raw TCP round trip."""
    echo_ms_repeats: list[float]
    echoes: str
    """The round trips in words."""
    results: list[RoundsResult]


class _Raw(msgspec.Struct):
    """What the members of one group measured: for each repeat, one entry a member."""

    echo_ms: list[float] = []
    single: list[list[Measured]] = []
    burst: list[list[Measured]] = []


async def _measure_group(  # noqa: PLR0913 -- all by name
    *,
    plan: OrderPlan,
    stack: str,
    size: int,
    stick: Yardstick,
    folder: str,
    profile: str,
    hold_us: int,
) -> _Raw:
    ids = "abcdefghijklmnopqrstuvwxyz"[:size]
    async with worker_pool(size) as started:
        workers = started.workers
        members = dict(zip(ids, workers, strict=True))
        for id, worker in members.items():
            peers = {peer: members[peer].listening.port for peer in ids if peer != id}
            worker.tell(Join(id, peers, stack, folder, profile, hold_us))
        for worker in workers:
            await worker.ready()
        raw = _Raw()
        for _ in range(plan.repeats):
            raw.echo_ms.append(await stick.measure())
            for messages, into in ((1, raw.single), (BURST, raw.burst)):
                for worker in workers:
                    worker.tell(Rounds(plan.rounds, plan.warm_up, messages, MESSAGE_BYTES))
                into.append([await worker.measured() for worker in workers])
        return raw


def _summarize(plan: OrderPlan, stack: str, size: int, raw: _Raw) -> RoundsResult:
    """Give the medians over all repeats of the means over all members."""
    rounds = plan.rounds
    deliveries = BURST * rounds * size
    latencies = [mean(one.seconds for one in repeat) / rounds * 1000 for repeat in raw.single]
    rates = [mean(BURST * rounds / one.seconds for one in repeat) for repeat in raw.burst]
    ratios = [latency / echo for latency, echo in zip(latencies, raw.echo_ms, strict=True)]
    rate = median(rates)
    return RoundsResult(
        stack=stack,
        members=size,
        latency_ms=median(latencies),
        latency_ms_repeats=latencies,
        latency_cpu_ms=median(
            mean(one.cpu_seconds for one in repeat) / rounds * 1000 for repeat in raw.single
        ),
        echo_ratio=median(ratios),
        messages_per_member=rate,
        messages_per_member_repeats=rates,
        messages_in_all=rate * size,
        cpu_us_per_delivery=median(
            mean(one.cpu_seconds for one in repeat) / deliveries * 1e6 for repeat in raw.burst
        ),
        turns_per_round=median(
            mean(one.turns for one in repeat) / (rounds + plan.warm_up) for repeat in raw.single
        ),
    )


async def measure_rounds(
    plan: OrderPlan,
    stick: Yardstick,
    progress: Callable[[str], None],
    *,
    records: bool = True,
    profile: Path | None = None,
) -> list[RoundsResult]:
    """Measure every stack with every number of members, saying what is done."""
    combinations = [
        (stack, hold_us, size)
        for stack in plan.stacks
        for hold_us in _holds(plan, stack)
        for size in plan.members
    ]
    results: list[RoundsResult] = []
    for number, (stack, hold_us, size) in enumerate(combinations, start=1):
        place = profile_place(profile, stack, size)
        with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
            raw = await _measure_group(
                plan=plan,
                stack=stack,
                size=size,
                stick=stick,
                folder=folder if records else "",
                profile=place,
                hold_us=hold_us,
            )
        what = f"{stack}, held {hold_us / 1000:g} ms" if hold_us else stack
        result = _summarize(plan, what, size, raw)
        results.append(result)
        width = max(map(len, plan.stacks))
        progress(
            f"[{number:2}/{len(combinations)}] {what:{width}} {size} members: "
            f"{result.latency_ms:.3f} ms a round, "
            f"{result.messages_per_member:,.0f} messages/s each"
        )
    return results


def _holds(plan: OrderPlan, stack: str) -> tuple[int, ...]:
    """Give for how long the token is kept in the measurements of a stack, in microseconds."""
    return (0, plan.hold_us) if plan.hold_us and "TOKEN" in stack.split(":") else (0,)


async def measure(
    plan: OrderPlan, progress: Callable[[str], None], *, profile: Path | None = None
) -> OrderReport:
    """Do everything in *plan*, saying what is done.

    With *profile*, the members write cProfile's statistics there; the figures suffer from it.
    """
    machine = describe_machine()
    async with yardstick() as stick:
        results = await measure_rounds(plan, stick, progress, profile=profile)
    return OrderReport(
        machine=machine,
        plan=plan,
        message_bytes=MESSAGE_BYTES,
        burst=BURST,
        echo_ms=median(stick.trips_ms),
        echo_ms_repeats=stick.trips_ms,
        echoes=str(stick),
        results=results,
    )


def profile_place(profile: Path | None, *words: object) -> str:
    """Give a folder for the profiles of one measurement, or nothing if none are wanted."""
    if profile is None:
        return ""
    place = profile / "-".join(map(str, words)).replace(":", "-").replace(" ", "-").lower()
    place.mkdir(parents=True, exist_ok=True)
    return str(place)
