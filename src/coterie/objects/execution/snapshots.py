"""How the state of a machine travels: records in a stream, the stream in chunks.

The stream is a sequence of records, each a MessagePack array with its tag first, preceded by its
length in four bytes (big endian): one `Head`, any number of `SessionPart`, `RecordsPart` and
`FieldPart`, one `EndPart`. Chunks cut the stream anywhere, so each is as large as the limit allows.
The reader takes chunks as they come and decodes every record as soon as it is whole; it never holds
the whole stream. `EndPart` carries the number of records and a checksum over them, so a stream that
was cut short or mixed up is found out before the old state is given up.

Records of this format may get new fields, with defaults, at their ends. A reader refuses a higher
format number, and a class of another name.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Annotated
from zlib import crc32

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.requests import ClientId, RequestNumber
from coterie.kernel.views import ReplicaId, ViewId
from coterie.objects.errors import BadSnapshot
from coterie.objects.execution.outcomes import Done, Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT = 1
_LENGTH = struct.Struct("!I")
_FAR = 1 << 62
"""What a state counts is nowhere near this; beyond it sums could not be encoded any more."""
Count = Annotated[int, msgspec.Meta(ge=0, le=_FAR)]
Moment = Annotated[int, msgspec.Meta(ge=-_FAR, le=_FAR)]


class Head(msgspec.Struct, tag=1, frozen=True, array_like=True):
    """Everything but the sessions and the object."""

    format: int
    class_name: str
    position: Count
    view: ViewId
    number: Count
    """Where the last entry was ordered."""
    seed: bytes
    """The seed of the group's chance; see `coterie.objects.execution.current`."""
    results: int
    """Checksum over all results of updates so far."""
    next_digest: Count
    weight: Count
    """About how many bytes the state had when it was last digested."""
    evicted: Count
    time: Moment
    clocks: list[tuple[ReplicaId, Moment, Moment, Moment]]
    version: int = 1
    """Which version of the class the object is of."""
    fingerprint: int = 0
    """The fingerprint of the class; 0 is unknown."""
    announced: list[tuple[ReplicaId, tuple[tuple[int, int], ...]]] = []
    """Which versions the replicas know; see `coterie.objects.announcements`."""
    majority: Count = 0
    """How many replicas are a majority, as group time counts them; 0 is unknown."""


class SessionPart(msgspec.Struct, tag=2, frozen=True, array_like=True):
    """A session, or more outcomes of the one before."""

    id: int
    used: Count
    lowest: int
    outcomes: list[tuple[int, Done | Failed]]


class FieldPart(msgspec.Struct, tag=3, frozen=True, array_like=True):
    """A field of the object, or more of the one before; no name: the object's own snapshot."""

    name: str
    data: bytes


class RecordsPart(msgspec.Struct, tag=5, frozen=True, array_like=True):
    """What is on record of some clients that know nothing of replication, in order of last use."""

    records: list[tuple[ClientId, RequestNumber, Moment, Done | Failed]]
    forgotten: Moment
    """When the last one was heard of all clients that were forgotten."""


class EndPart(msgspec.Struct, tag=4, frozen=True, array_like=True):
    """The last record of a snapshot, which tells whether the stream was cut short or mixed up."""

    records: int
    checksum: int


Part = Head | SessionPart | FieldPart | EndPart | RecordsPart

_encode = msgspec.msgpack.Encoder().encode
_decoder: Decoder[Part] = Decoder(Part)
_decode = _decoder.decode


def write(
    parts: Iterable[Head | SessionPart | FieldPart | RecordsPart], chunk_bytes: int
) -> Iterator[bytes]:
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
    data = _encode(EndPart(records, checksum))
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


def read(chunks: Iterable[bytes]) -> Iterator[Head | SessionPart | FieldPart | RecordsPart]:
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
            except msgspec.DecodeError as error:
                raise BadSnapshot(f"record {records + 1} of a state is damaged: {error}") from None
            if isinstance(part, EndPart):
                is_end = len(buffer) == end and next(rest, None) is None
                if (part.records, part.checksum) != (records, checksum) or not is_end:
                    raise BadSnapshot("the parts of a state do not belong together: fetch it again")
                return
            records += 1
            checksum = crc32(data, checksum)
            yield part
        del buffer[:start]
    raise BadSnapshot(f"a state ends after {records} records, before it is whole: fetch it again")
