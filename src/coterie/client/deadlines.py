"""What a caller may give as a deadline: a number of seconds above 0, and nothing else."""

from __future__ import annotations

import math

from coterie.client.errors import NotDone


def check_deadline(deadline: object) -> float:
    """Give the seconds that a caller allows; raise with a sentence where they are none.

    `TypeError` and `ValueError` are mistakes in the program. A deadline that has passed already is
    none: who works out what is left of a longer one gets there, and nothing was done.
    """
    if isinstance(deadline, bool) or not isinstance(deadline, int | float):
        raise TypeError(f"deadline={deadline!r} is no number of seconds: give one such as 2.5")
    if not math.isfinite(deadline):
        raise ValueError(f"deadline={deadline} never comes: give a number of seconds")
    if deadline <= 0:
        raise NotDone(f"the deadline has passed already: {deadline:g} s are left for the call")
    return deadline
