"""Transactions as Python has them, over real cohorts in one process."""

from __future__ import annotations

import asyncio
import inspect
import sys
import textwrap
import types
from collections.abc import Awaitable, Callable

import pytest
from tests import idle_time
from tests.patience import PATIENCE
from tests.transactional.banks import ClassBank, Frozen, Plain

import coterie.transactional
from coterie.kernel.clock import milliseconds, seconds
from coterie.local_transactions import LocalGroups, local_groups
from coterie.objects import BadArguments, MethodFailed, UnknownMethod
from coterie.transactional import PartAborted, TransactionAborted, TransactionUnknown
from coterie.transactional.face import TransactionBlock
from coterie.vsr import DEFAULT_VSR_SETTINGS, VsrSettings
from coterie.vsr.calls.primary_requests import UnknownGroup
from coterie.vsr.commit.client import Fate, TransactionOver

Story = Callable[[LocalGroups], Awaitable[None]]


def tell(story: Story, settings: VsrSettings = DEFAULT_VSR_SETTINGS) -> None:
    """Run a story over two banks and a counter."""

    async def run() -> None:
        async with local_groups(
            eu=ClassBank, us=ClassBank, plain=Plain, settings=settings
        ) as groups:
            await story(groups)

    idle_time.run(run())


def test_leaving_the_block_commits() -> None:
    async def story(groups: LocalGroups) -> None:
        async with groups.transaction() as t:
            assert await t.eu.withdraw("alice", 10) == 90
            assert await t.us.deposit("bob", 10) == 110
        assert t.outcome is not None
        assert t.outcome.fate is Fate.COMMITTED
        assert {pair.group for pair in t.outcome.pset} == {"eu", "us"}
        assert await groups.eu.balance("alice") == 90
        assert await groups.us.balance("bob") == 110

    tell(story)


def test_an_exception_aborts_and_goes_on() -> None:
    async def story(groups: LocalGroups) -> None:
        block = groups.transaction()

        async def withdraw() -> None:
            async with block as t:
                await t.eu.withdraw("alice", 10)
                raise RuntimeError("never mind")

        with pytest.raises(RuntimeError, match="never mind"):
            await withdraw()
        assert block.outcome is not None
        assert block.outcome.fate is Fate.ABORTED
        assert await groups.eu.balance("alice") == 100

    tell(story)


def test_a_part_fails_alone() -> None:
    async def story(groups: LocalGroups) -> None:
        async def freeze(t: TransactionBlock) -> None:
            async with t.part():
                await t.us.deposit("bob", 10)
                await t.us.freeze("bob")

        async with groups.transaction() as t:
            await t.eu.withdraw("alice", 10)
            with pytest.raises(Frozen):
                await freeze(t)
            async with t.part():
                await t.us.deposit("carol", 10)
        balances = [await groups.us.balance(name) for name in ("bob", "carol")]
        assert (await groups.eu.balance("alice"), *balances) == (90, 100, 110)

    tell(story)


def test_a_part_whose_call_did_not_run_fails_though_somebody_caught_it() -> None:
    async def story(groups: LocalGroups) -> None:
        async def catch(t: TransactionBlock) -> None:
            async with t.part():
                await t.eu.withdraw("alice", 10)
                with pytest.raises(PartAborted, match="over the limit"):
                    await t.eu.withdraw("alice" * 200_000, 10)

        async with groups.transaction() as t:
            with pytest.raises(PartAborted, match="over the limit"):
                await catch(t)
            await t.us.deposit("bob", 10)
        assert await groups.eu.balance("alice") == 100
        assert await groups.us.balance("bob") == 110

    tell(story)


def test_a_declared_error_is_caught_by_its_class() -> None:
    async def story(groups: LocalGroups) -> None:
        async with groups.transaction() as t:
            with pytest.raises(Frozen, match="alice is frozen") as caught:
                await t.eu.freeze("alice")
            assert (caught.value.account, caught.value.since) == ("alice", 1.5)
            await t.eu.withdraw("alice", 1)
        assert await groups.eu.balance("alice") == 99
        # From another group, inside an update, and through two of them.
        assert await groups.eu.send_frozen("us", "bob") == "bob since 1.5"
        with pytest.raises(Frozen, match="bob is frozen"):
            await groups.eu.send_frozen_on("us", "bob")
        assert await groups.us.balance("bob") == 100

    tell(story)


def test_a_method_that_raises_can_be_caught_and_the_transaction_goes_on() -> None:
    async def story(groups: LocalGroups) -> None:
        async with groups.transaction() as t:
            with pytest.raises(MethodFailed, match="Overdrawn: alice"):
                await t.eu.withdraw("alice", 1000)
            await t.eu.withdraw("alice", 1)
        assert await groups.eu.balance("alice") == 99

    tell(story)


def test_a_class_for_other_stacks_runs_unchanged_each_call_a_transaction() -> None:
    async def story(groups: LocalGroups) -> None:
        assert await groups.plain.add(3) == 3
        assert await groups.plain.add(4) == 7
        assert await groups.plain.total() == 7

    tell(story)


def test_a_call_inside_a_call_is_part_of_the_transaction() -> None:
    async def story(groups: LocalGroups) -> None:
        async with groups.transaction() as t:
            assert await t.eu.send("alice", 25, "us", "bob") == 75
        assert await groups.us.balance("bob") == 125

    tell(story)


def test_calls_can_be_made_at_the_same_time() -> None:
    async def story(groups: LocalGroups) -> None:
        async with groups.transaction() as t:
            results = await asyncio.gather(
                t.eu.withdraw("alice", 5), t.us.deposit("bob", 5), t.plain.add(1)
            )
        assert list(results) == [95, 105, 1]

    tell(story)


def test_the_primary_dies_between_two_calls() -> None:
    async def story(groups: LocalGroups) -> None:
        await groups.us.deposit("bob", 1)
        async with groups.transaction("eu") as t:
            await t.eu.withdraw("alice", 10)
            primary = groups.primary("us")
            assert primary is not None
            assert primary != groups.primary("eu")
            groups.kill(primary)
            assert await t.us.deposit("bob", 10) == 111
        assert await groups.us.balance("bob") == 111
        groups.start(primary)
        assert await groups.eu.balance("alice") == 90

    tell(story)


def test_what_waits_too_long_for_a_lock_is_aborted_with_the_reason() -> None:
    async def story(groups: LocalGroups) -> None:
        async with groups.transaction() as one:
            await one.eu.deposit("alice", 1)
            with pytest.raises(TransactionAborted, match="waited too long for 'accounts/alice'"):
                async with groups.transaction() as other:
                    await other.eu.deposit("alice", 1)
        assert await groups.eu.balance("alice") == 101

    tell(story, VsrSettings(lock_patience=milliseconds(100)))


def test_nobody_answers_and_the_outcome_is_unknown() -> None:
    async def story(groups: LocalGroups) -> None:
        async def deposit() -> None:
            async with groups.transaction() as t:
                await t.eu.deposit("alice", 1)
                for machine in groups.machines:
                    groups.kill(machine)

        with pytest.raises(TransactionUnknown, match="whether transaction eu/"):
            await deposit()

    tell(story, VsrSettings(outcome_patience=milliseconds(300)))


def test_nobody_is_there_to_begin_with() -> None:
    async def story(groups: LocalGroups) -> None:
        for machine in groups.machines:
            groups.kill(machine)
        with pytest.raises(TransactionAborted, match="eu did not answer in time"):
            async with groups.transaction():
                pass

    tell(story, VsrSettings(call_patience=milliseconds(300)))


def test_mistakes_are_told_to_who_made_them() -> None:
    async def story(groups: LocalGroups) -> None:
        async with groups.transaction() as t:
            with pytest.raises(UnknownGroup, match="there is no group 'mars'; there are eu, plain"):
                _ = t.mars
            with pytest.raises(UnknownMethod, match="has no method 'rob'"):
                _ = t.eu.rob
            with pytest.raises(BadArguments, match="'amount' must be int"):
                await t.eu.deposit("alice", "much")
        with pytest.raises(TransactionOver, match="begin another one"):
            await t.eu.balance("alice")
        with pytest.raises(AttributeError, match="mars"):
            _ = groups.mars
        with pytest.raises(UnknownGroup, match="there is no group 'mars'"):
            async with groups.transaction("mars"):
                pass

    tell(story)


def test_the_example_in_the_docstring_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    documentation = inspect.getdoc(coterie.transactional)
    assert documentation is not None
    example = [line for line in documentation.splitlines() if line.startswith("    ")]
    code = textwrap.dedent("\n".join(example))
    code = "import coterie\n" + code
    place = code.index("async with coterie.local_groups")
    code = code[:place] + "async def main():\n" + textwrap.indent(code[place:], "    ")
    module = types.ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    exec(compile(code, "example", "exec", dont_inherit=True), vars(module))  # noqa: S102 -- ours
    asyncio.run(module.main())


def test_what_a_lost_coordinator_leaves_is_in_nobodys_way() -> None:
    """A new primary lets go of the locks at once: nobody else can decide those transactions."""
    never = seconds(3600)
    settings = VsrSettings(query_after=never, client_patience=never, lock_patience=never)

    async def story(groups: LocalGroups) -> None:
        t = await groups.transaction("eu").__aenter__()
        await t.eu.deposit("alice", 5)
        primary = groups.primary("eu")
        assert primary is not None
        groups.kill(primary)
        async with asyncio.timeout(PATIENCE):
            assert await groups.eu.deposit("alice", 1) == 101
        with pytest.raises(TransactionAborted, match="does not know it any more"):
            await t.__aexit__(None, None, None)

    tell(story, settings)
