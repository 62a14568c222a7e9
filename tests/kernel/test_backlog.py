"""The backlog against a list in which every message stands alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.surroundings import bare_context

from coterie.kernel.backlog import Backlog, Packet
from coterie.kernel.errors import BacklogFull, PayloadTooLarge, Refused
from coterie.kernel.settings import Settings

SMALL = Settings(
    payload_bytes_max=12,
    packet_bytes_max=10,
    packet_messages_max=4,
    backlog_bytes=40,
    turn_packets=3,
)


def backlog() -> Backlog:
    context, _ = bare_context(settings=SMALL)
    return Backlog(context)


class Naive:
    """What a backlog does, one message at a time."""

    def __init__(self) -> None:
        self.waiting: list[tuple[tuple[bool, int], int, bytes]] = []
        self.next = 1

    def add(self, payloads: list[bytes], *, safe: bool, mark: int) -> int | None:
        """Queue messages; None if they are refused."""
        waiting = sum(len(payload) for _, _, payload in self.waiting)
        too_large = any(len(payload) > SMALL.payload_bytes_max for payload in payloads)
        too_much = waiting + sum(map(len, payloads)) > SMALL.backlog_bytes
        if too_large or (self.waiting and too_much):
            return None
        first = self.next
        for payload in payloads:
            self.waiting.append(((safe, mark), self.next, payload))
            self.next += 1
        return first

    def take_packet(self) -> Packet:
        kind, first, payload = self.waiting.pop(0)
        packet = [payload]
        while self.waiting and self.waiting[0][0] == kind:
            size = sum(map(len, packet)) + len(self.waiting[0][2])
            if size > SMALL.packet_bytes_max or len(packet) == SMALL.packet_messages_max:
                break
            packet.append(self.waiting.pop(0)[2])
        return Packet(kind[0], first, packet, kind[1])


casts = st.tuples(st.lists(st.binary(max_size=13), max_size=5), st.booleans(), st.integers(0, 1))


@given(st.lists(casts | st.just("take"), max_size=25))
def test_a_backlog_does_as_the_naive_one(plan: list[tuple[list[bytes], bool, int] | str]) -> None:
    real, naive = backlog(), Naive()
    for step in plan:
        if isinstance(step, str):
            if naive.waiting:
                assert real.take_packet() == naive.take_packet()
        else:
            payloads, safe, mark = step
            expected = naive.add(payloads, safe=safe, mark=mark)
            if expected is None:
                with pytest.raises(Refused):
                    real.add(payloads, safe=safe, mark=mark)
            else:
                assert real.add(payloads, safe=safe, mark=mark) == expected
        assert bool(real) == bool(naive.waiting)
        assert real.bytes == sum(len(payload) for _, _, payload in naive.waiting)
    while naive.waiting:
        assert real.take_packet() == naive.take_packet()
    assert not real
    assert real.bytes == 0


def test_a_message_over_the_packet_size_travels_alone() -> None:
    queue = backlog()
    queue.add([b"a", b"twelve bytes", b"b", b"c"], safe=False)
    packets = [queue.take_packet() for _ in range(3)]
    assert [(packet.first, packet.payloads) for packet in packets] == [
        (1, [b"a"]),
        (2, [b"twelve bytes"]),
        (3, [b"b", b"c"]),
    ]


def test_agreed_and_safe_messages_do_not_share_a_packet_and_keep_their_order() -> None:
    queue = backlog()
    for payload, safe in [(b"a", False), (b"b", True), (b"c", True), (b"d", False)]:
        queue.add([payload], safe=safe)
    packets = [queue.take_packet() for _ in range(3)]
    assert [(packet.safe, packet.first, packet.payloads) for packet in packets] == [
        (False, 1, [b"a"]),
        (True, 2, [b"b", b"c"]),
        (False, 4, [b"d"]),
    ]


def test_what_is_too_large_is_refused_with_a_way_out() -> None:
    queue = backlog()
    with pytest.raises(PayloadTooLarge) as caught:
        queue.add([b"fits", b"does not fit."], safe=False)
    assert str(caught.value) == (
        "a message of 13 bytes is over the limit of 12 (payload_bytes_max): send it in parts"
    )
    assert queue.add([b"next"], safe=False) == 1, "a refused cast takes no number"


def test_what_is_too_much_is_refused_with_a_way_out() -> None:
    queue = backlog()
    queue.add([b"ten bytes."] * 4, safe=False)
    with pytest.raises(BacklogFull) as caught:
        queue.add([b"x"], safe=False)
    assert str(caught.value) == (
        "40 bytes wait to be sent already (backlog_bytes is 40): wait for deliveries, "
        "then cast again"
    )
    queue.take_packet()
    assert queue.add([b"x"], safe=False) == 5, "a refused cast takes no number"


def test_a_turn_takes_a_few_packets_and_asks_for_another_turn_at_once() -> None:
    context, surroundings = bare_context(settings=SMALL)
    queue = Backlog(context)
    queue.add([b"%d" % number for number in range(16)], safe=False)
    assert [packet.first for packet in queue.packets(lambda: True)] == [1, 5, 9]
    assert surroundings.timers.next_deadline() == surroundings.now
    assert [packet.first for packet in queue.packets(lambda: True)] == [13]


def test_no_packet_is_taken_that_may_not_be_sent() -> None:
    queue = backlog()
    queue.add([b"x"] * 16, safe=False)
    allowed = iter([True, True, False])
    assert [packet.first for packet in queue.packets(lambda: next(allowed))] == [1, 5]
    assert [packet.first for packet in queue.packets(lambda: True)] == [9, 13]
    assert list(queue.packets(lambda: True)) == []
