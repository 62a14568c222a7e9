"""Errors that a class declares, so that its callers can catch them by their own class.

    class SeatTaken(Exception):
        def __init__(self, seat: str, holder: str) -> None:
            super().__init__(f"{seat} is taken by {holder}")
            self.seat = seat
            self.holder = holder

    class Flight:
        errors = (SeatTaken,)

What travels is a name and values, never code: the *fields* of an error are the arguments of its
`__init__`, typed by their annotations and read from attributes of the same names. An error without
an `__init__` of its own has what it was made with (`args`) for fields, as long as these are plain
values. The caller, who has the class, makes an equal error from them; where that cannot be done
(another version of the class, more fields than may be sent) it gets `MethodFailed` with the name
and the text, as for every error that is not declared.

Fields are an answer to the caller and no part of the state: replicas of a group whose classes
declare different errors stay equal. So they are not weighed with the results that a session keeps,
and what may be sent is small (`FIELDS_BYTES_MAX`).
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.objects.classes import encodable
from coterie.objects.classes.annotations import read_annotations
from coterie.objects.code import bytecode
from coterie.objects.errors import MethodFailed, NotReplicable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

FIELDS_BYTES_MAX = 512
"""How many bytes the fields of an error may have on the way."""

_NAME = "errors"
"""The attribute of a class that declares its errors."""
_PLAIN = {type(None), bool, int, float, str}
_ENDS_LOOPS = (StopIteration, StopAsyncIteration)

_read_fields = Decoder(tuple[str, msgspec.Raw]).decode


class _ErrorType:
    """One declared error: how its fields are read, and how it is made from them."""

    def __init__(
        self, cls: type[Exception], arguments: Sequence[tuple[str, object]] | None
    ) -> None:
        self.cls = cls
        self._names = None if arguments is None else [name for name, _ in arguments]
        types_: object = list[bool | int | float | str | None]
        if arguments is not None:
            types_ = tuple[tuple(type_ for _, type_ in arguments)]  # type: ignore[misc]
        self._decode: Callable[[msgspec.Raw], Iterable[Any]] = encodable.decoder(types_).decode  # type: ignore[arg-type]

    def values(self, error: BaseException) -> list[object] | None:
        """Give the fields of an error; None if it has not what it should have."""
        if self._names is None:
            args = list(error.args)
            return args if all(type(value) in _PLAIN for value in args) else None
        missing = object()
        values = [getattr(error, name, missing) for name in self._names]
        return None if any(value is missing for value in values) else values

    def make(self, fields: msgspec.Raw) -> Exception:
        """Make an error of these fields; raises whatever its class raises."""
        made = self.cls(*self._decode(fields))
        if type(made) is not self.cls:
            raise TypeError(f"{self.cls.__qualname__} gave {type(made).__qualname__}")
        return made


class DeclaredErrors:
    """The errors that a class declares."""

    def __init__(self, types_: Sequence[_ErrorType] = ()) -> None:
        self._by_class = {each.cls: each for each in types_}
        self._by_name = {each.cls.__name__: each for each in types_}

    def __iter__(self) -> Iterator[type[Exception]]:
        return iter(self._by_class)

    def fields_of(self, error: BaseException) -> bytes:
        """Give what the caller needs to make an equal error; nothing if it is not declared."""
        if not self._by_class:
            return b""
        for cls in type(error).__mro__:
            found = self._by_class.get(cls)
            if found is None:
                continue
            try:
                values = found.values(error)
                if values is None:
                    return b""
                encoded = msgspec.Raw(encodable.encode_orderly(values))
                data = encodable.encode((cls.__name__, encoded))
                found.make(encoded)
            except Exception:  # noqa: BLE001 -- of the user's own making, and told as text
                return b""
            return data if len(data) <= FIELDS_BYTES_MAX else b""
        return b""

    def as_raised(self, failed: MethodFailed) -> Exception:
        """Give a failure as its declared error, with the failure as its cause; or as it is."""
        if not failed.fields:
            return failed
        try:
            name, fields = _read_fields(failed.fields)
            error = self._by_name[name].make(fields)
        except Exception:  # noqa: BLE001 -- of another version of the class, or its own making
            return failed
        error.__cause__ = failed
        return error


NO_ERRORS = DeclaredErrors()


def declared_errors(cls: type, fields: Collection[str]) -> DeclaredErrors:
    """Read which errors a class, and those it inherits from, declares.

    A field or a method of that name is none of our business.
    """
    if _NAME in fields:
        return NO_ERRORS
    found: dict[type[Exception], _ErrorType] = {}
    for base in cls.__mro__:
        declared = vars(base).get(_NAME)
        if not isinstance(declared, tuple) or not any(map(_is_error, declared)):
            continue
        for error in declared:
            if error not in found:
                found[error] = _read(f"{cls.__qualname__}.{_NAME}", error)
    names = [error.__name__ for error in found]
    for name in names:
        if names.count(name) > 1:
            raise NotReplicable(
                f"{cls.__qualname__}.{_NAME} has two classes called {name}: callers tell errors"
                " apart by their names; rename one"
            )
    return DeclaredErrors(tuple(found.values()))


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _read(where: str, error: object) -> _ErrorType:
    if not isinstance(error, type) or not issubclass(error, Exception):
        raise NotReplicable(f"{where} holds {error!r}: declare classes derived from Exception")
    if issubclass(error, _ENDS_LOOPS):
        raise NotReplicable(f"{where}: {error.__qualname__} ends loops in Python: declare another")
    made_by = error.__init__
    if not isinstance(made_by, types.FunctionType):
        return _ErrorType(error, None)
    name = error.__qualname__
    hints = read_annotations(where, made_by, f"the annotations of {name}")
    arguments: list[tuple[str, object]] = []
    stored = {
        attribute
        for base in error.__mro__
        if isinstance(made := vars(base).get("__init__"), types.FunctionType)
        for attribute in bytecode.attributes_set(made)
    }
    for parameter in list(inspect.signature(made_by).parameters.values())[1:]:
        what = f"{where}: {parameter.name!r} of {name}.__init__"
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            raise NotReplicable(f"{what} is not an argument with a place: give it one")
        if parameter.name not in hints:
            raise NotReplicable(f"{what} has no annotation: say what it is")
        reason = encodable.why_not(hints[parameter.name])
        if reason is not None:
            raise NotReplicable(f"{what} is {encodable.describe(hints[parameter.name])}: {reason}")
        if parameter.name not in stored:
            raise NotReplicable(
                f"{what} is not kept: write self.{parameter.name} = {parameter.name}, so that the"
                " caller's error can be made of it"
            )
        arguments.append((parameter.name, hints[parameter.name]))
    return _ErrorType(error, arguments)
