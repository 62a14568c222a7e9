"""Reads that say how old they are, updates on condition, and outcomes that changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests import idle_time
from tests.colours.shop import Shop, SoldOut, cut_off, play, together
from tests.patience import PATIENCE

import coterie
from coterie.client import Changed, ClientSettings, NotDone
from coterie.client.results import Result
from coterie.kernel.components import GREEN, RED
from coterie.kernel.errors import Refused
from coterie.stacks import COLOURS_STACKS

if TYPE_CHECKING:
    from coterie.local_group import LocalGroup

PATIENT = ClientSettings(deadline=PATIENCE)


def test_a_read_says_how_old_it_is() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        async with group.connect(Shop, settings=PATIENT, at="branch") as branch:
            assert (await shop.left.detailed()).age == 0
            assert (await shop.left.options(level="weak").detailed()).age == 0
            await cut_off(group, "r1")
            began = asyncio.get_running_loop().time()
            first = await branch.left.options(level="weak").detailed()
            assert first.age is not None
            await asyncio.sleep(1)
            for level in ("weak", "dirty"):
                later = await branch.left.options(level=level).detailed()
                # The cut was noticed before we could look.
                assert later.age is not None
                waited = asyncio.get_running_loop().time() - began
                assert first.age + 1 <= later.age <= first.age + waited + 1
            # The others are in the primary component, and know everything.
            assert (await shop.left.options(level="weak").detailed()).age == 0
            group.heal()
            await together(group)
            assert (await branch.left.options(level="weak").detailed()).age == 0

    play(story)


@pytest.mark.parametrize("stack", [*COLOURS_STACKS, "SAFE:DYNSEQ:PVSYNC", "DYNSEQ:PVSYNC"])
def test_an_update_rests_on_what_was_read(stack: str) -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        del group
        seen = await shop.left.detailed()
        sure = shop.sell.options(if_unchanged=[seen])
        assert await sure("ada") == 2
        with pytest.raises(Changed, match="left answers something else now: read it again"):
            await sure("bob")
        # Whatever changes elsewhere is no matter; and that it was another value for a while.
        assert await shop.deliver(1) == 3
        sold = await (await sure.detailed("cleo")).settled()
        assert (sold.value, sold.standing.is_final) == (2, True)
        assert await shop.customers() == {"ada": 1, "cleo": 1}
        # The class's own errors, and several answers together.
        known = await shop.customers.detailed()
        with pytest.raises(SoldOut, match="2 are left"):
            await shop.sell.options(if_unchanged=[known, await shop.left.detailed()])("dora", 5)

    async def run() -> None:
        async with coterie.local(Shop, stack=stack) as shop:
            await story(shop, coterie.group_of(shop))

    idle_time.run(run())


def test_on_both_sides_of_a_cut_one_of_two_that_rest_on_the_same_is_executed() -> None:
    """Interactive transactions: what fails at green fails the same way everywhere."""

    async def story(shop: type[Shop], group: LocalGroup) -> None:
        async with group.connect(Shop, settings=PATIENT, at="branch") as branch:
            await cut_off(group, "r1")
            here = await branch.left.options(level="dirty").detailed()
            there = await shop.left.detailed()
            assert await shop.sell.options(if_unchanged=[there])("ada") == 2
            red = await branch.sell.options(if_unchanged=[here], colour="red").detailed("bob")
            assert (red.value, red.standing) == (2, RED)
            # What rests on a red answer is as red as that.
            after = await branch.left.options(level="dirty").detailed()
            assert after.standing is RED
            next_red = branch.deliver.options(if_unchanged=[after], colour="red").detailed(7)
            assert (await next_red).value == 9
            group.heal()
            with pytest.raises(Changed):
                await red.settled()
            # The stock is 2 now, as it was seen to be: only the answer counts, not how it came.
            assert (await (await next_red).settled()).value == 9
            await together(group)
            assert await shop.customers() == {"ada": 1}
            states = {group[id].host.digest()[1] for id in group.ids}
            assert len(states) == 1

    play(story)


def test_an_application_is_told_of_outcomes_that_changed() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        told: list[tuple[Any, Any]] = []
        async with group.connect(Shop, settings=PATIENT, at="branch") as branch:
            await cut_off(group, "r1")
            assert await shop.sell("ada", 2) == 1
            sell = branch.sell.options(colour="red", on_reordered=lambda *both: told.append(both))
            assert await sell("bob", 1) == 2
            assert await sell("cleo", 1) == 1
            deliver = branch.deliver.options(
                colour="red", on_reordered=lambda *both: told.append(both)
            )
            last = await deliver.detailed(0)
            group.heal()
            await last.settled()
        # Bob is told another number, and cleo no; of ada, who was told it for good, nothing is.
        [bob, cleo, nothing] = told
        assert isinstance(bob[0], Result)
        assert (bob[0].value, bob[0].standing) == (2, RED)
        assert (bob[1].value, bob[1].standing) == (0, GREEN)
        assert cleo[0].value == 1
        assert isinstance(cleo[1], SoldOut)
        assert (nothing[0].value, nothing[1].value) == (1, 0)

    play(story)


def test_what_no_update_can_rest_on_is_refused() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        del group
        sold = await shop.sell.detailed("ada")
        with pytest.raises(NotDone, match="takes what queries answered"):
            shop.sell.options(if_unchanged=[sold])
        seen = await shop.left.detailed()
        with pytest.raises(NotDone, match="16 answers at most"):
            shop.sell.options(if_unchanged=[seen] * 17)
        with pytest.raises(NotDone, match="make those one by one"):
            await shop.sell.options(if_unchanged=[seen]).many([("bob",)])
        with pytest.raises(Refused):
            await shop.sell.options(if_unchanged=[seen])(7)  # type: ignore[arg-type]

    play(story)
