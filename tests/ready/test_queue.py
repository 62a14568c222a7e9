"""The queue, as the plain object it is."""

from __future__ import annotations

import pytest
from tests.ready.clocks import at, make

from coterie.ready import Claimed, Full, Queue, QueueCounts


class Jobs(Queue[str]):
    items_max = 3
    bytes_max = 100


def filled(*values: str) -> Jobs:
    jobs = make(Jobs)
    for value in values:
        jobs.put(value)
    return jobs


def test_first_in_first_out() -> None:
    jobs = make(Jobs)
    assert jobs.take() is None
    assert jobs.peek() is None
    assert [jobs.put(value) for value in "ab"] == [1, 2]
    assert jobs.peek() == "a"
    assert jobs.take() == "a"
    jobs.put("c")
    assert [jobs.take(), jobs.take(), jobs.take()] == ["b", "c", None]
    assert jobs.weight == 0


def test_a_claimed_item_is_worked_on_by_one_and_confirmed_once() -> None:
    jobs = filled("a", "b")
    assert at(0, lambda: jobs.claim("ada")) == Claimed(1, 1, "a")
    assert at(0, lambda: jobs.claim("bob")) == Claimed(2, 1, "b")
    assert at(0, lambda: jobs.claim("cy")) is None
    assert jobs.counts() == QueueCounts(0, 2)
    assert jobs.confirm(1, 1)
    assert not jobs.confirm(1, 1)
    assert jobs.counts() == QueueCounts(0, 1)


def test_a_consumer_that_dies_loses_nothing() -> None:
    jobs = filled("a", "b")
    at(0, lambda: jobs.claim("ada", 10))
    assert at(5, jobs.take) == "b"
    assert at(5, jobs.take) is None
    assert at(10, lambda: jobs.claim("bob", 10)) == Claimed(1, 2, "a")


def test_time_passes_without_callers() -> None:
    jobs = filled("a")
    at(0, lambda: jobs.claim("ada", 10))
    at(9, jobs.on_tick)
    assert jobs.counts() == QueueCounts(0, 1)
    at(10, jobs.on_tick)
    assert jobs.counts() == QueueCounts(1, 0)


def test_who_comes_too_late_is_told_so() -> None:
    jobs = filled("a")
    at(0, lambda: jobs.claim("ada", 10))
    at(11, lambda: jobs.claim("bob", 10))
    assert not jobs.confirm(1, 1)
    assert not at(12, lambda: jobs.extend(1, 1))
    assert not jobs.give_back(1, 1)
    assert jobs.confirm(1, 2)
    assert not jobs.confirm(7, 1)


def test_who_is_late_but_not_replaced_may_still_confirm() -> None:
    jobs = filled("a")
    at(0, lambda: jobs.claim("ada", 10))
    assert at(20, lambda: jobs.confirm(1, 1))
    assert at(20, jobs.take) is None


def test_a_claim_can_be_extended_and_given_back() -> None:
    jobs = filled("a", "b")
    at(0, lambda: jobs.claim("ada", 10))
    assert at(9, lambda: jobs.extend(1, 1, 10))
    at(15, jobs.on_tick)
    assert jobs.counts() == QueueCounts(1, 1)
    assert jobs.give_back(1, 1)
    assert jobs.counts() == QueueCounts(2, 0)
    assert at(16, lambda: jobs.claim("bob")) == Claimed(1, 2, "a")


def test_what_comes_back_comes_back_to_its_place() -> None:
    jobs = filled("a", "b", "c")
    at(0, lambda: jobs.claim("ada", 1))
    at(0, lambda: jobs.claim("ada", 2))
    assert [at(3, jobs.take) for _ in range(3)] == ["a", "b", "c"]


def test_a_full_queue_says_so_and_claimed_items_count() -> None:
    jobs = filled("a", "b", "c")
    at(0, lambda: jobs.claim("ada", 1))
    with pytest.raises(Full, match=r"3 items \(items_max\): take some"):
        jobs.put("d")
    jobs.confirm(1, 1)
    assert jobs.put("d") == 4


def test_the_weight_of_all_items_is_bounded() -> None:
    jobs = filled("x" * 60)
    with pytest.raises(Full, match="bytes_max is 100"):
        jobs.put("x" * 60)
    jobs.take()
    jobs.put("x" * 98)  # with two bytes for its length
    assert jobs.weight == jobs.bytes_max


def test_the_agenda_does_not_grow_with_every_extension() -> None:
    jobs = filled("a")
    at(0, lambda: jobs.claim("ada", 1000))
    for second in range(1000):
        assert at(second, lambda: jobs.extend(1, 1, 100_000))
    assert len(jobs.agenda) < 100
    at(200_000, jobs.on_tick)
    assert jobs.counts() == QueueCounts(1, 0)
