"""From records to columns: what the tables read from journals are made of.

A table's maker takes records one after the other and gives Arrow batches. Entries and replies are
the many ones, so theirs gather whole runs and spread them into rows with numpy.

**Stamps and fingerprints.** Comparing replicas means comparing entries, and the fastest way to do
that is to compare one number. A *stamp* is 64 bits mixed from the viewstamp, a *fingerprint* 64
bits mixed from the stamp, the identity and the CRC-32 of the payload. Equal entries have equal
fingerprints; unequal ones have unequal ones but for one pair in 2^64, or, where only the payload
differs, in 2^32. They guard against mistakes and accidents, not against forgers.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa

from coterie.kernel.records import (
    Delivered,
    EntriesAccepted,
    EventsKnown,
    HistoryAdopted,
    PrimaryAccepted,
    PrimaryConfirmed,
    Recovered,
    Replied,
    RolledBack,
    Sent,
    Settled,
    Started,
    StateDigest,
    Stopped,
    TransitionalInstalled,
    ViewEnded,
    ViewInstalled,
    ViewProposed,
)
from coterie.pipeline import schemas
from coterie.pipeline.cohort_columns import COHORT_ROWS, EventRecordsMaker
from coterie.pipeline.rows import member_row, members_row, view_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from coterie.kernel.engine import Run
    from coterie.kernel.records import Record, Reply
    from coterie.kernel.views import Member, ViewId

    Numbers = NDArray[np.int64]

_K1 = np.uint64(0xBF58476D1CE4E5B9)
_K2 = np.uint64(0x94D049BB133111EB)
_K3 = np.uint64(0x9E3779B97F4A7C15)


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread every bit of each value over all bits of its result, one to one."""
    values = (values ^ (values >> np.uint64(30))) * _K1
    values = (values ^ (values >> np.uint64(27))) * _K2
    return values ^ (values >> np.uint64(31))


def stamps(bases: NDArray[np.uint64], numbers: Numbers) -> NDArray[np.uint64]:
    """Give the stamps of viewstamps, whose views are given by their `base_of`."""
    return mix(bases + numbers.astype(np.uint64) * _K3)


def fingerprints(
    stamped: NDArray[np.uint64],
    origins: NDArray[np.uint64],
    identities: Numbers,
    checksums: NDArray[np.uint64],
) -> NDArray[np.uint64]:
    """Give the fingerprints of entries, whose origins are given by their `base_of`."""
    who = mix(origins + identities.astype(np.uint64) * _K3)
    return mix(stamped ^ mix(who + checksums * _K3))


class Bases:
    """Remembers the 64 bits that stand for a view or a member."""

    def __init__(self) -> None:
        self._known: dict[ViewId | Member, int] = {}

    def of(self, name: ViewId | Member) -> int:
        """Give the bits of a view id or a member."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = base_of(name)
        return found


def base_of(name: ViewId | Member) -> int:
    """Compute the 64 bits that stand for a view or a member."""
    return int.from_bytes(blake2b(msgspec.msgpack.encode(name), digest_size=8).digest(), "big")


def spread(starts: Iterable[int], lengths: Numbers) -> Numbers:
    """Give, for each start, as many consecutive numbers as its length says."""
    total = int(lengths.sum())
    ends = np.cumsum(lengths)
    offsets = np.arange(total, dtype=np.int64) - np.repeat(ends - lengths, lengths)
    return np.repeat(np.fromiter(starts, np.int64, len(lengths)), lengths) + offsets


def _signed(values: NDArray[np.uint64]) -> pa.Array:
    return pa.array(values.view(np.int64))


def _repeated(values: pa.Array, lengths: Numbers) -> pa.Array:
    return values.take(pa.array(np.repeat(np.arange(len(lengths)), lengths)))


def views_array(views: Iterable[ViewId]) -> pa.Array:
    """Give view ids as a column."""
    listed = list(views)
    return pa.StructArray.from_arrays(
        [
            pa.array([view.number for view in listed], pa.int64()),
            pa.array([view.proposer for view in listed], pa.string()),
            pa.array([view.incarnation for view in listed], pa.int64()),
        ],
        fields=list(schemas.VIEW),
    )


def members_array(members: Iterable[Member]) -> pa.Array:
    """Give members as a column."""
    listed = list(members)
    return pa.StructArray.from_arrays(
        [
            pa.array([member.id for member in listed], pa.string()),
            pa.array([member.incarnation for member in listed], pa.int64()),
        ],
        fields=list(schemas.MEMBER),
    )


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
                pa.array(np.repeat(places[:, 1], lengths)),
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
                pa.array(np.repeat(places[:, 1], places[:, 2])),
                pa.array([reply.session for reply in replies], pa.int64()),
                pa.array([reply.request for reply in replies], pa.int64()),
                pa.array([reply.count for reply in replies], pa.int64()),
                pa.array([reply.position for reply in replies], pa.int64()),
                views_array(views).take(pa.array(which)),
                pa.array(numbers),
                _signed(stamps(of_views[which], numbers)),
                pa.array([reply.standing for reply in replies], pa.int64()),
                pa.array([reply.asked_at for reply in replies], pa.int64()),
                pa.array([reply.digest for reply in replies], pa.int64()),
            ],
            schema=self.schema,
        )
        self._places, self._replies = [], []
        return batch


class RowsMaker:
    """Makes rows of a table with few of them, from dictionaries."""

    def __init__(self, schema: pa.Schema, group: str, replica: str, incarnation: int) -> None:
        self.schema = schema
        self._constants = {"group": group, "replica": replica, "incarnation": incarnation}
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: Record, sequence: int) -> None:
        """Take a record."""
        self.add_row({"sequence": sequence, "at": record.at, **_ROWS[type(record)](record)})

    def add_row(self, row: dict[str, Any]) -> None:
        """Take a row that is made already."""
        self._rows.append({**self._constants, **row})

    def take(self) -> pa.RecordBatch:
        """Give the rows of what was added since the last time."""
        rows, self._rows = self._rows, []
        return pa.RecordBatch.from_pylist(rows, schema=self.schema)


_ROWS: dict[type, Callable[[Any], dict[str, Any]]] = {
    Started: lambda record: {
        "event": "started",
        "stack": record.stack,
        "configuration": record.configuration.number,
        "replicas": list(record.configuration.members),
        "is_zombie": record.is_zombie,
    },
    Stopped: lambda _: {"event": "stopped"},
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
    StateDigest: lambda record: {"position": record.position, "digest": record.digest},
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
    **COHORT_ROWS,
}

TABLE_OF: dict[type, str] = {
    EntriesAccepted: "entries",
    Replied: "replies",
    StateDigest: "digests",
    Started: "lives",
    Stopped: "lives",
    Sent: "messages",
    Delivered: "messages",
    Settled: "standings",
    RolledBack: "standings",
    HistoryAdopted: "standings",
    Recovered: "standings",
    ViewProposed: "views",
    ViewInstalled: "views",
    TransitionalInstalled: "views",
    ViewEnded: "views",
    PrimaryAccepted: "views",
    PrimaryConfirmed: "views",
    EventsKnown: "event_records",
    **dict.fromkeys(COHORT_ROWS, "cohorts"),
}
"""Which table tells of a kind of record."""

Maker = EntriesMaker | RepliesMaker | EventRecordsMaker | RowsMaker


def make_maker(table: str, group: str, replica: str, incarnation: int) -> Maker:
    """Make what makes the rows of *table* for one life of one replica."""
    match table:
        case "entries":
            return EntriesMaker(group, replica, incarnation)
        case "replies":
            return RepliesMaker(group, replica, incarnation)
        case "event_records":
            return EventRecordsMaker(group, replica, incarnation)
        case _:
            return RowsMaker(schemas.JOURNAL_TABLES[table], group, replica, incarnation)
