"""The messages of leader and followers, and how they are read.

What the paper sends per connection is sent once a group here: there is one sequence of orders, one
of inputs, and all bytes are known by (connection, offset). `docs/internals/llft.md` has the table
of the paper's messages and ours.
"""

from __future__ import annotations

import msgspec

from coterie.kernel.claims import Input, OrderRun, Output, PrimaryClaim, ProgramState, Roster
from coterie.kernel.decoding import Count, Decoder


class OrdersMade(msgspec.Struct, tag=1, frozen=True, array_like=True):
    """From the primary to its edge: orders, with the output that rests on them."""

    claim: PrimaryClaim
    runs: list[OrderRun]
    outputs: list[Output]


class Reflected(msgspec.Struct, tag=2, frozen=True, array_like=True):
    """From the edge to all replicas: which orders there are, and some of them.

    A leader without an edge reflects its orders itself; so does a backup that was asked for some.
    """

    claim: PrimaryClaim
    """The highest the edge has heard; it takes orders of no other."""
    last: int
    """There are orders up to this number."""
    stored: int
    """The edge has all orders up to this one."""
    freed: int
    """Orders up to this number are no longer here."""
    runs: list[OrderRun]
    delivered: dict[str, Count]
    """How much of each connection's output has been taken: credit for as much more."""
    last_claim: PrimaryClaim
    """Of the last order there is."""


class Inputs(msgspec.Struct, tag=3, frozen=True, array_like=True):
    """From the edge to all replicas: inputs, and which there are."""

    inputs: list[Input]
    first: int
    """Earlier ones are no longer here."""
    last: int


class Nack(msgspec.Struct, tag=4, frozen=True, array_like=True):
    """To the edge: orders and inputs from these numbers on are missing here; 0 for none."""

    orders: int
    inputs: int


class Beat(msgspec.Struct, tag=5, frozen=True, array_like=True):
    """Heartbeat and second acknowledgement: how far a replica has executed, and what it frees."""

    claim: PrimaryClaim
    """The claim it leads by or follows."""
    is_leading: bool
    executed: int
    kept: int
    """The state after this order is kept: earlier ones it needs no more."""
    back: int
    """Inputs up to this number it needs no more."""


class ProposePrimary(msgspec.Struct, tag=6, frozen=True, array_like=True):
    """Phase one: a backup claims the next primary view."""

    claim: PrimaryClaim


class Promised(msgspec.Struct, tag=7, frozen=True, array_like=True):
    """The answer: the claim is followed here, and this is how far the orders go."""

    claim: PrimaryClaim
    last: int
    spans: list[tuple[int, PrimaryClaim]]


class ClaimSuperseded(msgspec.Struct, tag=8, frozen=True, array_like=True):
    """The answer to a claim that is not the highest."""

    claim: PrimaryClaim
    """The highest."""
    by_edge: bool


class ClaimDeclined(msgspec.Struct, tag=9, frozen=True, array_like=True):
    """The answer while the primary is heard of."""

    claim: PrimaryClaim
    """What was declined."""
    by_edge: bool


class NewPrimaryView(msgspec.Struct, tag=10, frozen=True, array_like=True):
    """Phase two, to the edge: take orders of no lower claim, and say what you hold."""

    claim: PrimaryClaim
    last: int
    spans: list[tuple[int, PrimaryClaim]]
    """Where each claim's orders begin in the proposer's log."""
    roster: Roster
    """Who belonged to the group where that log begins."""
    is_leading: bool
    """Whether it leads already, without the edge."""


class ViewAnswer(msgspec.Struct, tag=11, frozen=True, array_like=True):
    """From the edge: lower claims are fenced; up to `common` your log is mine."""

    claim: PrimaryClaim
    common: int
    stored: int
    freed: int
    inputs: int
    delivered: dict[str, Count]
    is_leading: bool
    """As in the question: only then another branch has given way."""


class ProposeBackup(msgspec.Struct, tag=12, frozen=True, array_like=True):
    """To the primary: I am new, or was removed; this is how far my orders go."""

    last: int
    spans: list[tuple[int, PrimaryClaim]]


class StateSent(msgspec.Struct, tag=13, frozen=True, array_like=True):
    """From the primary to a joiner: the state at a virtual synchrony point."""

    claim: PrimaryClaim
    state: ProgramState


class Resigned(msgspec.Struct, tag=14, frozen=True, array_like=True):
    """From a primary whose program is hung: do not wait for silence."""

    claim: PrimaryClaim


class AcceptBackup(msgspec.Struct, tag=15, frozen=True, array_like=True):
    """From the primary: you are on the roster, and up to `common` your orders are mine."""

    claim: PrimaryClaim
    common: int


class CarryBytes(msgspec.Struct, tag=16, frozen=True, array_like=True):
    """From edge to edge: bytes of a connection between two programs."""

    source: str
    """The group whose edge sends this."""
    conn: str
    offset: int
    data: bytes
    is_end: bool
    is_reset: bool = True
    """Whether it broke off; otherwise it was closed, and everything that was written is there."""
    source_epoch: Count = 0
    """Where edges have standbys: the epoch of who sends this."""
    epoch: Count = 0
    """And the one of the edge with which the connection began."""


class CarriedBytes(msgspec.Struct, tag=17, frozen=True, array_like=True):
    """The answer: all bytes up to this offset are here."""

    conn: str
    offset: int
    is_end: bool
    """Whether the connection has ended here, too."""


class AskOrders(msgspec.Struct, tag=18, frozen=True, array_like=True):
    """From a proposer without an edge to who has more: hand over what follows."""

    claim: PrimaryClaim
    after: int
    """The last order that both have; -1 if nothing is known of that."""
    inputs: int
    """The first input that is missing."""


class Handed(msgspec.Struct, tag=19, frozen=True, array_like=True):
    """The answer: some of the orders and inputs that follow, behind a state if that is needed."""

    claim: PrimaryClaim
    state: ProgramState | None
    runs: list[OrderRun]
    inputs: list[Input]


class ProposeEdge(msgspec.Struct, tag=20, frozen=True, array_like=True):
    """Beside a silent edge: let another take its place, if all lives of the roster agree."""

    claim: PrimaryClaim
    edge: str
    """Which one."""
    epoch: Count
    """The view with which the silent one began."""


class EdgeVote(msgspec.Struct, tag=21, frozen=True, array_like=True):
    """The answer: nothing older is used here any more, and these are all orders ever sent."""

    claim: PrimaryClaim
    last: int
    spans: list[tuple[int, PrimaryClaim]]
    stored: int
    """The silent edge is known to have had orders up to here."""
    inputs: int
    """The highest number of an input that is known of."""
    roster: Roster
    """As of the last order that is known to be stored."""
    pending: list[tuple[int, Roster]]
    """Rosters that orders behind that say, which may be stored."""


class ActivateEdge(msgspec.Struct, tag=22, frozen=True, array_like=True):
    """To the other edge: begin."""

    claim: PrimaryClaim
    state: ProgramState
    runs: list[OrderRun]


class EdgeBegun(msgspec.Struct, tag=23, frozen=True, array_like=True):
    """From an edge that took another's place: this is how it began."""

    claim: PrimaryClaim
    state: ProgramState


class AskBegun(msgspec.Struct, tag=24, frozen=True, array_like=True):
    """To an edge that began: say how."""


class EdgeHello(msgspec.Struct, tag=28, frozen=True, array_like=True):
    """From edge to edge, of programs that speak with each other: older ones are gone."""

    source: str
    epoch: Count


class AskRefusal(msgspec.Struct, tag=25, frozen=True, array_like=True):
    """To an edge that has not begun: never begin by this claim."""

    claim: PrimaryClaim


class EdgeDeclined(msgspec.Struct, tag=26, frozen=True, array_like=True):
    """The answer: it never does."""

    claim: PrimaryClaim


Message = (
    OrdersMade
    | Reflected
    | Inputs
    | Nack
    | Beat
    | ProposePrimary
    | Promised
    | ClaimSuperseded
    | ClaimDeclined
    | NewPrimaryView
    | ViewAnswer
    | ProposeBackup
    | StateSent
    | Resigned
    | AcceptBackup
    | CarryBytes
    | CarriedBytes
    | AskOrders
    | Handed
)
"""Everything that replicas and edges send each other where a program has one edge."""


class AtEdge(msgspec.Struct, tag=27, frozen=True, array_like=True):
    """With a standby: what a replica and an edge say to each other, and in which epoch."""

    epoch: Count
    """The view with which the edge began; 0 for the first."""
    message: Message


StandbyMessage = (
    Message
    | ProposeEdge
    | EdgeVote
    | ActivateEdge
    | EdgeBegun
    | AskBegun
    | AskRefusal
    | EdgeDeclined
    | EdgeHello
    | AtEdge
)
"""Everything that they send each other where an edge has a standby."""

decoder: Decoder[Message] = Decoder(Message)
standby_decoder: Decoder[StandbyMessage] = Decoder(StandbyMessage)
