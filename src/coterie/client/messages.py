"""What clients and replicas say to each other.

A connection begins with a client's `Hello` to one group. A replica that asks for proof of a shared
secret answers `Challenge` and gets `Proof`; then it says `Welcome`, or `Farewell` with the reason.
From then on a client sends `Ask`, which packs everything it asked for in one tick of its loop, and
a replica sends what one turn brought: `Answers`, `Refusals` and news. Neither waits for the other:
requests are known by (session, number), or by a token where there is no session.

| From | Message | When |
|---|---|---|
| client | `Hello`, `Proof` | at the start |
| client | `Ask` | any time; everything in it may be said again, here or to another replica |
| client | `Ping` | nothing was heard for a while |
| both | `Carry` | what a client of transactions and the cohorts say to each other |
| replica | `Challenge`, `Welcome`, `Farewell` | at the start; `Farewell` before it closes, too |
| replica | `Answers`, `Refusals` | a turn has ended, and what it promises is written down |
| replica | `Settled`, `RolledBack` | answers that were optimistic became authoritative, or void |
| replica | `AskAgain` | the state was replaced: answers may have been passed over |
| replica | `News` | the members, their addresses, or this replica's role have changed |
| replica | `Reported` | a report was asked for |
| replica | `Pong` | at once |

New messages get new tags, and new fields go last with a default.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from coterie.kernel.engine import Version
from coterie.kernel.views import ViewId
from coterie.objects.commands import Microseconds
from coterie.objects.outcomes import Answer

TOKEN_BITS = 32
"""A client's tokens are below 2 to this; a replica puts the connection's number above them."""
TOKEN_MAX = (1 << TOKEN_BITS) - 1
NONCE_BYTES = 16

Token = Annotated[int, msgspec.Meta(ge=0, le=TOKEN_MAX)]
Number = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
"""Of a session, or of a request in it; journals and tables have 64 bits with a sign for it."""
Name = Annotated[str, msgspec.Meta(max_length=256)]
Nonce = Annotated[bytes, msgspec.Meta(max_length=64)]


class Peer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A replica of the group, as another one sees it."""

    id: str
    address: str
    """Where it takes clients; empty if that is not known."""
    is_in_view: bool
    """Whether the one that says so is in touch with it."""


# ---- the start


class Hello(msgspec.Struct, tag=1, frozen=True, array_like=True, gc=False):
    """Which group is meant; no name means the only one there is."""

    group: Name
    nonce: Nonce


class Challenge(msgspec.Struct, tag=2, frozen=True, array_like=True, gc=False):
    """Prove that you know the secret (`coterie.client.proof`)."""

    nonce: Nonce


class Proof(msgspec.Struct, tag=3, frozen=True, array_like=True, gc=False):
    """The proof."""

    proof: Nonce


class Welcome(msgspec.Struct, tag=4, frozen=True, array_like=True, gc=False):
    """The connection is open."""

    group: str
    class_name: str
    replica: str
    incarnation: int
    role: str
    peers: list[Peer]
    majority: int
    """How many replicas of the group are a majority."""
    window_requests_max: int
    """How many results of one session are kept; its client must not have more outstanding."""
    frame_bytes_max: int
    proof: bytes = b""
    """That the replica knows the secret, too."""
    engine: str = ""
    """`vsr` where the group takes transactions, and nothing by `Ask` but reports."""
    cluster: str = ""
    """The deployment; transactions are over groups of one."""


class Farewell(msgspec.Struct, tag=5, frozen=True, array_like=True, gc=False):
    """The connection is closed, and why. The kind is one of those in `coterie.client.errors`."""

    kind: str
    reason: str


# ---- asking


class Update(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One call of an update."""

    session: Number
    number: Number
    lowest: Number
    method: Name
    arguments: msgspec.Raw


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Calls of one method with consecutive numbers, which become one entry.

    If one of them cannot be made none is, and the refusal bears the first number.
    """

    session: Number
    first: Number
    lowest: Number
    method: Name
    arguments: msgspec.Raw
    """An array with the arguments of each call."""


class Query(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One call of a query."""

    token: Token
    level: Name
    method: Name
    arguments: msgspec.Raw


class Ask(msgspec.Struct, tag=6, frozen=True, array_like=True, gc=False):
    """Everything a client asks for at one moment."""

    asked_at: Microseconds
    """By the client's own clock, in microseconds since 1970: for reports only."""
    updates: list[Update] = []
    batches: list[Batch] = []
    queries: list[Query] = []
    opens: list[Token] = []
    """Tokens: open a session for each."""
    closes: list[Number] = []
    """Sessions that are not needed any more."""
    watches: list[tuple[Number, Number]] = []
    """Requests (session, number) made elsewhere that are to be answered here, too."""
    unwatches: list[tuple[Number, Number]] = []
    reports: list[Token] = []
    """Tokens: report on yourself for each."""


class Ping(msgspec.Struct, tag=7, frozen=True, array_like=True, gc=False):
    """The client asks whether the replica is there."""


# ---- answering


class Answers(msgspec.Struct, tag=8, frozen=True, array_like=True, gc=False):
    """How requests ended. Where there is no session it is 0, and the token is the request."""

    answers: list[Answer]


class Refusal(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request that cannot be made like this; it had no effect."""

    session: int
    request: int
    kind: str
    reason: str


class Refusals(msgspec.Struct, tag=9, frozen=True, array_like=True, gc=False):
    """Requests that had no effect."""

    refusals: list[Refusal]


class Settled(msgspec.Struct, tag=10, frozen=True, array_like=True, gc=False):
    """All answers from positions up to this one are authoritative now."""

    position: int


class RolledBack(msgspec.Struct, tag=11, frozen=True, array_like=True, gc=False):
    """All answers from positions above this one are void."""

    position: int


class AskAgain(msgspec.Struct, tag=12, frozen=True, array_like=True, gc=False):
    """Ask again for everything you still wait for here."""


class News(msgspec.Struct, tag=13, frozen=True, array_like=True, gc=False):
    """Where the replica stands in its group now."""

    role: str
    peers: list[Peer]


class Pong(msgspec.Struct, tag=14, frozen=True, array_like=True, gc=False):
    """It is."""


# ---- transactions


class Carry(msgspec.Struct, tag=16, frozen=True, array_like=True, gc=False):
    """A frame as processes send each other (`coterie.kernel.wire`).

    A client of transactions is a process of its own, called @ and something by chance; the groups
    it speaks to are at the other end of the connection.
    """

    frame: bytes


# ---- reports, for people and the command line


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a method."""

    name: str
    type: str
    """As its author wrote it."""
    schema: str
    """JSON Schema, as text; empty if there is none."""
    is_optional: bool
    default: str = ""
    """As Python writes it."""


class MethodReport(msgspec.Struct, frozen=True):
    """A method that may be called."""

    name: str
    kind: str
    parameters: list[Parameter]
    result: str
    documentation: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica says of itself and its group, for people."""

    group: str
    class_name: str
    documentation: str
    methods: list[MethodReport]
    replica: str
    incarnation: int
    role: str
    view: ViewId
    members: list[str]
    """Who is in the view, with their lives."""
    peers: list[Peer]
    position: int
    settled: int
    is_zombie: bool
    faults: list[str]
    trouble: str = ""
    """Why the replica is not as it should be, in words for an operator; empty if it is."""
    version: Version | None = None
    """How advanced its history is."""
    engine: str = ""
    """`vsr`, or empty where a stack orders the entries; the fields below are for **vsr**."""
    primary: str = ""
    """Who leads the view, with its life."""
    viewstamp: str = ""
    """The last event it knows."""
    transactions: int = 0
    """How many are in progress."""


class Reported(msgspec.Struct, tag=15, frozen=True, array_like=True, gc=False):
    """The report that was asked for."""

    token: int
    report: Report


FromClient = Hello | Proof | Ask | Ping | Carry
FromReplica = (
    Challenge
    | Welcome
    | Farewell
    | Answers
    | Refusals
    | Settled
    | RolledBack
    | AskAgain
    | News
    | Pong
    | Reported
    | Carry
)

encode = msgspec.msgpack.Encoder().encode
"""Give the body of a frame for a list of messages."""

decode_from_client = msgspec.msgpack.Decoder(list[FromClient]).decode
decode_from_replica = msgspec.msgpack.Decoder(list[FromReplica]).decode
"""Read the body of a frame; they raise one of `coterie.kernel.errors.DECODE_ERRORS`."""
