"""One frame with each kind of message, for the golden bytes and for seeds of mutations."""

from __future__ import annotations

import msgspec

from coterie.kernel.records import (
    Delivered,
    Delivery,
    Record,
    Sent,
    Started,
    Stopped,
    TransitionalInstalled,
    ViewInstalled,
    ViewProposed,
)
from coterie.kernel.views import ChangedConfiguration, Configuration, Member, ViewId
from coterie.kernel.wire import Envelope, Frame, Heartbeat
from coterie.membership.messages import (
    Ack,
    Alive,
    Cut,
    Data,
    Direct,
    Flush,
    Install,
    Leave,
    MergeRequest,
    Nak,
    Propose,
    Ready,
    Refuse,
    Removed,
    Repair,
    VsyncMessage,
)
from coterie.ordering.dynseq import SequencerHeader
from coterie.ordering.token import Token, TokenArrived, TokenHeader, TokenWanted

encode = msgspec.msgpack.encode

A, B = Member("a", 1), Member("b", 2)
OLD, NEW = ViewId(6, "a", 1), ViewId(7, "b", 2)
YES, NO = True, False
CONFIGURATION = Configuration(1, ("a", "b", "c"))

MESSAGES: dict[str, VsyncMessage] = {
    "Data": Data(NEW, 3, 300, [3, 2], YES, b"", [b"one", b"two"]),
    "Data of DYNSEQ": Data(
        NEW, 3, 300, [3, 2], NO, encode(SequencerHeader(YES, [(0, 1), (1, 2)])), []
    ),
    "Data of TOKEN": Data(NEW, 3, 300, [3, 2], NO, encode(TokenHeader(YES, 70000)), [b"one"]),
    "Repair": Repair(NEW, 1, 3, 300, b"", [b"one", b"two"]),
    "Ack": Ack(NEW, [3, 2], NO),
    "Nak": Nak(NEW, [(0, 1, 2), (1, 3, 3)]),
    "Direct of Token": Direct(NEW, encode(Token(9, 4, [4, 3], [2, 2], [(1, 2, 2)], 0))),
    "Direct of TokenArrived": Direct(NEW, encode(TokenArrived(9))),
    "Direct of TokenWanted": Direct(NEW, encode(TokenWanted())),
    "Alive": Alive(OLD, (A, B), b"value"),
    "MergeRequest": MergeRequest(OLD, (A, B), b"value"),
    "Propose": Propose(NEW, (A, B)),
    "Refuse": Refuse(OLD, NEW),
    "Flush": Flush(NEW, OLD, (A, B), [3, 2], [1, 2], b"value", CONFIGURATION),
    "Cut": Cut(NEW, [3, 2], [B, A]),
    "Ready": Ready(NEW),
    "Install": Install(NEW, (A, B), (OLD, OLD), (b"", b"v"), CONFIGURATION, [3, 2], [1, 2]),
    "Leave": Leave(NEW),
    "Removed": Removed(NEW, ChangedConfiguration(2, ("a",), ("b",), ("a", "c"), ("d",))),
}

FRAMES: dict[str, Frame] = {
    "nothing": Frame("a", 1, None, []),
    "Heartbeat": Frame("a", 1, Heartbeat((("b", 2), ("c", 1))), []),
    "all that a frame can hold": Frame(
        "a",
        1,
        Heartbeat((("b", 2),)),
        [
            Envelope(
                "first", 1, [msgspec.Raw(encode(Ready(NEW))), msgspec.Raw(encode(Leave(NEW)))]
            ),
            Envelope("second", 3, []),
        ],
    ),
} | {
    name: Frame("a", 1, None, [Envelope("group", 1, [msgspec.Raw(encode(message))])])
    for name, message in MESSAGES.items()
}

RECORDS: list[Record] = [
    Started(group="g", member=A, at=1, stack="TOKEN:VSYNC", configuration=CONFIGURATION),
    Stopped(group="g", member=A, at=2),
    ViewProposed(group="g", member=A, at=3, view=NEW, members=(A, B), after=OLD),
    ViewInstalled(
        group="g", member=A, at=4, view=NEW, members=(A, B), previous=OLD, transitional=(A,)
    ),
    TransitionalInstalled(group="g", member=A, at=5, view=OLD, members=(A,)),
    Sent(group="g", member=A, at=6, view=NEW, first=7, count=2, safe=True, digest=0xFFFFFFFF),
    Delivered(
        group="g",
        member=B,
        at=7,
        view=NEW,
        sender=A,
        first=7,
        count=2,
        number=1,
        safe=True,
        delivery=Delivery.TRANSITIONAL,
        digest=0xFFFFFFFF,
    ),
]
