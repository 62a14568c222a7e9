"""The checker: from a history and a model to a verdict.

The history is cut into its keys, each key is searched for an order, and if one has none, its
evidence is made. One key without an order is enough to reject the history, also when others could
not be decided; so all keys are tried with few steps first, and those that are left with ever more,
and a contradiction that is easily found does not wait for a key that is hard. Of several keys
without an order the one that fails after the fewest operations is explained: its story is likely
to be the shortest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from coterie.checking.linearizability.agenda import Agenda
from coterie.checking.linearizability.evidence import Evidence, explain
from coterie.checking.linearizability.search import (
    Limits,
    OrderFound,
    Placed,
    SearchExhausted,
    search,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from coterie.checking.linearizability.history import Operation
    from coterie.checking.linearizability.model import Model

__all__ = ["STEPS_MAX", "Linearizable", "NotLinearizable", "Unknown", "Verdict", "check"]

S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R")

STEPS_MAX = 1_000_000
"""Steps for one key unless the caller says otherwise. Whoever has to be done by a certain time
gives a deadline: how long a step takes depends on the model and the machine."""

_FIRST_STEPS = 1_000
_GROWTH = 10


@dataclass(frozen=True, slots=True)
class Linearizable(Generic[S, C, R]):
    """There is an order for every key; these are the witnesses."""

    orders: Mapping[Hashable, tuple[Placed[S, C, R], ...]]
    steps: int


@dataclass(frozen=True, slots=True)
class NotLinearizable(Generic[S, C, R]):
    """There is no order for these keys, and here is why for one of them.

    Keys that need more steps than these may have none either; nobody looked further.
    `str()` of it is the evidence as readable text.
    """

    keys: tuple[Hashable, ...]
    evidence: Evidence[S, C, R]
    steps: int

    def __str__(self) -> str:
        return str(self.evidence)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A limit was reached before an order was found or excluded for these keys."""

    keys: tuple[Hashable, ...]
    reason: str
    steps: int


Verdict: TypeAlias = Linearizable[S, C, R] | NotLinearizable[S, C, R] | Unknown


def check(
    history: Iterable[Operation[C, R]],
    model: Model[S, C, R],
    *,
    widen: float = 0,
    steps_max: int = STEPS_MAX,
    deadline: Callable[[], bool] | None = None,
) -> Verdict[S, C, R]:
    """Decide whether *history* is linearizable for *model*.

    widen: how far any clock may be from true time, in the unit of the history's times. Zero when
        one clock timed them all, in simulation, or in a history made from events.
    steps_max: the limit of steps for one key, and again for the evidence.
    deadline: tells whether time is up; asked every few hundred steps. For example
        `lambda: time.monotonic() > end`.

    Raises `ValueError` if a command is none of the model's, or if a process calls something while
    an earlier call of its own, which returned later, is under way.
    """
    if widen < 0:
        raise ValueError(f"clocks cannot be apart by less than nothing: widen={widen}")
    history = list(history)
    _refuse_overlaps(history)
    parts = _by_key(history, model)
    found: dict[Hashable, tuple[Placed[S, C, R], ...]] = {}
    failed: dict[Hashable, SearchExhausted[S, C, R]] = {}
    stopped: dict[Hashable, str] = {}
    steps = 0
    waiting = list(parts)
    for steps_now in _rising(steps_max, len(parts)):
        limits = Limits(steps_now, deadline)
        trying, waiting = waiting, []
        for key in trying:
            outcome = search(model, Agenda.of(parts[key], widen=widen), limits)
            steps += outcome.steps
            if isinstance(outcome, OrderFound):
                found[key] = outcome.order
            elif isinstance(outcome, SearchExhausted):
                failed[key] = outcome
            elif outcome.steps < steps_now or steps_now == steps_max:
                stopped[key] = outcome.reason
            else:
                waiting.append(key)
        if failed:
            key = min(failed, key=lambda each: len(failed[each].order))
            limits = Limits(steps_max, deadline)
            evidence = explain(model, parts[key], failed[key], limits, widen=widen)
            return NotLinearizable(tuple(failed), evidence, steps)
    if stopped:
        return Unknown(tuple(stopped), next(iter(stopped.values())), steps)
    # In the order in which the keys came up, not in which they were decided.
    return Linearizable({key: found[key] for key in parts}, steps)


def _rising(steps_max: int, keys: int) -> Iterator[int]:
    """Give limits of steps, up to the last; a single key gets all at once."""
    steps = _FIRST_STEPS
    while keys > 1 and steps < steps_max:
        yield steps
        steps *= _GROWTH
    yield steps_max


def _refuse_overlaps(history: Iterable[Operation[C, R]]) -> None:
    """Refuse a process that is two: its order is certain whatever clocks say, so there must be one.

    After a call that was lost a process may go on; nobody knows when that one takes effect.
    """
    latest: dict[Hashable, Operation[C, R]] = {}
    returned = (each for each in history if each.returned is not None)
    for each in sorted(returned, key=lambda each: (each.called, each.returned)):
        before = latest.get(each.process)
        if before is not None and before.returned is not None and each.called < before.returned:
            raise ValueError(
                f"process {each.process} calls {each.command} at {each.called}, while its"
                f" {before.command} lasts from {before.called} to {before.returned}: a process does"
                " one thing at a time, so give concurrent callers names of their own"
            )
        latest[each.process] = each


def _by_key(
    history: Iterable[Operation[C, R]], model: Model[S, C, R]
) -> dict[Hashable, list[Operation[C, R]]]:
    parts: dict[Hashable, list[Operation[C, R]]] = {}
    for operation in history:
        if reason := model.why_not(operation.command):
            raise ValueError(reason)
        parts.setdefault(model.key_of(operation.command), []).append(operation)
    return parts
