"""Records of **llft** as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    RosterAccepted,
    SideBranchDiscarded,
    Started,
)

if TYPE_CHECKING:
    from coterie.kernel.claims import Roster
    from coterie.kernel.records import Record


def describe(record: Record) -> str:  # noqa: C901, PLR0911, PLR0912 -- one answer a kind
    """Say what a record says, in a few words."""
    match record:
        case Started():
            return "begins"
        case OrdersFreed(orders=orders, inputs=inputs):
            return f"frees orders up to {orders}, inputs up to {inputs}"
        case ClaimPromised(claim=claim):
            return f"promises {claim}"
        case OrdersKnown(runs=runs):
            return "knows " + " ".join(f"{run.claim}:{run.first}-{run.last}" for run in runs)
        case OrdersStored(number=number):
            return f"knows {number} stored"
        case SideBranchDiscarded(number=number, count=count, claim=claim):
            return f"gives up {count} orders of {claim} above {number}"
        case InputsHeld(inputs=inputs):
            return "holds " + " ".join(f"{each.number}:{each.conn}" for each in inputs)
        case OutputReleased(outputs=outputs):
            return "releases " + " ".join(f"{each.conn}@{each.offset}" for each in outputs)
        case ProgramStateTaken(state=state, is_received=is_received):
            return f"{'takes over' if is_received else 'keeps'} the state at {state.number}"
        case PrimaryViewStarted(claim=claim, number=number):
            return f"is in view {claim} from {number} on"
        case RosterAccepted(roster=roster):
            return f"has the roster {_lives(roster)}"
        case ExecutedUpTo(number=number):
            return f"has executed {number}"
        case ConnectionChanged(conn=conn, is_open=is_open):
            return f"{'opens' if is_open else 'ends'} {conn}"
        case ConnectionForgotten(conn=conn):
            return f"forgets {conn}"
        case LeadingBegun(claim=claim, base=base, with_edge=with_edge):
            return f"leads by {claim} from {base}" + ("" if with_edge else ", without its edge")
        case EdgeVoted(claim=claim, edge=edge):
            return f"votes for {edge} by {claim}"
        case EdgeMoved(claim=claim, edge=edge):
            return f"moves to {edge}, which began by {claim}"
        case EdgeActivated(claim=claim, state=state):
            return f"takes the other edge's place by {claim}, from {state.number} on"
        case EdgeRefused(claim=claim):
            return f"never begins by {claim}"
        case EdgeRetired():
            return "retires"
        case Diverged(number=number, reason=reason):
            return f"diverges at {number}: {reason}"
        case _:
            raise AssertionError(f"{type(record)} is no record of llft")


def _lives(roster: Roster) -> str:
    return ",".join(f"{life.member}{'' if life.is_whole else '?'}" for life in roster.lives)
