"""The agenda: the operations of one key, as the search reads them.

Bounded operations (those with a return) stand in the order of their calls, as parallel columns.
Lost operations with equal commands are grouped, because they can stand in for each other.

*Uncertain clocks.* If each clock is within a bound of true time, an operation's true interval lies
within its recorded one widened by the bound on both sides, and the search uses the wide ones. Two
operations of one process were timed by one clock, so wide intervals must not make them concurrent:
`after` names, for each operation, those of its process that returned before it was called and that
the wide intervals alone would not put first. (This order by process is one that partition by key
can weaken: each key is then judged alone. A rejection is right in any case.)
"""

from __future__ import annotations

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
    """A lost operation, its time of call, and the bit that stands for it in a set."""

    operation: Operation[C, R]
    called: float
    bit: int


@dataclass(frozen=True, slots=True)
class Agenda(Generic[C, R]):
    """What has to be placed, and what may be."""

    bounded: tuple[Operation[C, R], ...]
    calls: tuple[float, ...]
    returns: tuple[float, ...]
    relaxed: tuple[bool, ...]
    after: tuple[tuple[int, ...], ...]
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
        return cls(
            bounded=tuple(operation for operation, _ in bounded),
            calls=tuple(operation.called - widen for operation, _ in bounded),
            returns=tuple(_end(operation) + widen for operation, _ in bounded),
            relaxed=tuple(is_relaxed for _, is_relaxed in bounded),
            after=_order_by_process(bounded, widen),
            lost=_alike(lost, widen),
        )


def _end(operation: Operation[C, R]) -> float:
    return inf if operation.returned is None else operation.returned


def _order_by_process(
    bounded: Sequence[tuple[Operation[C, R], bool]], widen: float
) -> tuple[tuple[int, ...], ...]:
    """For each operation the earlier ones of its process that are concurrent with it when wide."""
    earlier_of: dict[Hashable, list[int]] = {}
    after = []
    for number, (operation, relaxed) in enumerate(bounded):
        earlier = earlier_of.setdefault(operation.process, [])
        after.append(
            tuple(
                other
                for other in earlier
                if operation.called - 2 * widen <= _end(bounded[other][0]) < operation.called
            )
        )
        # A relaxed operation may not have happened, so nothing has to wait for it.
        if widen and not relaxed:
            earlier.append(number)
    return tuple(after)


def _alike(
    lost: Iterable[Operation[C, R]], widen: float
) -> tuple[tuple[LostOperation[C, R], ...], ...]:
    groups: list[list[LostOperation[C, R]]] = []
    for number, operation in enumerate(lost):
        entry = LostOperation(operation, operation.called - widen, 1 << number)
        for group in groups:
            if group[0].operation.command == operation.command:
                group.append(entry)
                break
        else:
            groups.append([entry])
    return tuple(map(tuple, groups))
