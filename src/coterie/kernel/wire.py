"""Frames: what one process sends another in one turn, as bytes.

A frame is a 12-byte head and a body:

    magic "CO" | version u8 | reserved u8 | body length u32 | CRC-32 u32      (big endian)

The checksum covers the eight bytes before it and the body.

The body is a MessagePack array `[process, incarnation, heartbeat | nil, envelopes]`; an envelope
is `[group, incarnation, messages]`, the life of the sending replica and its messages for that
group in order. Messages stay encoded here: each group decodes its own, because only the bottom
layer of its stack knows their types.

A multicast is encoded once and the same bytes go into the frame of every destination.
Whatever is wrong with a frame is a `FrameError` with a kind to count; the frame is dropped.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from coterie.kernel.errors import DECODE_ERRORS, FrameError
from coterie.kernel.views import ReplicaId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIRE_VERSION = 1
_MAGIC = b"CO"
_START = struct.Struct("!2sBBI")
_CHECKSUM = struct.Struct("!I")
HEAD_BYTES = _START.size + _CHECKSUM.size


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Life sign of a process: which lives of which peers it hears at present."""

    hears: tuple[tuple[ReplicaId, int], ...]


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The messages of one replica to its fellow replica on another process."""

    group: str
    incarnation: int
    messages: list[msgspec.Raw]


class Frame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that one turn of one process sends to one peer."""

    process: ReplicaId
    incarnation: int
    heartbeat: Heartbeat | None
    envelopes: list[Envelope]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode_frame(frame: Frame) -> bytes:
    """Give the bytes of *frame*."""
    body = _encoder.encode(frame)
    start = _START.pack(_MAGIC, WIRE_VERSION, 0, len(body))
    return start + _CHECKSUM.pack(crc32(body, crc32(start))) + body


def decode_frame(data: bytes | memoryview, *, frame_bytes_max: int) -> Frame:
    """Read one whole frame; raise `FrameError` if it is not one of ours."""
    length = body_length(data, frame_bytes_max=frame_bytes_max)
    if len(data) != HEAD_BYTES + length:
        raise FrameError("length", f"a frame of {len(data)} bytes says {HEAD_BYTES + length}")
    return _decode_body(data)


def body_length(head: bytes | bytearray | memoryview, *, frame_bytes_max: int) -> int:
    """Check the head of a frame and give the length of the body that follows it."""
    if len(head) < HEAD_BYTES:
        raise FrameError("length", f"{len(head)} bytes are too short for a frame")
    magic, version, _, length = _START.unpack_from(head)
    if magic != _MAGIC:
        raise FrameError("magic", "the bytes are not a Coterie frame")
    if version != WIRE_VERSION:
        raise FrameError(
            "version",
            f"the peer speaks wire version {version} and this process version {WIRE_VERSION}: "
            "run the same release of Coterie on both",
        )
    if HEAD_BYTES + length > frame_bytes_max:
        raise FrameError("size", f"a frame of {length} bytes is over the limit {frame_bytes_max}")
    return int(length)


def _decode_body(data: bytes | memoryview) -> Frame:
    view = memoryview(data)
    body = view[HEAD_BYTES:]
    (checksum,) = _CHECKSUM.unpack_from(data, _START.size)
    if crc32(body, crc32(view[: _START.size])) != checksum:
        raise FrameError("checksum", "a frame was damaged on its way")
    try:
        return _decoder.decode(body)
    except DECODE_ERRORS as error:
        raise FrameError("body", f"a frame cannot be read: {error}") from None


class FrameReader:
    """Cuts a byte stream into frames, for transports that carry streams.

    After a `FrameError` other than of kind "body" the stream is out of step and must be closed:
    the length that would lead to the next frame cannot be trusted.
    """

    __slots__ = ("_buffer", "_frame_bytes_max", "_wanted")

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._buffer = bytearray()
        self._frame_bytes_max = frame_bytes_max
        self._wanted = 0
        """How many bytes the buffer must hold before there is anything to do."""

    def feed(self, data: bytes) -> Iterator[Frame | FrameError]:
        """Take bytes in; give the frames they complete, and errors for the ones to drop."""
        # Frames that arrive whole are read where they are; only what is cut is put together.
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._wanted:
                return
            data = bytes(buffer)
            buffer.clear()
        self._wanted = HEAD_BYTES
        view = memoryview(data)
        size = len(data)
        start = 0
        try:
            while size - start >= HEAD_BYTES:
                length = body_length(view[start:], frame_bytes_max=self._frame_bytes_max)
                end = start + HEAD_BYTES + length
                if size < end:
                    self._wanted = end - start
                    break
                whole = view[start:end]
                start = end
                try:
                    frame = _decode_body(whole)
                except FrameError as error:
                    if error.kind != "body":
                        raise
                    yield error
                else:
                    yield frame
        finally:
            if start < size:
                buffer += view[start:]


class Outbox:
    """What one process sends in the running turn, gathered by destination."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        # destination -> (group, life of the sending replica) -> encoded messages in order
        self._lines: dict[ReplicaId, dict[tuple[str, int], list[bytes]]] = {}

    def add(
        self, destinations: Sequence[ReplicaId], group: str, incarnation: int, message: bytes
    ) -> None:
        """Send one encoded message to each destination."""
        for destination in destinations:
            groups = self._lines.get(destination)
            if groups is None:
                groups = self._lines[destination] = {}
            messages = groups.get((group, incarnation))
            if messages is None:
                groups[group, incarnation] = [message]
            else:
                messages.append(message)

    def frames(
        self,
        process: ReplicaId,
        incarnation: int,
        heartbeat: Heartbeat | None,
        heartbeat_to: Sequence[ReplicaId],
        *,
        frame_bytes_max: int,
    ) -> list[tuple[ReplicaId, bytes]]:
        """Pack everything into frames, in order of destination, and empty the box.

        Destinations that get the same messages (the usual case for a multicast) share one
        encoding of the whole frame.
        """
        lines = self._lines
        if not lines and not heartbeat_to:
            return []
        self._lines = {}
        room = frame_bytes_max - 256  # for the head and the names
        if len(lines) == 1 and not heartbeat_to:
            # An acknowledgement to one: what most turns of a quiet group send.
            [(destination, groups)] = lines.items()
            return [
                (destination, encode_frame(Frame(process, incarnation, None, envelopes)))
                for _, envelopes in _split(groups, room, room)
            ]
        for destination in heartbeat_to:
            lines.setdefault(destination, {})
        frames: list[tuple[ReplicaId, bytes]] = []
        encoded: dict[tuple[object, ...], list[bytes]] = {}
        room_beside = room - (len(_encoder.encode(heartbeat)) if heartbeat_to else 0)
        beaten = frozenset(heartbeat_to)
        for destination in sorted(lines):
            groups = lines[destination]
            beat = heartbeat if destination in beaten else None
            key = (beat is None, *((who, *map(id, texts)) for who, texts in groups.items()))
            packed = encoded.get(key)
            if packed is None:
                packed = encoded[key] = [
                    encode_frame(Frame(process, incarnation, beat if first else None, envelopes))
                    for first, envelopes in _split(groups, room_beside if beat else room, room)
                ]
            for frame in packed:
                frames.append((destination, frame))  # noqa: PERF401 -- usually one
        return frames


def _split(
    groups: dict[tuple[str, int], list[bytes]], first_room: int, room_max: int
) -> Iterator[tuple[bool, list[Envelope]]]:
    """Cut the messages for one destination into envelopes that fit into frames.

    The first frame has less room, for the heartbeat in it.
    """
    room = first_room
    first = True
    envelopes: list[Envelope] = []
    for (group, incarnation), texts in groups.items():
        messages: list[msgspec.Raw] = []
        envelopes.append(Envelope(group, incarnation, messages))
        for text in texts:
            if len(text) > room and room < room_max:
                yield first, envelopes
                first = False
                messages = []
                envelopes = [Envelope(group, incarnation, messages)]
                room = room_max
            messages.append(msgspec.Raw(text))
            room -= len(text) + len(group) + 16
    yield first, envelopes
