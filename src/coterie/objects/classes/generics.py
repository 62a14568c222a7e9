"""Type variables of a generic class, filled in by those who inherit from it.

    class Dictionary(Generic[V]):
        values: dict[str, V] = {}

    class Prices(Dictionary[int]): ...      # its values are integers, and nothing else

What nobody fills in is whatever the variable is bound to, and anything if it is bound to nothing.
"""

from __future__ import annotations

import typing
from typing import Any, Generic, Protocol, TypeVar

Bindings = dict[TypeVar, object]


def bindings(cls: type) -> dict[type, Bindings]:
    """Give, for each class that *cls* inherits from, what its type variables stand for."""
    found: dict[type, Bindings] = {}
    waiting: list[tuple[type, Bindings]] = [(cls, {})]
    while waiting:
        current, known = waiting.pop()
        found.setdefault(current, known)
        for base in vars(current).get("__orig_bases__", current.__bases__):
            origin = typing.get_origin(base) or base
            if origin in {Generic, Protocol} or not isinstance(origin, type):
                continue
            filled = [fill(argument, known) for argument in typing.get_args(base)]
            # Without arguments, as in `class Mine(Dictionary)`, the variables stay open.
            variables = getattr(origin, "__parameters__", ())[: len(filled)]
            waiting.append((origin, dict(zip(variables, filled, strict=False))))
    return found


def fill(type_: object, known: Bindings) -> object:
    """Give a type with its variables replaced."""
    if isinstance(type_, TypeVar):
        return known.get(type_, Any if type_.__bound__ is None else type_.__bound__)
    variables = getattr(type_, "__parameters__", ())
    if not variables or isinstance(type_, type):
        return type_
    return type_[tuple(fill(variable, known) for variable in variables)]  # type: ignore[index]
