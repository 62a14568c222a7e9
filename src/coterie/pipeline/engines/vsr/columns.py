"""From the records of cohorts to columns: `cohorts` has the few ones, `event_records` the many."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
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
from coterie.pipeline.engines.family import Table
from coterie.pipeline.read.columns import spread, views_array
from coterie.pipeline.read.rows import member_row, members_row, view_row, viewstamp_row
from coterie.pipeline.read.schemas import COHORTS, EVENT_RECORDS, times

if TYPE_CHECKING:
    from coterie.pipeline.engines.family import ToRow


class EventRecordsMaker:
    """Makes rows of `event_records`: whole records are gathered, and spread into rows at once."""

    schema = EVENT_RECORDS

    def __init__(self, group: str, replica: str, incarnation: int) -> None:
        self._constants = (group, replica, incarnation)
        self._records: list[tuple[int, EventsKnown]] = []
        self._events: list[bytes] = []

    def __len__(self) -> int:
        return len(self._events)

    def add(self, record: EventsKnown, sequence: int) -> None:
        """Take a record."""
        if record.events:
            self._records.append((sequence, record))
            self._events += record.events

    def take(self) -> pa.RecordBatch:
        """Give the rows of what was added since the last time."""
        records, events = self._records, self._events
        size = len(events)
        lengths = np.fromiter((len(each.events) for _, each in records), np.int64, len(records))
        sequences = np.fromiter((sequence for sequence, _ in records), np.int64, len(records))
        at = np.fromiter((each.at for _, each in records), np.int64, len(records))
        which = pa.array(np.repeat(np.arange(len(records)), lengths))
        group, replica, incarnation = self._constants
        self._records, self._events = [], []
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(group), size),
                pa.repeat(pa.scalar(replica), size),
                pa.repeat(pa.scalar(incarnation, pa.int64()), size),
                pa.array(np.repeat(sequences, lengths)),
                times(np.repeat(at, lengths)),
                views_array(each.view for _, each in records).take(which),
                pa.array(spread((each.first for _, each in records), lengths)),
                pa.array(events, pa.binary()),
                pa.array(np.fromiter(map(crc32, events), np.int64, size)),
            ],
            schema=self.schema,
        )


_COHORTS: dict[type, ToRow] = {
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
        "primary_member": member_row(record.primary),
        "members": members_row(record.members),
    },
    ViewStarted: lambda record: {
        "event": "started",
        "view": view_row(record.view),
        "primary_member": member_row(record.primary),
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

TABLES = {
    "cohorts": Table(COHORTS, _COHORTS),
    "event_records": Table(EVENT_RECORDS, maker=EventRecordsMaker, kinds=(EventsKnown,)),
}
"""What the records of cohorts become."""
