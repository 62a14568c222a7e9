"""A rolling upgrade through real stacks: replicas are killed and come back with a later class."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests import idle_time
from tests.patience import PATIENCE

import coterie
from coterie.kernel.engine import Role
from coterie.local_group import group_of
from coterie.objects import UnknownMethod, define


class CounterOfVersion1:
    value: int = 0

    @coterie.update
    def add(self, amount: int) -> int:
        self.value += amount
        return self.value


class Counter:
    version = 2
    previous = CounterOfVersion1
    amounts: list[int] = []  # noqa: RUF012

    def upgrade(self, old: CounterOfVersion1) -> None:
        self.amounts = [old.value]

    @coterie.update
    def add(self, amount: int) -> int:
        self.amounts.append(amount)
        return sum(self.amounts)

    @coterie.update
    def compact(self) -> int:
        """Give how many amounts there were."""
        count = len(self.amounts)
        self.amounts = [sum(self.amounts)]
        return count


CounterOfVersion1.__qualname__ = "Counter"


async def until_all_are_primary(counter: type[CounterOfVersion1]) -> None:
    group = group_of(counter)
    async with asyncio.timeout(PATIENCE):
        while len(group.roles()) < 3 or set(group.roles()) != {Role.PRIMARY}:
            group.changed.clear()
            await group.changed.wait()


@pytest.mark.slow  # suspicion, exclusion and return take wall time
@pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "DYNSEQ:PVSYNC"])
def test_an_upgrade_while_clients_call(stack: str) -> None:
    async def story() -> None:
        async with AsyncExitStack() as clients:
            counter = await clients.enter_async_context(
                coterie.local(CounterOfVersion1, stack=stack)
            )
            group = group_of(counter)
            later = await clients.enter_async_context(group.connect(Counter))
            group.definition = define(Counter)
            expected = 0
            for id in group.configuration.members:
                with pytest.raises(UnknownMethod, match=r"Counter\.compact|no method 'compact'"):
                    await later.compact()
                calls = [
                    asyncio.ensure_future(counter.add.options(deadline=15)(1)) for _ in range(20)
                ]
                group.kill(id)
                await asyncio.gather(*calls)
                expected += 20
                group.start(id)
                await until_all_are_primary(counter)
                assert await counter.add.options(deadline=15)(1) == expected + 1
                expected += 1
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        await later.compact()
                        break
                    except UnknownMethod:  # the last announcement is on its way
                        await counter.add(0)
            assert await counter.add(1) == expected + 1
            assert await later.compact() == 2

    idle_time.run(story())


def test_a_new_group_begins_with_the_latest_version() -> None:
    async def story() -> None:
        async with coterie.local(Counter) as counter:
            assert await counter.compact() == 0
            assert await counter.add(3) == 3

    idle_time.run(story())
