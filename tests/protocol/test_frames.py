"""Frames between clients and replicas: whole or an error, however the bytes arrive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.kernel.errors import FrameError
from coterie.kernel.wire import Frame
from coterie.kernel.wire import encode_frame as encode_replica_frame
from coterie.protocol.frames import HEAD_BYTES, encode_frame, frame_reader

LIMIT = 1 << 16


@given(st.lists(st.binary(max_size=200), max_size=8), st.data())
def test_frames_come_out_as_they_went_in(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(encode_frame, bodies))
    reader = frame_reader(frame_bytes_max=LIMIT)
    out: list[bytes] = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        out += map(bytes, reader.feed(stream[:cut]))
        stream = stream[cut:]
    assert out == bodies


@given(st.binary(min_size=1, max_size=50), st.data())
def test_damage_is_noticed(body: bytes, data: st.DataObject) -> None:
    frame = bytearray(encode_frame(body))
    index = data.draw(st.integers(0, len(frame) - 1).filter(lambda at: at != 3))
    frame[index] ^= data.draw(st.integers(1, 255))
    reader = frame_reader(frame_bytes_max=LIMIT)
    try:
        assert list(reader.feed(bytes(frame))) == []  # a length that grew: more is awaited
    except FrameError:
        return
    assert index in range(4, 8)


def error_of(data: bytes) -> FrameError:
    with pytest.raises(FrameError) as raised:
        list(frame_reader(frame_bytes_max=LIMIT).feed(data))
    return raised.value


def test_each_mistake_has_its_name() -> None:
    assert error_of(encode_frame(bytes(LIMIT))).kind == "size"
    assert error_of(b"GET / HTTP/1.1\r\n\r\n").kind == "magic"
    version = error_of(b"CC\x09\0" + bytes(8))
    assert version.kind == "version"
    assert "version 9" in str(version)


def test_the_port_of_the_replicas_is_recognised() -> None:
    frame = encode_replica_frame(Frame("a", 1, None, []))
    assert "use the address for clients" in str(error_of(frame))


def test_a_frame_of_the_largest_size_passes_in_pieces() -> None:
    body = bytes(range(256)) * (LIMIT // 256 - 1)
    frame = encode_frame(body)
    assert len(frame) <= LIMIT
    reader = frame_reader(frame_bytes_max=LIMIT)
    pieces = [frame[at : at + 1000] for at in range(0, len(frame), 1000)]
    assert [bytes(out) for piece in pieces for out in reader.feed(piece)] == [body]
    assert HEAD_BYTES == 12
