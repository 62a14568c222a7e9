"""The checker: from a history and a model to a verdict.

The history is cut into its keys, each key is searched for an order, and if one has none, its
evidence is made. One key without an order is enough to reject the history, also when others could
not be decided. Of several such keys the one that fails after the fewest operations is explained:
its story is likely to be the shortest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from coterie.checking.linearizability.agenda import Agenda
from coterie.checking.linearizability.evidence import Evidence, explain
from coterie.checking.linearizability.search import Exhausted, Found, Limits, Placed, search

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from coterie.checking.linearizability.history import Operation
    from coterie.checking.linearizability.model import Model

__all__ = ["STEPS_MAX", "Linearizable", "NotLinearizable", "Unknown", "Verdict", "check"]

S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R")

STEPS_MAX = 1_000_000
"""Steps for one key unless the caller says otherwise: some seconds and some hundred megabytes."""


@dataclass(frozen=True, slots=True)
class Linearizable(Generic[S, C, R]):
    """There is an order for every key; these are the witnesses."""

    orders: Mapping[Hashable, tuple[Placed[S, C, R], ...]]
    steps: int


@dataclass(frozen=True, slots=True)
class NotLinearizable(Generic[S, C, R]):
    """There is no order for these keys, and here is why for one of them.

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
    """
    if widen < 0:
        raise ValueError(f"clocks cannot be apart by less than nothing: widen={widen}")
    limits = Limits(steps_max, deadline)
    parts = _by_key(history, model)
    found: dict[Hashable, tuple[Placed[S, C, R], ...]] = {}
    failed: dict[Hashable, Exhausted[S, C, R]] = {}
    stopped: dict[Hashable, str] = {}
    steps = 0
    for key, operations in parts.items():
        outcome = search(model, Agenda.of(operations, widen=widen), limits)
        steps += outcome.steps
        if isinstance(outcome, Found):
            found[key] = outcome.order
        elif isinstance(outcome, Exhausted):
            failed[key] = outcome
        else:
            stopped[key] = outcome.reason
    if failed:
        key = min(failed, key=lambda each: len(failed[each].order))
        evidence = explain(model, parts[key], failed[key], limits, widen=widen)
        return NotLinearizable(tuple(failed), evidence, steps)
    if stopped:
        return Unknown(tuple(stopped), next(iter(stopped.values())), steps)
    return Linearizable(found, steps)


def _by_key(
    history: Iterable[Operation[C, R]], model: Model[S, C, R]
) -> dict[Hashable, list[Operation[C, R]]]:
    parts: dict[Hashable, list[Operation[C, R]]] = {}
    for operation in history:
        parts.setdefault(model.key_of(operation.command), []).append(operation)
    return parts
