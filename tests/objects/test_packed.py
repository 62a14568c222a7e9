"""Several calls in one entry: each is an update of its own, as if it had come alone."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.objects.classes import Clumsy, Counter, Lottery, Shallow
from tests.objects.fake_engine import FakeGroup

from coterie.objects import (
    AllDone,
    AlreadyForgotten,
    BadArguments,
    CommandTooLarge,
    Done,
    Failed,
    HostSettings,
    NotTaken,
    Outcome,
    SessionEvicted,
    WindowFull,
    define,
)

COUNTER, CLUMSY, SHALLOW, LOTTERY = map(define, (Counter, Clumsy, Shallow, Lottery))


def pack(group: FakeGroup, method: str, calls: list[tuple[object, ...]]) -> bytes:
    arguments = [msgspec.Raw(group.definition.encode_call(method, call, {})) for call in calls]
    return msgspec.msgpack.encode(arguments)


def ask_many(  # noqa: PLR0913, PLR0917 -- as a client asks
    group: FakeGroup,
    id: str,
    session: int,
    first: int,
    method: str,
    calls: list[tuple[object, ...]],
    lowest: int = 1,
) -> None:
    group[id].host.call_many(session, first, method, pack(group, method, calls), lowest)


def outcomes(group: FakeGroup, id: str, session: int, first: int, count: int) -> list[Outcome]:
    """The last answer for each request, whether it came for itself or with others."""
    found: dict[int, Outcome] = {}
    for answer in group[id].desk.answers:
        if answer.session == session:
            outcome = answer.outcome
            if isinstance(outcome, AllDone):
                for request in range(outcome.first, outcome.first + len(outcome.results)):
                    found[request] = outcome.of(request)
            else:
                found[answer.request] = outcome
    return [found[request] for request in range(first, first + count)]


def test_all_calls_of_an_entry_have_one_answer() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    ask_many(group, "a", session, 1, "add", [(1,), (2,), (3,)])
    position = group.position
    group.turn()
    assert group.position == position + 1
    (outcome,) = group["a"].desk.of(session, 1)
    assert isinstance(outcome, AllDone)
    decode = COUNTER.method("add").decode_result
    assert [decode(result) for result in outcome.results] == [1, 3, 6]
    (reply,) = group["a"].replies
    assert (reply.request, reply.count, reply.digest) == (1, 3, outcome.digest)
    assert group.look("total") == 6
    assert group.digests_agree()


def test_a_retry_of_one_of_them_or_of_all_executes_nothing_again() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    ask_many(group, "a", session, 1, "add", [(1,), (2,), (3,)])
    group.turn()
    before = outcomes(group, "a", session, 1, 3)
    assert group.call("b", session, 2, "add", 2) == before[1]
    ask_many(group, "c", session, 1, "add", [(1,), (2,), (3,), (4,)])
    group.turn()
    assert outcomes(group, "c", session, 1, 3) == before
    assert group.look("total") == 10
    assert group.digests_agree()


def test_a_retry_that_was_ordered_twice_executes_once() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    for id in "ab":
        ask_many(group, id, session, 1, "add", [(1,), (2,)])
    group.turn()
    assert outcomes(group, "a", session, 1, 2) == outcomes(group, "b", session, 1, 2)
    assert group.look("total") == 3


@pytest.mark.parametrize("optimistic", [False, True])
@pytest.mark.parametrize("definition", [CLUMSY, SHALLOW])
def test_one_that_fails_leaves_no_trace_and_the_others_stay(
    definition: object, *, optimistic: bool
) -> None:
    group = FakeGroup(definition, optimistic=optimistic)  # type: ignore[arg-type]
    alone = FakeGroup(definition, optimistic=optimistic)  # type: ignore[arg-type]
    calls: list[tuple[object, ...]] = [("x", 1), ("y", 2), ("z", -1), ("x", 4), ("y", -5)]
    session, other = group.open(), alone.open()
    ask_many(group, "a", session, 1, "push", calls)
    group.turn()
    for request, call in enumerate(calls, start=1):
        alone.call("a", other, request, "push", *call)
    kinds = [type(outcome) for outcome in outcomes(group, "a", session, 1, 5)]
    assert kinds == [Done, Done, Failed, Done, Failed]
    assert vars(group["b"].host.replicated) == vars(alone["b"].host.replicated)
    assert group.digests_agree()


def test_chance_and_ids_differ_from_call_to_call() -> None:
    group = FakeGroup(LOTTERY)
    session = group.open()
    ask_many(group, "a", session, 1, "two_ids", [(), (), ()])
    group.turn()
    decode = LOTTERY.method("two_ids").decode_result
    ids: list[str] = []
    for outcome in outcomes(group, "a", session, 1, 3):
        assert isinstance(outcome, Done)
        ids += decode(outcome.result)  # type: ignore[arg-type]
    assert len(set(ids)) == 6


def test_what_is_watched_is_answered_elsewhere_too() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    group["b"].host.watch(session, 2)
    ask_many(group, "a", session, 1, "add", [(1,), (2,), (3,)])
    group.turn()
    assert [answer.request for answer in group["b"].desk.answers] == [2]
    assert group["b"].desk.of(session, 2) == outcomes(group, "a", session, 2, 1)


def test_refusals_are_for_each_call() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    group["a"].is_full = True
    ask_many(group, "a", session, 1, "add", [(1,), (2,)])
    group.turn()
    assert [type(each) for each in outcomes(group, "a", session, 1, 2)] == [NotTaken, NotTaken]


def test_bad_input_is_refused_before_anything_is_proposed() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    host = group["a"].host
    with pytest.raises(BadArguments, match="amount"):
        host.call_many(session, 1, "add", msgspec.msgpack.encode([(1,), ("two",)]))
    with pytest.raises(BadArguments, match="no array"):
        host.call_many(session, 1, "add", msgspec.msgpack.encode("nonsense"))
    with pytest.raises(CommandTooLarge, match="in parts"):
        host.call_many(session, 1, "add", msgspec.msgpack.encode([(1,)] * 600_000))
    assert group.look("total") == 0


def test_an_unknown_session_and_forgotten_numbers() -> None:
    group = FakeGroup(COUNTER)
    session = group.open()
    ask_many(group, "a", session + 1, 1, "add", [(1,), (2,)])
    group.turn()
    assert outcomes(group, "a", session + 1, 1, 2) == [SessionEvicted()] * 2
    ask_many(group, "a", session, 1, "add", [(1,), (2,), (3,)], lowest=3)
    group.turn()
    first, second, third = outcomes(group, "a", session, 1, 3)
    assert first == second == AlreadyForgotten(3)
    assert isinstance(third, Done)


def test_a_full_window_takes_what_fits() -> None:
    group = FakeGroup(COUNTER, settings=HostSettings(window_requests_max=3))
    session = group.open()
    ask_many(group, "a", session, 1, "add", [(1,)] * 5)
    group.turn()
    kinds = [type(each) for each in outcomes(group, "a", session, 1, 5)]
    assert kinds == [Done, Done, Done, WindowFull, WindowFull]
    ask_many(group, "a", session, 4, "add", [(1,)] * 2, lowest=4)
    group.turn()
    assert group.look("total") == 5


def test_large_results_count_for_the_window_as_single_ones_do() -> None:
    small = HostSettings(window_bytes_max=500)
    group = FakeGroup(SHALLOW, settings=small)
    session = group.open()
    calls: list[tuple[object, ...]] = [(f"a name of some length {n}", n) for n in range(20)]
    ask_many(group, "a", session, 1, "push", calls)
    group.turn()
    kinds = [type(each) for each in outcomes(group, "a", session, 1, 20)]
    assert WindowFull in kinds
    assert group.digests_agree()


CALL = st.tuples(st.sampled_from("xyz"), st.integers(-2, 9))


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(
        st.tuples(st.lists(CALL, min_size=1, max_size=6), st.booleans(), st.integers(0, 3)),
        max_size=8,
    ),
    optimistic=st.booleans(),
)
def test_packed_or_one_by_one_the_object_is_the_same(
    batches: list[tuple[list[tuple[str, int]], bool, int]], *, optimistic: bool
) -> None:
    """Whatever fails, is asked again, rolled back or handed over."""
    packed = FakeGroup(CLUMSY, optimistic=optimistic)
    alone = FakeGroup(CLUMSY, optimistic=optimistic)
    session, other = packed.open(), alone.open()
    first = 1
    for calls, again, event in batches:
        ask_many(packed, "a", session, first, "push", list(calls))
        packed.turn(settle=event != 1)
        for request, call in enumerate(calls, start=first):
            alone.ask("a", other, request, "push", *call)
        alone.turn(settle=event != 1)
        if event == 1 and optimistic:
            packed.roll_back(packed.settled)
            alone.roll_back(alone.settled)
        elif event == 2:
            packed.replace("c", "a")
            alone.replace("c", "a")
        if again or event == 1:
            ask_many(packed, "b", session, first, "push", list(calls))
            packed.turn()
            for request, call in enumerate(calls, start=first):
                alone.ask("b", other, request, "push", *call)
            alone.turn()
        first += len(calls)
    for id in "abc":
        assert vars(packed[id].host.replicated) == vars(alone[id].host.replicated)
        assert len(packed[id].host.faults) == 0
    assert packed.digests_agree()
