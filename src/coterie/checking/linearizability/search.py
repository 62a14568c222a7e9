"""The search for an order: Wing and Gong's algorithm, with Lowe's memory of where it has been.

A history of one key is linearizable if its operations can be put in one order that respects their
intervals and that the model accepts (Wing and Gong, "Testing and verifying concurrent objects",
1993). The search places one operation after another. Next may come any operation that is not yet
placed and was called before every unplaced one returned. A *configuration* is what the rest of the
search depends on: which operations are placed, and the state; one that was met before, by another
order, is not entered again (Lowe, "Testing for linearizability", 2017). The order exists if the
search places all, and it does not if nothing is left to try.

*Configurations are small.* Bounded operations (those that returned) are numbered by their calls.
All numbers below `base` are placed; `placed` is a bit set of the few placed above it, moved along
with `base`. The bit set is as wide as the history is concurrent, not as it is long, and the next
candidates are found by walking upwards from `base`. So we need no linked list of events to lift
operations out of and put back, as Lowe has it; a configuration is a plain value.

*Reads go first.* An operation that, with its result, leaves every state as it is (the model says
so) is placed as soon as it fits, and nothing else is tried there: in any order that places it
later it can be moved to here, and nobody notices.

*Lost operations* are those whose cost explodes: each may be placed anywhere after its call, or
nowhere. Four rules keep them in hand.

1. One that would not change the state is not placed: leaving it out is never worse.
2. Of lost operations with equal commands that may come next only the one called first is tried.
3. Of two configurations with the same bounded operations placed and the same state, the one that
   assumed a subset of the other's lost operations can do all that the other can. Lost operations
   are tried last, so that the smaller configuration tends to come first and keep the larger out.
4. One is not placed right after another if it leads to the same state without the other.

*Relaxed operations* serve the evidence. A relaxed operation may take effect within its interval,
with any result, or not at all: every order of the true history is an order of the relaxed one. When
one is the first to return and has not been placed, it may be dropped.

*Foresight* is what the model says of the agenda as a whole (`foresight.py`): more order than the
intervals give, and states that need not be entered.

The number of steps (calls of the model, and configurations compared) is bounded, and so is the
memory of where the search has been, which can grow much faster where states are large. The steps
are the same in each run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from sys import getsizeof
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from coterie.checking.linearizability.foresight import Foresight
from coterie.checking.linearizability.history import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from coterie.checking.linearizability.agenda import Agenda, LostOperation
    from coterie.checking.linearizability.history import Operation, Unseen
    from coterie.checking.linearizability.model import Model

__all__ = [
    "Limits",
    "OrderFound",
    "Outcome",
    "Placed",
    "SearchExhausted",
    "SearchStopped",
    "search",
]

S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R")

_STEPS_BETWEEN_LOOKS_AT_THE_CLOCK = 256
_CONFIGURATION_BYTES = 500
"""What a configuration takes besides its state, about: an entry of the memory, and a node."""

BYTES_MAX = 1 << 29
"""What the memory of one search may take, about, unless the caller says otherwise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a search may go.

    steps_max: steps of one search. How long a step takes depends on the model and the machine.
    deadline: asked now and then whether time is up; None for no deadline. The caller brings the
        clock, so the search has none.
    bytes_max: what the configurations that are remembered may take, about.
    """

    steps_max: int
    deadline: Callable[[], bool] | None = None
    bytes_max: int = BYTES_MAX


@dataclass(frozen=True, slots=True)
class Placed(Generic[S, C, R]):
    """An operation in its place, and the state after it."""

    operation: Operation[C, R]
    state: S


@dataclass(frozen=True, slots=True)
class OrderFound(Generic[S, C, R]):
    """An order of all operations that returned, and of the lost ones that it assumes."""

    order: tuple[Placed[S, C, R], ...]
    steps: int


@dataclass(frozen=True, slots=True)
class SearchExhausted(Generic[S, C, R]):
    """There is no order.

    `order`, from the state `start`, got furthest: it places all that returned before `stuck`, and
    no order places `stuck` as well. `watched` has, for each time asked for, every state that is
    possible then. `foresaw` says whether the model knew better than to try all that seems to fit.
    """

    stuck: Operation[C, R]
    start: S
    order: tuple[Placed[S, C, R], ...]
    watched: Mapping[float, tuple[S, ...]]
    steps: int
    foresaw: bool


@dataclass(frozen=True, slots=True)
class SearchStopped:
    """A limit was reached first."""

    reason: str
    steps: int


Outcome: TypeAlias = OrderFound[S, C, R] | SearchExhausted[S, C, R] | SearchStopped


def search(  # noqa: PLR0913 -- what a search is made of
    model: Model[S, C, R],
    agenda: Agenda[C, R],
    limits: Limits,
    *,
    starts: Sequence[S] | None = None,
    watch: Sequence[float] = (),
    foresees: bool = True,
) -> Outcome[S, C, R]:
    """Look for an order of the operations on the agenda.

    It may begin at any of the states *starts*, which are the model's initial one unless given.
    *watch* asks for the states that are possible at these times if there is no order; what comes
    later must not have a say in that, so there is no foresight then.
    """
    begin = (model.initial(),) if starts is None else starts
    if foresees and not watch:
        sight = model.foresee(agenda, begin, lambda command: command)
    else:
        sight = Foresight(model, agenda)
    return _Search(sight, limits, watch).run(begin)


class _Node(NamedTuple, Generic[S, C, R]):
    """A configuration, and how the search came to it."""

    state: S
    base: int
    placed: int
    assumed: int
    trusted_count: int
    operation: Operation[C, R] | None
    parent: _Node[S, C, R] | None


class _Search(Generic[S, C, R]):
    def __init__(
        self,
        sight: Foresight[S, C, R],
        limits: Limits,
        watch: Sequence[float],
    ) -> None:
        self._sight = sight
        self._agenda: Agenda[C, R] = sight.agenda
        self._limits = limits
        self._steps = 0
        self._steps_at_next_look = 0
        self._bytes = 0
        # For each (base, placed, state): the sets of assumed lost operations it was met with,
        # without those that contain another.
        self._met: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._furthest: tuple[float, int] = (-inf, 0)
        self._furthest_first: int
        self._furthest_node: _Node[S, C, R]
        self._watched: dict[float, dict[Hashable, S]] = {time: {} for time in watch}

    def run(self, starts: Sequence[S]) -> Outcome[S, C, R]:
        bounded_count = len(self._agenda.bounded)
        # What is to be tried next in each configuration on the way. It is made when it is tried: a
        # history with many lost operations has hundreds of ways on that are hardly ever taken.
        roots = (_Node[S, C, R](each, 0, 0, 0, 0, None, None) for each in reversed(starts))
        pending: list[Iterator[_Node[S, C, R]]] = [roots]
        # Foresight may say at once that there is no order; then nothing was placed before the first
        # return that is trusted.
        trusted = [n for n in range(bounded_count) if not self._agenda.relaxed[n]]
        self._furthest_first = min(trusted, key=lambda n: self._agenda.returns[n], default=0)
        self._furthest_node = _Node(starts[0], 0, 0, 0, 0, None, None)
        if self._sight.is_contradiction:
            self._steps += bounded_count
            pending.clear()
        while pending:
            if reason := self._limit_reached():
                return SearchStopped(reason, self._steps)
            node = next(pending[-1], None)
            if node is None:
                pending.pop()
                continue
            if not self._is_new(node):
                continue
            if node.base == bounded_count:
                return OrderFound(_order(node), self._steps)
            pending.append(self._expand(node))
        return SearchExhausted(
            stuck=self._agenda.bounded[self._furthest_first],
            start=_root(self._furthest_node).state,
            order=_order(self._furthest_node),
            watched={time: tuple(states.values()) for time, states in self._watched.items()},
            steps=self._steps,
            foresaw=type(self._sight) is not Foresight,
        )

    def _limit_reached(self) -> str | None:
        if self._steps >= self._limits.steps_max:
            return f"no verdict after {self._steps} steps"
        if self._bytes >= self._limits.bytes_max:
            mebibytes = self._limits.bytes_max >> 20
            return f"no verdict with {mebibytes} MiB of memory, after {self._steps} steps"
        if self._steps >= self._steps_at_next_look:
            self._steps_at_next_look = self._steps + _STEPS_BETWEEN_LOOKS_AT_THE_CLOCK
            if self._limits.deadline is not None and self._limits.deadline():
                return f"no verdict before the deadline, after {self._steps} steps"
        return None

    def _is_new(self, node: _Node[S, C, R]) -> bool:
        """Whether no configuration met before can do all that this one can."""
        fingerprint = self._sight.fingerprint(node.state)
        key = (node.base, node.placed, fingerprint)
        met = self._met.get(key, ())
        self._steps += len(met)
        assumed = node.assumed
        if any(other & assumed == other for other in met):
            return False
        self._bytes += _CONFIGURATION_BYTES + getsizeof(fingerprint)
        self._met[key] = (*(other for other in met if other & assumed != assumed), assumed)
        return True

    def _expand(self, node: _Node[S, C, R]) -> Iterator[_Node[S, C, R]]:
        """The configurations to enter from this one, the most promising first."""
        candidates, first = self._frontier(node)
        self._note_progress(node, first)
        self._note_watched(node, first)
        others = []
        for number in candidates:
            if number not in self._sight.first or self._would_pass_watch(node, number):
                others.append(number)
            elif alone := [*self._place(node, number)]:
                yield from alone
                return
        yield from self._drop(node, first)
        for number in others:
            yield from self._place(node, number)
        yield from self._assume(node, self._agenda.returns[first])

    def _frontier(self, node: _Node[S, C, R]) -> tuple[list[int], int]:
        """The bounded operations that may come next, and the one of them that returns first."""
        calls, returns = self._agenda.calls, self._agenda.returns
        number, placed = node.base, node.placed
        candidates, first, first_return = [], number, inf
        # What is called after an unplaced operation returned cannot come next. Calls rise, so it
        # is enough to remember the earliest return on the way.
        while number < len(calls) and calls[number] <= first_return:
            if not placed & 1:
                candidates.append(number)
                if returns[number] < first_return:
                    first, first_return = number, returns[number]
            number += 1
            placed >>= 1
        return candidates, first

    def _note_progress(self, node: _Node[S, C, R], first: int) -> None:
        """Remember the order that satisfies the most returns; of those, one that places the most.

        Relaxed and lost operations do not count: an order that needs none of them shows more.
        """
        if self._agenda.relaxed[first]:
            return
        progress = (self._agenda.returns[first], node.trusted_count)
        if progress > self._furthest:
            self._furthest, self._furthest_first, self._furthest_node = progress, first, node

    def _note_watched(self, node: _Node[S, C, R], first: int) -> None:
        """Remember the state for the times at which the search may be in this configuration."""
        for time, states in self._watched.items():
            if self._since(node) <= time <= self._agenda.returns[first]:
                states.setdefault(self._sight.fingerprint(node.state), node.state)

    def _would_pass_watch(self, node: _Node[S, C, R], number: int) -> bool:
        """Whether a watched time is over once this operation is placed.

        Then a read must not go first: what it would keep out happens at that time.
        """
        called = self._agenda.calls[number]
        return any(self._since(node) <= time < called for time in self._watched)

    def _since(self, node: _Node[S, C, R]) -> float:
        """The earliest time of this configuration: the last call of what is placed."""
        last = node.base + node.placed.bit_length() - 1
        return self._agenda.calls[last] if last >= 0 else -inf

    def _place(self, node: _Node[S, C, R], number: int) -> Iterator[_Node[S, C, R]]:
        """Every way to place this bounded operation next."""
        agenda = self._agenda
        if agenda.after_lost[number] & ~node.assumed or number in self._sight.idle:
            return
        if any(_is_unplaced(node, other) for other in agenda.after[number]):
            return
        operation, relaxed = agenda.bounded[number], agenda.relaxed[number]
        base, placed = _with_placed(node, number)
        trusted_count = node.trusted_count + (not relaxed)
        result = UNSEEN if relaxed else operation.result
        for state in self._states_after(node.state, operation, result):
            if relaxed and not self._differs(state, node.state):
                continue
            if not self._sight.is_hopeless(state, node.assumed, base, placed):
                yield _Node(state, base, placed, node.assumed, trusted_count, operation, node)

    def _drop(self, node: _Node[S, C, R], first: int) -> Iterator[_Node[S, C, R]]:
        """Let the first to return, if it is relaxed, not happen."""
        if self._agenda.relaxed[first] and first not in self._sight.needed:
            self._steps += 1
            base, placed = _with_placed(node, first)
            yield node._replace(base=base, placed=placed)

    def _assume(self, node: _Node[S, C, R], first_return: float) -> Iterator[_Node[S, C, R]]:
        """Every way to let a lost operation take effect next."""
        for alike in self._agenda.lost:
            # Whatever is free now stays free, so those alike can wait for the first that is.
            free = next(
                (
                    each
                    for each in alike
                    if not node.assumed & each.bit
                    and each.called <= first_return
                    and not each.after_lost & ~node.assumed
                    and not any(_is_unplaced(node, other) for other in each.after)
                ),
                None,
            )
            if free is None:
                continue
            for state in self._states_after(node.state, free.operation, UNSEEN):
                assumed = node.assumed | free.bit
                if (
                    self._differs(state, node.state)
                    and not self._is_detour(node, free, state)
                    and not self._sight.is_hopeless(state, assumed, node.base, node.placed)
                ):
                    yield node._replace(
                        state=state, assumed=assumed, operation=free.operation, parent=node
                    )

    def _is_detour(self, node: _Node[S, C, R], free: LostOperation[C, R], state: S) -> bool:
        """Whether the lost operation leads to *state* also without the lost one before it."""
        if node.operation is None or node.operation.returned is not None or node.parent is None:
            return False
        before = node.parent.state
        return not all(
            self._differs(other, state)
            for other in self._states_after(before, free.operation, UNSEEN)
        )

    def _states_after(
        self, state: S, operation: Operation[C, R], result: R | Unseen
    ) -> Iterable[S]:
        self._steps += 1
        return self._sight.step(state, operation.command, result)

    def _differs(self, state: S, other: S) -> bool:
        return self._sight.fingerprint(state) != self._sight.fingerprint(other)


def _is_unplaced(node: _Node[S, C, R], number: int) -> bool:
    return number >= node.base and not node.placed >> (number - node.base) & 1


def _with_placed(node: _Node[S, C, R], number: int) -> tuple[int, int]:
    """Base and bit set of *node* with one more operation placed."""
    placed = node.placed | 1 << (number - node.base)
    # The lowest bits that are set, without a gap, are placed below the new base.
    run = (~placed & (placed + 1)).bit_length() - 1
    return node.base + run, placed >> run


def _order(node: _Node[S, C, R]) -> tuple[Placed[S, C, R], ...]:
    order = []
    while node.operation is not None and node.parent is not None:
        order.append(Placed(node.operation, node.state))
        node = node.parent
    return tuple(reversed(order))


def _root(node: _Node[S, C, R]) -> _Node[S, C, R]:
    while node.parent is not None:
        node = node.parent
    return node
