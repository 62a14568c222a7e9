"""Calls to other groups from inside an `async` update, as parts of the same transaction."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from coterie.objects import define
from coterie.transactional.failures import read_failure
from coterie.vsr.calls.executor import Nested

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from coterie.objects import Definition
    from coterie.objects.classes.declared import DeclaredErrors
    from coterie.vsr.calls.executor import Completion


@cache
def _define(cls: type) -> Definition:
    return define(cls, may_wait=True)


class _Awaited:
    """One call on its way."""

    def __init__(
        self, nested: Nested, decode: Callable[[bytes], object], errors: DeclaredErrors
    ) -> None:
        self._nested = nested
        self._decode = decode
        self._errors = errors

    def __await__(self) -> Generator[Nested, Completion, object]:
        completion = yield self._nested
        if completion.is_failure:
            raise self._errors.as_raised(read_failure(completion.result))
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
            nested = Nested(self._group, name, arguments)
            return _Awaited(nested, method.decode_result, self._definition.errors)

        return call


def other(group: str, cls: type) -> Any:  # noqa: ANN401 -- it has the methods of the class
    """Give a group of objects of *cls*, whose methods are awaited."""
    if not isinstance(group, str):
        raise TypeError(f"a group has a name, which is a str: {group!r} is none")
    return _Other(group, _define(cls))
