"""What editors and type checkers see of a class; mypy checks this file with all others.

An unused `type: ignore` is an error, so each of them shows that a mistake is found.
"""

from __future__ import annotations

from typing import assert_type

from coterie.objects import MethodKind, MethodResult, define, query, update


class Counter:
    value: int = 0

    @update
    def add(self, amount: int, *, note: str = "") -> int:
        del note
        self.value += amount
        return self.value

    @update
    def add_twice(self, amount: int) -> int:
        self.add(amount)
        return self.add(amount)

    @query
    def is_above(self, bound: int) -> bool:
        return self.value > bound


class Loud(Counter):
    @update
    def add(self, amount: int, *, note: str = "") -> int:
        return super().add(amount, note=note.upper())


async def through_an_async_client(counter: type[Counter]) -> None:
    assert_type(await counter.add(3), int)
    assert_type(await counter.add.detailed(3, note="three"), MethodResult[int])
    assert_type(await counter.add.options(deadline=0.5)(3), int)
    assert_type(await counter.is_above(3), bool)
    assert_type(await counter.is_above.options(level="weak")(3), bool)
    await counter.add("three")  # type: ignore[arg-type]
    await counter.add(3, remark="")  # type: ignore[call-arg]
    await counter.subtract(3)  # type: ignore[attr-defined]
    counter.is_above.options(level="strong")  # type: ignore[arg-type]


def through_a_blocking_client(counter: Counter) -> None:
    assert_type(counter.add(3), int)
    assert_type(counter.is_above(3), bool)
    counter.add("three")  # type: ignore[arg-type]


def test_a_marked_method_stays_the_plain_function_it_was() -> None:
    counter = Loud()
    assert counter.add_twice(2) == 4
    assert counter.is_above(3)
    assert {name: method.kind for name, method in define(Loud).methods.items()} == {
        "add": MethodKind.UPDATE,
        "add_twice": MethodKind.UPDATE,
        "is_above": MethodKind.QUERY,
    }
