"""The agenda: the operations of one key, as the search reads them.

Bounded operations (those with a return) stand in the order of their calls, as parallel columns.
Lost operations with equal commands are grouped, because they can stand in for each other.

*Uncertain clocks.* If each clock is within a bound of true time, an operation's true interval lies
within its recorded one widened by the bound on both sides, and the search uses the wide ones. Two
operations of one process were timed by one clock, so wide intervals must not make them concurrent:
`after` names, for each operation, those of its process that returned before it was called and that
the wide intervals alone would not put first. That holds for lost operations as for others: when one
took effect nobody knows, but not before it was called. (This order by process is one that partition
by key can weaken: each key is then judged alone. A rejection is right in any case.)
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from coterie.checking.linearizability.history import Operation

__all__ = ["Agenda", "LostOperation"]

C = TypeVar("C")
R = TypeVar("R")


class LostOperation(NamedTuple, Generic[C, R]):
    """A lost operation, its time of call, and the bit that stands for it in a set.

    after: as of the agenda, the bounded operations that must be placed first.
    after_lost: the bits of the lost operations that must be placed first.
    """

    operation: Operation[C, R]
    called: float
    bit: int
    after: tuple[int, ...]
    after_lost: int = 0


@dataclass(frozen=True, slots=True)
class Agenda(Generic[C, R]):
    """What has to be placed, and what may be.

    after, after_lost: for each bounded operation, the numbers of the bounded ones and the bits of
        the lost ones that must be placed before it.
    """

    bounded: tuple[Operation[C, R], ...]
    calls: tuple[float, ...]
    returns: tuple[float, ...]
    relaxed: tuple[bool, ...]
    after: tuple[tuple[int, ...], ...]
    after_lost: tuple[int, ...]
    lost: tuple[tuple[LostOperation[C, R], ...], ...]

    @classmethod
    def of(
        cls,
        operations: Iterable[Operation[C, R]],
        *,
        relaxed: Iterable[Operation[C, R]] = (),
        widen: float = 0,
    ) -> Agenda[C, R]:
        """Arrange *operations*, which must be explained, and *relaxed* ones, which may help."""
        every = [(operation, False) for operation in operations]
        every += [(operation, True) for operation in relaxed]
        every.sort(key=lambda item: item[0].called)
        bounded = [item for item in every if item[0].returned is not None]
        lost = [operation for operation, _ in every if operation.returned is None]
        order = _OrderByProcess(bounded, widen)
        return cls(
            bounded=tuple(operation for operation, _ in bounded),
            calls=tuple(operation.called - widen for operation, _ in bounded),
            returns=tuple(_end(operation) + widen for operation, _ in bounded),
            relaxed=tuple(is_relaxed for _, is_relaxed in bounded),
            after=tuple(order.before(operation) for operation, _ in bounded),
            after_lost=(0,) * len(bounded),
            lost=_alike(lost, order, widen),
        )


def _end(operation: Operation[C, R]) -> float:
    return inf if operation.returned is None else operation.returned


class _OrderByProcess(Generic[C, R]):
    """Which operations of one process surely came one after the other, although wide ones overlap.

    A relaxed operation may not have happened, so nothing has to wait for it.
    """

    def __init__(self, bounded: Sequence[tuple[Operation[C, R], bool]], widen: float) -> None:
        self._widen = widen
        self._ends: dict[Hashable, list[tuple[float, int]]] = {}
        if not widen:
            return
        for number, (operation, relaxed) in enumerate(bounded):
            if not relaxed:
                self._ends.setdefault(operation.process, []).append((_end(operation), number))
        for ends in self._ends.values():
            ends.sort()

    def before(self, operation: Operation[C, R]) -> tuple[int, ...]:
        """Give the operations of its process that are before this one by their own clock only."""
        ends = self._ends.get(operation.process, [])
        first = bisect_left(ends, (operation.called - 2 * self._widen, -1))
        last = bisect_left(ends, (operation.called, -1))
        return tuple(sorted(number for _, number in ends[first:last]))


def _alike(
    lost: Iterable[Operation[C, R]], order: _OrderByProcess[C, R], widen: float
) -> tuple[tuple[LostOperation[C, R], ...], ...]:
    groups: list[list[LostOperation[C, R]]] = []
    for number, operation in enumerate(lost):
        before = order.before(operation)
        entry = LostOperation(operation, operation.called - widen, 1 << number, before)
        for group in groups:
            if group[0].operation.command == operation.command:
                group.append(entry)
                break
        else:
            groups.append([entry])
    return tuple(map(tuple, groups))
