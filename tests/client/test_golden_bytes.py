"""Bytes of every message between clients and replicas, so that none changes unnoticed.

What fails here cannot be read by clients or replicas in use: raise `VERSION`, say so in the
changelog, and only then record the new bytes. `Reported` is for people and may grow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest
from tests.client.golden import FROM_CLIENT, FROM_REPLICA

from coterie.client.frames import FrameReader, encode_frame
from coterie.client.messages import (
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
    "Carry": ("434301000000000ce9c4c62e919210c40761206672616d65"),
    "Hello": ("434301000000001b8c5890cb919301a57365617473c41001010101010101010101010101010101"),
    "Proof": (
        "43430100000000251e1f2380919203c4200202020202020202020202020202020202020202020202"
        "020202020202020202"
    ),
    "Ask for nothing": ("434301000000001453d5e744919a06cf00060a24181e40009090909090909090"),
    "Ask for everything": (
        "43430100000000470c2d6f5f919a06cf00060a24181e40009195090302a36164649203a178919509"
        "0402a3616464929203a1789204a179919401a47765616ba472656164909102910891920905919209"
        "069103"
    ),
    "Ping": ("43430100000000035e813533919107"),
    "Challenge": ("4343010000000015f93d9b62919202c41003030303030303030303030303030303"),
    "Welcome": (
        "434301000000005fecb74aa5919d04a57365617473a55365617473a16102a77072696d6172799293"
        "a161ad31302e302e302e313a37313031c393a162a0c202cd0400ce00400000c42004040404040404"
        "04040404040404040404040404040404040404040404040404a0a0"
    ),
    "Farewell": (
        "434301000000001f3fa6abf3919305a567726f7570b57468657265206973206e6f2067726f757020277827"
    ),
    "Answers": (
        "4343010000000083c2b56950919208999509039501289307a161020cc4010502ce0019f0a0950904"
        "9609299307a161020d0492c40106c40107010195090696022a9307a161020ea446756c6ca76e6f20"
        "73656174020195090791030201950901920402020195090892050202019509099206ab6e6f206d61"
        "6a6f72697479000195000292070a020195080091080200"
    ),
    "Refusals": (
        "434301000000001e2dbf769291920991940903a9617267756d656e7473ac6e6f742061206e756d626572"
    ),
    "Settled": ("43430100000000042af68bc691920a29"),
    "RolledBack": ("4343010000000004d455978091920b27"),
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
    [body] = FrameReader(frame_bytes_max=1 << 20).feed(bytes.fromhex(BYTES[name]))
    decode = decode_from_client if name in FROM_CLIENT else decode_from_replica
    assert decode(body) == ALL[name]


def test_no_message_is_left_out() -> None:
    shown = {type(message) for messages in ALL.values() for message in messages}
    assert shown == {*get_args(FromClient), *get_args(FromReplica)} - {Reported}


def test_fields_that_a_reader_does_not_know_are_passed_over() -> None:
    """So that a later release can add some at the end."""
    body = encode([[1, "seats", b"", "something new"]])
    assert decode_from_client(body) == [Hello("seats", b"")]
