"""Numbers in journals fit the columns that are made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from coterie.journal.format import (
    BLOCK_HEAD_BYTES,
    SegmentHead,
    Skipped,
    decode_block_head,
    decode_body,
    seal_block,
)
from coterie.kernel.engine import Run
from coterie.kernel.records import KINDS, EntriesAccepted
from coterie.kernel.views import Member, ViewId

if TYPE_CHECKING:
    from collections.abc import Iterator

INT64_MAX = (1 << 63) - 1


def wide_numbers(kind: msgspec.inspect.Type, place: str, seen: set[type]) -> Iterator[str]:
    """Give the places of a type where a number may have more than 63 bits."""
    if isinstance(kind, msgspec.inspect.IntType) and kind.le is None:
        yield place
    if isinstance(kind, msgspec.inspect.StructType):
        if kind.cls in seen:
            return
        seen.add(kind.cls)
        for each in kind.fields:
            yield from wide_numbers(each.type, f"{kind.cls.__name__}.{each.name}", seen)
    for name in ("item_type", "key_type", "value_type"):
        inner = getattr(kind, name, None)
        if inner is not None:
            yield from wide_numbers(inner, place, seen)
    for name in ("item_types", "types"):
        for inner in getattr(kind, name, None) or ():
            yield from wide_numbers(inner, place, seen)


@pytest.mark.parametrize("kind", [*KINDS.values(), SegmentHead], ids=lambda kind: kind.__name__)
def test_no_number_in_a_journal_is_wider_than_a_column(kind: type) -> None:
    """The pipeline ended in a bare OverflowError for a journal with one such number."""
    assert not list(wide_numbers(msgspec.inspect.type_info(kind), kind.__name__, set()))


def test_a_record_with_too_wide_a_number_is_unreadable() -> None:
    view = ViewId(1, "a", 1)
    member = Member("a", 1)

    def block(number: int) -> bytes:
        run = Run(view, number, 1, member, 1, [b"x"])
        return msgspec.msgpack.encode([EntriesAccepted("g", member, 1, run=run)])

    assert decode_body(block(INT64_MAX), is_newer=False, skipped=Skipped())
    with pytest.raises(msgspec.DecodeError, match="Expected `int`"):
        decode_body(block(INT64_MAX + 1), is_newer=False, skipped=Skipped())


def test_the_head_of_a_block_counts_no_further_than_a_column() -> None:
    for first, is_head in ((1, True), (INT64_MAX, False), (2**64 - 1, False)):
        buffer = bytearray(BLOCK_HEAD_BYTES)
        seal_block(buffer, seed=1, count=3, first=first, synced=0)
        assert (decode_block_head(bytes(buffer), 0, 1) is not None) is is_head
