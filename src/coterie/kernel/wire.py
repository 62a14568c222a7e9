"""What one process sends another in one turn, as bytes.

It is a frame (`coterie.kernel.framing`) with the magic "CO". The body is a MessagePack array
`[process, incarnation, heartbeat | nil, envelopes]`; an envelope is `[group, incarnation,
messages]`, the life of the sending replica and its messages for that group in order. Messages stay
encoded here: each group decodes its own, because only the bottom layer of its stack knows their
types.

A multicast is encoded once and the same bytes go into the frame of every destination. What goes to
a guest (`coterie.kernel.process.Process.admit`) has no head: whatever carries it frames it.
Whatever is wrong with a frame is a `FrameError` with a kind to count; the frame is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.decoding import DECODE_ERRORS, Decoder
from coterie.kernel.errors import FrameError
from coterie.kernel.framing import FrameReader, Framing
from coterie.kernel.views import ReplicaId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

WIRE_VERSION = 1
FRAMING = Framing(
    b"CO",
    WIRE_VERSION,
    protocol="the protocol between replicas",
    foreign="the bytes are not a Coterie frame",
    others={b"CC": "this is where replicas talk to each other: clients have another address"},
)


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
_decoder = Decoder(Frame)
_decode_quickly = _decoder.decode_quickly
_encode_body = _encoder.encode


def encode_frame(frame: Frame) -> bytes:
    """Give the bytes of *frame*."""
    return FRAMING.encode(_encode_body(frame))


def decode_frame(data: bytes | memoryview, *, frame_bytes_max: int) -> Frame:
    """Read one whole frame; raise `FrameError` if it is not one of ours."""
    return decode_body(FRAMING.decode(data, frame_bytes_max=frame_bytes_max))


def decode_body(body: bytes | memoryview | msgspec.Raw) -> Frame:
    """Read what stands in a frame; raise `FrameError` of kind "body" if it makes no sense."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise FrameError("body", f"a frame cannot be read: {error}") from None


_FEW = [bytes([0x90 | count]) for count in range(16)]
"""How arrays of so many items begin."""


def _array_head(count: int) -> bytes:
    """Give how an array of 16 or more items begins."""
    return b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)


def _begin_body(process: ReplicaId, incarnation: int, group: str, life: int) -> bytes:
    """Give all of a body with one envelope and no heartbeat that stands before its messages."""
    body = _encode_body(Frame(process, incarnation, None, [Envelope(group, life, [])]))
    return body.removesuffix(_FEW[0])


class FrameStream:
    """Reads frames from a byte stream.

    After a `FrameError` that is raised the stream is out of step and must be closed.
    """

    __slots__ = ("_reader",)

    def __init__(self, *, frame_bytes_max: int) -> None:
        self._reader = FrameReader(FRAMING, frame_bytes_max=frame_bytes_max)

    def whole(self, data: bytes) -> Frame | None:
        """Give the frame if *data* is one good frame, neither more nor less, as most arrive.

        If it is not, nothing has changed: `feed` takes it.
        """
        body = self._reader.whole(data)
        if body is None:
            return None
        try:
            return _decode_quickly(body)
        except DECODE_ERRORS:
            return None

    def feed(self, data: bytes) -> Iterator[Frame | FrameError]:
        """Take bytes in; give the frames they complete, and errors for the ones to drop."""
        for body in self._reader.feed(data):
            try:
                frame = decode_body(body)
            except FrameError as error:
                yield error
            else:
                yield frame


class Outbox:
    """What one process sends in the running turn, gathered by destination."""

    __slots__ = ("_begin", "_begun_by", "_lines", "_shared", "_shared_by", "_shared_to")

    def __init__(self) -> None:
        # destination -> (group, life of the sending replica) -> encoded messages in order
        self._lines: dict[ReplicaId, dict[tuple[str, int], list[bytes]]] = {}
        # As long as all that is sent is of one replica and for the same destinations, which is
        # what nearly all turns send, it is kept here instead: messages in order, of whom, for whom.
        self._shared: list[bytes] = []
        self._shared_by = ("", 0)
        self._shared_to: Sequence[ReplicaId] = ()
        # How the frame around such messages begins, and of what it was made: it stays the same.
        self._begun_by = ("", 0, "", 0)
        self._begin = b""

    def __bool__(self) -> bool:
        return bool(self._shared or self._lines)

    def add(
        self, destinations: Sequence[ReplicaId], group: str, incarnation: int, message: bytes
    ) -> None:
        """Send one encoded message to each destination."""
        lines, who = self._lines, (group, incarnation)
        if not lines:
            if not self._shared:
                if destinations:
                    self._shared.append(message)
                    self._shared_by, self._shared_to = who, [*destinations]
                return
            if destinations == self._shared_to and who == self._shared_by:
                self._shared.append(message)
                return
            self._share_out()
        for destination in destinations:
            groups = lines.get(destination)
            if groups is None:
                lines[destination] = {who: [message]}
            elif who in groups:
                groups[who].append(message)
            else:
                groups[who] = [message]

    def _share_out(self) -> None:
        """Keep by destination what was the same for all until now."""
        shared, self._shared = self._shared, []
        if shared:
            for destination in self._shared_to:
                self._lines[destination] = {self._shared_by: [*shared]}

    def frames(  # noqa: PLR0913 -- called in one place
        self,
        process: ReplicaId,
        incarnation: int,
        heartbeat: Heartbeat | None,
        heartbeat_to: Sequence[ReplicaId],
        *,
        frame_bytes_max: int,
        guests: Collection[ReplicaId] = (),
    ) -> list[tuple[ReplicaId, bytes]]:
        """Pack everything into frames, in order of destination, and empty the box.

        Destinations that get the same messages (the usual case for a multicast) share one
        encoding of the whole frame. *guests* get bodies without heads.
        """
        room = frame_bytes_max - 256  # for the head and the names
        texts = self._shared
        if texts and not heartbeat_to:
            # The same for everybody, in one frame: what nearly all turns send.
            group, life = self._shared_by
            to = self._shared_to
            if sum(map(len, texts)) + len(texts) * (len(group) + 16) <= room and not (
                guests and any(each in guests for each in to)
            ):
                self._shared = []
                said = (process, incarnation, group, life)
                if said != self._begun_by:
                    self._begun_by, self._begin = said, _begin_body(*said)
                count = len(texts)
                few = _FEW[count] if count < len(_FEW) else _array_head(count)
                frame = FRAMING.encode(b"".join((self._begin, few, *texts)))
                return [(destination, frame) for destination in sorted(to)]
        self._share_out()
        lines = self._lines
        if not lines and not heartbeat_to:
            return []
        self._lines = {}
        for destination in heartbeat_to:
            lines.setdefault(destination, {})
        frames: list[tuple[ReplicaId, bytes]] = []
        encoded: list[tuple[_Packing, list[bytes]]] = []
        room_beside = room - (len(_encode_body(heartbeat)) if heartbeat_to else 0)
        beaten = frozenset(heartbeat_to)
        for destination in sorted(lines):
            groups = lines[destination]
            beat = heartbeat if destination in beaten else None
            is_guest = destination in guests
            packed = _packed_before(encoded, (groups, beat is not None, is_guest))
            if packed is None:
                encode = _encode_body if is_guest else encode_frame
                packed = [
                    encode(Frame(process, incarnation, beat if first else None, envelopes))
                    for first, envelopes in _split(groups, room_beside if beat else room, room)
                ]
                encoded.append(((groups, beat is not None, is_guest), packed))
            for frame in packed:
                frames.append((destination, frame))  # noqa: PERF401 -- usually one
        return frames


_Packing = tuple[dict[tuple[str, int], list[bytes]], bool, bool]
"""What goes into the frames for a destination: messages, a heartbeat or none, heads or none."""


def _packed_before(
    encoded: list[tuple[_Packing, list[bytes]]], packing: _Packing
) -> list[bytes] | None:
    """Give the frames that another destination gets for the same, if one does."""
    for other, packed in encoded:
        # A multicast is the very same object for all, which is seen at once. Where there are
        # several groups their order counts, too.
        if other == packing and (len(packing[0]) == 1 or list(other[0]) == list(packing[0])):
            return packed
    return None


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
