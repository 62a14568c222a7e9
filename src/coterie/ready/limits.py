"""What ready-made objects have in common: types with bounds, weights, and the error at a limit.

A bound in an annotation is checked before a call is ordered; so what is only a matter of the
arguments never costs the group anything. What depends on the state raises `Full`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

_encode = msgspec.msgpack.encode

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
"""Of an owner, a candidate, a consumer, a lock."""

Key = Annotated[str, msgspec.Meta(max_length=1000)]

Seconds = Annotated[float, msgspec.Meta(gt=0, le=10 * 365 * 86_400)]
"""A length of group time; at most ten years."""

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
"""How many a query may list at once; the rest is asked for from where the last answer ended."""

NUMBER_MAX = (1 << 63) - 1
"""The largest number that travels."""


class Full(Exception):
    """The object holds as much as its limits allow; nothing has changed."""


def microseconds(duration: float) -> int:
    """Give seconds in the unit of group time."""
    return round(duration * 1_000_000)


def in_bytes(value: object) -> bytes:
    """Give a value as it travels."""
    return _encode(value, enc_hook=list)  # a deque travels as a list


def weigh(value: object) -> int:
    """Give how many bytes a value takes on its way, which is about what it takes at rest."""
    return len(in_bytes(value))
