"""The checker's edges: histories from events, clocks, limits, and models of the user's own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import pytest

from coterie.checking.linearizability import (
    UNSEEN,
    Add,
    At,
    Called,
    CompareAndSet,
    Counter,
    Dequeue,
    Deterministic,
    Enqueue,
    Event,
    Failed,
    Linearizable,
    Lost,
    Model,
    NotLinearizable,
    Operation,
    PerKey,
    Queue,
    Read,
    Register,
    Returned,
    Total,
    Unknown,
    Unseen,
    Write,
    check,
    from_events,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from coterie.checking.linearizability.models import (
        CounterCommand,
        QueueCommand,
        RegisterCommand,
    )

    OnRegister: TypeAlias = Operation[RegisterCommand, Hashable]
    OnCounter: TypeAlias = Operation[CounterCommand, int]


def write(process: str, value: int, called: float, returned: float) -> OnRegister:
    return Operation(
        process=process, command=Write(value), result=None, called=called, returned=returned
    )


def read(process: str, value: int | None, called: float, returned: float) -> OnRegister:
    return Operation(
        process=process, command=Read(), result=value, called=called, returned=returned
    )


# Histories ------------------------------------------------------------------------------------


def test_events_become_operations() -> None:
    events: list[Event[Read | Write, int | None]] = [
        Called("a", Write(1)),
        Called("b", Write(2)),
        Called("c", Write(3)),
        Returned("b", None),
        Failed("c"),
        Lost("a"),
        Called("a", Read()),
        Called("b", Read()),
        Returned("a", 2),
    ]
    assert from_events(events) == (
        Operation(process="a", command=Write(1), called=0),
        Operation(process="b", command=Write(2), result=None, called=1, returned=3),
        Operation(process="a", command=Read(), result=2, called=6, returned=8),
        Operation(process="b", command=Read(), called=7),
    )


def test_a_process_has_one_command_outstanding() -> None:
    with pytest.raises(ValueError, match="event 1: process a has a command outstanding"):
        from_events([Called("a", Read()), Called("a", Read())])


def test_an_ending_needs_a_call() -> None:
    with pytest.raises(ValueError, match="event 0: process a has no command outstanding"):
        from_events([Lost("a")])


def test_an_interval_does_not_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match="before its call"):
        write("a", 1, called=5, returned=4)


def test_a_lost_operation_has_no_result() -> None:
    with pytest.raises(ValueError, match="has a result but no time of return"):
        Operation(process="a", command=Read(), result=1, called=0)


def test_an_empty_history_is_linearizable() -> None:
    assert check([], Register()) == Linearizable({}, 0)


def test_touching_intervals_are_concurrent() -> None:
    first, second = write("a", 1, 0, 5), read("b", None, 5, 9)
    assert isinstance(check([first, second], Register()), Linearizable)
    later = replace(second, called=5.001)
    assert isinstance(check([first, later], Register()), NotLinearizable)


def test_one_operation_object_may_stand_twice() -> None:
    """Equal operations, even the same object, are two operations."""
    added: OnCounter = Operation(process="a", command=Add(1), result=UNSEEN, called=0, returned=1)
    total: OnCounter = Operation(process="b", command=Total(), result=2, called=2, returned=3)
    assert isinstance(check([added, added, total], Counter()), Linearizable)
    assert isinstance(check([added, total], Counter()), NotLinearizable)
    assert isinstance(check([added, total, total], Counter()), NotLinearizable)


# Clocks ---------------------------------------------------------------------------------------


def test_clocks_that_are_apart_make_operations_concurrent() -> None:
    """Each clock may be off by the bound, so two of them may be apart by twice as much."""
    history = [write("a", 1, 0, 10), read("b", None, 14, 20)]
    assert isinstance(check(history, Register()), NotLinearizable)
    assert isinstance(check(history, Register(), widen=1.9), NotLinearizable)
    assert isinstance(check(history, Register(), widen=2), Linearizable)


def test_one_process_has_one_clock() -> None:
    own = [write("a", 1, 0, 10), read("a", None, 14, 20)]
    verdict = check(own, Register(), widen=100)
    assert isinstance(verdict, NotLinearizable)
    assert verdict.evidence.core == tuple(own)
    touching = [write("a", 1, 0, 10), read("a", None, 10, 20)]
    assert isinstance(check(touching, Register(), widen=100), Linearizable)


def test_nothing_waits_for_a_doubted_operation() -> None:
    """Evidence under uncertain clocks: a relaxed operation does not hold up its own process."""
    first = write("a", 1, 0, 10)
    second: OnRegister = Operation(
        process="a", command=CompareAndSet(None, 5), result=True, called=12, returned=20
    )
    third = read("b", 5, 0, 9)
    # The second and the third fit each other if the first may not have happened.
    verdict = check([first, second, third], Register(), widen=50)
    assert isinstance(verdict, NotLinearizable)
    assert verdict.evidence.core == (first, third)


def test_clocks_are_not_apart_by_less_than_nothing() -> None:
    with pytest.raises(ValueError, match="widen=-1"):
        check([], Register(), widen=-1)


# Limits ---------------------------------------------------------------------------------------


def hard_history(count: int) -> list[Operation[QueueCommand, Hashable]]:
    """All orders of concurrent enqueues lead to different states, and none to the one seen."""
    enqueues = [
        Operation(process=n, command=Enqueue(n), result=None, called=0, returned=10)
        for n in range(count)
    ]
    never = Operation(process=-1, command=Dequeue(), result=-1, called=11, returned=12)
    return [*enqueues, never]


def keyed(
    key: str, history: Iterable[Operation[QueueCommand, Hashable]]
) -> list[Operation[At[QueueCommand], Hashable]]:
    return [
        Operation(
            process=each.process,
            command=At(key, each.command),
            result=each.result,
            called=each.called,
            returned=each.returned,
        )
        for each in history
    ]


def test_a_search_stops_at_its_limit() -> None:
    verdict = check(hard_history(10), Queue(), steps_max=5_000)
    assert isinstance(verdict, Unknown)
    assert verdict.keys == (None,)
    assert verdict.reason.startswith("no verdict after 50")
    assert 5_000 <= verdict.steps < 5_100


def test_the_same_history_takes_the_same_steps() -> None:
    assert check(hard_history(5), Queue()).steps == check(hard_history(5), Queue()).steps


def test_a_search_stops_at_the_deadline() -> None:
    looks = iter([False, False, True])
    verdict = check(hard_history(10), Queue(), deadline=lambda: next(looks))
    assert isinstance(verdict, Unknown)
    assert verdict.reason.startswith("no verdict before the deadline, after 5")


def test_a_deadline_that_passes_after_the_verdict_costs_only_the_reduction() -> None:
    looks = 0

    def deadline() -> bool:
        nonlocal looks
        looks += 1
        return looks > 1

    history = [write("a", n, 2 * n, 2 * n + 1) for n in range(9)]
    stale = read("b", 3, 100, 101)
    verdict = check([*history, stale], Register(), deadline=deadline)
    assert isinstance(verdict, NotLinearizable)
    assert looks < 5
    assert not verdict.evidence.is_minimal
    assert len(verdict.evidence.core) == 10
    assert "(fewer may do: the reduction reached its limit):" in str(verdict)


def test_one_bad_key_is_enough() -> None:
    """A key that could not be decided does not hide one that is surely wrong."""
    hard = keyed("hard", hard_history(12))
    wrong = keyed("wrong", hard_history(0))
    limited = check(hard, PerKey(Queue()), steps_max=100)
    assert isinstance(limited, Unknown)
    assert limited.keys == ("hard",)
    verdict = check([*hard, *wrong], PerKey(Queue()), steps_max=100)
    assert isinstance(verdict, NotLinearizable)
    assert verdict.keys == ("wrong",)


def test_a_long_history_is_no_burden() -> None:
    """The cost grows with the concurrency, not with the length."""
    history = [write(str(n % 4), n, 3 * n, 3 * n + 7) for n in range(3_000)]
    verdict = check([*history, read("r", 2_999, 9_100, 9_101)], Register())
    assert isinstance(verdict, Linearizable)
    assert verdict.steps < 20_000
    assert len(verdict.orders[None]) == 3_001


# Models of one's own --------------------------------------------------------------------------


class Seats(Deterministic[int, str, bool]):
    """Two seats; "reserve" answers whether there was one left."""

    def initial(self) -> int:
        return 2

    def apply(self, state: int, command: str) -> tuple[int, bool]:
        assert command == "reserve"
        return (state - 1, True) if state else (state, False)


def reservations(*refused: int) -> list[Operation[str, bool]]:
    """Three concurrent reservations, of which some were refused."""
    return [
        Operation(process=n, command="reserve", result=n not in refused, called=0, returned=10)
        for n in range(3)
    ]


def test_a_model_of_ones_own() -> None:
    assert isinstance(check(reservations(0), Seats()), Linearizable)
    assert str(check(reservations(), Seats())) == (
        "Not linearizable: the history (operations: 3).\n"
        "The first to return, reserve → True by 2, cannot be placed.\n"
        "These 3 contradict each other:\n"
        "\n"
        "  0  reserve → True  ├─┤\n"
        "  1  reserve → True  ├─┤\n"
        "  2  reserve → True  ├─┤\n"
        "\n"
        "The order that gets furthest, from 2:\n"
        "\n"
        "  0  reserve → True  leaves 1\n"
        "  1  reserve → True  leaves 0\n"
        "  2  reserve → True  does not fit"
    )


class Bag(Model[dict[str, int], tuple[str, str], str | None]):
    """A bag from which any item may be drawn: not deterministic, and its states not hashable."""

    def initial(self) -> dict[str, int]:
        return {}

    def step(
        self, state: dict[str, int], command: tuple[str, str], result: str | Unseen | None
    ) -> Iterable[dict[str, int]]:
        verb, item = command
        if verb == "put":
            yield state | {item: state.get(item, 0) + 1}
            return
        for drawn, count in state.items():
            if count and result in (drawn, UNSEEN):
                yield state | {drawn: count - 1}

    def fingerprint(self, state: dict[str, int]) -> Hashable:
        return frozenset((item, count) for item, count in state.items() if count)


def test_a_model_with_several_next_states_that_are_not_hashable() -> None:
    history: list[Operation[tuple[str, str], str | None]] = [
        Operation(process="a", command=("put", "red"), result=None, called=0, returned=1),
        Operation(process="a", command=("put", "blue"), result=None, called=2, returned=3),
        Operation(process="b", command=("draw", ""), result=UNSEEN, called=4, returned=5),
        Operation(process="c", command=("draw", ""), result="red", called=6, returned=7),
    ]
    assert isinstance(check(history, Bag()), Linearizable)
    again = replace(history[3], called=8, returned=9)
    verdict = check([*history, again], Bag())
    assert isinstance(verdict, NotLinearizable)
    assert verdict.evidence.stuck == again
