"""What would arrive as something else than was given, where an annotation leaves that open.

Most annotations say what a value is read back as, and a caller who gives something else that fits
(a list for a tuple) gets what the method asked for. Two do not. What is annotated `Any` is read
back as whatever the bytes look like: a tuple as a list, a date or a `Decimal` as text. And a float
is read as a `Decimal` where that is asked for, digits and all, though whoever asks for decimals
wants no float to have come into it. Both are refused to the caller, before anything is sent.
"""

from __future__ import annotations

from collections import deque
from decimal import Decimal
from itertools import repeat
from typing import TYPE_CHECKING

from msgspec import inspect

from coterie.objects.classes.encodable import all_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SEQUENCES = (list, tuple, deque)
_NO_TYPE = inspect.NoneType()


def can_alter(type_: object) -> bool:
    """Say whether values for a (good) type can be read back as something else than they were."""
    return any(isinstance(info, inspect.AnyType | inspect.DecimalType) for info in all_parts(type_))


def alteration(type_: object, given: object, read: object) -> str | None:
    """Say what of a value would arrive as something else; nothing if nothing would.

    *read* is what the value given is read back as.
    """
    return _typed(inspect.type_info(type_), given, read)


def _typed(info: inspect.Type, given: object, read: object) -> str | None:
    if isinstance(info, inspect.AnyType):
        return _untyped(given, read)
    if isinstance(info, inspect.DecimalType):
        if isinstance(given, float) and isinstance(read, Decimal):
            return f"{given!r} is a float, which is not exact: give Decimal({str(given)!r})"
        return None
    return _first(_typed(*each) for each in _inside(info, given, read))


def _inside(
    info: inspect.Type, given: object, read: object
) -> Iterator[tuple[inspect.Type, object, object]]:
    """Give the parts of a value, each with its type and what it is read back as."""
    if isinstance(info, inspect.UnionType):
        for each in info.types:
            yield each, given, read
    elif isinstance(given, dict) and isinstance(read, dict):
        if isinstance(info, inspect.DictType):
            for key, other in zip(given, read, strict=True):
                yield info.key_type, key, other
                yield info.value_type, given[key], read[other]
    elif isinstance(given, _SEQUENCES) and isinstance(read, _SEQUENCES):
        items = getattr(info, "item_types", None) or repeat(getattr(info, "item_type", _NO_TYPE))
        yield from zip(items, given, read, strict=False)
    elif type(given) is type(read):
        for field in getattr(info, "fields", ()):
            yield field.type, getattr(given, field.name, None), getattr(read, field.name, None)


def _untyped(given: object, read: object) -> str | None:
    if type(given) is not type(read):
        was, becomes = type(given).__qualname__, type(read).__qualname__
        return (
            f"{given!r:.100} is a {was} and would arrive as a {becomes}, since nothing says what it"
            " is: annotate it"
        )
    if isinstance(given, dict) and isinstance(read, dict):
        keys = zip(given, read, strict=True)
        values = zip(given.values(), read.values(), strict=True)
        return _first(_untyped(*each) for pairs in (keys, values) for each in pairs)
    if isinstance(given, list) and isinstance(read, list):
        return _first(_untyped(*each) for each in zip(given, read, strict=True))
    return None


def _first(found: Iterable[str | None]) -> str | None:
    return next((each for each in found if each is not None), None)
