"""The dictionary, as the plain object it is."""

from __future__ import annotations

from collections import deque

import pytest
from tests.ready.clocks import SECOND, START, at, make

from coterie.objects import BadArguments, define
from coterie.ready import Dictionary, Found, Full
from coterie.ready.dictionary import Item
from coterie.ready.limits import weigh


class Prices(Dictionary[int]):
    items_max = 3
    bytes_max = 100


def test_items_are_put_read_and_deleted() -> None:
    prices = make(Prices)
    assert prices.get("tea") is None
    assert prices.put("tea", 3) == 1
    assert prices.put("tea", 4) == 2
    assert prices.get("tea") == 4
    assert prices.find("tea") == Found(4, 2, None)
    assert prices.find("milk") is None
    assert prices.delete("tea")
    assert not prices.delete("tea")
    assert prices.count() == 0
    assert prices.weight == 0


def test_a_value_is_set_only_where_it_is_as_expected() -> None:
    prices = make(Prices)
    assert not prices.compare_and_set("tea", 1, 2)
    assert prices.compare_and_set("tea", None, 2)
    assert not prices.compare_and_set("tea", None, 3)
    assert prices.compare_and_set("tea", 2, 3)
    assert prices.get("tea") == 3


def test_a_version_tells_even_a_change_to_and_fro() -> None:
    prices = make(Prices)
    version = prices.put_if("tea", 1, 0)
    assert version == 1
    assert prices.put_if("tea", 5, 0) is None
    prices.put("tea", 2)
    prices.put("tea", 1)
    assert prices.put_if("tea", 9, version) is None
    assert prices.put_if("tea", 9, 3) == 4
    prices.delete("tea")
    assert prices.put_if("tea", 1, 4) is None
    assert prices.put_if("tea", 1, 0) == 5


def test_an_item_is_gone_when_its_time_is_over_even_before_the_tick() -> None:
    prices = make(Prices)
    at(0, lambda: prices.put("tea", 1, expires_in=10))
    assert at(9.9, lambda: prices.find("tea")) == Found(1, 1, START + 10 * SECOND)
    assert at(10, lambda: prices.get("tea")) is None
    assert at(10, lambda: prices.find("tea")) is None
    assert at(10, prices.keys) == []
    assert not at(10, lambda: prices.touch("tea", expires_in=5))
    assert not at(10, lambda: prices.compare_and_set("tea", 1, 2))
    assert prices.count() == 1
    at(10, prices.on_tick)
    assert prices.count() == 0
    assert prices.weight == 0
    assert prices.agenda == []


def test_deleting_what_has_expired_frees_its_place_and_says_that_it_was_not_there() -> None:
    prices = make(Prices)
    at(0, lambda: prices.put("tea", 1, expires_in=1))
    assert not at(2, lambda: prices.delete("tea"))
    assert prices.count() == 0


def test_an_expired_item_counts_as_absent_for_conditions() -> None:
    prices = make(Prices)
    at(0, lambda: prices.put("tea", 1, expires_in=1))
    assert at(2, lambda: prices.put_if("tea", 2, 0)) == 2
    at(3, prices.on_tick)
    assert prices.get("tea") == 2


def test_only_the_last_time_to_expire_counts() -> None:
    prices = make(Prices)
    at(0, lambda: prices.put("tea", 1, expires_in=1))
    at(0, lambda: prices.put("milk", 1, expires_in=1))
    at(0, lambda: prices.put("salt", 1, expires_in=1))
    assert at(0.5, lambda: prices.touch("tea", expires_in=5))
    assert at(0.5, lambda: prices.touch("milk"))
    at(2, prices.on_tick)
    assert at(2, prices.keys) == ["milk", "tea"]
    at(5.5, prices.on_tick)
    assert at(5.5, prices.keys) == ["milk"]


def test_the_agenda_does_not_grow_with_every_touch() -> None:
    prices = make(Prices)
    at(0, lambda: prices.put("milk", 1, expires_in=5000))
    for second in range(1000):
        at(second, lambda: prices.put("tea", 1, expires_in=1_000_000))
    assert len(prices.agenda) < 100
    at(6000, prices.on_tick)
    assert at(6000, prices.keys) == ["tea"]
    assert prices.count() == 1
    at(2_000_000, prices.on_tick)
    assert prices.count() == 0
    assert prices.agenda == []


def test_a_tick_ends_a_bounded_number_of_items() -> None:
    items = make(Dictionary)
    for number in range(10_001):
        at(0, lambda: items.put(f"{number}", number, expires_in=1))  # noqa: B023 -- called at once
    at(2, items.on_tick)
    assert items.count() == 1
    assert at(2, items.keys) == []
    at(2, items.on_tick)
    assert items.count() == 0


def test_keys_are_listed_in_pages() -> None:
    items = make(Dictionary)
    for key in ("b1", "a2", "a1", "b2", "a3"):
        items.put(key, None)
    assert items.keys() == ["a1", "a2", "a3", "b1", "b2"]
    assert items.keys(prefix="a", limit=2) == ["a1", "a2"]
    assert items.keys(prefix="a", after="a2") == ["a3"]


def test_a_full_dictionary_says_so_and_takes_what_needs_no_room() -> None:
    prices = make(Prices)
    for key in ("a", "b", "c"):
        prices.put(key, 1)
    message = r"3 items \(items_max\): delete some"
    with pytest.raises(Full, match=message):
        prices.put("d", 1)
    with pytest.raises(Full, match=message):
        prices.put_if("d", 1, 0)
    with pytest.raises(Full, match=message):
        prices.compare_and_set("d", None, 1)
    assert prices.put("c", 2) == 4
    prices.delete("a")
    assert prices.put("d", 1) == 5


def test_the_weight_of_all_items_is_bounded() -> None:
    texts = make(Dictionary)
    texts.bytes_max = 100  # type: ignore[misc]
    texts.put("a", "x" * 50)
    with pytest.raises(Full, match="weigh 54 bytes, and bytes_max is 100"):
        texts.put("b", "x" * 50)
    texts.put("a", "x" * 80)
    texts.put("a", "x")
    texts.put("b", "x" * 50)
    texts.put_if("c", "x", 0)
    texts.compare_and_set("d", None, "x" * 3)
    kept = {"a": "x", "b": "x" * 50, "c": "x", "d": "x" * 3}
    assert texts.weight == sum(weigh(key) + weigh(value) for key, value in kept.items())
    texts.bytes_max = texts.weight + weigh("e") + weigh("x")  # type: ignore[misc]
    texts.put("e", "x")


def test_the_type_of_values_is_checked_before_anything_is_ordered() -> None:
    prices = define(Prices)
    prices.encode_call("put", ("tea", 3), {"expires_in": 5})
    with pytest.raises(BadArguments, match="'value' must be int"):
        prices.encode_call("put", ("tea", "three"), {})
    with pytest.raises(BadArguments, match="'expires_in' must be float"):
        prices.encode_call("put", ("tea", 3), {"expires_in": -1})
    with pytest.raises(BadArguments, match="'key' must be str"):
        prices.encode_call("get", ("k" * 1001,), {})
    assert prices.copies_cheaply
    assert {field.name: field.type for field in prices.fields}["items"] == dict[str, Item[int]]


class Histories(Dictionary[deque[int]]): ...


def test_values_may_be_anything_that_can_be_a_field() -> None:
    definition = define(Histories)
    histories = make(Histories)
    histories.put("tea", deque([1, 2]))
    taken_over = definition.assemble(definition.pieces(histories, 1000))
    assert isinstance(taken_over, Histories)
    assert taken_over.get("tea") == deque([1, 2])
