"""What two replicas' processes say to each other when a connection opens.

Both sides send one greeting before anything else: an ordinary frame, so that a wrong version, a
foreign protocol or damage is recognised by the same head and checksum as everywhere; its one
envelope is addressed to the group of no name. The frame says which life of which process speaks.

- `PeerHello` says for which cluster and which peer the connection is meant. A connection that
  reached somebody else (an address mixed up, a port taken over by another deployment) is closed.
- A hello that *knocks* asks the peer to dial us: see `coterie.runtime.transport`.
- Where a secret is needed (`coterie.protocol.proof`), a hello carries a nonce, the listener's
  hello its proof as well, and the dialler adds `PeerProof` as a second greeting.
- `PeerFarewell` answers a hello that is not accepted, with the reason, so that it stands in the
  logs of both sides.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.errors import FrameError
from coterie.kernel.framing import HEAD_BYTES
from coterie.kernel.views import ReplicaId
from coterie.kernel.wire import FRAMING, Envelope, Frame, decode_frame, encode_frame

GREETING_BYTES_MAX = 4096
"""The largest greeting: who has not said hello yet gets no more room than that."""


class PeerHello(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """For whom a connection is meant."""

    cluster: str
    to: ReplicaId
    knocks: bool = False
    nonce: bytes = b""
    proof: bytes = b""
    mark: bytes = b""
    """That of a founder's disk (`coterie.runtime.marks`)."""


class PeerFarewell(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Why a hello was not accepted."""

    reason: str
    is_apart: bool = False
    """Whether the receiver is not the one that the sender knows, but was founded a second time."""


class PeerProof(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """The dialler knows the secret, too."""

    proof: bytes


class Greeting(NamedTuple):
    """A greeting, and which life of which process sent it."""

    process: ReplicaId
    incarnation: int
    says: PeerHello | PeerFarewell | PeerProof


_encoder = msgspec.msgpack.Encoder()
_decoder: Decoder[PeerHello | PeerFarewell | PeerProof] = Decoder(
    PeerHello | PeerFarewell | PeerProof
)


def encode_greeting(greeting: Greeting) -> bytes:
    """Give the frame that carries a greeting."""
    process, incarnation, says = greeting
    message = msgspec.Raw(_encoder.encode(says))
    return encode_frame(Frame(process, incarnation, None, [Envelope("", incarnation, [message])]))


class GreetingReader:
    """Takes the bytes of a new connection until a greeting is complete."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> tuple[Greeting, bytes] | None:
        """Take bytes in; give the greeting once it is complete, and what follows it.

        Raises `FrameError` as soon as it is clear that no greeting of ours is coming.
        """
        buffer = self._buffer
        buffer += data
        if len(buffer) < HEAD_BYTES:
            return None
        end = HEAD_BYTES + FRAMING.open(buffer, 0, GREETING_BYTES_MAX)[0]
        if len(buffer) < end:
            return None
        frame = decode_frame(bytes(buffer[:end]), frame_bytes_max=GREETING_BYTES_MAX)
        rest = bytes(buffer[end:])
        buffer.clear()
        return _greeting_of(frame), rest


def _greeting_of(frame: Frame) -> Greeting:
    match frame.envelopes:
        case [Envelope(group="", messages=[message])]:
            try:
                return Greeting(frame.process, frame.incarnation, _decoder.decode(message))
            except msgspec.DecodeError:
                pass
    raise FrameError("hello", "the peer did not begin with a hello")
