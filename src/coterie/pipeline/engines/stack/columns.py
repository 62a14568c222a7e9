"""From the records of stacks to columns.

Entries and replies are the many ones, so their makers gather whole runs and spread them into rows
with numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa

from coterie.kernel.records import (
    Delivered,
    EntriesAccepted,
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Recovered,
    Replied,
    RolledBack,
    Sent,
    Settled,
    StateDigest,
    TransitionalInstalled,
    ViewEnded,
    ViewInstalled,
    ViewProposed,
)
from coterie.pipeline.engines.family import Table
from coterie.pipeline.read import schemas
from coterie.pipeline.read.columns import (
    Bases,
    fingerprints,
    members_array,
    spread,
    stamps,
    views_array,
)
from coterie.pipeline.read.rows import member_row, members_row, view_row
from coterie.pipeline.read.schemas import times, times_or_none

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coterie.kernel.engine import Run
    from coterie.kernel.records import Reply
    from coterie.kernel.views import ViewId
    from coterie.pipeline.engines.family import ToRow
    from coterie.pipeline.read.columns import Numbers


def _signed(values: NDArray[np.uint64]) -> pa.Array:
    return pa.array(values.view(np.int64))


def _repeated(values: pa.Array, lengths: Numbers) -> pa.Array:
    return values.take(pa.array(np.repeat(np.arange(len(lengths)), lengths)))


class EntriesMaker:
    """Makes rows of `entries`."""

    schema = schemas.ENTRIES

    def __init__(self, group: str, replica: str, incarnation: int) -> None:
        self._constants = (group, replica, incarnation)
        self._bases = Bases()
        self._runs: list[Run] = []
        self._places: list[tuple[int, int]] = []
        self._payloads: list[bytes] = []

    def __len__(self) -> int:
        return len(self._payloads)

    def add(self, record: EntriesAccepted, sequence: int) -> None:
        """Take a record."""
        self._runs.append(record.run)
        self._places.append((sequence, record.at))
        self._payloads += record.run.payloads

    def take(self) -> pa.RecordBatch:
        """Give the rows of what was added since the last time."""
        runs, payloads = self._runs, self._payloads
        lengths = np.fromiter((len(run.payloads) for run in runs), np.int64, len(runs))
        size = len(payloads)
        of_views = np.fromiter((self._bases.of(run.view) for run in runs), np.uint64, len(runs))
        of_origins = np.fromiter((self._bases.of(run.origin) for run in runs), np.uint64, len(runs))
        numbers = spread((run.number for run in runs), lengths)
        identities = spread((run.first for run in runs), lengths)
        checksums = np.fromiter(map(crc32, payloads), np.uint64, size)
        stamped = stamps(np.repeat(of_views, lengths), numbers)
        group, replica, incarnation = self._constants
        places = np.array(self._places, np.int64).reshape(-1, 2)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(group), size),
                pa.repeat(pa.scalar(replica), size),
                pa.repeat(pa.scalar(incarnation, pa.int64()), size),
                pa.array(np.repeat(places[:, 0], lengths)),
                times(np.repeat(places[:, 1], lengths)),
                pa.array(spread((run.position for run in runs), lengths)),
                _repeated(views_array(run.view for run in runs), lengths),
                pa.array(numbers),
                _repeated(members_array(run.origin for run in runs), lengths),
                pa.array(identities),
                pa.array(payloads, pa.binary()),
                _signed(stamped),
                _signed(
                    fingerprints(stamped, np.repeat(of_origins, lengths), identities, checksums)
                ),
            ],
            schema=self.schema,
        )
        self._runs, self._places, self._payloads = [], [], []
        return batch


class RepliesMaker:
    """Makes rows of `replies`."""

    schema = schemas.REPLIES

    def __init__(self, group: str, replica: str, incarnation: int) -> None:
        self._constants = (group, replica, incarnation)
        self._bases = Bases()
        self._places: list[tuple[int, int, int]] = []
        self._replies: list[Reply] = []

    def __len__(self) -> int:
        return len(self._replies)

    def add(self, record: Replied, sequence: int) -> None:
        """Take a record."""
        self._places.append((sequence, record.at, len(record.replies)))
        self._replies += record.replies

    def take(self) -> pa.RecordBatch:
        """Give the rows of what was added since the last time."""
        replies = self._replies
        size = len(replies)
        places = np.array(self._places, np.int64).reshape(-1, 3)
        numbers = np.array([reply.number for reply in replies], np.int64)
        # Nearly all replies of a batch are of one view: it is looked at once.
        views: dict[ViewId, int] = {}
        which = np.array([views.setdefault(reply.view, len(views)) for reply in replies], np.int64)
        of_views = np.array([self._bases.of(view) for view in views], np.uint64)
        group, replica, incarnation = self._constants
        batch = pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(group), size),
                pa.repeat(pa.scalar(replica), size),
                pa.repeat(pa.scalar(incarnation, pa.int64()), size),
                pa.array(np.repeat(places[:, 0], places[:, 2])),
                times(np.repeat(places[:, 1], places[:, 2])),
                pa.array([reply.session for reply in replies], pa.int64()),
                pa.array([reply.request for reply in replies], pa.int64()),
                pa.array([reply.count for reply in replies], pa.int64()),
                pa.array([reply.position for reply in replies], pa.int64()),
                views_array(views).take(pa.array(which)),
                pa.array(numbers),
                _signed(stamps(of_views[which], numbers)),
                pa.array([reply.standing for reply in replies], pa.int64()),
                times_or_none(np.array([reply.asked_at for reply in replies], np.int64)),
                pa.array([reply.digest for reply in replies], pa.int64()),
            ],
            schema=self.schema,
        )
        self._places, self._replies = [], []
        return batch


_DIGESTS: dict[type, ToRow] = {
    StateDigest: lambda record: {"position": record.position, "digest": record.digest},
}
_VIEWS: dict[type, ToRow] = {
    ViewProposed: lambda record: {
        "event": "proposed",
        "view": view_row(record.view),
        "members": members_row(record.members),
        "previous": view_row(record.after),
    },
    ViewInstalled: lambda record: {
        "event": "installed",
        "view": view_row(record.view),
        "members": members_row(record.members),
        "previous": view_row(record.previous),
        "transitional": members_row(record.transitional),
    },
    TransitionalInstalled: lambda record: {
        "event": "transitional",
        "view": view_row(record.view),
        "members": members_row(record.members),
    },
    ViewEnded: lambda record: {
        "event": "ended",
        "view": view_row(record.view),
        "counts": record.counts,
        "digest": record.digest,
        "transitional_counts": record.transitional_counts,
        "transitional_digest": record.transitional_digest,
    },
    PrimaryAccepted: lambda record: {
        "event": "accepted",
        "view": view_row(record.view),
        "members": members_row(record.members),
        "version": view_row(record.version.view),
        "position": record.version.position,
    },
    PrimaryConfirmed: lambda record: {
        "event": "confirmed",
        "view": view_row(record.view),
        "members": members_row(record.accepted_by),
        "position": record.position,
    },
}
_STANDINGS: dict[type, ToRow] = {
    Settled: lambda record: {"event": "settled", "position": record.position},
    RolledBack: lambda record: {"event": "rolled back", "position": record.position},
    HistoryAdopted: lambda record: {
        "event": "adopted",
        "position": record.kept,
        "view": view_row(record.view),
        "source": member_row(record.source),
        "version": view_row(record.version.view),
        "version_position": record.version.position,
        "restored": record.restored,
    },
    Recovered: lambda record: {
        "event": "recovered",
        "position": record.version.position,
        "version": view_row(record.version.view),
        "version_position": record.version.position,
    },
}
_MESSAGES: dict[type, ToRow] = {
    Sent: lambda record: {
        "event": "sent",
        "view": view_row(record.view),
        "sender": member_row(record.member),
        "first": record.first,
        "count": record.count,
        "safe": record.safe,
        "digest": record.digest,
    },
    Delivered: lambda record: {
        "event": "delivered",
        "view": view_row(record.view),
        "sender": member_row(record.sender),
        "first": record.first,
        "count": record.count,
        "number": record.number,
        "safe": record.safe,
        "delivery": int(record.delivery),
        "digest": record.digest,
    },
}

TABLES = {
    "entries": Table(
        schemas.ENTRIES, maker=EntriesMaker, kinds=(EntriesAccepted,), is_positioned=True
    ),
    "replies": Table(schemas.REPLIES, maker=RepliesMaker, kinds=(Replied,), is_positioned=True),
    "digests": Table(schemas.DIGESTS, _DIGESTS),
    "views": Table(schemas.VIEWS, _VIEWS),
    "standings": Table(schemas.STANDINGS, _STANDINGS),
    "messages": Table(schemas.MESSAGES, _MESSAGES),
}
"""What the records of stacks become."""
