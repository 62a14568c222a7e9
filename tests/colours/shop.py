"""A class that sells on both sides of a cut, and a group of it in one process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests import idle_time
from tests.patience import PATIENCE

import coterie
from coterie.kernel.engine import Role
from coterie.local_group import group_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coterie.local_group import LocalGroup

STACK = "COLOURS:DYNSEQ:VSYNC"


class SoldOut(Exception):
    """There are not as many any more."""

    def __init__(self, left: int) -> None:
        super().__init__(f"{left} are left")
        self.left = left


class Shop:
    """Sells what it has."""

    stock: int = 3
    sold: dict[str, int]
    errors = (SoldOut,)

    def __init__(self) -> None:
        self.sold = {}

    @coterie.update
    def sell(self, customer: str, count: int = 1) -> int:
        """Sell some; give how many are left."""
        if count > self.stock:
            raise SoldOut(self.stock)
        self.stock -= count
        self.sold[customer] = self.sold.get(customer, 0) + count
        return self.stock

    @coterie.update
    def deliver(self, count: int) -> int:
        self.stock += count
        return self.stock

    @coterie.query
    def left(self) -> int:
        return self.stock

    @coterie.query
    def customers(self) -> dict[str, int]:
        return self.sold


async def until(group: LocalGroup, is_so: Callable[[], bool]) -> None:
    """Wait until something is true of the roles of a group."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            group.changed.clear()
            await group.changed.wait()


async def together(group: LocalGroup) -> None:
    """Wait until all replicas are in one primary component."""
    count = len(group.ids)

    def is_one() -> bool:
        seen = [group[id].status for id in group.running]
        return len(seen) == count and all(
            each is not None and each.role is Role.PRIMARY and len(each.members) == count
            for each in seen
        )

    await until(group, is_one)


async def cut_off(group: LocalGroup, *alone: str) -> None:
    """Cut some replicas, and the machine `branch`, off from the others; wait until they know.

    The object that a story is given is with the others, and so is `centre`.
    """
    others = [id for id in group.ids if id not in alone]
    group.cut([*alone, "branch"], [*others, "centre", "client"])

    def is_apart() -> bool:
        seen = {id: group[id].status for id in group.ids}
        return all(
            each is not None
            and each.role is (Role.NON_PRIMARY if id in alone else Role.PRIMARY)
            and {member.id for member in each.members} == set(alone if id in alone else others)
            for id, each in seen.items()
        )

    await until(group, is_apart)


def play(
    story: Callable[[type[Shop], LocalGroup], Awaitable[None]],
    *,
    stack: str = STACK,
    replicas: int = 3,
) -> None:
    """Have a story played with a shop, which all replicas keep."""

    async def run() -> None:
        async with coterie.local(Shop, replicas=replicas, stack=stack) as shop:
            group = group_of(shop)
            await together(group)
            await story(shop, group)

    idle_time.run(run())
