"""The page on partitions: its code, played."""

# ruff: noqa: T201 -- the page prints

from __future__ import annotations

import re
from pathlib import Path

import pytest
from examples.flight import Flight, FlightFull
from tests import idle_time
from tests.colours.shop import STACK, cut_off, together
from tests.patience import PATIENCE

import coterie
from coterie.client import Changed, ClientSettings
from coterie.client.results import Result
from coterie.kernel.components import GREEN, RED
from coterie.local_group import group_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "use" / "partitions.md").read_text(encoding="utf-8")
PATIENT = ClientSettings(deadline=PATIENCE)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_what_the_page_shows_stands_in_files() -> None:
    shown = re.findall(r"```python from=(\S+)\n(.*?)```", PAGE, re.DOTALL)
    assert len(shown) == 8
    for file, code in shown:
        assert squeezed(code) in squeezed((ROOT / file).read_text(encoding="utf-8"))


def test_a_flight_is_sold_on_both_sides_of_a_cut() -> None:
    async def run() -> None:
        async with coterie.local(Flight, replicas=3, stack=STACK) as centre:
            group = group_of(centre)
            await together(group)
            async with group.connect(Flight, settings=PATIENT, at="branch") as branch:
                assert await branch.book("ada") == "seat 1"
                await cut_off(group, "r1")
                red = await branch.book.options(colour="red").detailed("dora")
                assert (red.value, red.standing) == ("seat 2", RED)
                assert [await centre.book(name) for name in ("bob", "carl", "cleo")] == [
                    "seat 2",
                    "seat 3",
                    "seat 4",
                ]
                assert await branch.booked.options(level="weak")() == ["ada"]
                assert await branch.booked.options(level="dirty")() == ["ada", "dora"]
                booked = await branch.booked.options(level="weak").detailed()
                assert booked.age is not None
                print(f"as of {booked.age:.0f} s ago:", booked.value)
                letters: list[str] = []

                def apologise(told: Result[str], counts: Result[str] | Exception) -> None:
                    letters.append(f"you have {getattr(counts, 'value', counts)}, not {told.value}")

                await branch.book.options(colour="red", on_reordered=apologise)("emil")
                await branch.book.options(colour="red")("fay")
                ada = await branch.place.options(level="dirty").detailed("ada")
                assert ada.value == "seat 1"
                gone = await branch.cancel.options(colour="red", if_unchanged=[ada]).detailed("ada")
                assert gone.value
                # She changes her mind on the other side, which has not heard of it.
                await centre.cancel("ada")
                await centre.book("ada")
                group.heal()
                with pytest.raises(Changed):
                    await gone.settled()
                green = await red.settled()
                assert (green.value, green.standing) == ("waiting 1", GREEN)
                assert green.has_changed
                await together(group)
                # The order decides who is too many: red, fay had been told seat 4.
                assert await centre.booked() == ["bob", "carl", "cleo", "ada", "dora", "emil"]
                assert letters == ["you have waiting 2, not seat 3"]
                with pytest.raises(FlightFull):
                    await branch.book("gus")

    idle_time.run(run())
