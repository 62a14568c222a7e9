"""Bytes of every kind of message and record, so that no format changes unnoticed.

A frame that fails here cannot be read by a release in use: raise `WIRE_VERSION`, say so in the
changelog, and only then record the new bytes.
"""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from tests.kernel.golden import FRAMES, MESSAGES, RECORDS

from coterie.kernel.records import Record, decode_record, encode_record
from coterie.kernel.wire import decode_frame, encode_frame
from coterie.membership.messages import VsyncMessage

FRAME_BYTES: dict[str, str] = {
    "nothing": "434f010000000006fcf6ca0e94a16101c090",
    "Heartbeat": "434f01000000000fee1c324494a16101919292a1620292a1630190",
    "all that a frame can hold": (
        "434f01000000002c380c114994a16101919192a162029293a566697273740192920c9307"
        "a16202920e9307a1620293a67365636f6e640390"
    ),
    "Data": (
        "434f01000000002bad6ced1694a16101c09193a567726f7570019198019307a1620203cd"
        "012c920302c3c40092c4036f6e65c40374776f"
    ),
    "Data of DYNSEQ": (
        "434f01000000002b0830eb1494a16101c09193a567726f7570019198019307a1620203cd"
        "012c920302c2c40a93c3929200019201020090"
    ),
    "Data of TOKEN": (
        "434f01000000002ef1623dbc94a16101c09193a567726f7570019198019307a1620203cd"
        "012c920302c2c40893c3ce000111700091c4036f6e65"
    ),
    "Repair": (
        "434f0100000000286d3eacd694a16101c09193a567726f7570019197029307a162020103"
        "cd012cc40092c4036f6e65c40374776f"
    ),
    "Ack": ("434f01000000001a595bc74494a16101c09193a567726f7570019194039307a16202920302c2"),
    "Nak": (
        "434f01000000001f2443ac2e94a16101c09193a567726f7570019193049307a16202929300010293010303"
    ),
    "Direct of Token": (
        "434f01000000002833f7866994a16101c09193a567726f7570019193059307a16202c410"
        "97650904920403920202919301020200"
    ),
    "Direct of TokenArrived": (
        "434f01000000001bc785acc094a16101c09193a567726f7570019193059307a16202c403926609"
    ),
    "Direct of TokenWanted": (
        "434f01000000001a6e0a167794a16101c09193a567726f7570019193059307a16202c4029167"
    ),
    "Alive": (
        "434f0100000000269408772c94a16101c09193a567726f7570019194069306a161019292"
        "a1610192a16202c40576616c7565"
    ),
    "MergeRequest": (
        "434f010000000026832013ec94a16101c09193a567726f7570019194079306a161019292"
        "a1610192a16202c40576616c7565"
    ),
    "Propose": (
        "434f01000000001f69b1f87194a16101c09193a567726f7570019193089307a162029292a1610192a16202"
    ),
    "Refuse": ("434f01000000001bbd5a81be94a16101c09193a567726f7570019193099306a161019307a16202"),
    "Flush": (
        "434f01000000003ae9b319e894a16101c09193a567726f75700191980a9307a162029306"
        "a161019292a1610192a16202920302920102c40576616c7565920193a161a162a163"
    ),
    "Cut": (
        "434f0100000000229ada873894a16101c09193a567726f75700191940b9307a162029203"
        "029292a1620292a16101"
    ),
    "Ready": "434f0100000000165f3bbf7d94a16101c09193a567726f75700191920c9307a16202",
    "Install": (
        "434f01000000003f743b1acb94a16101c09193a567726f75700191980d9307a162029292"
        "a1610192a16202929306a161019306a1610192c400c40176920193a161a162a163920302"
        "920102"
    ),
    "Leave": "434f01000000001612f31e7694a16101c09193a567726f75700191920e9307a16202",
    "Removed": (
        "434f010000000027c204103494a16101c09193a567726f75700191930f9307a162029602"
        "91a16191a16292a161a16391a16490"
    ),
}

RECORD_BYTES: dict[str, str] = {
    "Started": "9701a16792a1610101ab544f4b454e3a5653594e43920193a161a162a163c2",
    "Stopped": "9402a16792a1610102",
    "ViewProposed": "9703a16792a16101039307a162029292a1610192a162029306a16101",
    "ViewInstalled": "9804a16792a16101049307a162029292a1610192a162029306a161019192a16101",
    "TransitionalInstalled": "9605a16792a16101059306a161019192a16101",
    "Sent": "9906a16792a16101069307a162020702c3ceffffffff",
    "Delivered": "9c07a16792a16202079307a1620292a16101070201c301ceffffffff",
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_has_the_bytes_it_always_had(kind: str) -> None:
    assert encode_frame(FRAMES[kind]).hex() == FRAME_BYTES[kind]


@pytest.mark.parametrize("kind", FRAMES)
def test_golden_bytes_are_read(kind: str) -> None:
    golden = bytes.fromhex(FRAME_BYTES[kind])
    assert decode_frame(golden, frame_bytes_max=1024) == FRAMES[kind]


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_is_told_by_its_tag(kind: str) -> None:
    [envelope] = FRAMES[kind].envelopes
    [raw] = envelope.messages
    assert msgspec.msgpack.decode(raw, type=VsyncMessage) == MESSAGES[kind]


@pytest.mark.parametrize("tag", [0, -1, 15, 255, "Data"])
def test_an_unknown_tag_is_a_decode_error(tag: object) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(msgspec.msgpack.encode([tag, [1, "a", 1]]), type=VsyncMessage)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_has_the_bytes_it_always_had(record: Record) -> None:
    golden = bytes.fromhex(RECORD_BYTES[type(record).__name__])
    assert encode_record(record) == golden
    assert decode_record(golden) == record


def test_every_kind_of_message_is_here() -> None:
    assert {type(message) for message in MESSAGES.values()} == set(get_args(VsyncMessage))
