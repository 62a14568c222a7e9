"""The ranges of a group's positions: what one task of a check or of the rebuild works on."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.pipeline.history.judging import Acceptances
from coterie.pipeline.lake.lake import damaged, writer_of
from coterie.pipeline.read.schemas import ENTRIES, REPLIES, as_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from coterie.pipeline.history.witnesses import Testimony
    from coterie.pipeline.lake.lake import Lake


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive positions of one group, and the files of all replicas that speak of them."""

    group: str
    number: int
    width: int
    entries: tuple[str, ...]
    replies: tuple[str, ...]
    content: str = ""
    """A digest of what is in these files."""

    @property
    def start(self) -> int:
        """The first position."""
        return self.number * self.width


def ranges_of(lake: Lake, groups: Iterable[str]) -> list[Range]:
    """Give all ranges of *groups*, in order."""
    found: list[Range] = []
    for group in groups:
        digests = lake.digests(group)
        for number, files in lake.ranges(group).items():
            entries, replies = (tuple(files.get(table, ())) for table in ("entries", "replies"))
            hashed = blake2b(digest_size=16)
            for file in (*entries, *replies):
                hashed.update(file.encode() + b"\0" + digests.get(file, b""))
            content = hashed.hexdigest()
            found.append(Range(group, number, lake.width, entries, replies, content))
    return found


class EntryFiles:
    """The entries of one range in all replicas; columns are read when they are needed."""

    def __init__(self, files: Sequence[str], testimony: Testimony) -> None:
        self.files = files
        self._testimony = testimony
        columns: list[pa.Table] = []
        bits: list[NDArray[np.int64]] = []
        keys: list[NDArray[np.int64]] = []
        for file in files:
            table = read_columns(file, ["position", "fingerprint", "sequence"])
            replica, incarnation = writer_of(file)
            columns.append(table)
            bit = testimony.names.index(replica)
            bits.append(np.full(len(table), bit, np.int64))
            begun = testimony.witnesses[bit].key(incarnation, 0)
            keys.append(table["sequence"].to_numpy() + begun)
        empty = np.zeros(0, np.int64)
        self.rows = Acceptances(
            positions=np.concatenate([empty, *(each["position"].to_numpy() for each in columns)]),
            fingerprints=np.concatenate(
                [empty, *(each["fingerprint"].to_numpy() for each in columns)]
            ),
            bits=np.concatenate([empty, *bits]),
            keys=np.concatenate([empty, *keys]),
        )
        self._ends = np.cumsum([len(each) for each in columns], dtype=np.int64)

    def take(self, rows: NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        """Give *columns* of some rows, in the order of *rows*."""
        schema = pa.schema([ENTRIES.field(name) for name in columns])
        which = np.searchsorted(self._ends, rows, side="right")
        parts: list[pa.Table] = []
        places: list[NDArray[np.int64]] = []
        for index in np.unique(which).tolist():
            mine = np.flatnonzero(which == index)
            start = 0 if index == 0 else int(self._ends[index - 1])
            table = read_columns(self.files[index], columns)
            wanted = rows[mine] - start
            # Mostly whole files are wanted, in order: then nothing is to be gathered.
            is_all = len(wanted) == len(table) and bool((np.diff(wanted) == 1).all())
            parts.append(table if is_all else table.take(pa.array(wanted)))
            places.append(mine)
        if not parts:
            return schema.empty_table()
        joined = pa.concat_tables(parts).cast(schema)
        order = np.concatenate(places)
        if bool((np.diff(order) == 1).all()):
            return joined
        return joined.take(pa.array(np.argsort(order, kind="stable")))


def read_replies(files: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Give *columns* of all replies of a range, and who replied."""
    schema = as_numbers(pa.schema([REPLIES.field(name) for name in columns]).empty_table()).schema
    parts = [read_columns(file, columns).cast(schema) for file in files]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def read_columns(file: str, columns: Sequence[str]) -> pa.Table:
    """Give *columns* of a file, times as numbers. With a task a core one thread is enough."""
    try:
        with pq.ParquetFile(file, memory_map=True) as opened:
            return as_numbers(opened.read(list(columns), use_threads=False))
    except (pa.ArrowException, OSError) as error:
        raise damaged(file, error) from error
