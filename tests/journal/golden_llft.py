"""The part of the golden journal that a replica of a program wrote."""

from __future__ import annotations

from typing import Any

from coterie.journal.engines.llft import LLFT
from coterie.kernel.claims import (
    NO_CLAIM,
    Input,
    Order,
    OrderKind,
    OrderRun,
    Output,
    PrimaryClaim,
    ProgramState,
    Roster,
    RosterLine,
)
from coterie.kernel.records import (
    ClaimPromised,
    ConnectionChanged,
    ConnectionForgotten,
    Diverged,
    EdgeActivated,
    EdgeMoved,
    EdgeRefused,
    EdgeRetired,
    EdgeVoted,
    ExecutedUpTo,
    InputsHeld,
    LeadingBegun,
    OrdersFreed,
    OrdersKnown,
    OrdersStored,
    OutputReleased,
    PrimaryViewStarted,
    ProgramStateTaken,
    Record,
    RosterAccepted,
    SideBranchDiscarded,
)
from coterie.kernel.views import Member
from coterie.simulation.world.disk import SimulatedDisk

PROGRAM_GROUP = "till"
A, B = Member("a", 1), Member("b", 2)
FIRST, SECOND = PrimaryClaim(1, 1, A), PrimaryClaim(2, 2, B)
ROSTER = Roster((RosterLine(A, 1, True), RosterLine(B, 2, False)), 3)  # noqa: FBT003 -- values
YES, NO = True, False


def make_program(disk: SimulatedDisk) -> None:
    """Write it."""
    LLFT.found(disk, PROGRAM_GROUP, "a")
    keeper = LLFT.open(disk, LLFT.recover(disk, PROGRAM_GROUP, "a"))
    for turn in program_turns():
        keeper.write(turn)
        keeper.sync()
    keeper.close()


def program_turns() -> list[list[Record]]:
    """The first life: as if one replica could also be its edge, so that every kind is there."""
    who: dict[str, Any] = {"group": PROGRAM_GROUP, "member": A}
    inputs = [Input(1, "c0.1", 0, b"abc"), Input(2, "c0.1", 3, b"", YES, YES)]
    orders = [
        Order(OrderKind.VIEW, clock=1),
        Order(OrderKind.TOOK, 1, 3, "c0.1", clock=2),
        Order(OrderKind.SENT, 1, 2, "c0.1", b"\x00\x01\x02\x03", 3),
    ]
    state = ProgramState(
        *(2, FIRST, b"state", {"c0.1": 3}, ("c0.0",), {"c0.1": 2}, 3, ROSTER, FIRST, 1, 1 << 31)
    )
    return [
        [ClaimPromised(**who, at=1, claim=FIRST)],
        [
            LeadingBegun(**who, at=2, claim=FIRST, base=0, with_edge=YES),
            OrdersKnown(**who, at=2, runs=[OrderRun(FIRST, 1, orders, NO_CLAIM)]),
            PrimaryViewStarted(**who, at=2, claim=FIRST, after=NO_CLAIM, number=1, roster=ROSTER),
            RosterAccepted(**who, at=2, roster=ROSTER, number=1, claim=FIRST),
            InputsHeld(
                **who,
                at=2,
                inputs=inputs,
            ),
            ExecutedUpTo(
                **who, at=2, number=3, claim=FIRST, first=1, digests=[1, 2, 1 << 31], clock=3
            ),
        ],
        [
            OrdersStored(**who, at=3, number=2),
            OutputReleased(**who, at=3, outputs=[Output("c0.1", 0, b"ok", 3)], claim=FIRST),
            ConnectionChanged(**who, at=3, conn="c0.1", is_open=NO, peer="", peer_id=""),
            OrdersFreed(**who, at=3, orders=1, inputs=1, delivered={"relay:0/0": 8}),
        ],
        [
            ProgramStateTaken(**who, at=4, state=state, is_received=NO),
            SideBranchDiscarded(**who, at=4, number=2, count=1, was_stored=NO, claim=SECOND),
            Diverged(**who, at=4, number=3, reason="wrote something else"),
        ],
        [
            EdgeVoted(**who, at=5, claim=SECOND, edge="u"),
            EdgeRefused(**who, at=5, claim=SECOND),
            EdgeMoved(**who, at=5, claim=SECOND, edge="u"),
            EdgeActivated(**who, at=5, claim=SECOND, state=state, runs=[]),
            EdgeRetired(**who, at=5),
            ConnectionForgotten(**who, at=5, conn="relay:0/0"),
        ],
    ]
