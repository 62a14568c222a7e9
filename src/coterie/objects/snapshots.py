"""How the state of a machine travels: records in a stream, the stream in chunks.

The stream is a sequence of records, each a MessagePack array with its tag first, preceded by its
length in four bytes (big endian): one `Head`, any number of `SessionPart` and `FieldPart`, one
`End`. Chunks cut the stream anywhere, so each is as large as the limit allows. The reader takes
chunks as they come and decodes every record as soon as it is whole; it never holds the whole
stream. `End` carries the number of records and a checksum over them, so a stream that was cut
short or mixed up is found out before the old state is given up.

Records of this format may get new fields, with defaults, at their ends. A reader refuses a higher
format number, and a class of another name.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from coterie.kernel.views import ReplicaId, ViewId
from coterie.objects.errors import BadSnapshot
from coterie.objects.outcomes import Done, Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT = 1
_LENGTH = struct.Struct("!I")


class Head(msgspec.Struct, tag=1, frozen=True, array_like=True):
    """Everything but the sessions and the object."""

    format: int
    class_name: str
    position: int
    view: ViewId
    number: int
    """Where the last entry was ordered."""
    seed: bytes
    """Of the group's chance; see `coterie.objects.current`."""
    results: int
    """Checksum over all results of updates so far."""
    next_digest: int
    weight: int
    """Of the state when it was last digested."""
    evicted: int
    time: int
    clocks: list[tuple[ReplicaId, int, int, int]]
    version: int = 1
    """Of the class: which one the object is of."""
    fingerprint: int = 0
    """Of that class; 0 is unknown."""
    announced: list[tuple[ReplicaId, tuple[tuple[int, int], ...]]] = []
    """Which versions the replicas know; see `coterie.objects.announcements`."""


class SessionPart(msgspec.Struct, tag=2, frozen=True, array_like=True):
    """A session, or more outcomes of the one before."""

    id: int
    used: int
    lowest: int
    outcomes: list[tuple[int, Done | Failed]]


class FieldPart(msgspec.Struct, tag=3, frozen=True, array_like=True):
    """A field of the object, or more of the one before; no name: the object's own snapshot."""

    name: str
    data: bytes


class End(msgspec.Struct, tag=4, frozen=True, array_like=True):
    """The last record."""

    records: int
    checksum: int


Part = Head | SessionPart | FieldPart | End

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Part).decode


def write(parts: Iterable[Head | SessionPart | FieldPart], chunk_bytes: int) -> Iterator[bytes]:
    """Give the chunks of a stream."""
    buffer = bytearray()
    records = checksum = 0
    for part in parts:
        data = _encode(part)
        records += 1
        checksum = crc32(data, checksum)
        buffer += _LENGTH.pack(len(data))
        buffer += data
        if len(buffer) >= chunk_bytes:
            yield from _cut(buffer, chunk_bytes)
    data = _encode(End(records, checksum))
    buffer += _LENGTH.pack(len(data))
    buffer += data
    yield from _cut(buffer, chunk_bytes)
    if buffer:
        yield bytes(buffer)


def _cut(buffer: bytearray, chunk_bytes: int) -> Iterator[bytes]:
    start = 0
    with memoryview(buffer) as view:
        while len(buffer) - start >= chunk_bytes:
            yield bytes(view[start : start + chunk_bytes])
            start += chunk_bytes
    del buffer[:start]


def read(chunks: Iterable[bytes]) -> Iterator[Head | SessionPart | FieldPart]:
    """Give the records of a stream as they become whole; raise `BadSnapshot` if it is none."""
    buffer = bytearray()
    records = checksum = 0
    rest = iter(chunks)
    for chunk in rest:
        buffer += chunk
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            data = bytes(buffer[start + _LENGTH.size : end])
            start = end
            try:
                part = _decode(data)
            except (msgspec.DecodeError, RecursionError) as error:
                raise BadSnapshot(f"record {records + 1} of a state is damaged: {error}") from None
            if isinstance(part, End):
                is_end = len(buffer) == end and next(rest, None) is None
                if (part.records, part.checksum) != (records, checksum) or not is_end:
                    raise BadSnapshot("the parts of a state do not belong together: fetch it again")
                return
            records += 1
            checksum = crc32(data, checksum)
            yield part
        del buffer[:start]
    raise BadSnapshot(f"a state ends after {records} records, before it is whole: fetch it again")
