"""What would arrive as something else is refused to the caller, with what to give instead."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from coterie.objects import BadArguments, define, query, update
from coterie.objects.execution.commands import NO_ARGUMENTS, Read
from coterie.objects.execution.machine import StateMachine
from coterie.objects.execution.outcomes import Done, Failed
from coterie.objects.settings import DEFAULT_HOST_SETTINGS


@dataclass
class Order:
    price: Decimal = Decimal(0)
    notes: dict[str, Any] = field(default_factory=dict)


class Shop:
    price: Decimal = Decimal(1)

    @update
    def pay(self, price: Decimal) -> None:
        self.price = price

    @update
    def pay_all(self, prices: dict[str, list[Decimal | None]]) -> None:
        self.price = sum((each for some in prices.values() for each in some if each), Decimal(0))

    @update
    def weigh(self, weight: Decimal | float) -> None:
        self.price = Decimal(str(weight))

    @update
    def note(self, what: Any) -> None:  # noqa: ANN401 -- that is the point
        del what
        self.price = Decimal(2)

    @update
    def mix(self, what: tuple[int, dict[str, Any]], more: list[Any]) -> None:
        del what, more
        self.price = Decimal(3)

    @update
    def order(self, order: Order) -> None:
        self.price = order.price


SHOP = define(Shop)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("pay", (1.5,)),
        ("pay_all", ({"a": [Decimal(1), None, 0.1]},)),
        ("order", (Order(price=0.1),)),  # type: ignore[arg-type]
    ],
)
def test_a_float_does_not_pass_for_a_decimal(method: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(BadArguments, match=r"is a float, which is not exact: give Decimal\('"):
        SHOP.encode_call(method, arguments, {})


@pytest.mark.parametrize(
    ("method", "arguments", "words"),
    [
        ("note", ((1, 2),), "a tuple and would arrive as a list"),
        ("note", ({"a": [{"b": (1,)}]},), "a tuple and would arrive as a list"),
        ("note", (dt.date(2020, 1, 2),), "a date and would arrive as a str"),
        ("note", ([Decimal(1)],), "a Decimal and would arrive as a str"),
        ("mix", ((1, {"a": {1}}), []), "a set and would arrive as a list"),
        ("mix", ((1, {}), [1, Order()]), "a Order and would arrive as a dict"),
        ("order", (Order(notes={"a": b"", "b": ()}),), "a tuple and would arrive as a list"),
    ],
)
def test_any_does_not_change_types_silently(
    method: str, arguments: tuple[object, ...], words: str
) -> None:
    with pytest.raises(BadArguments, match=f"{words}, since nothing says what it is: annotate it"):
        SHOP.encode_call(method, arguments, {})


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("pay", (Decimal("1.5"),)),
        ("pay", (2,)),
        ("weigh", (1.5,)),
        ("pay_all", ({"a": [Decimal(1), None]},)),
        ("note", ({"a": [1, 2.5, None, True, b"c", {"d": "e"}]},)),
        ("mix", ([1, {"a": 1}], (1, "b"))),
        ("order", (Order(Decimal(1), {"a": [1]}),)),
    ],
)
def test_what_arrives_as_it_is_passes(method: str, arguments: tuple[object, ...]) -> None:
    assert SHOP.encode_call(method, arguments, {})


class Answers:
    """Answers with more than it says."""

    kept: int = 0

    @update
    def keep(self) -> None:
        self.kept += 1

    @query
    def anything(self) -> Any:  # noqa: ANN401 -- that is the point
        return {"a": (1, 2)}

    @query
    def price(self) -> Decimal:
        return 0.1  # type: ignore[return-value]

    @query
    def sound(self) -> Any:  # noqa: ANN401 -- that is the point
        return {"a": [1, 2]}


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("anything", "its answer .* is a tuple and would arrive as a list"),
        ("price", "its answer 0.1 is a float, which is not exact"),
    ],
)
def test_a_query_does_not_answer_what_would_arrive_as_something_else(
    method: str, message: str
) -> None:
    """The caller was given a list for a tuple, and the digits of a float as a decimal."""
    machine = StateMachine(define(Answers), DEFAULT_HOST_SETTINGS, seed=b"", majority=1)
    failed = machine.ask(Read(1, method, NO_ARGUMENTS, 0, 0))
    assert isinstance(failed, Failed)
    assert failed.error == "BadResult"
    assert re.search(message, failed.message)
    assert isinstance(machine.ask(Read(1, "sound", NO_ARGUMENTS, 0, 0)), Done)
