"""Agendas: what ends when, for objects whose parts expire.

An agenda is a heap of (when, what), so that a tick looks at what has ended and at nothing else. An
entry is not taken out when its owner goes, or is given more time; it is found void when its time
has come. Void entries are swept out when they outnumber the others.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

W = TypeVar("W", str, int)

ENDING_PER_TICK = 10_000
"""How much may end in one tick, so that none takes long; what has ended is not shown to anybody
while it waits for the next."""
_SMALL = 64


def enter(agenda: list[tuple[int, W]], when: int, what: W) -> None:
    """Note that *what* ends at *when*."""
    heappush(agenda, (when, what))


def ended(
    agenda: list[tuple[int, W]], now: int, most: int = ENDING_PER_TICK
) -> Iterator[tuple[int, W]]:
    """Take out and give what has ended, in order of time."""
    for _ in range(most):
        if not agenda or agenda[0][0] > now:
            return
        yield heappop(agenda)


def sweep(agenda: list[tuple[int, W]], living: int, is_valid: Callable[[int, W], bool]) -> None:
    """Forget void entries if there are many; *living* is how many there may be of the others."""
    if len(agenda) > 2 * living + _SMALL:
        agenda[:] = [(when, what) for when, what in agenda if is_valid(when, what)]
        heapify(agenda)
