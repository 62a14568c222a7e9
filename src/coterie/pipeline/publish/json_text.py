"""Values as JSON text, whatever they are: for columns whose values have no type in common."""

from __future__ import annotations

from collections import deque

import msgspec


def json_of(value: object) -> str:
    """Give a value as JSON; what JSON lacks as msgspec writes it, and mappings by key as pairs."""
    try:
        return msgspec.json.encode(value, order="deterministic").decode()
    except (TypeError, ValueError):
        return msgspec.json.encode(_plain(value), order="deterministic").decode()


def _plain(value: object) -> object:
    """Give a mapping whose keys cannot be those of JSON as pairs, wherever it is."""
    if isinstance(value, dict):
        inner = {key: _plain(each) for key, each in value.items()}
        is_named = all(isinstance(key, str) for key in inner)
        return inner if is_named else [[_plain(key), each] for key, each in inner.items()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [_plain(each) for each in value]
    return msgspec.to_builtins(value, enc_hook=str)
