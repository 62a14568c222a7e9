"""The checker's edges: histories from events, clocks, limits, and models of the user's own."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from coterie.checking.linearizability import (
    UNSEEN,
    Acquire,
    Add,
    At,
    Called,
    CompareAndSet,
    CounterModel,
    Dequeue,
    Deterministic,
    Enqueue,
    Event,
    Linearizable,
    Lost,
    Model,
    NeverHappened,
    NotLinearizable,
    NumberedQueueModel,
    Operation,
    PerKey,
    QueueModel,
    ReadRegister,
    Register,
    Release,
    Returned,
    Total,
    Unknown,
    Unseen,
    WriteRegister,
    check,
    from_events,
)
from coterie.checking.linearizability.agenda import Agenda
from coterie.checking.linearizability.search import Limits, SearchStopped, search

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from coterie.checking.linearizability.models import (
        CounterCommand,
        QueueCommand,
        RegisterCommand,
    )

    OnRegister: TypeAlias = Operation[RegisterCommand, Hashable]
    OnCounter: TypeAlias = Operation[CounterCommand, int]
    OnQueue: TypeAlias = Operation[QueueCommand, Hashable]
    AnyQueue: TypeAlias = Deterministic[Any, QueueCommand, Hashable]


def write(process: str, value: int, called: float, returned: float) -> OnRegister:
    return Operation(
        process=process, command=WriteRegister(value), result=None, called=called, returned=returned
    )


def read(process: str, value: int | None, called: float, returned: float) -> OnRegister:
    return Operation(
        process=process, command=ReadRegister(), result=value, called=called, returned=returned
    )


# Histories ------------------------------------------------------------------------------------


def test_events_become_operations() -> None:
    events: list[Event[ReadRegister | WriteRegister, int | None]] = [
        Called("a", WriteRegister(1)),
        Called("b", WriteRegister(2)),
        Called("c", WriteRegister(3)),
        Returned("b", None),
        NeverHappened("c"),
        Lost("a"),
        Called("a", ReadRegister()),
        Called("b", ReadRegister()),
        Returned("a", 2),
    ]
    assert from_events(events) == (
        Operation(process="a", command=WriteRegister(1), called=0),
        Operation(process="b", command=WriteRegister(2), result=None, called=1, returned=3),
        Operation(process="a", command=ReadRegister(), result=2, called=6, returned=8),
        Operation(process="b", command=ReadRegister(), called=7),
    )


def test_a_process_has_one_command_outstanding() -> None:
    with pytest.raises(ValueError, match="event 1: process a has a command outstanding"):
        from_events([Called("a", ReadRegister()), Called("a", ReadRegister())])


def test_an_ending_needs_a_call() -> None:
    with pytest.raises(ValueError, match="event 0: process a has no command outstanding"):
        from_events([Lost("a")])


def test_an_interval_does_not_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match="before its call"):
        write("a", 1, called=5, returned=4)


def test_a_lost_operation_has_no_result() -> None:
    with pytest.raises(ValueError, match="has a result but no time of return"):
        Operation(process="a", command=ReadRegister(), result=1, called=0)


def test_an_empty_history_is_linearizable() -> None:
    assert check([], Register()) == Linearizable({}, 0)


def test_touching_intervals_are_concurrent() -> None:
    first, second = write("a", 1, 0, 5), read("b", None, 5, 9)
    assert isinstance(check([first, second], Register()), Linearizable)
    later = replace(second, called=5.001)
    assert isinstance(check([first, later], Register()), NotLinearizable)


def test_one_operation_object_may_stand_twice() -> None:
    """Equal operations, even the same object, are two operations."""
    added: OnCounter = Operation(process="a", command=Add(1), result=UNSEEN, called=1, returned=1)
    total: OnCounter = Operation(process="b", command=Total(), result=2, called=2, returned=3)
    assert isinstance(check([added, added, total], CounterModel()), Linearizable)
    assert isinstance(check([added, total], CounterModel()), NotLinearizable)
    again = replace(total, process="c")
    assert isinstance(check([added, total, again], CounterModel()), NotLinearizable)


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


class PlainQueue(QueueModel):
    """A queue without foresight, for which it is easy to find something hard."""

    foresee = Model.foresee


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
            process=(key, each.process),
            command=At(key, each.command),
            result=each.result,
            called=each.called,
            returned=each.returned,
        )
        for each in history
    ]


def test_a_search_stops_at_its_limit() -> None:
    verdict = check(hard_history(10), PlainQueue(), steps_max=5_000)
    assert isinstance(verdict, Unknown)
    assert verdict.keys == (None,)
    assert verdict.reason.startswith("no verdict after 50")
    assert 5_000 <= verdict.steps < 5_100


def test_the_same_history_takes_the_same_steps() -> None:
    assert check(hard_history(5), PlainQueue()).steps == check(hard_history(5), PlainQueue()).steps


def test_a_search_stops_at_the_deadline() -> None:
    looks = iter([False, False, True])
    verdict = check(hard_history(10), PlainQueue(), deadline=lambda: next(looks))
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
    limited = check(hard, PerKey(PlainQueue()), steps_max=100)
    assert isinstance(limited, Unknown)
    assert limited.keys == ("hard",)
    verdict = check([*hard, *wrong], PerKey(PlainQueue()), steps_max=100)
    assert isinstance(verdict, NotLinearizable)
    assert verdict.keys == ("wrong",)


def test_an_easy_contradiction_does_not_wait_for_a_hard_key() -> None:
    """All keys are tried with few steps first: this took the whole limit of the hard key."""
    hard = keyed("hard", hard_history(12))
    wrong = keyed("wrong", hard_history(0))
    verdict = check([*hard, *wrong], PerKey(PlainQueue()), steps_max=1_000_000)
    assert isinstance(verdict, NotLinearizable)
    assert verdict.keys == ("wrong",)
    assert verdict.steps < 3_000


def test_the_memory_of_a_search_is_bounded_where_states_are_large() -> None:
    """Not the number of configurations alone: each of these holds a long queue."""
    history = hard_history(12)
    agenda = Agenda.of(history)
    stopped = search(PlainQueue(tuple(range(100_000))), agenda, Limits(100_000, bytes_max=1 << 24))
    assert isinstance(stopped, SearchStopped)
    assert stopped.reason.startswith("no verdict with 16 MiB of memory")
    assert stopped.steps < 10_000


def test_a_lost_operation_stays_after_what_its_process_did_before() -> None:
    """Clocks may differ by one, but the total was told to `a` before `a` asked to add."""
    told: OnCounter = Operation(process="a", command=Total(), result=1, called=0, returned=2)
    lost: OnCounter = Operation(process="a", command=Add(1), called=3)
    assert isinstance(check([told, lost], CounterModel(), widen=1), NotLinearizable)
    of_another: OnCounter = Operation(process="b", command=Add(1), called=3)
    assert isinstance(check([told, of_another], CounterModel(), widen=1), Linearizable)
    # One of those alike may come, although the one called first may not.
    assert isinstance(check([told, lost, of_another], CounterModel(), widen=1), Linearizable)


def test_a_long_history_is_no_burden() -> None:
    """The cost grows with the concurrency, not with the length."""
    history = [write(str(n % 4), n, 3 * n, 3 * n + 7) for n in range(3_000)]
    verdict = check([*history, read("r", 2_999, 9_100, 9_101)], Register())
    assert isinstance(verdict, Linearizable)
    assert verdict.steps < 20_000
    assert len(verdict.orders[None]) == 3_001


# Queues ---------------------------------------------------------------------------------------


def queue_history(model: AnyQueue, count: int, random: Random) -> list[OnQueue]:
    """What a queue answered to many callers at once; some never heard of it, in both senses."""
    state, result = model.initial(), None
    history: list[OnQueue] = []
    for place in range(count):
        command = Enqueue(place) if random.random() < 0.55 else Dequeue()
        called, returned = 2 * place - 9 * random.random(), 2 * place + 9 * random.random()
        fate = random.random()
        if fate >= 0.05:
            state, result = model.apply(state, command)
        if fate < 0.1:
            history.append(Operation(process=place, command=command, called=called))
        else:
            history.append(
                Operation(
                    process=place, command=command, result=result, called=called, returned=returned
                )
            )
    return history


@pytest.mark.parametrize("model", [QueueModel(), NumberedQueueModel()], ids=["plain", "numbered"])
def test_long_histories_of_queues_are_judged_in_few_steps(model: AnyQueue) -> None:
    """What was put in the wrong order shows only when it is taken: these took 10^6 steps and more.

    Clients of a simulated minute make such histories (`coterie sim --object queue --seed 9910006`).
    """
    for seed in range(5):
        history = queue_history(model, 600, Random(seed))  # noqa: S311 -- reproducible
        verdict = check(history, model)
        assert isinstance(verdict, Linearizable)
        assert verdict.steps < 6_000
        # Two that were taken far from each other are exchanged.
        taken = [
            place
            for place, each in enumerate(history)
            if each.command == Dequeue() and each.result not in (None, UNSEEN)
        ]
        one, other = taken[len(taken) // 3], taken[2 * len(taken) // 3]
        history[one], history[other] = (
            replace(history[one], result=history[other].result),
            replace(history[other], result=history[one].result),
        )
        wrong = check(history, model)
        assert isinstance(wrong, NotLinearizable)
        assert wrong.steps < 6_000


def test_a_queue_found_empty_while_something_was_in_it() -> None:
    """No single item was there all the time, but always one or the other."""
    puts: list[OnQueue] = [
        Operation(process=n, command=Enqueue(n), result=None, called=4 * n, returned=4 * n + 1)
        for n in range(9)
    ]
    takes: list[OnQueue] = [
        Operation(
            process=f"taker {n}", command=Dequeue(), result=n, called=4 * n + 6, returned=4 * n + 9
        )
        for n in range(9)
    ]
    empty: OnQueue = Operation(process="c", command=Dequeue(), result=None, called=2, returned=28)
    assert isinstance(check([*puts, *takes], QueueModel()), Linearizable)
    verdict = check([*puts, *takes, empty], QueueModel())
    assert isinstance(verdict, NotLinearizable)
    assert empty in verdict.evidence.core


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


# What is no history ---------------------------------------------------------------------------


def test_a_command_of_another_model_is_named() -> None:
    with pytest.raises(ValueError, match="CounterModel has no command read; it has add, total"):
        check([read("a", 1, 0, 1)], CounterModel())  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"read names no key: write At\(key, command\)"):
        check([read("a", 1, 0, 1)], PerKey(Register()))  # type: ignore[misc]


def test_values_that_can_be_changed_are_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"write \[1\] has a value that can be changed"):
        WriteRegister([1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="write lists as tuples"):
        Enqueue({"a": 1})  # type: ignore[arg-type]


def test_a_process_does_one_thing_at_a_time() -> None:
    with pytest.raises(ValueError, match="process a calls read at 3, while its write 1 lasts from"):
        check([write("a", 1, 0, 5), read("a", 1, 3, 6)], Register())
    # What was lost it has given up, and may go on.
    lost: OnRegister = Operation(process="a", command=WriteRegister(1), called=0)
    assert isinstance(check([lost, read("a", 1, 3, 6)], Register()), Linearizable)


def test_nobody_is_no_owner_of_a_lock() -> None:
    """It stands for a free lock: acquiring for nobody would be right again and again."""
    with pytest.raises(ValueError, match="acquire needs an owner"):
        Acquire(None)
    with pytest.raises(ValueError, match="release needs an owner"):
        Release(None)
