"""What entries ask for: read at once where all are calls, one by one where some are not."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec import Raw
from msgspec.msgpack import encode

from coterie.objects.execution.commands import Call, Calls, Read, encode_command
from coterie.pipeline.history.requests import NO_SESSION, requests_of

CALLS = [
    encode_command(Call(7, number, "add", Raw(encode([number])), 1000 + number, 1, 0))
    for number in range(5)
]
PACKED = encode_command(Calls(8, 20, "add", Raw(encode([[1], [2], [3]])), 50, 1, 0))


def rows(payloads: pa.ChunkedArray) -> list[tuple[int, ...]]:
    found = requests_of(payloads)
    assert found.are_commands
    columns = (found.session, found.first, found.last, found.asked_at)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_calls_in_pieces_of_arrays() -> None:
    whole = pa.array(CALLS, pa.binary())
    expected = [(7, number, number, 1000 + number) for number in range(5)]
    assert rows(pa.chunked_array([whole])) == expected
    assert rows(pa.chunked_array([whole[:2], whole[2:2], whole[3:]])) == [
        *expected[:2],
        *expected[3:],
    ]


@pytest.mark.parametrize("other", [b"", b"\xc1", b"no command", encode(5), CALLS[0][:-1]])
def test_what_is_no_command_does_not_spoil_the_others(other: bytes) -> None:
    found = rows(pa.chunked_array([pa.array([CALLS[1], other, CALLS[2]], pa.binary())]))
    assert found == [(7, 1, 1, 1001), (NO_SESSION, 0, 0, 0), (7, 2, 2, 1002)]


def test_packed_calls_and_reads() -> None:
    read = encode_command(Read(9, "get", Raw(encode([])), 3, 0))
    found = rows(pa.chunked_array([pa.array([CALLS[0], PACKED, read], pa.binary())]))
    assert found == [(7, 0, 0, 1000), (8, 20, 22, 50), (0, 9, 9, 3)]


def test_entries_of_no_object_group() -> None:
    found = requests_of(pa.chunked_array([pa.array([b"a/1", b"b/2"], pa.binary())]))
    assert not found.are_commands
    assert found.session.tolist() == [NO_SESSION, NO_SESSION]
    assert not requests_of(pa.chunked_array([], pa.binary())).are_commands
