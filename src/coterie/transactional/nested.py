"""Calls to other groups from inside an `async` update, as parts of the same transaction."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.errors import CoterieError
from coterie.objects import define
from coterie.vsr.executor import Nested

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from coterie.objects import Definition
    from coterie.vsr.executor import Completion


class NestedFailed(CoterieError):
    """A method of another group raised; its error is the message."""


@cache
def _define(cls: type) -> Definition:
    return define(cls, may_wait=True)


class _Awaited:
    """One call on its way."""

    def __init__(self, nested: Nested, decode: Callable[[bytes], object]) -> None:
        self._nested = nested
        self._decode = decode

    def __await__(self) -> Generator[Nested, Completion, object]:
        completion = yield self._nested
        if completion.is_failure:
            raise NestedFailed(msgspec.msgpack.decode(completion.result, type=str))
        return self._decode(completion.result)


class _Other:
    """A group of objects of a class, as an `async` update sees it."""

    def __init__(self, group: str, definition: Definition) -> None:
        self._group = group
        self._definition = definition

    def __getattr__(self, name: str) -> Callable[..., _Awaited]:
        method = self._definition.method(name)

        def call(*args: object, **kwargs: object) -> _Awaited:
            arguments = method.encode(args, kwargs)
            return _Awaited(Nested(self._group, name, arguments), method.decode_result)

        return call


def other(group: str, cls: type) -> Any:  # noqa: ANN401 -- it has the methods of the class
    """Give a group of objects of *cls*, whose methods are awaited."""
    return _Other(group, _define(cls))
