"""Calls on condition: executed where queries answer what they did, once, and alike everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.objects.classes import Counter
from tests.objects.fake_engine import FakeGroup

from coterie.objects import (
    Changed,
    Done,
    Failed,
    ReplicaBroken,
    SessionEvicted,
    UnknownMethod,
    define,
    query,
    update,
)
from coterie.objects.execution.commands import Condition, digest_of_answer

if TYPE_CHECKING:
    from coterie.objects import Outcome

COUNTER = define(Counter)
NONE = msgspec.Raw(msgspec.msgpack.encode(()))


def total_is(value: int) -> Condition:
    return Condition("total", NONE, digest_of_answer(msgspec.msgpack.encode(value)))


def ask_if(
    group: FakeGroup, session: int, request: int, amount: int, *conditions: Condition, id: str = "a"
) -> None:
    arguments = group.definition.encode_call("add", (amount,), {})
    group[id].host.call(session, request, "add", arguments, conditions=conditions)


def call_if(
    group: FakeGroup, session: int, request: int, amount: int, *conditions: Condition
) -> Outcome:
    ask_if(group, session, request, amount, *conditions)
    group.turn()
    return group["a"].desk.of(session, request)[-1]


def test_it_is_executed_where_all_conditions_hold() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    assert isinstance(call_if(group, session, 1, 3, total_is(0), total_is(0)), Done)
    failed = call_if(group, session, 2, 3, total_is(3), total_is(0))
    assert isinstance(failed, Failed)
    assert failed.error == Changed.__name__
    assert failed.message == "total answers something else now: read it again"
    assert failed.position == group.position
    assert group.look("total") == 3
    assert group.digests_agree()


def test_what_was_decided_once_is_decided() -> None:
    """A request that is ordered twice has one outcome, whatever has become of its condition."""
    group = FakeGroup(COUNTER)
    session = group.open()
    for id in ("a", "b"):
        ask_if(group, session, 1, 5, total_is(0), id=id)
    group.turn()
    assert group.look("total") == 5
    assert isinstance(call_if(group, session, 2, 5, total_is(0)), Failed)
    # Taken back to what it was, the failure still stands.
    ask_if(group, session, 3, -5, total_is(5))
    group.turn()
    assert group.look("total") == 0
    assert isinstance(call_if(group, session, 2, 5, total_is(0)), Failed)
    assert group.look("total") == 0


def test_it_is_decided_again_in_another_place() -> None:
    """What is rolled back may succeed where it failed, and the authoritative copy agrees."""
    group = FakeGroup(COUNTER, optimistic=True)
    session = group.open()
    before = group.position
    ask_if(group, session, 1, 1)
    group.turn(settle=False)
    ask_if(group, session, 2, 7, total_is(0))
    group.turn(settle=False)
    [failed] = group["a"].desk.of(session, 2)
    assert isinstance(failed, Failed)
    group.roll_back(before)
    ask_if(group, session, 2, 7, total_is(0))
    group.turn()
    assert isinstance(group["a"].desk.of(session, 2)[-1], Done)
    assert group.look("total") == 7
    assert group.digests_agree()


def test_a_replica_without_memory_for_a_condition_stops() -> None:
    """It cannot know what the others found."""

    class Hungry:
        value: int = 0

        @update
        def add(self, amount: int) -> int:
            self.value += amount
            return self.value

        @query
        def total(self) -> int:
            raise MemoryError

    group = FakeGroup(define(Hungry))
    session = group.open()
    ask_if(group, session, 1, 1, total_is(0))
    with pytest.raises(ReplicaBroken, match="total ran out of memory"):
        group.turn()


def test_a_session_that_is_not_known_has_no_outcome() -> None:
    group = FakeGroup(COUNTER)
    assert isinstance(call_if(group, 12345, 1, 1, total_is(0)), SessionEvicted)
    assert group.look("total") == 0


@pytest.mark.parametrize("method", ["add", "nothing"])
def test_only_queries_can_be_rested_on(method: str) -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    with pytest.raises(UnknownMethod):
        ask_if(group, session, 1, 1, Condition(method, NONE, b""))


def test_without_an_order_there_is_no_place_to_look() -> None:
    class Loose(Counter):
        commuting = True

    group = FakeGroup(define(Loose), is_ordered=False)
    session = group.open()
    with pytest.raises(UnknownMethod, match="need a stack with total order"):
        ask_if(group, session, 1, 1, total_is(0))


@given(st.lists(st.tuples(st.integers(-2, 2), st.none() | st.integers(-3, 3)), max_size=12))
@settings(max_examples=50, deadline=None)
def test_it_does_what_a_plain_variable_would(steps: list[tuple[int, int | None]]) -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    model = 0
    for request, (amount, expected) in enumerate(steps, start=1):
        conditions = () if expected is None else (total_is(expected),)
        outcome = call_if(group, session, request, amount, *conditions)
        if expected is None or expected == model:
            model += amount
            assert isinstance(outcome, Done)
        else:
            assert isinstance(outcome, Failed)
    assert group.look("total") == model
    assert group.digests_agree()
