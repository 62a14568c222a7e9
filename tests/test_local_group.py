"""A class of one's own as a group in this process, through kills and returns."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests import idle_time
from tests.patience import PATIENCE

import coterie
from coterie import ready
from coterie.client import MethodFailed, NotDone, OutcomeUnknown
from coterie.kernel.engine import Role, Standing
from coterie.local_group import group_of
from coterie.objects import BadArguments, UnknownMethod
from coterie.stacks import ENGINE_STACKS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Counter:
    """A plain class."""

    value: int = 0

    @coterie.update
    def add(self, amount: int) -> int:
        self.value += amount
        return self.value

    @coterie.update
    def break_off(self) -> int:
        self.value = 1_000_000
        raise ValueError("half-way")

    @coterie.query
    def read(self) -> int:
        return self.value


def with_counter(
    story: Callable[[type[Counter]], Awaitable[None]],
    *,
    stack: str = "SAFE:DYNSEQ:PVSYNC",
    replicas: int = 3,
) -> None:
    async def run() -> None:
        async with coterie.local(Counter, replicas=replicas, stack=stack) as counter:
            await story(counter)

    idle_time.run(run())


async def until_all_are_primary(counter: type[Counter]) -> None:
    group = group_of(counter)
    async with asyncio.timeout(PATIENCE):
        while len(group.roles()) < 3 or set(group.roles()) != {Role.PRIMARY}:
            group.changed.clear()
            await group.changed.wait()


@pytest.mark.parametrize("stack", [stack for stack in ENGINE_STACKS if stack != "PVSYNC"])
def test_the_first_three_lines_run(stack: str) -> None:
    async def story(counter: type[Counter]) -> None:
        assert await counter.add(3) == 3
        assert await counter.add(4) == 7
        assert await counter.read() == 7

    with_counter(story, stack=stack)


def test_updates_that_commute_need_no_order() -> None:
    async def run() -> None:
        async with coterie.local(ready.Counter, replicas=3, stack="PVSYNC") as counter:
            await asyncio.gather(*(counter.add(1) for _ in range(300)))
            # What is authoritative follows when all replicas have it.
            async with asyncio.timeout(PATIENCE):
                while await counter.total.options(level="weak")() < 300:
                    pass
            assert await counter.total.options(level="dirty")() == 300
            with pytest.raises(UnknownMethod, match="need a stack with total order"):
                await counter.total()

    idle_time.run(run())


def test_many_calls_at_once_are_each_executed_once() -> None:
    async def story(counter: type[Counter]) -> None:
        results = await asyncio.gather(*(counter.add(1) for _ in range(300)))
        assert sorted(results) == list(range(1, 301))

    with_counter(story)


def test_an_update_that_raises_leaves_no_trace() -> None:
    async def story(counter: type[Counter]) -> None:
        await counter.add(1)
        with pytest.raises(MethodFailed, match="ValueError: half-way"):
            await counter.break_off()
        assert await counter.read() == 1

    with_counter(story)


def test_bad_input_is_an_error_to_its_sender() -> None:
    async def story(counter: type[Counter]) -> None:
        with pytest.raises(BadArguments, match="amount"):
            await counter.add("three")  # type: ignore[arg-type]
        with pytest.raises(UnknownMethod, match="subtract"):
            await counter.subtract(1)  # type: ignore[attr-defined]
        assert await counter.read() == 0

    with_counter(story)


@pytest.mark.slow  # suspicion, exclusion and return take wall time
def test_killing_the_first_replica_again_and_again_loses_and_doubles_nothing() -> None:
    async def story(counter: type[Counter]) -> None:
        group = group_of(counter)
        for turn in range(3):
            victim = group.configuration.members[turn]
            calls = [asyncio.ensure_future(counter.add.options(deadline=15)(1)) for _ in range(50)]
            await asyncio.sleep(0)
            group.kill(victim)
            await asyncio.gather(*calls)
            group.start(victim)
            await until_all_are_primary(counter)
        assert await counter.read() == 150

    with_counter(story)


@pytest.mark.slow  # a deadline has to pass
def test_without_a_majority_every_call_has_an_outcome_by_its_deadline() -> None:
    async def story(counter: type[Counter]) -> None:
        await counter.add(1)
        group_of(counter).kill("r2")
        group_of(counter).kill("r3")
        with pytest.raises((NotDone, OutcomeUnknown)):
            await counter.add.options(deadline=1.0)(1)

    with_counter(story)


def test_an_optimistic_answer_can_be_awaited_until_it_stands() -> None:
    async def story(counter: type[Counter]) -> None:
        done = await counter.add.detailed(3)
        assert (done.value, done.standing) == (3, Standing.OPTIMISTIC)
        settled = await done.settled()
        assert settled is not None
        stands = await counter.add.options(majority=True).detailed(4)
        assert (stands.value, stands.standing) == (7, Standing.AUTHORITATIVE)
        # A majority has it, and the replica that is asked may learn so a little later.
        weak = counter.read.options(level="weak", not_before=stands.viewstamp)
        assert await weak() == 7
        both = await asyncio.gather(*(counter.add.options(majority=True)(1) for _ in range(5)))
        assert sorted(both) == [8, 9, 10, 11, 12]
        result = await counter.add.detailed(0)
        await asyncio.gather(result.settled(), result.settled())

    with_counter(story, stack="DYNSEQ:PVSYNC")


def test_an_authoritative_answer_stands_at_once_and_says_where() -> None:
    async def story(counter: type[Counter]) -> None:
        first = await counter.add.detailed(3)
        assert first.standing is Standing.AUTHORITATIVE
        second = await counter.read.detailed()
        assert second.value == 3
        assert second.position == first.position, "a query takes no place"
        await first.settled()

    with_counter(story)


def test_the_object_shows_its_methods_and_nothing_else() -> None:
    async def story(counter: type[Counter]) -> None:
        assert dir(counter) == ["add", "break_off", "read"]
        assert not hasattr(counter, "__deepcopy__")
        assert group_of(counter).name == "Counter"
        assert repr(counter) == "<Counter of group 'Counter'>"
        with pytest.raises(TypeError, match="is not the object of a local group"):
            group_of(Counter())

    with_counter(story)


@pytest.mark.parametrize("stack", [stack for stack in ENGINE_STACKS if stack != "PVSYNC"])
def test_a_group_of_one_needs_nobody_to_agree_with(stack: str) -> None:
    async def story(counter: type[Counter]) -> None:
        result = await counter.add.detailed(3)
        assert (await result.settled()).value == 3

    with_counter(story, stack=stack, replicas=1)


def test_replicas_can_be_cut_off_and_more_clients_connect() -> None:
    async def story(counter: type[Counter]) -> None:
        group = group_of(counter)
        await until_all_are_primary(counter)
        async with group.connect(Counter) as other:
            assert await other.add(1) == 1
            group.cut(["r1"], ["r2", "r3"])
            # Whichever replica a client is with, the majority goes on.
            assert await counter.add.options(deadline=20)(1) == 2
            assert await other.add.options(deadline=20)(1) == 3
            group.heal()
            await until_all_are_primary(counter)
            assert await counter.read() == 3

    with_counter(story)
