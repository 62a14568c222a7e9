"""The checker against a naive one that tries every order.

Small random histories of every model: equal and touching times, lost operations, results that were
not seen, uncertain clocks. The naive checker below shares nothing with the search but the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, permutations
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.checking.linearizability import (
    UNSEEN,
    Acquire,
    Add,
    Append,
    At,
    CompareAndSet,
    CounterModel,
    Dequeue,
    Enqueue,
    Get,
    Holder,
    KeyValue,
    Linearizable,
    Lock,
    Model,
    NotLinearizable,
    NumberedQueueModel,
    Operation,
    PerKey,
    Put,
    QueueModel,
    ReadRegister,
    Register,
    Release,
    Total,
    WriteRegister,
    check,
)
from coterie.checking.linearizability.agenda import Agenda
from coterie.checking.linearizability.evidence import _Case, _Reduction
from coterie.checking.linearizability.search import Limits, SearchExhausted, search

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coterie.checking.linearizability import Evidence

AnyModel: TypeAlias = Model[Any, Any, Any]
AnyOperation: TypeAlias = Operation[Any, Any]


@dataclass(frozen=True)
class Subject:
    """A model, its commands, and results that some of its commands may give.

    long: how many operations the search can surely order. Of a queue they are few: what was
        enqueued in the wrong order shows only when it is dequeued, perhaps much later.
    """

    model: AnyModel
    commands: st.SearchStrategy[Any]
    results: st.SearchStrategy[Any]
    long: int = 40


small = st.integers(0, 2)
owner = st.sampled_from("ab")
key = st.sampled_from("xy")
letter = st.sampled_from("pq")

REGISTER_COMMANDS = (
    st.just(ReadRegister())
    | st.builds(WriteRegister, small)
    | st.builds(CompareAndSet, small, small)
)
SUBJECTS = {
    "register": Subject(
        Register(), REGISTER_COMMANDS, st.sampled_from((None, None, 0, 1, 2, True, False))
    ),
    "registers": Subject(
        PerKey(Register()),
        st.builds(At, key, REGISTER_COMMANDS),
        st.sampled_from((None, 0, 1, 2, True, False)),
    ),
    "key-value": Subject(
        KeyValue(),
        st.builds(Get, key) | st.builds(Put, key, letter) | st.builds(Append, key, letter),
        st.sampled_from((None, None, None, "", "p", "q", "pq", "pp")),
    ),
    "counter": Subject(
        CounterModel(),
        st.just(Total()) | st.builds(Add, st.integers(1, 2)),
        st.integers(0, 4),
    ),
    "queue": Subject(
        QueueModel(),
        st.just(Dequeue()) | st.builds(Enqueue, small),
        st.sampled_from((None, None, 0, 1, 2)),
        long=15,
    ),
    "labelled queue": Subject(
        QueueModel(),
        st.just(Dequeue()) | st.builds(Enqueue, st.integers(0, 20)),
        st.sampled_from((None, None, *range(21))),
    ),
    "numbered queue": Subject(
        NumberedQueueModel(),
        st.just(Dequeue()) | st.builds(Enqueue, st.sampled_from("pqrstuvwxyz")),
        st.sampled_from((None, 1, 2, 3, *"pqrst")),
    ),
    "lock": Subject(
        Lock(),
        st.just(Holder()) | st.builds(Acquire, owner) | st.builds(Release, owner),
        st.sampled_from((True, True, False, None, "a", "b")),
    ),
}


# The naive checker ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Fact:
    """An operation as the naive checker takes it."""

    operation: AnyOperation
    may_not_happen: bool
    any_result: bool
    called: float
    returned: float


def facts(
    operations: Iterable[AnyOperation], *, relaxed: Iterable[AnyOperation] = (), widen: float = 0
) -> list[Fact]:
    def fact(operation: AnyOperation, *, is_relaxed: bool) -> Fact:
        lost = operation.returned is None
        end = inf if operation.returned is None else operation.returned + widen
        return Fact(operation, lost or is_relaxed, is_relaxed, operation.called - widen, end)

    trusted = [fact(each, is_relaxed=False) for each in operations]
    return trusted + [fact(each, is_relaxed=True) for each in relaxed]


def is_before(first: Fact, second: Fact) -> bool:
    if first.returned < second.called:
        return True
    # One process, one clock: its own order is certain, if the first surely happened.
    same_process = first.operation.process == second.operation.process
    end = first.operation.returned
    certain = not first.may_not_happen
    return same_process and certain and end is not None and end < second.operation.called


def happenings(every: Sequence[Fact]) -> Iterator[list[Fact]]:
    """Every set of operations that may have happened."""
    surely = [each for each in every if not each.may_not_happen]
    perhaps = [each for each in every if each.may_not_happen]
    for count in range(len(perhaps) + 1):
        for chosen in combinations(perhaps, count):
            yield [*surely, *chosen]


def states_after(model: AnyModel, order: Iterable[Fact], start: Any) -> list[Any]:  # noqa: ANN401 - of any model
    states = [start]
    for each in order:
        result = UNSEEN if each.any_result else each.operation.result
        command = each.operation.command
        states = [after for state in states for after in model.step(state, command, result)]
    return states


def all_final_states(model: AnyModel, every: Sequence[Fact], start: Any) -> set[Any]:  # noqa: ANN401
    """The states in which the operations can end, over every order; empty if there is no order."""
    return {
        state
        for happened in happenings(every)
        for order in permutations(happened)
        if not any(is_before(b, a) for a, b in combinations(order, 2))
        for state in states_after(model, order, start)
    }


def has_order(model: AnyModel, every: Sequence[Fact]) -> bool:
    keys = {model.key_of(each.operation.command) for each in every}
    return all(
        all_final_states(
            model,
            [each for each in every if model.key_of(each.operation.command) == key],
            model.initial(),
        )
        for key in keys
    )


# Random histories -----------------------------------------------------------------------------


@st.composite
def operations(draw: st.DrawFn, subject: Subject) -> AnyOperation:
    called = draw(st.integers(0, 9))
    process = draw(st.integers(1, 3))
    command = draw(subject.commands)
    if draw(st.integers(0, 4)) == 0:
        return Operation(process=process, command=command, called=called)
    result = UNSEEN if draw(st.integers(0, 9)) == 0 else draw(subject.results)
    returned = called + draw(st.integers(0, 5))
    return Operation(
        process=process, command=command, result=result, called=called, returned=returned
    )


def one_at_a_time(history: Iterable[AnyOperation]) -> list[AnyOperation]:
    """Give operations that overlap another of their process to a process of their own."""
    found: list[AnyOperation] = []
    busy_until: dict[Any, float] = {}
    for each in sorted(history, key=lambda each: each.called):
        process = each.process
        if each.returned is not None and each.called < busy_until.get(process, -inf):
            process = f"{process}, meanwhile {len(found)}"
        if each.returned is not None:
            busy_until[process] = each.returned
        found.append(replace(each, process=process))
    return found


@st.composite
def plausible_histories(draw: st.DrawFn, subject: Subject, count_max: int) -> list[AnyOperation]:
    """A history that an atomic object made, each operation taking effect within its interval."""
    model = subject.model
    states: dict[Any, Any] = {}
    history: list[AnyOperation] = []
    for moment in range(draw(st.integers(1, count_max))):
        command, process = draw(subject.commands), draw(st.integers(1, 3))
        before = 2 * moment - draw(st.integers(0, 6))
        after = 2 * moment + draw(st.integers(0, 6))
        fate = draw(st.sampled_from(("returns", "returns", "returns", "lost", "never happens")))
        if fate != "never happens":
            key = model.key_of(command)
            states[key], result = _apply(model, states.get(key, model.initial()), command)
            if fate == "returns":
                history.append(
                    Operation(
                        process=process,
                        command=command,
                        result=result,
                        called=before,
                        returned=after,
                    )
                )
                continue
        history.append(Operation(process=process, command=command, called=before))
    return one_at_a_time(history)


def _apply(model: AnyModel, state: Any, command: Any) -> tuple[Any, Any]:  # noqa: ANN401
    if isinstance(model, PerKey):
        return _apply(model.each, state, command.command)
    after, result = model.apply(state, command)  # type: ignore[attr-defined] # all are deterministic
    return after, result


# What must hold -------------------------------------------------------------------------------


def judge(history: Sequence[AnyOperation], model: AnyModel, *, widen: float = 0) -> bool:
    """Compare the verdict with the naive one, look at the proof it brings, and return it."""
    verdict = check(history, model, widen=widen)
    expected = has_order(model, facts(history, widen=widen))
    if expected:
        assert isinstance(verdict, Linearizable)
        check_witness(verdict, history, model, widen)
    else:
        assert isinstance(verdict, NotLinearizable)
        check_evidence(verdict.evidence, history, model, widen)
    return expected


def check_witness(
    verdict: Linearizable[Any, Any, Any],
    history: Sequence[AnyOperation],
    model: AnyModel,
    widen: float,
) -> None:
    """The order holds all that returned, respects the intervals, and the model accepts it."""
    placed = [each.operation for order in verdict.orders.values() for each in order]
    missing = [each for each in history if each not in placed]
    assert len(placed) <= len(history)
    assert all(each.returned is None for each in missing)
    for order in verdict.orders.values():
        sequence = facts([each.operation for each in order], widen=widen)
        assert not any(is_before(b, a) for a, b in combinations(sequence, 2))
        state = model.initial()
        for each in order:
            operation = each.operation
            assert each.state in model.step(state, operation.command, operation.result)
            state = each.state


def check_evidence(
    evidence: Evidence[Any, Any, Any],
    history: Sequence[AnyOperation],
    model: AnyModel,
    widen: float,
) -> None:
    """The evidence proves the failure: each sentence of it is true by the naive checker."""
    of_key = [each for each in history if model.key_of(each.command) == evidence.key]
    end = evidence.stuck.returned
    assert end is not None
    assert evidence.operations_count == len(of_key)
    # Everything that returned before the stuck operation has an order ...
    earlier = [each for each in of_key if each.returned is not None and each.returned < end]
    pending = [each for each in of_key if each not in earlier]
    assert has_order(model, facts(earlier, relaxed=pending, widen=widen))
    # ... the core has none, whichever of the others happened ...
    others = list(of_key)
    for each in evidence.core:
        others.remove(each)
    relevant = [each for each in others if each.called <= end + 2 * widen]
    assert not has_order(model, facts(evidence.core, relaxed=relevant, widen=widen))
    # ... nor by itself, and each of the core is needed.
    assert not has_order(model, facts(evidence.core, widen=widen))
    assert evidence.is_minimal
    for index, doubted in enumerate(evidence.core):
        fewer = evidence.core[:index] + evidence.core[index + 1 :]
        assert has_order(model, facts(fewer, relaxed=[*relevant, doubted], widen=widen))
    assert evidence.misfit in evidence.core
    assert str(evidence)


all_subjects = pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)


@all_subjects
@settings(max_examples=150)
@given(data=st.data())
def test_verdicts_are_those_of_the_naive_checker(subject: Subject, data: st.DataObject) -> None:
    history = one_at_a_time(data.draw(st.lists(operations(subject), min_size=1, max_size=5)))
    judge(history, subject.model)


@all_subjects
@settings(max_examples=60)
@given(data=st.data())
def test_uncertain_clocks_make_operations_concurrent(subject: Subject, data: st.DataObject) -> None:
    history = one_at_a_time(data.draw(st.lists(operations(subject), min_size=1, max_size=4)))
    is_linearizable = judge(history, subject.model, widen=data.draw(st.sampled_from((1, 2.5))))
    if judge(history, subject.model):
        assert is_linearizable


@all_subjects
@settings(max_examples=60)
@given(data=st.data())
def test_what_an_atomic_object_did_is_accepted(subject: Subject, data: st.DataObject) -> None:
    history = data.draw(plausible_histories(subject, subject.long))
    assert isinstance(check(history, subject.model), Linearizable)


@all_subjects
@settings(max_examples=100)
@given(data=st.data())
def test_a_wrong_result_is_found(subject: Subject, data: st.DataObject) -> None:
    """One changed result; the naive checker says whether it still fits by chance."""
    history = data.draw(plausible_histories(subject, 6))
    returned = [index for index, each in enumerate(history) if each.returned is not None]
    if returned:
        index = data.draw(st.sampled_from(returned))
        history[index] = replace(history[index], result=data.draw(subject.results))
    judge(history, subject.model)


@pytest.mark.parametrize("name", ["queue", "labelled queue", "numbered queue"])
@settings(max_examples=300)
@given(data=st.data())
def test_foresight_changes_no_verdict(name: str, data: st.DataObject) -> None:
    """Not even where some are doubted, clocks differ, or the search begins at several states."""
    subject = SUBJECTS[name]
    history = data.draw(plausible_histories(subject, 10))
    history += data.draw(st.lists(operations(subject), max_size=2))
    if data.draw(st.booleans()):
        index = data.draw(st.integers(0, len(history) - 1))
        if history[index].returned is not None:
            history[index] = replace(history[index], result=data.draw(subject.results))
    doubted = data.draw(st.sets(st.integers(0, len(history) - 1), max_size=3))
    agenda = Agenda.of(
        [each for index, each in enumerate(history) if index not in doubted],
        relaxed=[history[index] for index in sorted(doubted)],
        widen=data.draw(st.sampled_from((0, 0, 1, 2.5))),
    )
    starts = [subject.model.initial()]
    if data.draw(st.booleans()):
        items = tuple(data.draw(st.lists(subject.results, max_size=2)))
        starts.append((0, items) if name == "numbered queue" else items)
    outcomes = [
        search(subject.model, agenda, Limits(100_000), starts=starts, foresees=foresees)
        for foresees in (True, False)
    ]
    assert type(outcomes[0]) is type(outcomes[1]), outcomes


@all_subjects
@settings(max_examples=60)
@given(data=st.data())
def test_a_story_may_begin_later(subject: Subject, data: st.DataObject) -> None:
    """The states at a later beginning are all there are, and the core contradicts each of them."""
    model = subject.model
    history = data.draw(plausible_histories(subject, 5))
    history.append(data.draw(operations(subject)))
    history = [each for each in history if model.key_of(each.command) == "x"] or history
    failure = search(model, Agenda.of(history), Limits(100_000))
    if not isinstance(failure, SearchExhausted):
        return
    case = _Case.of(model, history, failure, Limits(100_000), 0)
    stuck = _Reduction(case, -inf, (model.initial(),)).run().stuck
    for reduction in case.later_beginnings(stuck):
        if not reduction.is_contradiction():
            continue
        story = reduction.run()
        assert set(story.starts) >= states_at(model, history, story.begins)
        assert all(each.called > story.begins for each in story.core)
        under_way = [
            each
            for each in history
            if each not in story.core and (each.returned is None or each.returned >= story.begins)
        ]
        every = facts(story.core, relaxed=under_way)
        for start in story.starts:
            assert not all_final_states(model, every, start)


def states_at(model: AnyModel, history: Sequence[AnyOperation], time: float) -> set[Any]:
    """Every state that is possible at *time*."""
    past = [each for each in history if each.returned is not None and each.returned < time]
    under_way = [each for each in history if each not in past and each.called <= time]
    every = facts(past)
    every += [replace(each, may_not_happen=True) for each in facts(under_way)]
    return all_final_states(model, every, model.initial())
