"""Methods that callers may use: their marks, their types, their arguments on the way.

Arguments travel as one MessagePack array in the order of the signature, keyword-only ones last,
with defaults filled in by the caller, so what is ordered says everything. Before a call is
proposed its arguments are encoded and read back by the annotations, exactly as every replica will
do it: what passes once passes everywhere.
"""

from __future__ import annotations

import enum
import inspect
import typing
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import msgspec

from coterie.kernel.decoding import DECODE_ERRORS, Decoder
from coterie.objects.classes import encodable
from coterie.objects.classes.alteration import alteration, can_alter
from coterie.objects.code import bytecode
from coterie.objects.errors import BadArguments, BadResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coterie.objects.classes.faces import QueryMark, UpdateMark

P = ParamSpec("P")
R = TypeVar("R")

MARK = "__coterie_kind__"
"""The attribute by which a marked method is known."""

NO_DEFAULT = inspect.Parameter.empty

_PLAIN = (int, str, bytes, bool, type(None))
"""Types of results that need no further check."""
_BRIEF = (int, bool, type(None))
"""Those of them that never take more than a few bytes."""


class _Nothing:
    """A type that no answer has."""


class MethodKind(enum.Enum):
    """What a method may do."""

    UPDATE = "update"
    QUERY = "query"


def update(function: Callable[Concatenate[Any, P], R]) -> UpdateMark[P, R]:
    """Mark a method that may change the object: it runs on every replica, in the one order.

    It stays a plain function; the type says how callers see it (`coterie.objects.classes.faces`).
    """
    setattr(function, MARK, MethodKind.UPDATE)
    return typing.cast("UpdateMark[P, R]", function)


def query(function: Callable[Concatenate[Any, P], R]) -> QueryMark[P, R]:
    """Mark a method that changes nothing: it runs on one replica, at the level asked for.

    It stays a plain function; the type says how callers see it (`coterie.objects.classes.faces`).
    """
    setattr(function, MARK, MethodKind.QUERY)
    return typing.cast("QueryMark[P, R]", function)


class Argument(msgspec.Struct, frozen=True):
    """One argument of a method."""

    name: str
    type: Any
    default: Any = NO_DEFAULT
    keyword_only: bool = False

    @property
    def is_optional(self) -> bool:
        """Whether the argument has a default."""
        return self.default is not NO_DEFAULT


class Method:
    """A method callers may use, with its types."""

    __slots__ = (
        "_altering",
        "_alters_result",
        "_can_nest",
        "_decoders",
        "_owner",
        "_result_decoder",
        "arguments",
        "assigned",
        "checked",
        "checked_number",
        "clean_offsets",
        "code",
        "count",
        "decode",
        "decode_many",
        "decode_quickly",
        "encode_result",
        "function",
        "is_brief",
        "kind",
        "name",
        "plain_result",
        "result",
        "touched",
    )

    def __init__(
        self,
        owner: str,
        kind: MethodKind,
        function: Callable[..., object],
        arguments: Sequence[Argument],
        result: object,
    ) -> None:
        self._owner = owner
        self.name = function.__name__
        self.kind = kind
        self.arguments = tuple(arguments)
        self.result = result
        self.count = len(self.arguments)
        self.code = bytecode.code_of(function)
        self.clean_offsets: frozenset[int] = frozenset()
        """Where in its code it can raise without having changed anything; see `bytecode`."""
        self.assigned: Mapping[str, frozenset[type]] | None = None
        """The fields it can assign, if they are known; see `coterie.objects.code.assignments`."""
        self.checked: tuple[tuple[str, type], ...] | None = None
        """Those of them to be looked at when it has run, each with a type that it nearly always
        has; None is all fields."""
        self.checked_number = ""
        """The one to be looked at, if that is one that holds any number of up to 64 bits."""
        self.touched: str | None = None
        """What is kept of the object while it runs: the one field that it can assign; nothing, if
        that is empty; None is everything."""
        self.function = _by_position(function, self.arguments)
        """Takes the object and all arguments by position."""
        types_ = tuple(argument.type for argument in self.arguments)
        self._can_nest = any(map(encodable.can_nest, types_))
        self._altering = [index for index, each in enumerate(types_) if can_alter(each)]
        self._decoders = [encodable.decoder(each) for each in types_]
        self.encode_result = (
            encodable.encode_orderly if encodable.has_sets(result) else encodable.encode
        )
        """Gives a result the same bytes on every replica."""
        self.plain_result = result if result in _PLAIN else _Nothing
        """The type of its answers, if that says everything; others are to be checked."""
        self.is_brief = result in _BRIEF
        """Whether what it answers is always short."""
        self._alters_result = can_alter(result)
        self._result_decoder = encodable.decoder(typing.cast("type[object]", result))
        whole = tuple[types_] if types_ else tuple[()]  # type: ignore[valid-type]
        all_arguments: Decoder[tuple[Any, ...]] = encodable.decoder(whole)
        self.decode: Callable[[bytes | msgspec.Raw], tuple[Any, ...]] = all_arguments.decode
        """Reads all arguments; raises `msgspec.ValidationError`."""
        self.decode_quickly: Callable[[bytes | msgspec.Raw], tuple[Any, ...]] = (
            all_arguments.decode_quickly
        )
        """Reads all arguments; raises one of `DECODE_ERRORS`."""
        self.decode_many: Callable[[bytes | msgspec.Raw], list[tuple[Any, ...]]] = (
            encodable.decoder(list[whole]).decode  # type: ignore[valid-type]
        )
        """Reads an array of all arguments of several calls; raises the same."""

    def __str__(self) -> str:
        return f"{self._owner}.{self.name}"

    def encode(self, args: Sequence[object], kwargs: Mapping[str, object]) -> bytes:
        """Check arguments against the annotations and give them as they travel."""
        values = self._bind(args, kwargs)
        try:
            data = encodable.encode(values)
            read = self.decode(data)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._explain(values, error) from None
        if self._can_nest:
            self._check_nesting(read)
        for index in self._altering:
            altered = alteration(self.arguments[index].type, values[index], read[index])
            if altered is not None:
                raise self._at_fault(index, altered)
        return data

    def check(self, data: bytes | msgspec.Raw) -> None:
        """Check arguments that came encoded from a client."""
        try:
            read = self.decode_quickly(data)
        except DECODE_ERRORS:
            read = self.read(data)  # which says what is wrong, or fills defaults in
        if self._can_nest:
            self._check_nesting(read)

    def check_many(self, data: bytes | msgspec.Raw) -> int:
        """Check the arguments of several calls, and give how many calls there are."""
        try:
            read = self.decode_many(data)
        except msgspec.DecodeError as error:
            try:
                parts = decode_parts(data)
            except msgspec.DecodeError:
                raise BadArguments(f"{self}: the calls are no array: {error}") from None
            # One of them says what is wrong, unless they only leave defaults out.
            read = [self.read(part) for part in parts]
        if self._can_nest:
            for values in read:
                self._check_nesting(values)
        return len(read)

    def _check_nesting(self, values: Sequence[object]) -> None:
        for index, value in enumerate(values):
            if encodable.depth(value) > encodable.NESTING_MAX:
                raise self._at_fault(index, f"nested deeper than {encodable.NESTING_MAX}")

    def read(self, data: bytes | msgspec.Raw) -> tuple[Any, ...]:
        """Read arguments; a caller that does not know of the last ones gets their defaults."""
        try:
            return self.decode(data)
        except msgspec.DecodeError as error:
            try:
                parts = decode_parts(data)
            except msgspec.DecodeError:
                raise BadArguments(f"{self}: the arguments are no array: {error}") from None
            missing = self.arguments[len(parts) :]
            if not missing or not all(argument.is_optional for argument in missing):
                raise self._explain_parts(parts, error) from None
            values = [self._read_one(index, bytes(part)) for index, part in enumerate(parts)]
            return (*values, *(fresh_copy(argument.default, argument.type) for argument in missing))

    def check_result(self, data: bytes) -> None:
        """Raise `BadResult` if an encoded answer is not what the method says it answers."""
        try:
            self._result_decoder.decode(data)
        except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
            wanted = encodable.describe(self.result)
            raise BadResult(f"{self} must answer {wanted}, and does not: {error}") from None

    def check_answer(self, answer: object, data: bytes) -> None:
        """As `check_result`, and also if it would arrive as something else than was answered.

        For what one replica executes alone. What an update of an ordered group answers is part of
        the history: replicas of an earlier release, and the pipeline, would come to another.
        """
        self.check_result(data)
        if self._alters_result:
            altered = alteration(self.result, answer, self._result_decoder.decode(data))
            if altered is not None:
                raise BadResult(f"{self}: its answer {altered}")

    def decode_result(self, data: bytes) -> object:
        """Read what the method answered; raise `msgspec.ValidationError` if it broke its word."""
        return self._result_decoder.decode(data)

    def _bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> list[object]:
        count = self.count
        if not kwargs and len(args) == count and not (count and self.arguments[-1].keyword_only):
            return list(args)
        given = dict(kwargs)
        values: list[object] = []
        positional = sum(not argument.keyword_only for argument in self.arguments)
        if len(args) > positional:
            raise BadArguments(
                f"{self}: takes {positional} arguments by position, not {len(args)}:"
                f" {self._usage()}"
            )
        for index, argument in enumerate(self.arguments):
            if index < len(args):
                if argument.name in given:
                    raise BadArguments(f"{self}: argument {argument.name!r} is given twice")
                values.append(args[index])
            elif argument.name in given:
                values.append(given.pop(argument.name))
            elif argument.is_optional:
                values.append(argument.default)
            else:
                raise BadArguments(
                    f"{self}: argument {argument.name!r} ({encodable.describe(argument.type)})"
                    f" is missing: {self._usage()}"
                )
        if given:
            raise BadArguments(f"{self}: has no argument {min(given)!r}: {self._usage()}")
        return values

    def _usage(self) -> str:
        parts = [
            f"{argument.name}: {encodable.describe(argument.type)}"
            + (f" = {argument.default!r}" if argument.is_optional else "")
            for argument in self.arguments
        ]
        return f"{self.name}({', '.join(parts)})"

    def _explain(self, values: Sequence[object], error: Exception) -> BadArguments:
        """Find the argument at fault."""
        for index, value in enumerate(values):
            try:
                data = encodable.encode(value)
            except (TypeError, ValueError, OverflowError, RecursionError) as cause:
                return self._at_fault(index, f"{clip(value)} cannot be encoded: {cause}")
            try:
                self._decoders[index].decode(data)
            except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as cause:
                return self._at_fault(index, f"got {clip(value)} ({cause})")
        return BadArguments(f"{self}: {error}")

    def _explain_parts(self, parts: Sequence[msgspec.Raw], error: Exception) -> BadArguments:
        if len(parts) > self.count:
            return BadArguments(
                f"{self}: takes {self.count} arguments, not {len(parts)}: {self._usage()}"
            )
        for index, part in enumerate(parts):
            try:
                self._read_one(index, bytes(part))
            except BadArguments as found:
                return found
        missing = self.arguments[len(parts)] if len(parts) < self.count else None
        if missing is not None:
            return BadArguments(
                f"{self}: argument {missing.name!r} ({encodable.describe(missing.type)})"
                f" is missing: {self._usage()}"
            )
        return BadArguments(f"{self}: {error}")

    def _read_one(self, index: int, data: bytes) -> object:
        try:
            return self._decoders[index].decode(data)
        except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as cause:
            raise self._at_fault(index, str(cause)) from None

    def _at_fault(self, index: int, what: str) -> BadArguments:
        argument = self.arguments[index]
        return BadArguments(
            f"{self}: argument {argument.name!r} must be"
            f" {encodable.describe(argument.type)}: {what}"
        )


decode_parts = Decoder(list[msgspec.Raw]).decode
"""Takes an array apart."""


def _by_position(
    function: Callable[..., object], arguments: Sequence[Argument]
) -> Callable[..., object]:
    names = [argument.name for argument in arguments if argument.keyword_only]
    if not names:
        return function
    positional = len(arguments) - len(names)

    def call(replicated: object, *values: object) -> object:
        by_name = dict(zip(names, values[positional:], strict=True))
        return function(replicated, *values[:positional], **by_name)

    return call


def fresh_copy(value: object, type_: object) -> object:
    """Give a value that equals *value* as its type reads it, and shares nothing with it."""
    return encodable.decoder(typing.cast("type[object]", type_)).decode(encodable.encode(value))


def clip(value: object, chars_max: int = 60) -> str:
    """Give a value for an error message."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 -- a value of a user's class, in an error message
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= chars_max else f"{text[:chars_max]}…"


def _no_update(replicated: object) -> None:
    """Do nothing."""


NO_UPDATE = Method("", MethodKind.UPDATE, _no_update, (), type(None))
"""Stands for an update that a class does not have."""
NO_UPDATE.touched = ""
