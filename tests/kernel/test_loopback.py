"""Replicas of different groups in one process can talk to each other."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.layers import Context, Layer
from coterie.kernel.process import Process
from coterie.kernel.replica import Replica
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration, Member
from coterie.membership.detector import HeartbeatDetector

if TYPE_CHECKING:
    from collections.abc import Sequence


class Word(msgspec.Struct, frozen=True, array_like=True, tag=1):
    word: str


class Talker(Layer):
    name = "TALKER"
    has_left = False
    highest = 0

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.heard: list[tuple[Member, str]] = []

    def start(self) -> None:
        pass

    def decode(self, message: msgspec.Raw) -> msgspec.Struct:
        return msgspec.msgpack.decode(message, type=Word)

    def receive(self, sender: Member, message: Any) -> None:  # noqa: ANN401 -- a Word
        self.heard.append((sender, message.word))

    def reachability_changed(self, restarted: Sequence[str]) -> None:
        pass


def talkers(process: Process, *groups: str) -> list[Talker]:
    found = []
    for group in groups:
        context = Context(
            group=group,
            me=Member("a", 1),
            configuration=Configuration(1, ("a",)),
            settings=DEFAULT_SETTINGS,
            random=Random(1),  # noqa: S311 -- reproducible on purpose
            surroundings=process,
        )
        talker = Talker(context)
        process.host(Replica(context, Layer(context), [talker], talker))
        found.append(talker)
    return found


def test_a_message_for_this_very_process_arrives_in_the_next_turn() -> None:
    detector = HeartbeatDetector("a", 1, ("a",), DEFAULT_SETTINGS)
    process = Process(
        id="a", incarnation=1, peers=("a",), detector=detector, settings=DEFAULT_SETTINGS
    )
    one, two = talkers(process, "one", "two")
    process.turn(1000)
    effects = process.turn(
        1001, calls=[lambda: one.context.send_to("two", ["a", "nobody"], Word("hello"))]
    )
    assert effects.frames == []
    assert process.counters["process.messages_to_strangers"] == 1
    assert two.heard == []
    assert process.next_deadline() == 1001
    process.turn(1002)
    assert two.heard == [(Member("a", 1), "hello")]
    assert one.heard == []
    deadline = process.next_deadline()
    assert deadline is not None
    assert deadline > 1002
