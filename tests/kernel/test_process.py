"""The turn: what goes in, what comes out, and what is dropped on the way."""

from __future__ import annotations

import msgspec
import pytest
from tests.kernel.puppet import HEARS_B, TOGETHER, A, B, Puppet, encode

from coterie.kernel.clock import milliseconds
from coterie.kernel.records import Delivered
from coterie.kernel.wire import Envelope, Frame
from coterie.membership.messages import Ack, Alive, Data, Leave
from coterie.stacks import STACKS


def frame(*raw: bytes, process: str = "a", incarnation: int = 1, group: str = "group") -> Frame:
    envelope = Envelope(group, incarnation, [msgspec.Raw(message) for message in raw])
    return Frame(process, incarnation, HEARS_B, [envelope])


def data(number: int, payload: bytes) -> bytes:
    return encode(
        Data(TOGETHER, number, number, [number, 0], is_urgent=False, header=b"", payloads=[payload])
    )


# ---- effects


@pytest.mark.parametrize("stack", STACKS)
def test_a_replica_begins_its_life_alone_in_its_first_turn(stack: str) -> None:
    puppet = Puppet(stack)
    kinds = [type(record).__name__ for record in puppet.records]
    assert kinds == ["Started", "ViewProposed", "ViewInstalled"]
    assert puppet.inbox.current is not None
    assert [member.id for member in puppet.inbox.current.members] == ["b"]
    assert puppet.context.counters["vsync.views"] == 1


def test_a_cast_is_recorded_and_sent_in_its_own_turn() -> None:
    puppet = Puppet("VSYNC")
    puppet.join()
    puppet.records.clear()
    puppet.turn(call=lambda: puppet.replica.cast([b"x", b"y"]))
    assert [type(record).__name__ for record in puppet.records] == ["Sent", "Delivered"]
    assert [to for to, message in puppet.sent if isinstance(message, Data)] == ["a"]
    assert puppet.inbox.delivered == [b"x", b"y"]


def test_messages_of_one_frame_are_taken_in_order() -> None:
    puppet = Puppet("VSYNC")
    puppet.join()
    puppet.turn(frame(data(1, b"one"), data(2, b"two")))
    assert puppet.inbox.delivered == [b"one", b"two"]
    assert [r.first for r in puppet.records if isinstance(r, Delivered)] == [1, 2]


def test_all_that_a_turn_sends_to_a_peer_is_in_one_frame() -> None:
    puppet = Puppet("VSYNC")
    puppet.join()
    puppet.now += milliseconds(1)

    def cast_thrice() -> None:
        for payload in (b"1", b"2", b"3"):
            puppet.replica.cast([payload])

    effects = puppet.process.turn(puppet.now, [], [cast_thrice])
    assert [destination for destination, _ in effects.frames] == ["a"]


# ---- time


def test_the_first_turn_is_due_at_once() -> None:
    puppet = Puppet("VSYNC")
    fresh = type(puppet.process)(
        id="b",
        incarnation=2,
        peers=("a",),
        detector=puppet.process.detector,
        settings=puppet.process.settings,
    )
    assert fresh.next_deadline() == 0


def test_time_goes_on_when_the_clock_is_set_back() -> None:
    """A timer set before keeps its distance, measured on the clock as it is now."""
    puppet = Puppet("VSYNC")
    process = puppet.process
    fired: list[int] = []
    process.turn(1_000_000)
    process.set_timer(("test",), milliseconds(5), lambda: fired.append(process.now))
    process.turn(1_001_000)
    process.turn(200)  # set back by a second
    assert process.now == 1_001_000
    deadline = process.next_deadline()
    assert deadline is not None
    assert 200 <= deadline <= 4_200
    process.turn(4_199)
    assert fired == []
    process.turn(4_200)
    assert fired == [1_005_000]


def test_a_clock_set_back_again_and_again_never_takes_time_back() -> None:
    puppet = Puppet("VSYNC")
    process = puppet.process
    seen: list[int] = []
    for now in (5_000_000, 10, 20, 4, 9_000, 3, 3):
        process.turn(now)
        seen.append(process.now)
    assert seen == sorted(seen)
    assert seen[-1] - seen[0] == 10 + (9_000 - 4)


def test_a_replica_keeps_its_view_when_its_clock_is_set_back() -> None:
    puppet = Puppet("DYNSEQ:VSYNC")
    puppet.now = 10**12
    puppet.join()
    puppet.now = 1000
    puppet.wait(milliseconds(500))
    assert puppet.vsync.current.id == TOGETHER
    puppet.turn(call=lambda: puppet.replica.cast([b"still here"]))
    assert [to for to, message in puppet.sent if isinstance(message, Data)] == ["a"]


# ---- what is dropped


@pytest.mark.parametrize(
    ("stray", "counter"),
    [
        pytest.param(
            frame(data(1, b"x"), process="z"), "process.frames_from_strangers", id="stranger"
        ),
        pytest.param(
            frame(data(1, b"x"), process="b"), "process.frames_from_strangers", id="ourselves"
        ),
        pytest.param(
            frame(data(1, b"x"), incarnation=0),
            "process.frames_from_earlier_lives",
            id="earlier-life",
        ),
        pytest.param(
            frame(data(1, b"x"), group="other"),
            "process.messages_for_unknown_group",
            id="unknown-group",
        ),
        pytest.param(frame(b"\xc1"), "process.messages_malformed", id="not-messagepack"),
        pytest.param(frame(encode([99])), "process.messages_malformed", id="unknown-tag"),
        pytest.param(frame(encode([1, 2])), "process.messages_malformed", id="missing-fields"),
        pytest.param(frame(encode({"a": 1})), "process.messages_malformed", id="a-map"),
    ],
)
def test_what_makes_no_sense_is_counted_and_dropped(stray: Frame, counter: str) -> None:
    puppet = Puppet("VSYNC")
    puppet.join()
    puppet.turn(stray)
    assert puppet.process.counters == {counter: 1}
    assert puppet.inbox.delivered == []
    puppet.turn(frame(data(1, b"good")))
    assert puppet.inbox.delivered == [b"good"]


def test_a_bad_message_costs_no_other_group_its_messages() -> None:
    puppet = Puppet("VSYNC")
    puppet.join()
    good = Envelope("group", 1, [msgspec.Raw(data(1, b"good"))])
    bad = Envelope("group", 1, [msgspec.Raw(b"\xc1")])
    puppet.turn(Frame("a", 1, None, [bad, good]))
    assert puppet.inbox.delivered == [b"good"]


@pytest.mark.parametrize(
    ("message", "counter"),
    [
        pytest.param(
            Data(TOGETHER, 3000, 1, [0, 0], is_urgent=False, header=b"", payloads=[]),
            "vsync.too_far_ahead",
            id="far-ahead",
        ),
        pytest.param(
            Data(TOGETHER, -1, 1, [0, 0], is_urgent=False, header=b"", payloads=[]),
            "vsync.duplicates",
            id="number-below-one",
        ),
        pytest.param(
            Ack(TOGETHER, [0], wants_answer=False), "vsync.bad_vectors", id="short-vector"
        ),
        pytest.param(
            Ack(TOGETHER, [0] * 9, wants_answer=False), "vsync.bad_vectors", id="long-vector"
        ),
        pytest.param(
            Ack(TOGETHER, [3000, 0], wants_answer=False), "vsync.bad_vectors", id="vector-far-ahead"
        ),
        pytest.param(
            Ack(TOGETHER, [-1, 0], wants_answer=False), "vsync.bad_vectors", id="vector-below-zero"
        ),
        pytest.param(
            Ack(TOGETHER, [0, 1], wants_answer=False), "vsync.bad_vectors", id="more-than-was-sent"
        ),
    ],
)
def test_absurd_packets_are_counted_and_dropped(message: Data | Ack, counter: str) -> None:
    puppet = Puppet("VSYNC")
    puppet.join()
    puppet.hear(message)
    assert puppet.context.counters[counter] == 1
    assert puppet.inbox.delivered == []


def test_messages_of_another_view_or_of_no_member_are_counted_and_dropped() -> None:
    puppet = Puppet("VSYNC")
    puppet.join()
    puppet.hear(Ack(puppet.vsync.current.previous[1], [0], wants_answer=False))
    puppet.hear(Ack(TOGETHER, [0, 0], wants_answer=False), sender="c")
    assert puppet.context.counters["vsync.of_another_view"] == 1
    assert puppet.context.counters["vsync.from_outside_the_view"] == 1


@pytest.mark.parametrize("stack", STACKS)
def test_a_replica_that_has_left_does_nothing_any_more(stack: str) -> None:
    puppet = Puppet(stack)
    puppet.join()
    puppet.turn(call=puppet.replica.leave)
    puppet.wait(milliseconds(600))
    assert puppet.vsync.has_left
    puppet.hear(Alive(TOGETHER, (A, B), b""), Leave(TOGETHER))
    assert puppet.sent == []
