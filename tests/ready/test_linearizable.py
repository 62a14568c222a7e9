"""Queues and locks in simulated groups look like one object to clients, whatever fails.

Counters and dictionaries are in tests/simulation.
"""

from __future__ import annotations

from typing import Any

import pytest

from coterie.checking.linearizability import Operation
from coterie.checking.linearizability.model import At
from coterie.checking.linearizability.models import Acquire, Dequeue, Enqueue, Holder
from coterie.kernel.clock import seconds
from coterie.ready import Holding
from coterie.simulation import RunOptions
from coterie.simulation.engines.stack.kinds import LocksKind, QueueKind, Use
from coterie.simulation.parallel import run_many


@pytest.mark.slow  # minutes of simulated time
@pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "TOKEN:PVSYNC"])
@pytest.mark.parametrize("kind", ["queue", "locks"])
def test_clients_see_one_object(kind: str, stack: str) -> None:
    options = RunOptions(stack=stack, duration=seconds(12), object=kind)
    runs = run_many(range(40, 42), options, jobs=1)
    assert [run.violations for run in runs] == [[]] * 2


def seen(command: object, result: object, called: int, returned: int | None) -> Operation[Any, Any]:
    return Operation(
        process=called, command=command, result=result, called=called, returned=returned
    )


def test_an_item_that_is_taken_twice_or_too_early_is_found() -> None:
    kind = QueueKind()
    put = [seen(Enqueue("a"), 1, 0, 1), seen(Enqueue("b"), 2, 2, 3)]
    assert not kind.violations([*put, seen(Dequeue(), "a", 4, 5), seen(Dequeue(), "b", 6, 7)], [])
    assert kind.violations([*put, seen(Dequeue(), "a", 4, 5), seen(Dequeue(), "a", 6, 7)], [])
    assert kind.violations([*put, seen(Dequeue(), "b", 4, 5)], [])
    assert kind.violations([*put, seen(Dequeue(), None, 4, 5)], [])


def acquire(kind: LocksKind, owner: str, fence: int | None, called: int) -> Operation[Any, Any]:
    use = Use(At("x", Acquire(owner)), "acquire", ("x", owner))
    return seen(use.command, kind.result(use, fence), called, called + 1)


def test_two_holders_and_fences_that_fall_are_found() -> None:
    kind = LocksKind()
    assert not kind.violations([acquire(kind, "a", 1, 0), acquire(kind, "b", None, 2)], [])
    [found] = kind.violations([acquire(kind, "a", 1, 0), acquire(kind, "b", 2, 2)], [])
    assert "linearizability" in str(found)
    kind = LocksKind()
    other = Use(At("y", Acquire("c")), "acquire", ("y", "c"))
    operations = [
        acquire(kind, "a", 5, 0),
        seen(other.command, kind.result(other, 5), 2, 3),
    ]
    [found] = kind.violations(operations, [])
    assert "5 was given after 5" in str(found)


def test_what_became_of_an_acquisition_is_learned_from_whoever_asks() -> None:
    kind = LocksKind()
    use = Use(At("x", Holder()), "holder", ("x",), is_read=True)
    assert kind.result(use, None) is None
    assert kind.result(use, Holding("a", 7, 0)) == "a"
