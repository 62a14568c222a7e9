"""What red actions cost: a merge of so many, and the second copy of the object.

One group in one process, over a network in memory that is cut: what is measured is what replicas
do, not how far apart they are. A merge begins when the network is whole again, and is over when
everything that was red is green at the replica that was cut off.
"""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING

from coterie.bench.harness.figures import Figure
from coterie.bench.workloads.objects import Box, Store
from coterie.client import ClientSettings
from coterie.kernel.engine import Role
from coterie.local_group import group_of, local
from coterie.stacks import COLOURS_STACKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.local_group import LocalGroup
    from coterie.service.engines.stack import HostedObject

STACK = COLOURS_STACKS[0]
CUT_OFF = "r3"
REPLICAS = 3
LOOK_SECONDS = 0.001
VALUE_BYTES = 1024
FILL_AT_ONCE = 1000
PATIENT = ClientSettings(deadline=120)
_MB = 1 << 20


async def measure_merge(
    reds: Sequence[int], states_mb: Sequence[int], add: Callable[[Figure], None]
) -> None:
    """Measure merges of so many red actions, and the copies of states of so many megabytes."""
    for count in reds:
        add(await _merge(count))
    for megabytes in states_mb:
        for figure in await _second_copy(megabytes):
            add(figure)


async def _merge(count: int) -> Figure:
    async with local(Box, replicas=REPLICAS, stack=STACK, settings=PATIENT) as box:
        group = group_of(box)
        await _together(group)
        async with group.connect(Box, settings=PATIENT, at="branch") as branch:
            await _cut_off(group)
            put = branch.put.options(colour="red")
            await asyncio.gather(*(put.detailed(bytes(100)) for _ in range(count)))
            began = time.perf_counter()
            group.heal()
            await _together(group)
            while group[CUT_OFF].position < count:  # noqa: ASYNC110 -- it has no event
                await asyncio.sleep(LOOK_SECONDS)
            took = time.perf_counter() - began
    return Figure(
        section="merge",
        what=f"{count:,} red actions are green at all",
        replicas=REPLICAS,
        message_bytes=100,
        value=took * 1000,
        unit="ms",
    )


async def _second_copy(megabytes: int) -> list[Figure]:
    """Have a replica execute its first red action, and others after it."""
    values = megabytes * _MB // VALUE_BYTES
    async with local(Store, replicas=REPLICAS, stack=STACK, settings=PATIENT) as store:
        group = group_of(store)
        await _together(group)
        for first in range(0, values, FILL_AT_ONCE):
            await store.fill(first, min(FILL_AT_ONCE, values - first), VALUE_BYTES)
        async with group.connect(Store, settings=PATIENT, at="branch") as branch:
            plain = await _seconds_each(store.put, 100)
            await _cut_off(group)
            red = branch.put.options(colour="red")
            await branch.size.options(level="dirty")()  # the client has found its replica
            gc.collect()
            before = _resident_bytes()
            began = time.perf_counter()
            await red(bytes(100))
            first_ms = (time.perf_counter() - began) * 1000
            grown = _resident_bytes() - before
            later = await _seconds_each(red, 100)
    what = f"object of {megabytes} MB"
    return [
        Figure(section="second copy", what=f"{what}, first red call", value=first_ms, unit="ms"),
        Figure(section="second copy", what=f"{what}, memory for it", value=grown / _MB, unit="MB"),
        Figure(section="second copy", what=f"{what}, next red", value=later * 1e6, unit="us"),
        Figure(section="second copy", what=f"{what}, plain", value=plain * 1e6, unit="us"),
    ]


async def _seconds_each(put: Callable[[bytes], object], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        await put(bytes(100))  # type: ignore[misc]
    return (time.perf_counter() - began) / count


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 -- no file of ours
        return int(file.read().split()[1]) * 4096


async def _together(group: LocalGroup) -> None:
    await _until(lambda: all(_is_primary_with(group[id], REPLICAS) for id in group.ids))


async def _cut_off(group: LocalGroup) -> None:
    """Cut one replica off, with the machine called branch."""
    group.cut([CUT_OFF, "branch"], [*(id for id in group.ids if id != CUT_OFF), "client"])
    await _until(
        lambda: all(
            group[id].status is not None and group[id].status.role is Role.NON_PRIMARY  # type: ignore[union-attr]
            if id == CUT_OFF
            else _is_primary_with(group[id], REPLICAS - 1)
            for id in group.ids
        ),
    )


def _is_primary_with(hosted: HostedObject, members: int) -> bool:
    status = hosted.status
    return status is not None and status.role is Role.PRIMARY and len(status.members) == members


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 -- what is looked at has no event
        await asyncio.sleep(LOOK_SECONDS)
