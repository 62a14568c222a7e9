"""What all records have in common, and which kinds of record there are.

A kind is known by its number, which stands first in the record's bytes.
`docs/internals/journal-format.md` says what numbers mean to a reader that does not know them: below
64, negative ones among them, a kind is *essential*, and from 64 on it can be skipped.

Each module of this package has the kinds of one engine family, in the numbers that `RANGES` gives
it. A family that lives elsewhere adds its kinds with `register`, before it reads or writes any.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.decoding import Decoder, Int64
from coterie.kernel.views import Member

if TYPE_CHECKING:
    from collections.abc import Sequence

ANCILLARY_KIND_MIN = 64
"""Recovery may skip records of unknown kinds from this number on; lower ones it must understand."""

RANGES: dict[str, Sequence[int]] = {
    "group": range(1, 8),
    "history": range(8, 32),
    "vsr": range(32, 64),
    "audit": range(64, 72),
    "colours": range(-16, 0),
    "llft": range(-48, -16),
}
"""Which kinds the modules of this package have, or may get; below 64 they are essential.

The engines to come take theirs from the second range, -49 and below, in blocks of sixteen; down to
-32 the number is one byte. From -65 on down, and from 128 on up, numbers are never given out here:
they are for families outside of this package.
"""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something that a replica did, by its own clock."""

    # The subclasses are kw_only, these are not: so these are encoded first, and a field that a
    # later release adds is encoded last, where older readers pass over it.
    group: str
    member: Member
    at: Int64


KINDS: dict[int, type[Record]] = {}
"""Every kind of record that is known here, by its number."""


class _Decoders:
    """Decoders for the kinds known so far, made anew when one is added."""

    def __init__(self) -> None:
        self.one: Decoder[Record]
        self.many: Decoder[list[Record]]

    def make(self) -> None:
        any_kind: Any = reduce(or_, KINDS.values())
        self.one = Decoder(any_kind)
        self.many = Decoder(list[any_kind])


_encoder = msgspec.msgpack.Encoder()
_decoders = _Decoders()


def register(*kinds: type[Record]) -> None:
    """Make kinds of record known; raise `ValueError` if a number is another kind's already."""
    for kind in kinds:
        number = kind.__struct_config__.tag
        if not isinstance(number, int):
            raise ValueError(f"{kind.__name__} has no number: give it one as its tag")  # noqa: TRY004
        if KINDS.setdefault(number, kind) is not kind:
            raise ValueError(
                f"{kind.__name__} has the number {number}, which is {KINDS[number].__name__}'s"
            )
    _decoders.make()


def forget(*kinds: type[Record]) -> None:
    """Make kinds unknown again that were registered; a test that adds some does so at its end."""
    for kind in kinds:
        KINDS.pop(kind.__struct_config__.tag, None)  # type: ignore[arg-type]
    _decoders.make()


def schema() -> tuple[int, int]:
    """Give how many kinds are known, and how many fields all of them have together."""
    return len(KINDS), sum(len(kind.__struct_fields__) for kind in KINDS.values())


def is_essential(number: int) -> bool:
    """Say whether recovery must understand records of a kind to trust what it recovers."""
    return number < ANCILLARY_KIND_MIN


def encode_record(record: Record) -> bytes:
    """Give the record as MessagePack."""
    return _encoder.encode(record)


def decode_record(data: bytes | msgspec.Raw) -> Record:
    """Read one record back."""
    return _decoders.one.decode(data)


def decode_records(data: bytes | memoryview) -> list[Record]:
    """Read an array of records back."""
    return _decoders.many.decode(data)
