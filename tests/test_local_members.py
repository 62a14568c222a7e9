"""Members of a local group change while a client goes on calling."""

from __future__ import annotations

import asyncio

import pytest
from tests import idle_time
from tests.patience import PATIENCE

import coterie
from coterie import ready
from coterie.client import OutcomeUnknown
from coterie.kernel.errors import Refused
from coterie.local_group import group_of


class Tally:
    """Knows which numbers it was given, each once."""

    numbers: tuple[int, ...] = ()

    @coterie.update
    def take(self, number: int) -> int:
        self.numbers = (*self.numbers, number)
        return len(self.numbers)

    @coterie.query
    def all(self) -> tuple[int, ...]:
        return self.numbers


class Caller:
    """Calls all the time, and remembers what was acknowledged."""

    def __init__(self, tally: type[Tally]) -> None:
        self._tally = tally
        self._is_active = True
        self.acknowledged: list[int] = []
        self.asked = 0

    async def run(self) -> None:
        while self._is_active:
            self.asked += 1
            try:
                await self._tally.take(self.asked)
            except OutcomeUnknown:
                continue
            self.acknowledged.append(self.asked)
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._is_active = False


@pytest.mark.parametrize(
    "stack", ["SAFE:DYNSEQ:PVSYNC", "SAFE:TOKEN:PVSYNC", "COLOURS:DYNSEQ:VSYNC"]
)
def test_from_one_to_three_to_five_to_three_to_one_under_load(stack: str) -> None:
    """The founder is replaced as well; nothing acknowledged is lost, and nothing is done twice."""

    async def story() -> None:
        async with coterie.local(Tally, replicas=1, stack=stack) as tally:
            group = group_of(tally)
            caller = Caller(tally)
            calling = asyncio.create_task(caller.run())
            for id in ("r2", "r3", "r4", "r5"):
                await group.add(id, deadline=PATIENCE)
            assert ",".join(group.members) == "r1,r2,r3,r4,r5"
            await group.replace("r1", "r6", deadline=PATIENCE)
            for id in ("r2", "r3", "r4", "r5"):
                await group.remove(id, deadline=PATIENCE)
            assert ",".join(group.members) == "r6"
            assert ",".join(group.running) == "r6"
            caller.stop()
            await calling
            await tally.take(0)
            numbers = await tally.all()
            assert len(set(numbers)) == len(numbers)
            assert set(caller.acknowledged) <= set(numbers)

    idle_time.run(story())


def test_what_cannot_be_is_refused_with_a_sentence() -> None:
    async def story() -> None:
        async with coterie.local(Tally, replicas=1) as tally:
            group = group_of(tally)
            with pytest.raises(Refused, match="r1 is the last member"):
                await group.remove("r1")
            with pytest.raises(Refused, match="ids are never used again"):
                await group.add("r1")
            with pytest.raises(Refused, match="r7 does not belong to the group; it has r1"):
                await group.remove("r7")
            with pytest.raises(Refused, match="r7 is no member; the group has r1"):
                await group.replace("r7", "r8")
            assert group.members == ("r1",)

    idle_time.run(story())


def test_members_of_a_stack_without_an_order_do_not_change() -> None:
    async def story() -> None:
        async with coterie.local(ready.Counter, stack="PVSYNC") as counter:
            with pytest.raises(Refused, match="take a stack with PRIMARY"):
                await group_of(counter).add("r4")

    idle_time.run(story())
