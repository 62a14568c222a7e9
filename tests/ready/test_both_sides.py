"""Objects for both sides of a partition: in whatever order writes come, the same is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.objects import define
from coterie.ready import Bag, Full, LatestDictionary, LatestSet

if TYPE_CHECKING:
    from random import Random

KEYS = st.sampled_from("abcde")
TIMES = st.integers(0, 6)


class Few(LatestDictionary[int]):
    items_max = 3


class FewNames(LatestSet):
    items_max = 3


def made(cls: type) -> object:
    return define(cls).make()


WRITES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers(0, 2)), TIMES), max_size=14)


@given(WRITES, st.randoms(use_true_random=False))
def test_a_dictionary_is_what_was_written_last_in_any_order_also_at_its_limit(
    writes: list[tuple[str, int | None, int]], random: Random
) -> None:
    shuffled = list(writes)
    random.shuffle(shuffled)
    states = []
    for order in (writes, shuffled):
        one = made(Few)
        assert isinstance(one, Few)
        for key, value, at in order:
            if value is None:
                one.delete(key, at)
            else:
                one.put(key, value, at)
        states.append(vars(one))
        assert one.count() == len(one.keys())
        assert len(one.written) == len(one.ages) <= 3
    assert states[0] == states[1]


@given(
    st.lists(st.tuples(KEYS, st.booleans(), TIMES), max_size=14),
    st.randoms(use_true_random=False),
)
def test_a_set_is_what_was_named_last_in_any_order_also_at_its_limit(
    writes: list[tuple[str, bool, int]], random: Random
) -> None:
    shuffled = list(writes)
    random.shuffle(shuffled)
    states = []
    for order in (writes, shuffled):
        one = made(FewNames)
        assert isinstance(one, FewNames)
        for item, is_in, at in order:
            (one.add if is_in else one.remove)(item, at)
        states.append(vars(one))
        assert one.count() == len(one.members())
    assert states[0] == states[1]


@given(
    st.lists(st.tuples(KEYS, st.integers(-3, 3).filter(bool)), max_size=14),
    st.randoms(use_true_random=False),
)
def test_a_bag_holds_what_was_put_in_less_what_was_taken_out_in_any_order(
    changes: list[tuple[str, int]], random: Random
) -> None:
    shuffled = list(changes)
    random.shuffle(shuffled)
    for order in (changes, shuffled):
        bag = made(Bag)
        assert isinstance(bag, Bag)
        for item, count in order:
            (bag.add if count > 0 else bag.remove)(item, abs(count))
        for item in "abcde":
            number = sum(count for each, count in changes if each == item)
            assert bag.count(item) == number
            assert (item in bag.members()) == (number > 0)
            assert (item in bag.owed()) == (number < 0)
        assert 0 not in bag.numbers.values()


def test_later_writes_win_and_deletions_are_remembered() -> None:
    one = made(Few)
    assert isinstance(one, Few)
    one.put("a", 1, 5)
    one.put("a", 2, 4)
    assert (one.get("a"), one.written_at("a")) == (1, 5)
    one.delete("a", 6)
    one.put("a", 3, 5)
    assert (one.get("a"), one.count(), one.keys()) == (None, 0, [])
    one.put("a", 4, 6)
    assert one.get("a") == 4
    assert one.written_at("b") is None


def test_limits_that_are_a_matter_of_the_arguments_refuse() -> None:
    class Short(LatestDictionary[str]):
        value_bytes_max = 10

    one = made(Short)
    assert isinstance(one, Short)
    with pytest.raises(Full, match="at most 10 bytes"):
        one.put("a", "x" * 20, 1)
    assert one.count() == 0


def test_a_bag_that_is_full_says_so() -> None:
    class Two(Bag):
        items_max = 2

    bag = made(Two)
    assert isinstance(bag, Two)
    bag.add("a")
    bag.add("b")
    with pytest.raises(Full, match="items_max"):
        bag.add("c")
    bag.add("a", 2)
    bag.remove("b")
    bag.add("c")
    assert bag.members() == ["a", "c"]


def test_what_commutes_says_so() -> None:
    assert define(LatestDictionary).commuting
    assert define(LatestSet).commuting
    assert not define(Bag).commuting
