"""Sets of entries as vectors: for every origin, the number of its last entry that is in the set.

A vector names a set exactly because an origin's entries are taken in the order of their numbers
and none is left out: the set holds all entries of the origin up to that number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.engine import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.kernel.views import Member

Vector = dict["Member", int]


def covers(larger: Vector, smaller: Vector) -> bool:
    """Say whether everything in *smaller* is in *larger*."""
    return all(larger.get(origin, 0) >= number for origin, number in smaller.items())


def add(vector: Vector, more: Iterable[tuple[Member, int]]) -> None:
    """Put everything in *more* into *vector*."""
    for origin, number in more:
        if number > vector.get(origin, 0):
            vector[origin] = number


def last_number(run: Run) -> int:
    """Give the number of the last entry of a run."""
    return run.first + len(run.payloads) - 1


def beyond(run: Run, vector: Vector) -> Run | None:
    """Give the part of a run that is not in *vector*; None if all of it is."""
    skip = vector.get(run.origin, 0) - run.first + 1
    if skip <= 0:
        return run
    return None if skip >= len(run.payloads) else run.after(run.position + skip - 1)


def split(runs: Sequence[Run], vector: Vector) -> list[Run]:
    """Put what is in *vector* before what is not, without another change of order."""
    inside: list[Run] = []
    outside: list[Run] = []
    for run in runs:
        rest = beyond(run, vector)
        if rest is None:
            inside.append(run)
        else:
            outside.append(rest)
            if rest is not run:
                inside.append(run.up_to(rest.position - 1))
    return inside + outside
