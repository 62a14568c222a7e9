"""From the records of replicas and edges of programs to columns.

`order_runs` has the orders as each writer came to know them, `released` what edges let go; they are
compared by (claim, number). `executions` and `inputs_held` have what was executed and what arrived,
`program_views` the few records about claims, views, rosters, states and branches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import pyarrow as pa

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
)
from coterie.pipeline.engines.family import Table
from coterie.pipeline.read.columns import RowsMaker
from coterie.pipeline.read.schemas import MEMBER, TIME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.claims import PrimaryClaim, Roster
    from coterie.kernel.records import Record
    from coterie.pipeline.engines.family import Row, ToRow

CLAIM = pa.struct(
    [
        ("view", pa.int64()),
        ("precedence", pa.int64()),
        ("id", pa.string()),
        ("incarnation", pa.int64()),
    ]
)
"""A claim; compared field by field this is the order of claims."""
_PLACE = [
    ("group_name", pa.string()),
    ("replica", pa.string()),
    ("incarnation", pa.int64()),
    ("sequence", pa.int64()),
    ("recorded_at", TIME),
]

PROGRAM_VIEWS = pa.schema(
    [
        *_PLACE,
        ("event", pa.string()),
        ("claim", CLAIM),
        ("after", CLAIM),
        ("number", pa.int64()),
        ("count", pa.int64()),
        ("flag", pa.bool_()),
        ("lives", pa.list_(MEMBER)),
        ("conn", pa.string()),
        ("digest", pa.int64()),
        ("reason", pa.string()),
    ]
)
"""promised, leads, started, roster, stored, state, discarded, diverged, connection, freed."""

ORDER_RUNS = pa.schema(
    [
        *_PLACE,
        ("claim", CLAIM),
        ("after", CLAIM),
        ("first", pa.int64()),
        ("count", pa.int64()),
        ("digest", pa.int64()),
        ("data", pa.binary()),
    ]
)
"""Consecutive orders of one claim, as one writer came to know them."""

EXECUTIONS = pa.schema(
    [
        *_PLACE,
        ("claim", CLAIM),
        ("number", pa.int64()),
        ("first", pa.int64()),
        ("digests", pa.list_(pa.int64())),
        ("clock", pa.int64()),
    ]
)
"""What replicas executed."""

RELEASED = pa.schema(
    [
        *_PLACE,
        ("claim", CLAIM),
        ("conn", pa.string()),
        ("byte_offset", pa.int64()),
        ("length", pa.int64()),
        ("crc", pa.int64()),
        ("rests_on", pa.int64()),
    ]
)
"""Output that edges let go."""

INPUTS_HELD = pa.schema(
    [
        *_PLACE,
        ("input_number", pa.int64()),
        ("conn", pa.string()),
        ("byte_offset", pa.int64()),
        ("length", pa.int64()),
        ("is_end", pa.bool_()),
    ]
)
"""Input that arrived."""

encode = msgspec.msgpack.Encoder().encode


def claim_row(claim: PrimaryClaim) -> Row:
    """Give a claim as a value of a column."""
    life = claim.life
    return {
        "view": claim.view,
        "precedence": claim.precedence,
        "id": life.id,
        "incarnation": life.incarnation,
    }


def _lives(roster: Roster) -> list[Row]:
    return [{"id": life.member.id, "incarnation": life.member.incarnation} for life in roster.lives]


class _SpreadMaker:
    """Makes several rows of a record."""

    schema: pa.Schema

    def __init__(self, group: str, replica: str, incarnation: int) -> None:
        self._rows = RowsMaker(self.schema, {}, (group, replica, incarnation))

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: Record, sequence: int) -> None:
        """Take a record."""
        for row in self.rows_of(record):
            self._rows.add_row({"sequence": sequence, "recorded_at": record.at, **row})

    def take(self) -> pa.RecordBatch:
        """Give the rows of what was added since the last time."""
        return self._rows.take()

    def rows_of(self, record: Any) -> Iterable[Row]:  # noqa: ANN401 -- of its own kind
        raise NotImplementedError


class OrderRunsMaker(_SpreadMaker):
    """Makes rows of `order_runs`."""

    schema = ORDER_RUNS

    def rows_of(self, record: OrdersKnown) -> Iterable[Row]:
        """Give a row for each run."""
        for run in record.runs:
            data = encode(run.orders)
            yield {
                "claim": claim_row(run.claim),
                "after": claim_row(run.after),
                "first": run.first,
                "count": len(run.orders),
                "digest": crc32(data),
                "data": data,
            }


class ReleasedMaker(_SpreadMaker):
    """Makes rows of `released`."""

    schema = RELEASED

    def rows_of(self, record: OutputReleased) -> Iterable[Row]:
        """Give a row for each output."""
        for each in record.outputs:
            yield {
                "claim": claim_row(record.claim),
                "conn": each.conn,
                "byte_offset": each.offset,
                "length": len(each.data),
                "crc": crc32(each.data),
                "rests_on": each.rests_on,
            }


class InputsHeldMaker(_SpreadMaker):
    """Makes rows of `inputs_held`."""

    schema = INPUTS_HELD

    def rows_of(self, record: InputsHeld) -> Iterable[Row]:
        """Give a row for each input."""
        for each in record.inputs:
            yield {
                "input_number": each.number,
                "conn": each.conn,
                "byte_offset": each.offset,
                "length": len(each.data),
                "is_end": each.is_end,
            }


_VIEWS: dict[type, ToRow] = {
    ClaimPromised: lambda record: {"event": "promised", "claim": claim_row(record.claim)},
    LeadingBegun: lambda record: {
        "event": "leads",
        "claim": claim_row(record.claim),
        "number": record.base,
        "flag": record.with_edge,
    },
    PrimaryViewStarted: lambda record: {
        "event": "started",
        "claim": claim_row(record.claim),
        "after": claim_row(record.after),
        "number": record.number,
        "lives": _lives(record.roster),
    },
    RosterAccepted: lambda record: {
        "event": "roster",
        "claim": claim_row(record.claim),
        "number": record.number,
        "lives": _lives(record.roster),
    },
    OrdersStored: lambda record: {"event": "stored", "number": record.number},
    ProgramStateTaken: lambda record: {
        "event": "state",
        "claim": claim_row(record.state.claim),
        "number": record.state.number,
        "flag": record.is_received,
        "count": int(record.is_checkpoint),
        "digest": record.state.digest,
    },
    SideBranchDiscarded: lambda record: {
        "event": "discarded",
        "claim": claim_row(record.claim),
        "number": record.number,
        "count": record.count,
        "flag": record.was_stored,
    },
    Diverged: lambda record: {
        "event": "diverged",
        "number": record.number,
        "reason": record.reason,
    },
    ConnectionChanged: lambda record: {
        "event": "connection",
        "conn": record.conn,
        "flag": record.is_open,
        "reason": record.peer,
    },
    ConnectionForgotten: lambda record: {"event": "forgotten", "conn": record.conn},
    OrdersFreed: lambda record: {
        "event": "freed",
        "number": record.orders,
        "count": record.inputs,
    },
    EdgeVoted: lambda record: {
        "event": "voted",
        "claim": claim_row(record.claim),
        "reason": record.edge,
    },
    EdgeMoved: lambda record: {
        "event": "moved",
        "claim": claim_row(record.claim),
        "reason": record.edge,
    },
    EdgeActivated: lambda record: {
        "event": "activated",
        "claim": claim_row(record.claim),
        "number": record.state.number,
        "digest": record.state.digest,
    },
    EdgeRefused: lambda record: {"event": "refused", "claim": claim_row(record.claim)},
    EdgeRetired: lambda _record: {"event": "retired"},
}

_EXECUTIONS: dict[type, ToRow] = {
    ExecutedUpTo: lambda record: {
        "claim": claim_row(record.claim),
        "number": record.number,
        "first": record.first,
        "digests": list(record.digests),
        "clock": record.clock,
    },
}

TABLES = {
    "program_views": Table(PROGRAM_VIEWS, _VIEWS),
    "order_runs": Table(ORDER_RUNS, maker=OrderRunsMaker, kinds=(OrdersKnown,)),
    "executions": Table(EXECUTIONS, _EXECUTIONS),
    "released": Table(RELEASED, maker=ReleasedMaker, kinds=(OutputReleased,)),
    "inputs_held": Table(INPUTS_HELD, maker=InputsHeldMaker, kinds=(InputsHeld,)),
}
"""What the records of replicas and edges of programs become."""
