"""What a turn sends, packed into frames."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.kernel.wire import Heartbeat, Outbox, decode_frame

PEERS = ("b", "c", "d")
LIMIT = 4096
BEAT = Heartbeat((("b", 1), ("c", 1)))


def text(body: bytes) -> bytes:
    return msgspec.msgpack.encode(body)


def frames_of(
    outbox: Outbox, *, beat_to: tuple[str, ...] = (), limit: int = LIMIT
) -> list[tuple[str, bytes]]:
    beat = BEAT if beat_to else None
    return outbox.frames("a", 1, beat, beat_to, frame_bytes_max=limit)


sends = st.tuples(
    st.lists(st.sampled_from(PEERS), min_size=1, unique=True),
    st.sampled_from(["one", "other"]),
    st.integers(1, 2),
    st.integers(0, 1500),
)


@given(st.lists(sends, max_size=25), st.sets(st.sampled_from(PEERS)))
@settings(max_examples=60)
def test_all_arrives_in_order_in_frames_below_the_limit(
    batch: list[tuple[list[str], str, int, int]], beaten: set[str]
) -> None:
    outbox = Outbox()
    expected: dict[str, dict[tuple[str, int], list[bytes]]] = {peer: {} for peer in PEERS}
    for serial, (destinations, group, incarnation, size) in enumerate(batch):
        message = text(serial.to_bytes(4) + bytes(size))
        outbox.add(destinations, group, incarnation, message)
        for peer in destinations:
            expected[peer].setdefault((group, incarnation), []).append(message)

    frames = frames_of(outbox, beat_to=tuple(sorted(beaten)))

    found: dict[str, dict[tuple[str, int], list[bytes]]] = {peer: {} for peer in PEERS}
    beats = dict.fromkeys(PEERS, 0)
    for destination, data in frames:
        frame = decode_frame(data, frame_bytes_max=LIMIT)
        assert (frame.process, frame.incarnation) == ("a", 1)
        beats[destination] += frame.heartbeat is not None
        for envelope in frame.envelopes:
            line = found[destination].setdefault((envelope.group, envelope.incarnation), [])
            line.extend(map(bytes, envelope.messages))
    assert found == expected
    assert beats == {peer: int(peer in beaten) for peer in PEERS}
    assert [destination for destination, _ in frames] == sorted(peer for peer, _ in frames)
    assert frames_of(outbox) == [], "the box is empty after a turn"


def test_the_destinations_of_a_multicast_share_the_same_bytes() -> None:
    outbox = Outbox()
    for size in (10, 3000, 3000):
        outbox.add(PEERS, "g", 1, text(bytes(size)))
    frames = frames_of(outbox)
    assert len(frames) == 6
    for part in range(2):
        copies = [data for index, (_, data) in enumerate(frames) if index % 2 == part]
        assert all(data is copies[0] for data in copies)


def test_a_destination_with_a_message_of_its_own_has_a_frame_of_its_own() -> None:
    outbox = Outbox()
    outbox.add(PEERS, "g", 1, text(b"to all"))
    outbox.add(["c"], "g", 1, text(b"to c"))
    [(_, b), (_, c), (_, d)] = frames_of(outbox)
    assert b is d
    assert c != b


def test_the_heartbeat_travels_with_the_messages_of_its_turn() -> None:
    outbox = Outbox()
    outbox.add(["b"], "g", 1, text(b"x"))
    [(_, with_message), (_, alone)] = frames_of(outbox, beat_to=("b", "c"))
    assert decode_frame(with_message, frame_bytes_max=LIMIT).heartbeat == BEAT
    assert decode_frame(alone, frame_bytes_max=LIMIT).envelopes == []


def test_a_turn_with_nothing_to_say_sends_nothing() -> None:
    assert frames_of(Outbox()) == []


def test_a_heartbeat_of_many_peers_does_not_put_a_frame_over_the_limit() -> None:
    """The receiver would refuse such a frame, and everything in it would be lost."""
    outbox = Outbox()
    outbox.add(["b"], "g", 1, text(bytes(LIMIT - 1024 - 32)))
    beat = Heartbeat(tuple((f"replica-{n}.orders.prod.example.com", 1) for n in range(40)))
    frames = [data for _, data in outbox.frames("a", 1, beat, ["b"], frame_bytes_max=LIMIT)]
    assert all(len(data) <= LIMIT for data in frames)
    beats = [decode_frame(data, frame_bytes_max=LIMIT).heartbeat for data in frames]
    assert beats == [beat, None]
