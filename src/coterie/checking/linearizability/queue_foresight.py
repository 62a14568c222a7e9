"""What the results of a queue's history say about its order.

A history of a queue in which each item is put once can be judged without a search, by looking for a
few patterns (Henzinger, Sezgin and Vafeiadis, "Aspect-oriented linearizability proofs", 2013): an
item taken before it was put or taken twice, two items taken in the other order than they were put,
a queue found empty while something surely was in it. Here the same facts steer the search, which
can also say what it found, and which copes with what the patterns do not cover: lost operations,
results that nobody saw, items put twice.

An item is *awaited* if it is put at most once and one operation whose result we trust took it. An
item that nobody is known to have taken is *nameless*: it is only in the way of others. The rules:

1. Two states that differ in the names of nameless items have the same future.
2. If *x* was surely taken before *y* was, it was put before *y*. If the queue was found empty
   before *y* was taken, *y* was put after that.
3. Whoever took *x* may do so as soon as *x* is at the front: until then nobody else can take
   anything or find the queue empty, and whoever puts something does not notice.
4. An operation of which we do not know what it took did not take an awaited item.
5. Nameless items before an awaited one must be taken by such operations; if there are fewer of
   them than of those items the state has no future. The same if the queue is found empty later.
6. A nameless item whose putting may not have happened was not put: it would be in the way. (Not
   so if somebody surely took something of which we do not know what it was.)

Some histories are contradictions by the patterns above, and no state has a future. For an item
that is awaited, or that is nameless where nobody can have taken it, it is known when it was surely
in the queue: from the end of its putting to the beginning of its taking.

Where putting answers a number (*numbered* queues) that gives the order of all whose answer was
seen, and the gaps are for those whose answer was not: whoever takes a number that another is known
to have has no future, and rule 6 holds behind the last number that is known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from coterie.checking.linearizability.foresight import Foresight
from coterie.checking.linearizability.history import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from coterie.checking.linearizability.agenda import Agenda, LostOperation
    from coterie.checking.linearizability.history import Unseen
    from coterie.checking.linearizability.model import Model

__all__ = ["NOT_A_PUT", "QueueForesight", "QueueReading"]

S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R")

NOT_A_PUT: Hashable = object()


class QueueReading(NamedTuple, Generic[S, C]):
    """How a model's commands and states are read as those of a queue.

    put: the item that a command puts, or `NOT_A_PUT` if it takes one.
    items: what is in the queue, the first first.
    last: the last number that was given out, where putting answers one.
    """

    put: Callable[[C], Hashable]
    items: Callable[[S], tuple[Hashable, ...]]
    last: Callable[[S], int] | None = None


class _Nameless:
    """Stands for every nameless item."""

    def __repr__(self) -> str:
        return "nameless"


_NAMELESS = _Nameless()


class _Put(NamedTuple):
    """Where the one putting of an item stands on the agenda: a number, or the bit of a lost one."""

    number: int | None
    bit: int
    called: float


class QueueForesight(Foresight[S, C, R]):
    """The rules above, for one agenda."""

    def __init__(
        self,
        model: Model[S, C, R],
        agenda: Agenda[Any, R],
        starts: Sequence[S],
        plain: Callable[[Any], C],
        reading: QueueReading[S, C],
    ) -> None:
        super().__init__(model, agenda, plain)
        self._reading = reading
        self._numbers, self._last_number = self._known_numbers()
        self._takers: dict[Hashable, list[int]] = {}
        self._empties: list[int] = []
        self._blind_bits = 0
        """The lost operations that took something, and nobody knows what."""
        self._blind_count = 0
        """How many bounded ones there are of this kind."""
        self._may_skip = True
        """Whether rule 6 holds."""
        self._sort_takers()
        puts = self._all_puts()
        at_start = Counter[Hashable]()
        for state in starts:
            at_start |= Counter(reading.items(state))
        self._awaited = {
            item: takers[0]
            for item, takers in self._takers.items()
            if len(takers) == 1 and len(puts.get(item, ())) + at_start[item] <= 1
        }
        self.first |= set(self._awaited.values())
        self._put_of = {item: puts[item][0] for item in self._awaited if item in puts}
        self._sort_relaxed(puts)
        self.is_contradiction = any(
            len(takers) > len(puts.get(item, ())) + at_start[item]
            for item, takers in self._takers.items()
        ) or _Stays(self.agenda, self._all_stays(puts)).contradict(self._empties)
        self.agenda = self._ordered()

    # ---- reading the agenda

    def _known_numbers(self) -> tuple[frozenset[int], float]:
        """The numbers that puttings answered, and the last of them if each is known."""
        if self._reading.last is None:
            return frozenset(), inf
        agenda = self.agenda
        results = [
            operation.result
            for number, operation in enumerate(agenda.bounded)
            if self._item(operation.command) is not NOT_A_PUT and not agenda.relaxed[number]
        ]
        numbers = frozenset(each for each in results if isinstance(each, int))
        return numbers, inf if UNSEEN in results else max(numbers, default=0)

    def _item(self, command: Any) -> Hashable:  # noqa: ANN401 -- of the agenda
        return self._reading.put(self.plain(command))

    def _sort_takers(self) -> None:
        """Tell apart who took what, who found the queue empty, and of whom it is not known."""
        agenda = self.agenda
        for number, operation in enumerate(agenda.bounded):
            if self._item(operation.command) is not NOT_A_PUT:
                continue
            if agenda.relaxed[number] or operation.result is UNSEEN:
                self._blind_count += 1
                self._may_skip &= agenda.relaxed[number]
            elif operation.result is None:
                self._empties.append(number)
            elif _is_hashable(operation.result):  # else it is no item, and fits nowhere
                self._takers.setdefault(operation.result, []).append(number)
        for each in _all_lost(agenda):
            if self._item(each.operation.command) is NOT_A_PUT:
                self._blind_bits |= each.bit

    def _all_puts(self) -> dict[Hashable, list[_Put]]:
        puts: dict[Hashable, list[_Put]] = {}
        agenda = self.agenda
        for number, operation in enumerate(agenda.bounded):
            if (item := self._item(operation.command)) is not NOT_A_PUT:
                puts.setdefault(item, []).append(_Put(number, 0, agenda.calls[number]))
        for each in _all_lost(agenda):
            if (item := self._item(each.operation.command)) is not NOT_A_PUT:
                puts.setdefault(item, []).append(_Put(None, each.bit, each.called))
        return puts

    def _sort_relaxed(self, puts: dict[Hashable, list[_Put]]) -> None:
        """Say which puttings that may not have happened must have, and which help nobody."""
        for item, every in puts.items():
            relaxed = {
                put.number
                for put in every
                if put.number is not None and self.agenda.relaxed[put.number]
            }
            if item in self._awaited:
                self.needed |= relaxed
                self.needed_lost |= every[0].bit
            elif self._is_useless(item):
                self.idle |= relaxed

    def _is_useless(self, item: Hashable) -> bool:
        """Whether nothing is better for an item's having been put (rule 6)."""
        return self._may_skip and self._reading.last is None and item not in self._takers

    def _all_stays(self, puts: dict[Hashable, list[_Put]]) -> Iterator[_Stay]:
        """Give when each item was put and taken, where that is known; lost puttings never end."""
        agenda = self.agenda
        for item, taker in self._awaited.items():
            put = self._put_of.get(item)
            if put is not None:
                end = inf if put.number is None else agenda.returns[put.number]
                yield _Stay(put.called, end, agenda.calls[taker], agenda.returns[taker])
        if self._blind_count or self._blind_bits:
            return
        for item, every in puts.items():
            if item not in self._takers:
                for put in every:
                    if put.number is not None and not agenda.relaxed[put.number]:
                        yield _Stay(put.called, agenda.returns[put.number], inf, inf)

    # ---- what must come before what

    def _ordered(self) -> Agenda[Any, R]:
        agenda = self.agenda
        after = list(agenda.after)
        after_lost = list(agenda.after_lost)
        lost = {each.bit: each for each in _all_lost(agenda)}
        takers = _ByReturn(agenda, self._awaited.values())
        empties = _ByReturn(agenda, self._empties)
        item_of = {number: item for item, number in self._awaited.items()}
        for item, put in self._put_of.items():
            taker = self._awaited[item]
            earlier = [
                other
                for number in takers.just_before(taker, put.called)
                if (other := self._put_of.get(item_of[number])) is not None
            ]
            numbers = [each.number for each in earlier if each.number is not None]
            numbers += empties.just_before(taker, put.called)
            bits = 0
            for each in earlier:
                bits |= each.bit
            if put.number is None:
                each_lost = lost[put.bit]
                lost[put.bit] = each_lost._replace(
                    after=(*each_lost.after, *numbers), after_lost=bits
                )
            else:
                after[put.number] = (*after[put.number], *numbers)
                after_lost[put.number] |= bits
        return replace(
            agenda,
            after=tuple(after),
            after_lost=tuple(after_lost),
            lost=self._regrouped(lost.values()),
        )

    def _regrouped(
        self, lost: Iterable[LostOperation[Any, R]]
    ) -> tuple[tuple[LostOperation[Any, R], ...], ...]:
        """Group those alike, nameless ones with each other; first those that must have happened.

        Who puts an awaited item is tried in the order in which the items were taken.
        """
        groups: dict[Hashable, list[LostOperation[Any, R]]] = {}
        for each in lost:
            item = self._item(each.operation.command)
            if self._is_useless(item) and item is not NOT_A_PUT:
                continue
            is_named = item is NOT_A_PUT or item in self._takers
            groups.setdefault(item if is_named else _NAMELESS, []).append(each)
        return tuple(tuple(groups[each]) for each in sorted(groups, key=self._when_to_try))

    def _when_to_try(self, item: Hashable) -> float:
        """Give the time at which somebody took the item; those that nobody took come last."""
        takers = self._takers.get(item)
        return self.agenda.returns[takers[0]] if takers else inf

    # ---- during the search

    def step(self, state: S, command: Any, result: R | Unseen) -> Iterable[S]:  # noqa: ANN401
        """Every state after *command*, unless it takes what is not its own."""
        if result is UNSEEN and self._takes_anothers(state, self._item(command)):
            return ()
        return super().step(state, command, result)

    def _takes_anothers(self, state: S, item: Hashable) -> bool:
        """Whether who puts *item*, or takes something, takes the item or number of another."""
        if item is NOT_A_PUT:
            items = self._reading.items(state)
            return bool(items) and items[0] in self._awaited
        if self._reading.last is None:
            return False
        number = self._reading.last(state) + 1
        is_useless = self._may_skip and number > self._last_number and item not in self._takers
        return is_useless or number in self._numbers

    def fingerprint(self, state: S) -> Hashable:
        """The items, without the names of those that nobody is known to have taken."""
        takers = self._takers
        named = tuple(each if each in takers else _NAMELESS for each in self._reading.items(state))
        return named if self._reading.last is None else (self._reading.last(state), named)

    def is_hopeless(self, state: S, assumed: int, base: int, placed: int) -> bool:
        """Whether more nameless items are in the way than can have been taken (rule 5)."""
        in_the_way = nameless = 0
        for item in self._reading.items(state):
            if item in self._awaited:
                in_the_way = nameless
            elif item not in self._takers:
                nameless += 1
        left = self._blind_count + (self._blind_bits & ~assumed).bit_count()
        return in_the_way > left or (nameless > left and self._will_be_empty(base, placed))

    def _will_be_empty(self, base: int, placed: int) -> bool:
        """Whether somebody is still to find the queue empty."""
        for number in reversed(self._empties):
            if number < base:
                return False
            if not placed >> (number - base) & 1:
                return True
        return False


class _Stay(NamedTuple):
    """The intervals in which an item was put and taken."""

    put_called: float
    put_returned: float
    take_called: float
    take_returned: float


class _Stays:
    """The stays of items, by when their putting ended."""

    def __init__(self, agenda: Agenda[C, R], stays: Iterable[_Stay]) -> None:
        self._agenda = agenda
        self._stays = sorted(stays, key=lambda stay: stay.put_returned)

    def contradict(self, empties: Iterable[int]) -> bool:
        """Whether these stays cannot be, or the queue cannot have been found empty."""
        return self._are_too_early() or self._overtake() or self._leave_no_room(empties)

    def _are_too_early(self) -> bool:
        return any(stay.take_returned < stay.put_called for stay in self._stays)

    def _overtake(self) -> bool:
        """Whether an item was surely put before another and surely taken after it."""
        ends = [stay.put_returned for stay in self._stays]
        latest_takes: list[float] = []
        for stay in self._stays:
            latest_takes.append(max(stay.take_called, latest_takes[-1] if latest_takes else -inf))
        for stay in self._stays:
            earlier = bisect_left(ends, stay.put_called)
            if earlier and latest_takes[earlier - 1] > stay.take_returned:
                return True
        return False

    def _leave_no_room(self, empties: Iterable[int]) -> bool:
        """Whether something was surely in the queue for as long as it can have been found empty."""
        begins: list[float] = []
        ends: list[float] = []
        for stay in self._stays:
            if not stay.put_returned < stay.take_called:
                continue
            if ends and stay.put_returned < ends[-1]:
                ends[-1] = max(ends[-1], stay.take_called)
            else:
                begins.append(stay.put_returned)
                ends.append(stay.take_called)
        for number in empties:
            last = bisect_left(begins, self._agenda.calls[number])
            if last and ends[last - 1] > self._agenda.returns[number]:
                return True
        return False


class _ByReturn:
    """Bounded operations, by the times of their returns."""

    def __init__(self, agenda: Agenda[C, R], numbers: Iterable[int]) -> None:
        self._agenda = agenda
        self._numbers = sorted(numbers, key=lambda each: agenda.returns[each])
        self._returns = [agenda.returns[each] for each in self._numbers]
        self._latest_calls: list[float] = []
        """For each, the latest call of all that returned up to here."""
        latest = float("-inf")
        for each in self._numbers:
            latest = max(latest, agenda.calls[each])
            self._latest_calls.append(latest)

    def just_before(self, number: int, since: float) -> list[int]:
        """Give those that returned before *number* was called, and not before *since*.

        Of two of which one came before the other, the earlier is left out: what comes after the
        later comes after the earlier as well.
        """
        end = bisect_left(self._returns, self._agenda.calls[number])
        if not end:
            return []
        begin = bisect_left(self._returns, max(since, self._latest_calls[end - 1]))
        return self._numbers[begin:end]


def _all_lost(agenda: Agenda[C, R]) -> Iterable[LostOperation[C, R]]:
    return (each for group in agenda.lost for each in group)


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
