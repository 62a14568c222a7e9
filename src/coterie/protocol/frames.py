"""Frames between clients and replicas: those of `coterie.kernel.framing`, with the magic "CC".

The body is a MessagePack array of messages: all that one end has to say at one moment travels in
one frame (`coterie.protocol.messages`).
"""

from __future__ import annotations

from coterie.kernel.framing import HEAD_BYTES, FrameReader, Framing

__all__ = ["FRAMING", "HEAD_BYTES", "VERSION", "encode_frame", "frame_reader"]

VERSION = 1
"""The version of the whole protocol between clients and replicas, messages included."""

FRAMING = Framing(
    b"CC",
    VERSION,
    protocol="the client protocol",
    foreign="whoever answers there does not speak Coterie's protocol",
    others={
        b"CO": "this is where replicas talk to each other: use the address for clients",
    },
)
encode_frame = FRAMING.encode
"""Give the frame around a body."""


def frame_reader(*, frame_bytes_max: int) -> FrameReader:
    """Give what cuts a byte stream into the bodies of its frames."""
    return FrameReader(FRAMING, frame_bytes_max=frame_bytes_max)
