"""Reading what comes from outside: the one place that decodes.

Bytes from a network, a disk or an operator may be anything. Besides `msgspec.DecodeError`, which
its reference names, msgspec raises `UnicodeDecodeError` for text that is none and `RecursionError`
for what is nested too deeply; whoever expects only the first dies of one frame of the others. So
everything from outside is read with a `Decoder` of this module, which raises `msgspec.DecodeError`
and nothing else; `tests/test_decoding.py` finds whoever decodes in another way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, overload

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A number as columns of tables have them: one more bit, and whoever makes a table fails."""

COUNT_MAX = 1 << 62
Count = Annotated[int, msgspec.Meta(ge=-COUNT_MAX, le=COUNT_MAX)]
"""A number from which others count on. Nobody believes or makes a higher one, so that the next can
always be written down and read again."""

Encoded = bytes | bytearray | memoryview | msgspec.Raw


DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises for bytes that are not what they should be."""


class Decoder(Generic[T]):
    """Reads values of one type from MessagePack; raises `msgspec.DecodeError` where it cannot."""

    __slots__ = ("decode", "decode_quickly")

    decode: Callable[[Encoded], T]
    """Read one value."""
    decode_quickly: Callable[[Encoded], T]
    """The same for the loop that executes calls, which counts every tenth of a microsecond: it may
    raise any of `DECODE_ERRORS`, and who uses it expects all of them."""

    @overload
    def __init__(self: Decoder[Any]) -> None: ...

    @overload
    def __init__(
        self, type_: type[T], *, dec_hook: Callable[[type, Any], Any] | None = None
    ) -> None: ...

    # A union is no type in the eyes of a type checker: the variable it is kept in says what it is.
    @overload
    def __init__(
        self, type_: object, *, dec_hook: Callable[[type, Any], Any] | None = None
    ) -> None: ...

    def __init__(
        self, type_: Any = Any, *, dec_hook: Callable[[type, Any], Any] | None = None
    ) -> None:
        self.decode_quickly = msgspec.msgpack.Decoder(type_, dec_hook=dec_hook).decode
        self.decode = _only_decode_errors(self.decode_quickly)


class JsonDecoder(Generic[T]):
    """Reads values of one type from JSON; raises `msgspec.DecodeError` where it cannot."""

    __slots__ = ("decode",)

    decode: Callable[[str | bytes], T]
    """Read one value."""

    @overload
    def __init__(self, type_: type[T]) -> None: ...

    @overload
    def __init__(self, type_: object) -> None: ...

    def __init__(self, type_: Any) -> None:
        self.decode = _only_decode_errors(msgspec.json.Decoder(type_).decode)


A = TypeVar("A")


def _only_decode_errors(read: Callable[[A], T]) -> Callable[[A], T]:
    def decode(data: A) -> T:
        try:
            return read(data)
        except (UnicodeDecodeError, RecursionError) as error:
            raise msgspec.DecodeError(str(error)) from None

    return decode


decode_any: Callable[[Encoded], Any] = Decoder().decode
"""Read one value of any type."""
decode_text: Callable[[Encoded], str] = Decoder(str).decode
"""Read a piece of text."""
decode_json: Callable[[str | bytes], Any] = JsonDecoder(Any).decode
"""Read JSON, whatever it holds."""
