"""What clients of a group over a partitioned network see, on both sides of a cut."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.colours.shop import Shop, SoldOut, cut_off, play, together
from tests.patience import PATIENCE

import coterie
from coterie.client import ClientSettings, MethodFailed, NotDone, OutcomeUnknown
from coterie.client.methods import connection_of
from coterie.kernel.components import GREEN, RED
from coterie.ready import Counter
from coterie.stacks import COLOURS_STACKS

if TYPE_CHECKING:
    from coterie.local_group import LocalGroup

PATIENT = ClientSettings(deadline=PATIENCE)


@pytest.mark.parametrize("stack", COLOURS_STACKS)
def test_a_plain_call_is_answered_when_it_is_green(stack: str) -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        del group
        assert await shop.sell("ada") == 2
        sold = await shop.sell.detailed("bob")
        assert (sold.value, sold.standing, sold.has_changed) == (1, GREEN, False)
        assert (await sold.settled()).value == 1
        with pytest.raises(SoldOut, match="1 are left"):
            await shop.sell("cleo", 2)
        assert await shop.left() == 1
        dora, emil = await shop.sell.many([("dora",), ("emil",)])
        assert dora == 0
        assert isinstance(emil, SoldOut)

    play(story, stack=stack)


def test_the_primary_component_goes_on_and_clients_find_it() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        async with group.connect(Shop, settings=PATIENT, at="anywhere") as other:
            await cut_off(group, "r1")
            # Whichever replica this client is with, it reaches the others, too.
            assert await shop.sell.options(deadline=PATIENCE)("ada") == 2
            assert await other.sell("bob") == 1
            assert await other.left() == 1
            group.heal()
            await together(group)
            assert await shop.customers() == {"ada": 1, "bob": 1}

    play(story)


def test_a_plain_call_that_is_cut_off_waits_for_green() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        async with group.connect(Shop, settings=PATIENT, at="branch") as branch:
            await cut_off(group, "r1")
            waiting = asyncio.ensure_future(branch.sell.detailed("cleo"))
            assert await shop.sell("ada") == 2
            await asyncio.sleep(1)
            assert not waiting.done()
            group.heal()
            sold = await waiting
            assert (sold.value, sold.standing) == (1, GREEN)
            assert await shop.customers() == {"ada": 1, "cleo": 1}

    play(story)


def test_a_plain_call_says_at_its_deadline_that_it_is_red() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        async with group.connect(Shop, at="branch") as branch:
            await cut_off(group, "r1")
            with pytest.raises(OutcomeUnknown, match="it is red at 'r1', and becomes green when"):
                await branch.sell.options(deadline=1)("cleo")
            group.heal()
            await together(group)
            assert await shop.customers() == {"cleo": 1}

    play(story)


def test_a_red_answer_comes_at_once_and_says_later_what_became_of_it() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        async with group.connect(Shop, at="branch") as branch:
            await cut_off(group, "r1")
            assert await shop.sell("ada") == 2
            red = await branch.sell.options(colour="red").detailed("bob")
            assert (red.value, red.standing, red.position) == (2, RED, 0)
            assert await branch.sell.options(colour="red")("cleo") == 1
            settling = asyncio.ensure_future(red.settled())
            await asyncio.sleep(1)
            assert not settling.done()
            group.heal()
            green = await settling
            assert (green.value, green.standing, green.has_changed) == (1, GREEN, True)
            assert green.position > 0
            assert "green, changed" in repr(green)
            await together(group)
            assert await shop.customers() == {"ada": 1, "bob": 1, "cleo": 1}

    play(story)


def test_more_red_calls_at_once_than_a_session_keeps_are_answered() -> None:
    """Those behind the first thousand waited in the client for as long as the cut lasted."""

    async def story(shop: type[Shop], group: LocalGroup) -> None:
        async with group.connect(Shop, settings=PATIENT, at="branch") as branch:
            await cut_off(group, "r1")
            deliver = branch.deliver.options(colour="red")
            reds = await asyncio.gather(*(deliver.detailed(1) for _ in range(2100)))
            assert {each.standing for each in reds} == {RED}
            group.heal()
            greens = await asyncio.gather(*(each.settled() for each in reds))
            assert sorted(each.value for each in greens) == list(range(4, 2104))
            assert await shop.left() == 2103

    play(story)


def test_an_answer_that_stays_the_same_has_not_changed() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        del shop
        async with group.connect(Shop, at="branch") as branch:
            await cut_off(group, "r1")
            red = await branch.sell.options(colour="red").detailed("bob")
            group.heal()
            green = await red.settled()
            assert (green.value, green.has_changed) == (2, False)
            # In the primary component there is nothing to wait for.
            await together(group)
            assert (await branch.sell.options(colour="red").detailed("bob")).standing is GREEN

    play(story)


def test_what_was_sold_red_may_be_sold_out_when_it_is_green() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        async with group.connect(Shop, at="branch") as branch:
            await cut_off(group, "r1")
            assert await shop.sell("ada", 3) == 0
            red = await branch.sell.options(colour="red").detailed("bob", 2)
            assert red.value == 1
            group.heal()
            with pytest.raises(SoldOut, match="0 are left") as raised:
                await red.settled()
            cause = raised.value.__cause__
            assert isinstance(cause, MethodFailed)
            assert cause.standing is GREEN

    play(story)


def test_what_failed_red_may_succeed_when_it_is_green() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        async with group.connect(Shop, at="branch") as branch:
            await cut_off(group, "r1")
            assert await shop.deliver(5) == 8
            with pytest.raises(SoldOut, match="3 are left") as raised:
                await branch.sell.options(colour="red")("bob", 4)
            cause = raised.value.__cause__
            assert isinstance(cause, MethodFailed)
            assert cause.standing is RED
            group.heal()
            green = await cause.settled()
            assert (green.value, green.has_changed) == (4, True)

    play(story)


def test_who_is_cut_off_can_begin_there() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        await cut_off(group, "r1")
        async with group.connect(Shop, at="branch") as branch:
            reds = [await branch.sell.options(colour="red").detailed(each) for each in "abc"]
            assert [each.value for each in reds] == [2, 1, 0]
            group.heal()
            assert [(await each.settled()).value for each in reds] == [2, 1, 0]
            assert await branch.customers() == {"a": 1, "b": 1, "c": 1}
            await shop.deliver(1)
            assert await branch.sell("d") == 0

    play(story)


def test_a_session_of_the_other_side_is_not_used_before_it_is_known() -> None:
    """Its opening could come later in the order than a call in it."""

    async def story(shop: type[Shop], group: LocalGroup) -> None:
        del shop
        await cut_off(group, "r1")
        async with group.connect(Shop, at="centre") as moving:
            assert await moving.sell("ada") == 2
            # The machine of the client is carried to the other side.
            group.cut(["r1", "branch", "centre"], ["r2", "r3"])
            red = None
            while red is None:
                # At first it is asked of those who are gone as well, and may be done there.
                with suppress(OutcomeUnknown):
                    red = await moving.sell.options(colour="red", deadline=2).detailed("bob", 0)
            # Nobody here knows of what was sold there.
            assert (red.value, red.standing) == (3, RED)
            group.heal()
            assert ((await red.settled()).value, red.standing) == (2, RED)

    play(story)


def test_both_replicas_of_a_side_know_what_is_red_there() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        async with group.connect(Shop, at="branch") as branch:
            await cut_off(group, "r1", "r2")
            red = await branch.sell.options(colour="red").detailed("bob")
            assert red.standing is RED
            home = connection_of(branch).client.replicas.home
            assert home is not None
            first = home.replica
            group.kill(first)
            # The client asks the other one, which knows the call, and makes no other of it.
            await asyncio.sleep(0.5)
            group.start(first)
            group.heal()
            green = await red.settled()
            assert green.standing is GREEN
            assert (await shop.customers.options(deadline=PATIENCE)())["bob"] == 1

    play(story, replicas=5)


def test_reads_say_their_colour() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        async with group.connect(Shop, at="branch") as branch:
            await cut_off(group, "r1")
            assert await shop.sell("ada") == 2
            await branch.sell.options(colour="red")("bob", 2)
            dirty = await branch.left.options(level="dirty").detailed()
            assert (dirty.value, dirty.standing) == (1, RED)
            weak = await branch.left.options(level="weak").detailed()
            assert (weak.value, weak.standing) == (3, GREEN)
            with pytest.raises(NotDone, match="not in the primary component"):
                await branch.left.options(deadline=0.5)()
            group.heal()
            await together(group)
            assert await branch.left.options(deadline=PATIENCE)() == 0

    play(story)


def test_more_red_calls_than_a_session_keeps_go_on_in_others() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        await shop.deliver(2000)
        async with group.connect(Shop, at="branch") as branch:
            await cut_off(group, "r1")
            sell = branch.sell.options(colour="red", deadline=PATIENCE)
            reds = [await sell.detailed("bob") for _ in range(1100)]
            assert {each.standing for each in reds} == {RED}
            group.heal()
            greens = await asyncio.gather(*(each.settled() for each in reds))
            assert [each.value for each in greens] == [each.value for each in reds]
            assert await branch.customers() == {"bob": 1100}

    play(story)


def test_other_groups_have_no_colours() -> None:
    async def story() -> None:
        async with coterie.local(Counter, replicas=1) as counter:
            with pytest.raises(NotDone, match="is for groups over a partitioned network"):
                await counter.add.options(colour="red")(1)

    asyncio.run(story())


def test_a_call_in_no_colour_is_refused() -> None:
    async def story(shop: type[Shop], group: LocalGroup) -> None:
        del group
        with pytest.raises(NotDone, match="choose red or green"):
            await shop.sell.options(colour="blue")("bob")  # type: ignore[arg-type]
        with pytest.raises(NotDone, match="make red ones one by one"):
            await shop.sell.options(colour="red").many([("bob",)])

    play(story, replicas=1)
