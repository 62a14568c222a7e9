"""Frames: a head with a checksum, and a body. One codec for everything that crosses a stream.

    magic 2 bytes | version u8 | reserved u8 | body length u32 | CRC-32 u32      (big endian)

The checksum covers the eight bytes before it and the body. What the body holds is the business of
the two ends: replicas put `coterie.kernel.wire.Frame` into it, clients and replicas lists of
`coterie.protocol.messages`. Each has a magic of its own, so that whoever mixes up two addresses is
told so. Whatever is wrong with a frame is a `FrameError` with a kind to count.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from zlib import crc32

from coterie.kernel.errors import FrameError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_START = struct.Struct("!2sBBI")
_HEAD = struct.Struct("!2sBBII")
_CHECKSUM = struct.Struct("!I")
_START_BYTES = _START.size
HEAD_BYTES = _HEAD.size


class Framing:
    """The frames of one protocol.

    *protocol* is its name in words, *foreign* what is said of bytes that are none of its frames,
    and *others* what is said of frames with the magic of another protocol of ours.
    """

    __slots__ = ("_foreign", "_others", "_protocol", "magic", "version")

    def __init__(
        self,
        magic: bytes,
        version: int,
        *,
        protocol: str,
        foreign: str,
        others: Mapping[bytes, str],
    ) -> None:
        self.version = version
        self.magic = magic
        self._protocol = protocol
        self._foreign = foreign
        self._others = others

    def encode(self, body: bytes) -> bytes:
        """Give the frame around a body."""
        start = _START.pack(self.magic, self.version, 0, len(body))
        return start + _CHECKSUM.pack(crc32(body, crc32(start))) + body

    def decode(self, frame: bytes | memoryview, *, frame_bytes_max: int) -> memoryview:
        """Give the body of one whole frame; raise `FrameError` if it is not one of ours."""
        if len(frame) < HEAD_BYTES:
            raise FrameError("length", f"{len(frame)} bytes are too short for a frame")
        length, checksum = self.open(frame, 0, frame_bytes_max)
        if len(frame) != HEAD_BYTES + length:
            raise FrameError("length", f"a frame of {len(frame)} bytes says {HEAD_BYTES + length}")
        view = memoryview(frame)
        return _checked(view[:_START_BYTES], view[HEAD_BYTES:], checksum)

    def open(
        self, data: bytes | bytearray | memoryview, start: int, frame_bytes_max: int
    ) -> tuple[int, int]:
        """Check the head at *start*; give the length of the body and the checksum."""
        magic, version, _, length, checksum = _HEAD.unpack_from(data, start)
        if magic != self.magic:
            raise FrameError("magic", self._others.get(magic, self._foreign))
        if version != self.version:
            raise FrameError(
                "version",
                f"the other end speaks version {version} of {self._protocol} and this one "
                f"{self.version}: run the same release of Coterie on both",
            )
        if HEAD_BYTES + length > frame_bytes_max:
            raise FrameError(
                "size", f"a frame of {length} bytes is over the limit {frame_bytes_max}"
            )
        return length, checksum


def _checked(start: memoryview, body: memoryview, checksum: int) -> memoryview:
    if crc32(body, crc32(start)) != checksum:
        raise FrameError("checksum", "a frame was damaged on its way")
    return body


class FrameReader:
    """Cuts a byte stream into the bodies of its frames.

    After a `FrameError` the stream is out of step and must be closed: the length that would lead
    to the next frame cannot be trusted.
    """

    __slots__ = ("_buffer", "_framing", "_wanted", "frame_bytes_max")

    def __init__(self, framing: Framing, *, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._framing = framing
        self._buffer = bytearray()
        self._wanted = 0
        """How many bytes the buffer must hold before there is anything to do."""

    def feed(self, data: bytes) -> Iterable[memoryview]:
        """Take bytes in; give the bodies they complete, until `FrameError` is raised."""
        body = self.whole(data)
        return self._cut(data) if body is None else (body,)

    def whole(self, data: bytes) -> memoryview | None:
        """Give the body if *data* is one good frame, neither more nor less, as most arrive.

        If it is not, nothing has changed: `feed` takes it.
        """
        if self._buffer or len(data) < HEAD_BYTES:
            return None
        framing = self._framing
        magic, version, _, length, checksum = _HEAD.unpack_from(data)
        size = HEAD_BYTES + length
        if (
            size != len(data)
            or size > self.frame_bytes_max
            or magic != framing.magic
            or version != framing.version
        ):
            return None
        body = memoryview(data)[HEAD_BYTES:]
        return body if crc32(body, crc32(data[:_START_BYTES])) == checksum else None

    def _cut(self, data: bytes) -> Iterator[memoryview]:
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
                length, checksum = self._framing.open(data, start, self.frame_bytes_max)
                begin = start + HEAD_BYTES
                end = begin + length
                if size < end:
                    self._wanted = end - start
                    break
                head = view[start : start + _START_BYTES]
                start = end
                yield _checked(head, view[begin:end], checksum)
        finally:
            if start < size:
                buffer += view[start:]
