"""A clock for plain objects whose parts expire."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from coterie.objects import define, standing_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from coterie.objects import Definition

R = TypeVar("R")
T = TypeVar("T")

START = 1_700_000_000_000_000
SECOND = 1_000_000


_definitions: dict[type, Definition] = {}


def make(cls: type[T]) -> T:
    """Make an object as a replica would."""
    if cls not in _definitions:
        _definitions[cls] = define(cls)
    made = _definitions[cls].make()
    assert isinstance(made, cls)
    return made


def after(seconds: float) -> AbstractContextManager[None]:
    """Let so much group time have passed."""
    return standing_in(time=START + round(seconds * SECOND))


def at(seconds: float, call: Callable[[], R]) -> R:
    """Call when so much group time has passed."""
    with after(seconds):
        return call()
