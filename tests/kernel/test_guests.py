"""Guests: processes that are spoken with and not watched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from coterie.assembly import make_context, make_process
from coterie.kernel.layers import Layer
from coterie.kernel.replica import Replica
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration
from coterie.kernel.wire import Envelope, Frame, decode_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.process import Process
    from coterie.kernel.views import Member


class Word(msgspec.Struct, frozen=True, array_like=True):
    word: str


class Echo(Layer):
    """Says everything back to whom it came from."""

    name = "ECHO"
    has_left = False
    highest = 0

    def start(self) -> None:
        pass

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        return msgspec.msgpack.decode(message, type=Word)

    def receive(self, sender: Member, message: Any) -> None:  # noqa: ANN401
        self.context.send_to("guest", [sender.id], message)

    def reachability_changed(self, restarted: Sequence[str]) -> None:
        pass


def make() -> Process:
    process = make_process("a", 1, ["a", "b"], DEFAULT_SETTINGS)
    context = make_context(process, "echo", Configuration(1, ("a", "b")))
    echo = Echo(context)
    process.host(Replica(context, Layer(context), [echo], echo))
    process.turn(0)
    return process


def said(word: str) -> Frame:
    message = msgspec.Raw(msgspec.msgpack.encode(Word(word)))
    return Frame("@guest", 1, None, [Envelope("echo", 1, [message])])


def answers(process: Process, frame: Frame) -> list[str]:
    effects = process.turn(1, calls=[lambda: process.guest_said(frame)])
    return [
        msgspec.msgpack.decode(message, type=Word).word
        for destination, data in effects.frames
        if destination == "@guest"
        for envelope in decode_body(data).envelopes
        for message in envelope.messages
    ]


def test_a_guest_is_heard_and_answered_while_it_is_there() -> None:
    process = make()
    process.admit("@guest")
    assert answers(process, said("hello")) == ["hello"]
    process.dismiss("@guest")
    assert answers(process, said("again")) == []
    assert process.counters["process.messages_to_strangers"] == 1


def test_a_guest_gets_no_heartbeats_and_a_peer_is_never_dismissed() -> None:
    process = make()
    process.admit("@guest")
    process.dismiss("b")
    destinations = [destination for destination, _ in process.turn(10_000_000).frames]
    assert destinations == ["b"]


def test_what_a_guest_says_that_cannot_be_read_is_counted() -> None:
    process = make()
    process.admit("@guest")
    frame = Frame("@guest", 1, None, [Envelope("echo", 1, [msgspec.Raw(b"\xc3")])])
    assert answers(process, frame) == []
    assert process.counters["process.messages_malformed"] == 1
