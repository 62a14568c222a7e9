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
| client | `PaperListen`, `PaperRequest` | a client with the paper's own interface asks its object |
| replica | `PaperReply` | such an object answers |
| replica | `Challenge`, `Welcome`, `Farewell` | at the start; `Farewell` before it closes, too |
| replica | `Answers`, `Refusals` | a turn has ended, and what it promises is written down |
| replica | `SettledNotice`, `RolledBackNotice` | optimistic answers became authoritative, or void |
| replica | `AskAgain` | the state was replaced: answers may have been passed over |
| replica | `News` | the members, their addresses, or this replica's role have changed |
| replica | `Reported` | a report was asked for |
| replica | `Pong` | at once |

New messages get new tags, and new fields go last with a default.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.engine import Version
from coterie.kernel.views import ChangedConfiguration, Member, ViewId
from coterie.objects.execution.commands import Conditions, Microseconds
from coterie.objects.execution.outcomes import Answer

TOKEN_BITS = 32
"""A client's tokens are below 2 to this; a replica puts the connection's number above them."""
TOKEN_MAX = (1 << TOKEN_BITS) - 1

Token = Annotated[int, msgspec.Meta(ge=0, le=TOKEN_MAX)]
Number = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
"""The number of a session or of a request in it; journals and tables have 64 bits with a sign."""
Name = Annotated[str, msgspec.Meta(max_length=256)]
Nonce = Annotated[bytes, msgspec.Meta(max_length=64)]


REQUESTS_MAX = 16_384
"""How much of one kind a client may ask for in one message."""
REPORTS_MAX = 16
"""How many reports a client may ask for in one message; each is larger than what asks for it."""
MESSAGES_MAX = 16
"""How many messages a client may put into one frame."""
_BOUNDED = msgspec.Meta(max_length=REQUESTS_MAX)


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
    """Prove that you know the secret (`coterie.protocol.proof`)."""

    nonce: Nonce


class Proof(msgspec.Struct, tag=3, frozen=True, array_like=True, gc=False):
    """The client's answer to `Challenge`: that it knows the secret."""

    proof: Nonce


class Welcome(msgspec.Struct, tag=4, frozen=True, array_like=True, gc=False):
    """The replica has taken the client: requests may follow."""

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
    """Proves that the replica knows the secret, too."""
    engine: str = ""
    """The engine family of the group: how its clients have to speak to it."""
    cluster: str = ""
    """The deployment; transactions are over groups of one."""
    preferred: str = ""
    """The replica where one call at a time is answered soonest, if there is one and, where it is
    the one that speaks, it has room; clients that ask for much had better spread."""
    owner: int = 0
    """What stands for the client's credential in what it names; 0 if it has none."""


def guest_prefix(owner: int) -> str:
    """Give how a client of transactions that has a credential, or none (0), is to call itself.

    Whoever has another credential cannot pass for it, at any replica.
    """
    return f"@{owner:07x}." if owner else "@"


class Farewell(msgspec.Struct, tag=5, frozen=True, array_like=True, gc=False):
    """The connection is closed, and why. The kind is one of `coterie.protocol.kinds`."""

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


class UpdateIf(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One call of an update on condition: that queries answer what they did."""

    session: Number
    number: Number
    lowest: Number
    method: Name
    arguments: msgspec.Raw
    conditions: Conditions


class UpdateBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
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
    """When it asks, by the client's own clock, in microseconds since 1970: for reports only."""
    updates: Annotated[list[Update], _BOUNDED] = []
    batches: Annotated[list[UpdateBatch], _BOUNDED] = []
    queries: Annotated[list[Query], _BOUNDED] = []
    opens: Annotated[list[Token], _BOUNDED] = []
    """Tokens: open a session for each."""
    closes: Annotated[list[Number], _BOUNDED] = []
    """Sessions that are not needed any more."""
    watches: Annotated[list[tuple[Number, Number]], _BOUNDED] = []
    """Requests (session, number) made elsewhere that are to be answered here, too."""
    unwatches: Annotated[list[tuple[Number, Number]], _BOUNDED] = []
    reports: Annotated[list[Token], msgspec.Meta(max_length=REPORTS_MAX)] = []
    """Tokens: report on yourself for each."""
    conditional: Annotated[list[UpdateIf], _BOUNDED] = []

    @property
    def count(self) -> int:
        """How many things are asked for, whatever they are."""
        return (
            len(self.updates)
            + len(self.batches)
            + len(self.queries)
            + len(self.opens)
            + len(self.closes)
            + len(self.watches)
            + len(self.unwatches)
            + len(self.reports)
            + len(self.conditional)
        )


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


class SettledNotice(msgspec.Struct, tag=10, frozen=True, array_like=True, gc=False):
    """All answers from positions up to this one are authoritative now."""

    position: int


class RolledBackNotice(msgspec.Struct, tag=11, frozen=True, array_like=True, gc=False):
    """All answers from positions above this one are void."""

    position: int


class AskAgain(msgspec.Struct, tag=12, frozen=True, array_like=True, gc=False):
    """Ask again for everything you still wait for here."""


class News(msgspec.Struct, tag=13, frozen=True, array_like=True, gc=False):
    """Where the replica stands in its group now."""

    role: str
    peers: list[Peer]


class Pong(msgspec.Struct, tag=14, frozen=True, array_like=True, gc=False):
    """The replica is there: the answer to `Ping`."""


# ---- transactions


class Carry(msgspec.Struct, tag=17, frozen=True, array_like=True, gc=False):
    """What processes say to each other: the body of a frame between them (`coterie.kernel.wire`).

    A client of transactions is a process of its own, called @ and something by chance; the groups
    it speaks to are at the other end of the connection. (Tag 16 was a whole frame in a frame.)
    """

    body: msgspec.Raw


# ---- the paper's own clients (`coterie.objects.paper`)


class PaperListen(msgspec.Struct, tag=18, frozen=True, array_like=True, gc=False):
    """Answers to this client are to come by this connection, too."""

    client: Name


class PaperRequest(msgspec.Struct, tag=19, frozen=True, array_like=True, gc=False):
    """A client's request to the object at this replica."""

    client: Name
    request: bytes


class PaperReply(msgspec.Struct, tag=20, frozen=True, array_like=True, gc=False):
    """An answer of the object at one replica to a client."""

    client: str
    origin: Member
    reply: bytes


# ---- reports, for people and the command line


class Parameter(msgspec.Struct, frozen=True):
    """One parameter of a method."""

    name: str
    type: str
    """The annotation, as its author wrote it."""
    schema: str
    """JSON Schema, as text; empty if there is none."""
    is_optional: bool
    default: str = ""
    """The default value, as Python writes it; empty if there is none."""


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
    """The engine family of the group."""
    primary: str = ""
    """Who leads the view, with its life, in engines in which one does."""
    details: dict[str, str | int] = {}
    """What only this engine has to say."""
    cannot_recover: str = ""
    """Why the group cannot be let go on with loss, in words; empty where it can."""
    configuration: ChangedConfiguration | None = None
    """Who belongs to the group, as far as is settled here; None where members cannot change."""


class Reported(msgspec.Struct, tag=15, frozen=True, array_like=True, gc=False):
    """The replica's report on itself, which a client asked for."""

    token: int
    report: Report


FromClient = Hello | Proof | Ask | Ping | Carry | PaperListen | PaperRequest
FromReplica = (
    Challenge
    | Welcome
    | Farewell
    | Answers
    | Refusals
    | SettledNotice
    | RolledBackNotice
    | AskAgain
    | News
    | Pong
    | Reported
    | Carry
    | PaperReply
)

encode = msgspec.msgpack.Encoder().encode
"""Give the body of a frame for a list of messages."""

_from_client: Decoder[list[FromClient]] = Decoder(
    Annotated[list[FromClient], msgspec.Meta(max_length=MESSAGES_MAX)]
)
decode_from_client = _from_client.decode
decode_from_replica = Decoder(list[FromReplica]).decode
"""Read the body of a frame; they raise `msgspec.DecodeError`."""
