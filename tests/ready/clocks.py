"""A clock for plain objects whose parts expire."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from coterie.objects import define, standing_in

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
T = TypeVar("T")

START = 1_700_000_000_000_000
SECOND = 1_000_000


def make(cls: type[T]) -> T:
    """Make an object as a replica would."""
    made = define(cls).make()
    assert isinstance(made, cls)
    return made


def at(seconds: float, call: Callable[[], R]) -> R:
    """Call when so much group time has passed."""
    with standing_in(time=START + round(seconds * SECOND)):
        return call()
