"""One of every message between clients and replicas."""

from __future__ import annotations

import msgspec

from coterie.kernel.engine import Standing
from coterie.kernel.views import Member, ViewId
from coterie.objects.execution.commands import NO_ARGUMENTS, Condition
from coterie.objects.execution.outcomes import (
    AllDone,
    AlreadyForgotten,
    Answer,
    Closed,
    Done,
    Failed,
    NotTaken,
    Opened,
    SessionEvicted,
    WindowFull,
)
from coterie.protocol.messages import (
    Answers,
    Ask,
    AskAgain,
    Carry,
    Challenge,
    Farewell,
    FromClient,
    FromReplica,
    Hello,
    News,
    PaperListen,
    PaperReply,
    PaperRequest,
    Peer,
    Ping,
    Pong,
    Proof,
    Query,
    Refusal,
    Refusals,
    RolledBackNotice,
    SettledNotice,
    Update,
    UpdateBatch,
    UpdateIf,
    Welcome,
)

VIEW = ViewId(7, "a", 2)
ARGUMENTS = msgspec.Raw(msgspec.msgpack.encode([3, "x"]))
CALLS = msgspec.Raw(msgspec.msgpack.encode([[3, "x"], [4, "y"]]))
PEERS = [Peer("a", "10.0.0.1:7101", is_in_view=True), Peer("b", "", is_in_view=False)]

FROM_CLIENT: dict[str, list[FromClient]] = {
    "Carry": [Carry(ARGUMENTS)],
    "PaperListen": [PaperListen("reader")],
    "PaperRequest": [PaperRequest("reader", b"\x06")],
    "Hello": [Hello("seats", b"\x01" * 16)],
    "Proof": [Proof(b"\x02" * 32)],
    "Ask for nothing": [Ask(1_700_000_000_000_000)],
    "Ask for everything": [
        Ask(
            1_700_000_000_000_000,
            [Update(9, 3, 2, "add", ARGUMENTS)],
            [UpdateBatch(9, 4, 2, "add", CALLS)],
            [Query(1, "weak", "read", msgspec.Raw(b"\x90"))],
            [2],
            [8],
            [(9, 5)],
            [(9, 6)],
            [3],
            [UpdateIf(9, 5, 2, "add", ARGUMENTS, (Condition("read", NO_ARGUMENTS, b"\x08"),))],
        )
    ],
    "Ping": [Ping()],
}

FROM_REPLICA: dict[str, list[FromReplica]] = {
    "Challenge": [Challenge(b"\x03" * 16)],
    "Welcome": [
        Welcome("seats", "Seats", "a", 2, "primary", PEERS, 2, 1024, 4 << 20, b"\x04" * 32)
    ],
    "Farewell": [Farewell("group", "there is no group 'x'")],
    "Answers": [
        Answers(
            [
                Answer(9, 3, Done(40, VIEW, 12, b"\x05"), Standing.AUTHORITATIVE, 1_700_000),
                Answer(9, 4, AllDone(41, VIEW, 13, 4, [b"\x06", b"\x07"]), Standing.OPTIMISTIC, 1),
                Answer(9, 6, Failed(42, VIEW, 14, "Full", "no seat"), Standing.AUTHORITATIVE, 1),
                Answer(9, 7, SessionEvicted(), Standing.AUTHORITATIVE, 1),
                Answer(9, 1, AlreadyForgotten(2), Standing.AUTHORITATIVE, 1),
                Answer(9, 8, WindowFull(2), Standing.AUTHORITATIVE, 1),
                Answer(9, 9, NotTaken("no majority"), Standing.NON_PRIMARY, 1),
                Answer(0, 2, Opened(10), Standing.AUTHORITATIVE, 1),
                Answer(8, 0, Closed(), Standing.AUTHORITATIVE, 0),
                Answer(0, 3, Done(40, VIEW, 12, b"\x05"), Standing.NON_PRIMARY, 1, age=7),
            ]
        )
    ],
    "Refusals": [Refusals([Refusal(9, 3, "arguments", "not a number")])],
    "SettledNotice": [SettledNotice(41)],
    "RolledBackNotice": [RolledBackNotice(39)],
    "AskAgain": [AskAgain()],
    "News": [News("minority", PEERS)],
    "Pong": [Pong()],
    "PaperReply": [PaperReply("reader", Member("a", 2), b"\x2a")],
}
