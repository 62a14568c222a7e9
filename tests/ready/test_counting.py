"""Counter, set and sequence, as the plain objects they are."""

from __future__ import annotations

import pytest

from coterie.objects import BadArguments, define
from coterie.ready import Block, Counter, Full, Sequence, Set
from coterie.ready.counter import TOTAL_MAX
from coterie.ready.limits import NUMBER_MAX


def test_a_counter_counts_up_and_down() -> None:
    counter = Counter()
    assert counter.add() == 1
    assert counter.add(5) == 6
    assert counter.add(-7) == -1
    assert counter.total() == -1


@pytest.mark.parametrize("sign", [1, -1])
def test_a_counter_has_an_end_and_says_so(sign: int) -> None:
    counter = Counter()
    counter.value = sign * (TOTAL_MAX - 1)
    assert counter.add(sign) == sign * TOTAL_MAX
    with pytest.raises(Full, match="more than a counter holds"):
        counter.add(sign)
    assert counter.total() == sign * TOTAL_MAX
    define(Counter).check(counter)
    assert counter.add(-sign) == sign * (TOTAL_MAX - 1)


def test_an_amount_is_bounded_before_it_is_ordered() -> None:
    with pytest.raises(BadArguments, match="'amount' must be int"):
        define(Counter).encode_call("add", (1 << 32,), {})


def test_a_set_holds_each_item_once() -> None:
    names = define(Set).make()
    assert isinstance(names, Set)
    assert names.add("b")
    assert names.add("a")
    assert not names.add("a")
    assert names.contains("a")
    assert names.count() == 2
    assert names.remove("a")
    assert not names.remove("a")
    assert not names.contains("a")


def test_a_set_is_listed_in_pages() -> None:
    names = define(Set).make()
    assert isinstance(names, Set)
    for name in ("d", "b", "", "a", "c"):
        names.add(name)
    assert names.members() == ["", "a", "b", "c", "d"]
    assert names.members(limit=2) == ["", "a"]
    assert names.members(after="a", limit=2) == ["b", "c"]
    assert names.members(after="d") == []


class SmallSet(Set):
    items_max = 2


def test_a_full_set_says_so_and_can_be_emptied() -> None:
    names = define(SmallSet).make()
    assert isinstance(names, SmallSet)
    names.add("a")
    names.add("b")
    with pytest.raises(Full, match=r"2 items \(items_max\): remove some"):
        names.add("c")
    assert not names.add("b")
    names.remove("a")
    assert names.add("c")


def test_a_sequence_gives_each_number_once() -> None:
    numbers = Sequence()
    assert numbers.given() == 0
    assert numbers.next() == 1
    assert numbers.take(10) == Block(2, 11)
    assert numbers.next() == 12
    assert numbers.given() == 12


def test_a_sequence_ends_at_the_largest_number_that_travels() -> None:
    numbers = Sequence()
    numbers.last = NUMBER_MAX - 2
    with pytest.raises(Full, match="only 2 numbers left"):
        numbers.take(3)
    assert numbers.take(2) == Block(NUMBER_MAX - 1, NUMBER_MAX)
    with pytest.raises(Full):
        numbers.next()
    define(Sequence).check(numbers)
