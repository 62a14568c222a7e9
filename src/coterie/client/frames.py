"""Frames between clients and replicas: a head, a checksum and a body of messages.

    magic "CC" | version u8 | reserved u8 | body length u32 | CRC-32 u32      (big endian)

The head has the shape of that between replicas (`coterie.kernel.wire`) under another magic, so
that whoever mixes up the two addresses is told so. The checksum covers the eight bytes before it
and the body. The body is a MessagePack array of messages: all that one end has to say at one
moment travels in one frame (`coterie.client.messages`).

After any `FrameError` the stream is out of step, and the connection must be closed.
"""

from __future__ import annotations

import struct
from zlib import crc32

from coterie.kernel.errors import FrameError

VERSION = 1
"""Of the whole protocol between clients and replicas, messages included."""

_MAGIC = b"CC"
_MAGIC_OF_REPLICAS = b"CO"
_START = struct.Struct("!2sBBI")
_HEAD = struct.Struct("!2sBBII")
HEAD_BYTES = _HEAD.size


def encode_frame(body: bytes, *, version: int = VERSION) -> bytes:
    """Give the frame around a body."""
    start = _START.pack(_MAGIC, version, 0, len(body))
    return b"".join((start, crc32(body, crc32(start)).to_bytes(4), body))


class FrameReader:
    """Cuts a byte stream into the bodies of its frames."""

    __slots__ = ("_buffer", "_wanted", "frame_bytes_max")

    def __init__(self, *, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._wanted = 0
        """How many bytes the buffer must hold before there is anything to do."""

    def feed(self, data: bytes) -> list[memoryview]:
        """Take bytes in; give the bodies they complete. Raises `FrameError`."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._wanted:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        bodies: list[memoryview] = []
        view = memoryview(data)
        start, end = 0, len(data)
        while end - start >= HEAD_BYTES:
            length, checksum = self._open(data, start)
            after = start + HEAD_BYTES + length
            if after > end:
                break
            body = view[start + HEAD_BYTES : after]
            if crc32(body, crc32(view[start : start + _START.size])) != checksum:
                raise FrameError("checksum", "a frame was damaged on its way")
            bodies.append(body)
            start = after
        if start < end:
            self._buffer += view[start:]
            self._wanted = HEAD_BYTES
            if end - start >= HEAD_BYTES:
                self._wanted += self._open(data, start)[0]
        return bodies

    def _open(self, data: bytes, start: int) -> tuple[int, int]:
        """Check a head; give the length and the checksum in it."""
        magic, version, _, length, checksum = _HEAD.unpack_from(data, start)
        if magic == _MAGIC_OF_REPLICAS:
            raise FrameError(
                "magic", "this is where replicas talk to each other: use the address for clients"
            )
        if magic != _MAGIC:
            raise FrameError("magic", "whoever answers there does not speak Coterie's protocol")
        if version != VERSION:
            raise FrameError(
                "version",
                f"the other end speaks version {version} of the client protocol and this one"
                f" {VERSION}: run the same release on both",
            )
        if HEAD_BYTES + length > self.frame_bytes_max:
            raise FrameError(
                "size", f"a frame of {length} bytes is over the limit {self.frame_bytes_max}"
            )
        return length, checksum
