"""Foresight: what later results say about earlier operations, known before the search begins.

A search goes forward in time and learns that it went wrong where a result does not fit. For most
objects that is soon. In a queue the order in which things were put shows only when they are taken,
perhaps much later, and everything that was tried in between has to be tried again. So a model may
look at the whole agenda first and tell the search

- what must come before what, besides the intervals;
- which operations may go first wherever they fit, because later would be no better;
- which need not be tried at all, and which cannot be left out;
- which states have no future, and which states have the same;
- that there is no order at all.

All of it must follow from the agenda: with and without foresight the verdict is the same. Only the
search for the states that are possible at a certain time has none, since it asks for the past
alone; nor has the one whose furthest order is shown to a reader, who has no foresight either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from coterie.checking.linearizability.agenda import Agenda
    from coterie.checking.linearizability.history import Unseen
    from coterie.checking.linearizability.model import Model

__all__ = ["Foresight"]

S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R")


def _itself(command: C) -> C:
    return command


class Foresight(Generic[S, C, R]):
    """What is known of any model: its reads go first.

    agenda: what to place, in the order that is known.
    first: bounded operations that, where they fit, are placed before anything else is tried.
    idle: relaxed operations whose effect helps nobody.
    needed: relaxed operations without which there is no order; `needed_lost`, bits of lost ones.
    is_contradiction: whether there is surely no order.
    plain: gives what the model takes for a command of the agenda.
    """

    def __init__(
        self, model: Model[S, C, R], agenda: Agenda[Any, R], plain: Callable[[Any], C] = _itself
    ) -> None:
        self.model = model
        self.agenda = agenda
        self.plain = plain
        self.first = {
            number
            for number, operation in enumerate(agenda.bounded)
            if not agenda.relaxed[number]
            and model.is_read(plain(operation.command), operation.result)
        }
        self.idle: set[int] = set()
        self.needed: set[int] = set()
        self.needed_lost = 0
        self.is_contradiction = False

    def step(self, state: S, command: Any, result: R | Unseen) -> Iterable[S]:  # noqa: ANN401
        """Every state after *command*, of the agenda, that can have a future."""
        return self.model.step(state, self.plain(command), result)

    def fingerprint(self, state: S) -> Hashable:
        """A value that is equal for states with the same future."""
        return self.model.fingerprint(state)

    def is_hopeless(self, state: S, assumed: int, base: int, placed: int) -> bool:
        """Whether no order goes on from *state*.

        *assumed* are the bits of the lost operations that were placed; of the bounded ones, all
        below *base* are, and those above it whose bit in *placed* is set.
        """
        del state, assumed, base, placed
        return False
