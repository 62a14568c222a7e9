"""From records to columns: what the tables read from journals are made of.

A table's maker takes records one after the other and gives Arrow batches. Which tables there are,
and which records each tells of, the engine families say.

**Stamps and fingerprints.** Comparing replicas means comparing entries, and the fastest way to do
that is to compare one number. A *stamp* is 64 bits mixed from the viewstamp, a *fingerprint* 64
bits mixed from the stamp, the identity and the CRC-32 of the payload. Equal entries have equal
fingerprints; unequal ones have unequal ones but for one pair in 2^64, or, where only the payload
differs, in 2^32. They guard against mistakes and accidents, not against forgers.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from coterie.pipeline.read import schemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from coterie.kernel.records import Record
    from coterie.kernel.views import Member, ViewId
    from coterie.pipeline.engines.family import ToRow

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


class RowsMaker:
    """Makes rows of a table with few of them, from dictionaries."""

    def __init__(
        self, schema: pa.Schema, rows: Mapping[type, ToRow], place: tuple[str, str, int]
    ) -> None:
        self.schema = schema
        self._to_row = rows
        group, replica, incarnation = place
        self._constants = {"group_name": group, "replica": replica, "incarnation": incarnation}
        self._rows: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, record: Record, sequence: int) -> None:
        """Take a record."""
        self.add_row(
            {"sequence": sequence, "recorded_at": record.at, **self._to_row[type(record)](record)}
        )

    def add_row(self, row: dict[str, Any]) -> None:
        """Take a row that is made already."""
        self._rows.append({**self._constants, **row})

    def take(self) -> pa.RecordBatch:
        """Give the rows of what was added since the last time."""
        rows, self._rows = self._rows, []
        return pa.RecordBatch.from_pylist(rows, schema=self.schema)
