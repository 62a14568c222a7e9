"""Bytes of every message between clients and replicas, so that none changes unnoticed.

What fails here cannot be read by clients or replicas in use: raise `VERSION`, say so in the
changelog, and only then record the new bytes. `Reported` is for people and may grow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import msgspec
import pytest
from tests.protocol.golden import FROM_CLIENT, FROM_REPLICA

from coterie.protocol.frames import encode_frame, frame_reader
from coterie.protocol.messages import (
    Answers,
    FromClient,
    FromReplica,
    Hello,
    Reported,
    decode_from_client,
    decode_from_replica,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

BYTES: dict[str, str] = {
    "Carry": ("43430100000000075e8287779192119203a178"),
    "PaperListen": ("434301000000000ad819e4d8919212a6726561646572"),
    "PaperRequest": ("434301000000000d7b9ab0ed919313a6726561646572c40106"),
    "PaperReply": ("434301000000001154d0c80e919414a672656164657292a16102c4012a"),
    "Hello": ("434301000000001b8c5890cb919301a57365617473c41001010101010101010101010101010101"),
    "Proof": (
        "43430100000000251e1f2380919203c4200202020202020202020202020202020202020202020202"
        "020202020202020202"
    ),
    "Ask for nothing": ("434301000000001521a07321919b06cf00060a24181e4000909090909090909090"),
    "Ask for everything": (
        "434301000000005fc87da7a3919b06cf00060a24181e40009195090302a36164649203a178919509"
        "0402a3616464929203a1789204a179919401a47765616ba472656164909102910891920905919209"
        "0691039196090502a36164649203a1789193a47265616490c40108"
    ),
    "Ping": ("43430100000000035e813533919107"),
    "Challenge": ("4343010000000015f93d9b62919202c41003030303030303030303030303030303"),
    "Welcome": (
        "4343010000000061a5cdbe90919f04a57365617473a55365617473a16102a77072696d6172799293"
        "a161ad31302e302e302e313a37313031c393a162a0c202cd0400ce00400000c42004040404040404"
        "04040404040404040404040404040404040404040404040404a0a0a000"
    ),
    "Farewell": (
        "434301000000001f3fa6abf3919305a567726f7570b57468657265206973206e6f2067726f757020277827"
    ),
    "Answers": (
        "43430100000000aade350c189192089a9709039501289307a161020cc4010502ce0019f0a0a00097"
        "09049609299307a161020d0492c40106c401070101a00097090697022a9307a161020ea446756c6c"
        "a76e6f2073656174c4000201a00097090791030201a0009709019204020201a00097090892050202"
        "01a0009709099206ab6e6f206d616a6f726974790001a00097000292070a0201a000970800910802"
        "00a0009700039501289307a161020cc401050001a007"
    ),
    "Refusals": (
        "434301000000001e2dbf769291920991940903a9617267756d656e7473ac6e6f742061206e756d626572"
    ),
    "SettledNotice": ("43430100000000042af68bc691920a29"),
    "RolledBackNotice": ("4343010000000004d455978091920b27"),
    "AskAgain": ("4343010000000003c953ecbb91910c"),
    "News": (
        "43430100000000246436073e91930da86d696e6f726974799293a161ad31302e302e302e313a3731"
        "3031c393a162a0c2"
    ),
    "Pong": ("4343010000000003275d8d9791910e"),
}

ALL: dict[str, Sequence[FromClient | FromReplica]] = {**FROM_CLIENT, **FROM_REPLICA}


@pytest.mark.parametrize("name", ALL)
def test_the_bytes_are_what_they_were(name: str) -> None:
    assert encode_frame(encode(ALL[name])).hex() == BYTES[name]


@pytest.mark.parametrize("name", ALL)
def test_they_are_read_as_what_they_are(name: str) -> None:
    [body] = frame_reader(frame_bytes_max=1 << 20).feed(bytes.fromhex(BYTES[name]))
    decode = decode_from_client if name in FROM_CLIENT else decode_from_replica
    assert decode(body) == ALL[name]


def test_no_message_is_left_out() -> None:
    shown = {type(message) for messages in ALL.values() for message in messages}
    assert shown == {*get_args(FromClient), *get_args(FromReplica)} - {Reported}


def test_fields_that_a_reader_does_not_know_are_passed_over() -> None:
    """So that a later release can add some at the end."""
    body = encode([[1, "seats", b"", "something new"]])
    assert decode_from_client(body) == [Hello("seats", b"")]


def test_a_welcome_of_an_earlier_release_names_no_preferred_replica() -> None:
    [welcome] = FROM_REPLICA["Welcome"]
    earlier = msgspec.structs.astuple(welcome)[:-2]
    [read] = decode_from_replica(encode([(4, *earlier)]))
    assert read == welcome


BEFORE_CONDITIONS = {
    "Ask for nothing": ("434301000000001453d5e744919a06cf00060a24181e40009090909090909090"),
    "Answers": (
        "434301000000008e1782f7bf919208999609039501289307a161020cc4010502ce0019f0a0a09609"
        "049609299307a161020d0492c40106c401070101a096090697022a9307a161020ea446756c6ca76e"
        "6f2073656174c4000201a096090791030201a09609019204020201a09609089205020201a0960909"
        "9206ab6e6f206d616a6f726974790001a096000292070a0201a096080091080200a0"
    ),
}


@pytest.mark.parametrize("name", BEFORE_CONDITIONS)
def test_frames_of_a_release_without_conditions_are_read(name: str) -> None:
    """Fields were added at the end: conditions of calls, the age of answers."""
    frame = bytes.fromhex(BEFORE_CONDITIONS[name])
    [body] = frame_reader(frame_bytes_max=1 << 20).feed(frame)
    [message] = ALL[name]
    if isinstance(message, Answers):
        assert decode_from_replica(body) == [Answers(message.answers[:-1])]
    else:
        assert decode_from_client(body) == [message]
