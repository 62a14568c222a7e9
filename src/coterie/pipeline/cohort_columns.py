"""From the records of cohorts to columns: `cohorts` has the few ones, `event_records` the many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa

from coterie.kernel.records import (
    Catastrophe,
    EventsKnown,
    Forced,
    InvitationAccepted,
    InvitationsMade,
    MembersChanged,
    StateAt,
    StateTaken,
    ViewFormed,
    ViewStarted,
)
from coterie.pipeline.rows import member_row, members_row, view_row, viewstamp_row
from coterie.pipeline.schemas import EVENT_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable


class EventRecordsMaker:
    """Makes rows of `event_records`."""

    schema = EVENT_RECORDS

    def __init__(self, group: str, replica: str, incarnation: int) -> None:
        self._constants = {"group": group, "replica": replica, "incarnation": incarnation}
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: EventsKnown, sequence: int) -> None:
        """Take a record."""
        place = {**self._constants, "sequence": sequence, "at": record.at}
        view = view_row(record.view)
        self._rows += [
            {**place, "view": view, "number": number, "data": data, "digest": crc32(data)}
            for number, data in enumerate(record.events, record.first)
        ]

    def take(self) -> pa.RecordBatch:
        """Give the rows of what was added since the last time."""
        rows, self._rows = self._rows, []
        return pa.RecordBatch.from_pylist(rows, schema=self.schema)


COHORT_ROWS: dict[type, Callable[[Any], dict[str, Any]]] = {
    InvitationsMade: lambda record: {"event": "invited", "view": view_row(record.view)},
    InvitationAccepted: lambda record: {
        "event": "accepted",
        "view": view_row(record.view),
        "known": viewstamp_row(record.known),
        "is_crashed": record.crashed,
    },
    ViewFormed: lambda record: {
        "event": "formed",
        "view": view_row(record.view),
        "primary": member_row(record.primary),
        "members": members_row(record.members),
    },
    ViewStarted: lambda record: {
        "event": "started",
        "view": view_row(record.view),
        "primary": member_row(record.primary),
        "members": members_row(record.members),
        "history": [viewstamp_row(each) for each in record.history],
    },
    MembersChanged: lambda record: {
        "event": "members",
        "view": view_row(record.view),
        "members": members_row(record.members),
    },
    StateTaken: lambda record: {
        "event": "state taken",
        "view": view_row(record.view),
        "source": member_row(record.source),
        "history": [viewstamp_row(each) for each in record.history],
    },
    Forced: lambda record: {
        "event": "forced",
        "view": view_row(record.view),
        "number": record.number,
    },
    Catastrophe: lambda record: {
        "event": "catastrophe",
        "view": view_row(record.view),
        "members": members_row(record.crashed),
    },
    StateAt: lambda record: {
        "event": "state",
        "view": view_row(record.known.view),
        "known": viewstamp_row(record.known),
        "digest": record.digest,
    },
}
"""How a record of a cohort becomes a row of `cohorts`."""
