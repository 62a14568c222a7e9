"""Evidence: the shortest story that shows why a history has no order.

*The longest prefix.* A prefix of a history is what was known at some time: operations still under
way may have taken effect or not, and their results are not known yet. Prefixes of a linearizable
history are linearizable, so there is a first return, that of the operation `stuck`, up to which
there is no order. The exhausted search tells where to begin to look; nothing called later matters.
The rest is still long, so it is reduced (Zeller and Hildebrandt, "Simplifying and isolating
failure-inducing input", 2002).

*Trust, not presence.* Leaving operations out would prove nothing: without the write, every read of
its value is impossible. So what is taken away is not the operation but our trust in it. It is
*relaxed*: it may have taken effect within its interval, with any result, or not at all. The
operations that are not relaxed, the `core`, contradict each other *whichever of the others
happened*. In particular they do so if nothing else happened: the core is by itself a history
without an order. It is reduced in sweeps, with pieces that get smaller, until no single operation
of it can be relaxed.

*A later beginning.* Where each operation builds on all before it (a counter, a growing string)
nothing can be relaxed, and the attempt costs more than the verdict, so it has a limit. Then the
story begins later: the exhausted search knows every state that was possible at a given time, and
what was called after it contradicts itself from each of them. Operations under way at that time
may have happened before it, so they are relaxed. The later the beginning, the shorter the story,
so beginnings are tried backwards from the call of `stuck`, in steps that double.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar

from coterie.checking.linearizability.agenda import Agenda
from coterie.checking.linearizability.history import UNSEEN
from coterie.checking.linearizability.rendering import render
from coterie.checking.linearizability.search import (
    Limits,
    OrderFound,
    Placed,
    SearchExhausted,
    SearchStopped,
    search,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Sequence

    from coterie.checking.linearizability.foresight import Foresight
    from coterie.checking.linearizability.history import Operation
    from coterie.checking.linearizability.model import Model

__all__ = ["Evidence", "explain"]

S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R")

_REDUCTION_STEPS_MAX = 200_000
# One trial of a reduction. A trial that has lost the results that tell its branches apart would
# take all steps there are.
_TRIAL_STEPS_MAX = 20_000
# A core that cannot be reduced and is as short as this is a good story.
_SHORT_CORE = 8


@dataclass(frozen=True, slots=True)
class Evidence(Generic[S, C, R]):
    """Why the operations on one key have no order. As text, it is the story for a reader.

    key: the key, None if the model has none.
    operations_count: how many operations the history has on the key.
    prefix_count: how many of them returned in the longest prefix that has an order.
    stuck: the operation that returned next and cannot be placed as well.
    begins: the time at which the story begins; minus infinity for the beginning of the history.
    starts: every state that is possible then.
    core: operations, by time of call, that contradict each other from each of these states,
        whichever of the others happened.
    start, order: the order of the core (with others, where they help) that gets furthest.
    misfit: the operation of the core for which this order has no place; `stuck` in most cases.
    is_minimal: whether the contradiction is known to vanish when any one of the core is relaxed.
    """

    key: Hashable
    operations_count: int
    prefix_count: int
    stuck: Operation[C, R]
    begins: float
    starts: tuple[S, ...]
    core: tuple[Operation[C, R], ...]
    start: S
    order: tuple[Placed[S, C, R], ...]
    misfit: Operation[C, R]
    is_minimal: bool
    model: Model[S, C, R] = field(repr=False)

    def __str__(self) -> str:
        return render(self)

    def told(self, place: Callable[[Operation[C, R]], str]) -> str:
        """The same story, with the place of each operation in front of it."""
        return render(self, place)


def explain(
    model: Model[S, C, R],
    operations: Sequence[Operation[C, R]],
    failure: SearchExhausted[S, C, R],
    limits: Limits,
    *,
    widen: float = 0,
) -> Evidence[S, C, R]:
    """Reduce the operations of one key, for which the search was exhausted, to the evidence."""
    case = _Case.of(model, operations, failure, limits, widen)
    story = _Reduction(case, -inf, (model.initial(),)).run()
    if story.is_minimal and len(story.core) <= _SHORT_CORE:
        return story
    beginnings = case.later_beginnings(story.stuck)
    later = next((each.run() for each in beginnings if each.is_contradiction()), story)
    return min(story, later, key=lambda each: len(each.core) + len(each.starts))


@dataclass(frozen=True, slots=True)
class _Case(Generic[S, C, R]):
    """The shortest prefix without an order.

    fits: all that returned before this time has an order.
    ends: the return up to which there is no order: the same, unless a limit was reached.
    failure: the search up to it, in which operations under way at that time were relaxed.
    """

    model: Model[S, C, R]
    operations: Sequence[Operation[C, R]]
    limits: Limits
    widen: float
    fits: float
    ends: float
    failure: SearchExhausted[S, C, R]

    @classmethod
    def of(
        cls,
        model: Model[S, C, R],
        operations: Sequence[Operation[C, R]],
        failure: SearchExhausted[S, C, R],
        limits: Limits,
        widen: float,
    ) -> _Case[S, C, R]:
        """Find the prefix, given the failure of the whole."""
        case = cls(model, operations, limits, widen, -inf, inf, failure)
        returns = sorted({case.end(each) for each in operations if each.returned is not None})
        # What returned before the search was stuck has an order; most often the next has none. It
        # can have one all the same if the search was stuck for the result of one under way.
        probe = low = returns.index(case.end(failure.stuck))
        high = len(returns) - 1
        while low < high:
            case = replace(case, ends=returns[probe])
            outcome = search(model, case.agenda(case.returned()), limits)
            if isinstance(outcome, SearchExhausted):
                failure, high = outcome, probe
            elif isinstance(outcome, OrderFound):
                low = probe + 1
            else:
                break
            probe = (low + high) // 2
        return replace(case, fits=returns[low], ends=returns[high], failure=failure)

    def call(self, operation: Operation[C, R]) -> float:
        return operation.called - self.widen

    def end(self, operation: Operation[C, R]) -> float:
        return inf if operation.returned is None else operation.returned + self.widen

    def returned(self) -> list[int]:
        """What returned in the prefix. Operations go by index: two of them may be equal."""
        return [i for i, each in enumerate(self.operations) if self.end(each) <= self.ends]

    def agenda(self, trusted: Collection[int], begins: float = -inf) -> Agenda[C, R]:
        """The prefix, or its part from a later beginning, with all but *trusted* relaxed."""
        trusted = frozenset(trusted)
        others = (
            each
            for i, each in enumerate(self.operations)
            if i not in trusted and self.call(each) <= self.ends and begins <= self.end(each)
        )
        return Agenda.of(
            [each for i, each in enumerate(self.operations) if i in trusted],
            # A read that need not answer anything helps nobody.
            relaxed=[each for each in others if not self.model.is_read(each.command, UNSEEN)],
            widen=self.widen,
        )

    def later_beginnings(self, stuck: Operation[C, R]) -> Iterator[_Reduction[S, C, R]]:
        """Reductions that begin later than the history, the latest first."""
        times = {edge(each) for each in self.operations for edge in (self.call, self.end)}
        earlier = sorted((time for time in times if time < self.call(stuck)), reverse=True)
        watch = [earlier[2**n - 1] for n in range(len(earlier).bit_length())]
        outcome = search(self.model, self.agenda(self.returned()), self.limits, watch=watch)
        if isinstance(outcome, SearchExhausted):
            for time, starts in outcome.watched.items():
                if starts:
                    yield _Reduction(self, time, starts, stuck)


class _Reduction(Generic[S, C, R]):
    """The reduction of a story with one beginning."""

    def __init__(
        self,
        case: _Case[S, C, R],
        begins: float,
        starts: tuple[S, ...],
        stuck: Operation[C, R] | None = None,
    ) -> None:
        self._case = case
        self._begins = begins
        self._starts = starts
        self._failure = case.failure
        self._steps_left = min(case.limits.steps_max, _REDUCTION_STEPS_MAX)
        self._was_cut_short = False
        operations = case.operations
        candidates = [i for i in case.returned() if begins < case.call(operations[i])]
        # A later story is about the same operation as the first, which found out what is stuck.
        self._kept = [i for i in candidates if operations[i] is stuck][:1]
        self._suspects = [i for i in candidates if i not in self._kept]

    def run(self) -> Evidence[S, C, R]:
        size = len(self._suspects)
        # One sweep for each size is enough: what was needed stays needed when more is relaxed.
        while size:
            self._was_cut_short = False
            self._sweep(size)
            size //= 2
        return self._evidence()

    def is_contradiction(self) -> bool:
        """Whether all that can be trusted has no order from this beginning."""
        return self._remains(self._suspects)

    def _sweep(self, size: int) -> None:
        """Relax every piece of *size* suspects that the contradiction does not need."""
        start = 0
        while start < len(self._suspects):
            fewer = self._suspects[:start] + self._suspects[start + size :]
            if self._remains(fewer):
                self._suspects = fewer
            else:
                start += size

    def _remains(self, suspects: list[int]) -> bool:
        """Whether the contradiction remains when all but these are relaxed."""
        if not self._steps_left:
            self._was_cut_short = True
            return False
        case = self._case
        limits = Limits(min(_TRIAL_STEPS_MAX, self._steps_left), case.limits.deadline)
        agenda = case.agenda(self._kept + suspects, self._begins)
        outcome = search(case.model, agenda, limits, starts=self._starts)
        self._steps_left = max(0, self._steps_left - outcome.steps)
        if isinstance(outcome, SearchExhausted):
            self._failure = outcome
        elif isinstance(outcome, SearchStopped):
            self._was_cut_short = True
            if outcome.steps < limits.steps_max:
                # It was the deadline, which holds for all that follows.
                self._steps_left = 0
        return isinstance(outcome, SearchExhausted)

    def _as_seen(self) -> SearchExhausted[S, C, R]:
        """How far one gets who goes forward in time, as a reader does.

        If there is too much to try, only those of the others take part that must have happened.
        """
        case, failure = self._case, self._failure
        if not failure.foresaw:
            return failure
        limits = Limits(_TRIAL_STEPS_MAX, case.limits.deadline)
        agenda = case.agenda(self._kept + self._suspects, self._begins)
        fewer = _with_needed_only(case.model.foresee(agenda, self._starts, _itself), case.widen)
        for each in (agenda, fewer):
            outcome = search(case.model, each, limits, starts=self._starts, foresees=False)
            if isinstance(outcome, SearchExhausted):
                return outcome
        return failure

    def _evidence(self) -> Evidence[S, C, R]:
        case = self._case
        core = [case.operations[i] for i in sorted(self._kept + self._suspects)]
        failure = self._as_seen()
        misfit = failure.stuck
        # Without one that returned at the end, a shorter prefix would have no order.
        stuck = max(core, key=lambda each: (case.end(each), each is misfit))
        return Evidence(
            key=case.model.key_of(stuck.command),
            operations_count=len(case.operations),
            prefix_count=sum(case.end(each) < case.fits for each in case.operations),
            stuck=stuck,
            begins=self._begins,
            starts=self._starts,
            core=tuple(sorted(core, key=case.call)),
            start=failure.start,
            order=failure.order,
            misfit=misfit,
            is_minimal=not self._was_cut_short,
            model=case.model,
        )


def _itself(command: C) -> C:
    return command


def _with_needed_only(sight: Foresight[S, C, R], widen: float) -> Agenda[C, R]:
    """What a foresight says must have happened."""
    agenda = sight.agenda
    numbered = list(enumerate(agenda.bounded))
    lost = (each for alike in agenda.lost for each in alike)
    return Agenda.of(
        [each for n, each in numbered if not agenda.relaxed[n]],
        relaxed=[
            *(each for n, each in numbered if n in sight.needed),
            *(each.operation for each in lost if each.bit & sight.needed_lost),
        ],
        widen=widen,
    )
