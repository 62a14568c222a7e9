"""What replicas and edges of leader and followers (**llft**) report.

They are the stable storage of both (`coterie.llft.memory` makes of them what is known), and all
that checks read.
"""

from __future__ import annotations

from coterie.kernel.claims import Input, OrderRun, Output, PrimaryClaim, ProgramState, Roster
from coterie.kernel.decoding import Int64
from coterie.kernel.records.base import Record


class ClaimPromised(Record, tag=-17, frozen=True, kw_only=True):
    """This replica follows no lower claim; or this edge takes no orders of a lower one."""

    claim: PrimaryClaim


class OrdersKnown(Record, tag=-18, frozen=True, kw_only=True):
    """This replica made orders, or got them; or this edge stored them."""

    runs: list[OrderRun]


class OrdersStored(Record, tag=-19, frozen=True, kw_only=True):
    """This replica knows that the edge has all orders up to a number."""

    number: Int64


class SideBranchDiscarded(Record, tag=-20, frozen=True, kw_only=True):
    """All orders above a number are given up here: another claim's orders stand there."""

    number: Int64
    count: Int64
    was_stored: bool
    """Whether the edge had stored some of them, so that clients may have seen what came of them."""
    claim: PrimaryClaim
    """Who led the branch."""


class InputsHeld(Record, tag=-21, frozen=True, kw_only=True):
    """Inputs are here, in the order of their numbers."""

    inputs: list[Input]


class OutputReleased(Record, tag=-22, frozen=True, kw_only=True):
    """The edge let bytes leave."""

    outputs: list[Output]
    claim: PrimaryClaim
    """Under which claim they came."""


class ProgramStateTaken(Record, tag=-23, frozen=True, kw_only=True):
    """The state after an order is kept here: own work, or sent by the primary."""

    state: ProgramState
    is_received: bool
    is_checkpoint: bool = False
    """Whether it came to a backup that has all orders before it, and executes none."""


class PrimaryViewStarted(Record, tag=-24, frozen=True, kw_only=True):
    """This replica has executed the order with which a primary view begins."""

    claim: PrimaryClaim
    after: PrimaryClaim
    """The primary view that it was in before."""
    number: Int64
    roster: Roster


class RosterAccepted(Record, tag=-25, frozen=True, kw_only=True):
    """This replica has executed an order that changed the roster.

    At an edge: it takes over a branch that begins, as far as is known here, behind this order.
    """

    roster: Roster
    number: Int64
    claim: PrimaryClaim


class ExecutedUpTo(Record, tag=-26, frozen=True, kw_only=True):
    """This replica has executed all orders up to a number."""

    number: Int64
    claim: PrimaryClaim
    first: Int64
    """Executed since the last such record, without a break from this number on."""
    digests: list[Int64]
    """What execution looked like after each of them: orders, outputs and state."""
    clock: Int64


class ConnectionChanged(Record, tag=-27, frozen=True, kw_only=True):
    """A connection of the edge was opened, or broke."""

    conn: str
    is_open: bool
    peer: str
    """The group of the edge at the other end; nothing for a client."""
    peer_id: str
    is_closed: bool = False
    """Whether the program closed it, and everything that it wrote was delivered."""
    peer_epoch: Int64 = 0
    """The epoch of the edge at the other end, where edges have standbys."""


class LeadingBegun(Record, tag=-28, frozen=True, kw_only=True):
    """This replica makes orders under its claim."""

    claim: PrimaryClaim
    base: Int64
    """All orders up to this number were there before."""
    with_edge: bool
    """Whether the edge has fenced all lower claims for it."""


class Diverged(Record, tag=-29, frozen=True, kw_only=True):
    """Execution here did not do what the order says."""

    number: Int64
    reason: str


class OrdersFreed(Record, tag=-30, frozen=True, kw_only=True):
    """This edge needs orders and inputs up to these numbers no more: all replicas have them."""

    orders: Int64
    inputs: Int64
    delivered: dict[str, Int64]
    """Between programs: how much of each connection's output the other edge has."""


class EdgeVoted(Record, tag=-31, frozen=True, kw_only=True):
    """This replica agreed to another edge, and uses no older one unless that is refused."""

    claim: PrimaryClaim
    """Whoever installs the edge leads by it."""
    edge: str


class EdgeMoved(Record, tag=-32, frozen=True, kw_only=True):
    """This replica has the state with which another edge began, and uses that edge."""

    claim: PrimaryClaim
    edge: str


class EdgeActivated(Record, tag=-33, frozen=True, kw_only=True):
    """This edge takes the place of another: all lives of the roster agreed."""

    claim: PrimaryClaim
    state: ProgramState
    """Behind the last order that any of them had."""
    runs: list[OrderRun]
    """The last of these orders, which the other edge may not have stored."""


class EdgeRefused(Record, tag=-34, frozen=True, kw_only=True):
    """This edge never begins by this claim, or a lower one; or the replica's vote is void."""

    claim: PrimaryClaim


class EdgeRetired(Record, tag=-35, frozen=True, kw_only=True):
    """This edge has learned that another took its place."""


class ConnectionForgotten(Record, tag=-36, frozen=True, kw_only=True):
    """A connection to another program is over at both edges; one of its name never comes again."""

    conn: str


LlftRecord = (
    ClaimPromised
    | OrdersKnown
    | OrdersStored
    | SideBranchDiscarded
    | InputsHeld
    | OutputReleased
    | ProgramStateTaken
    | PrimaryViewStarted
    | RosterAccepted
    | ExecutedUpTo
    | ConnectionChanged
    | LeadingBegun
    | Diverged
    | OrdersFreed
    | EdgeVoted
    | EdgeMoved
    | EdgeActivated
    | EdgeRefused
    | EdgeRetired
    | ConnectionForgotten
)
"""What replicas and edges of programs write into their journals."""
