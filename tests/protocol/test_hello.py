from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.kernel.errors import FrameError
from coterie.kernel.wire import Envelope, Frame, encode_frame
from coterie.protocol.hello import (
    GREETING_BYTES_MAX,
    Greeting,
    GreetingReader,
    PeerFarewell,
    PeerHello,
    PeerProof,
    encode_greeting,
)

GREETINGS = [
    Greeting("a", 1, PeerHello("cluster", "b")),
    Greeting("b", 10**12, PeerHello("cluster", "a", knocks=True)),
    Greeting("c", 3, PeerFarewell("this is another cluster")),
]


@pytest.mark.parametrize("greeting", GREETINGS)
def test_a_greeting_arrives_whatever_the_pieces(greeting: Greeting) -> None:
    data = encode_greeting(greeting) + b"and more"
    for size in (1, 5, 13, len(data)):
        reader = GreetingReader()
        for start in range(0, len(data), size):
            complete = reader.feed(data[start : start + size])
            if complete is not None:
                break
        else:
            pytest.fail("it never was complete")
        assert complete[0] == greeting
        assert (complete[1] + data[start + size :]) == b"and more"


def test_the_format_is_the_documented_one() -> None:
    """Golden bytes: a change needs a new wire version."""
    frame = encode_greeting(GREETINGS[0])
    assert (
        frame[12:] == b"\x94\xa1a\x01\xc0\x91\x93\xa0\x01\x91\x97\x01\xa7cluster\xa1b\xc2"
        b"\xc4\x00\xc4\x00\xc4\x00"
    )


@given(st.binary(max_size=80))
def test_a_frame_with_anything_in_it_is_no_hello_but_no_exception_either(message: bytes) -> None:
    frame = encode_frame(Frame("a", 1, None, [Envelope("", 1, [msgspec.Raw(message)])]))
    try:
        complete = GreetingReader().feed(frame)
    except FrameError as error:
        assert error.kind in {"hello", "body"}  # noqa: PT017 -- most examples, not all
    else:
        assert complete is None or isinstance(
            complete[0].says, PeerHello | PeerFarewell | PeerProof
        )


@given(st.binary(max_size=200))
def test_garbage_is_told_apart_or_waited_for(data: bytes) -> None:
    try:
        complete = GreetingReader().feed(data)
    except FrameError:
        return
    assert complete is None


@pytest.mark.parametrize(
    "envelopes",
    [
        [],
        [Envelope("a group", 1, [msgspec.Raw(msgspec.msgpack.encode(PeerHello("c", "b")))])],
        [Envelope("", 1, [])],
        [Envelope("", 1, [msgspec.Raw(b"\x93\x01\xa1\xff\xa1a")])],
    ],
)
def test_an_ordinary_frame_is_no_hello(envelopes: list[Envelope]) -> None:
    with pytest.raises(FrameError, match="did not begin with a hello") as error:
        GreetingReader().feed(encode_frame(Frame("a", 1, None, envelopes)))
    assert error.value.kind == "hello"


def test_a_long_greeting_is_refused_before_it_arrives() -> None:
    frame = encode_greeting(Greeting("a", 1, PeerFarewell("x" * GREETING_BYTES_MAX)))
    with pytest.raises(FrameError, match="over the limit"):
        GreetingReader().feed(frame[:12])
