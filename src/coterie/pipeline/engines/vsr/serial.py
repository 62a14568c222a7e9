"""Locks and serializability by columns: whether anything can be wrong, object by object.

Both checks compare transactions over the objects they touched. So what transactions did is shared
out by objects, and each share is looked at by itself, as columns of numbers:

- a transaction holds an object from its first write to its end; two that overlap are suspects;
- who wrote a version comes before who read it and before who wrote the next one, and who read it
  before the latter. If all such steps lead forward in *some* order of all transactions there can be
  no circle. The order taken is that of their ends by the clocks of the primaries, which is right
  nearly everywhere. Where a step leads backward, a circle is possible, but only among transactions
  that ended within the span of such a step: every circle has to come back over each moment that it
  spans. Only these are searched.

Objects are known by 64 bits here. If two are taken for one there are more suspects and more steps,
never fewer. What is suspected is looked at again, in full, by
`coterie.pipeline.engines.vsr.transaction_checks`, which finds the evidence or clears it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coterie.pipeline.history.reconstruct import write_handed_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

FOREVER = (1 << 40) - 1
"""A number above all positions: what ends then never ends."""
_SHIFT = 41
NOTHING, UNKNOWN = -1, -2
"""Versions that were read: what was there before the first write; none that is authoritative."""
HELD, WRITTEN, READ = 0, 1, 2

TOUCHES = pa.schema(
    [
        ("kind", pa.int8()),
        ("key", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("time", pa.int64()),
        ("id", pa.int64()),
    ]
)
"""What transactions did to objects: held them from a position to another, wrote or read a version.

A version is known by the position at which it was installed."""


class Touch(NamedTuple):
    """One row of `TOUCHES`."""

    kind: int
    key: int
    first: int
    last: int
    time: int
    id: int


class Keys:
    """Remembers the 64 bits that stand for an object."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], int] = {}

    def of(self, group: str, name: str) -> int:
        """Give the bits of an object of a group."""
        key = group, name
        found = self._known.get(key)
        if found is None:
            data = blake2b(f"{group}/{name}".encode(), digest_size=8).digest()
            found = self._known[key] = int.from_bytes(data, "big", signed=True)
        return found


def as_rows(touches: Iterable[Touch]) -> Numbers:
    """Give what transactions did as rows of numbers."""
    return np.fromiter(chain.from_iterable(touches), np.int64).reshape(-1, len(TOUCHES))


def hand_on_touches(rows: Numbers, folder: str, part: int, parts: int) -> None:
    """Write what the transactions of one part did, shared out by objects."""
    for share in range(parts):
        mine = rows[rows[:, 1] % parts == share]
        if len(mine):
            columns = [pa.array(mine[:, index]) for index in range(len(TOUCHES))]
            columns[0] = columns[0].cast(pa.int8())
            write_handed_on(
                pa.table(columns, schema=TOUCHES),
                f"{folder}/{share}/{part:06}.parquet",
            )


class Steps(NamedTuple):
    """Who comes before whom: ids, each with the time of its end, as parallel columns."""

    one: Numbers
    one_time: Numbers
    other: Numbers
    other_time: Numbers

    def is_backward(self) -> NDArray[np.bool_]:
        """Say of each step whether it leads back in the order of ends."""
        same = self.one_time == self.other_time
        back: NDArray[np.bool_] = (self.one_time > self.other_time) | (
            same & (self.one > self.other)
        )
        return back

    def take(self, wanted: NDArray[np.bool_]) -> Steps:
        """Give the steps that are *wanted*, without the others."""
        return Steps(*(column[wanted] for column in self))


@dataclass(slots=True)
class Share:
    """What one share of the objects says."""

    steps: Steps
    is_shared: bool = False
    """Whether two transactions may have held an object at the same time."""
    is_unwritten: bool = False
    """Whether something was read that nobody is known to have written."""


def read_share(folder: str, share: int) -> Share:
    """Look at one share of the objects."""
    files = sorted(Path(folder, str(share)).glob("*.parquet"))
    nothing = np.zeros(0, np.int64)
    if not files:
        return Share(Steps(nothing, nothing, nothing, nothing))
    table = pa.concat_tables([pq.ParquetFile(file).read(use_threads=False) for file in files])
    columns = {name: table[name].to_numpy() for name in TOUCHES.names}
    keys, rank = np.unique(columns["key"], return_inverse=True)
    del keys
    columns["base"] = rank.astype(np.int64) << _SHIFT
    kinds = columns.pop("kind")
    held, written, read = (
        {name: values[kinds == kind] for name, values in columns.items()}
        for kind in (HELD, WRITTEN, READ)
    )
    found = _steps(written, read)
    found.is_shared = _overlap(held)
    return found


def _overlap(held: dict[str, Numbers]) -> bool:
    """Say whether any two hold one object at the same time."""
    first, last = held["base"] + held["first"], held["base"] + held["last"]
    order = np.argsort(first, kind="stable")
    reached = np.maximum.accumulate(last[order])
    return bool((first[order][1:] < reached[:-1]).any())


def _steps(written: dict[str, Numbers], read: dict[str, Numbers]) -> Share:
    place = written["base"] + written["first"]
    order = np.argsort(place, kind="stable")
    place, base = place[order], written["base"][order]
    ids, times = written["id"][order], written["time"][order]
    size = len(place)
    follows = np.flatnonzero(base[1:] == base[:-1])
    steps = [(ids[follows], times[follows], ids[follows + 1], times[follows + 1])]

    is_first = read["first"] == NOTHING
    index = np.searchsorted(place, read["base"] + np.where(is_first, 0, read["first"]))
    inside = np.minimum(index, max(size - 1, 0))
    if size:
        is_there = (index < size) & (place[inside] == read["base"] + read["first"])
        is_same = (index < size) & (base[inside] == read["base"])
    else:
        is_there = is_same = np.zeros(len(index), np.bool_)
    is_unwritten = bool((~is_first & ~is_there).any())
    of = np.flatnonzero(~is_first & is_there)
    steps.append((ids[index[of]], times[index[of]], read["id"][of], read["time"][of]))
    # The version after the one that was read; after nothing, the first one there is.
    after = np.where(is_first, index, index + 1)
    next_ = np.minimum(after, max(size - 1, 0))
    goes_on = (is_first & is_same) | (~is_first & is_there)
    if size:
        goes_on &= (after < size) & (base[next_] == read["base"])
    of = np.flatnonzero(goes_on)
    steps.append((read["id"][of], read["time"][of], ids[next_[of]], times[next_[of]]))
    joined = Steps(*(np.concatenate(columns) for columns in zip(*steps, strict=True)))
    return Share(joined.take(joined.one != joined.other), is_unwritten=is_unwritten)


def has_circle(shares: list[Steps]) -> bool:
    """Say whether any transaction has to come before itself, given all steps there are."""
    joined = Steps(*(np.concatenate(columns) for columns in zip(*shares, strict=True)))
    back = joined.take(joined.is_backward())
    if not len(back.one):
        return False
    within = joined.take(
        _within(joined.one_time, back.other_time, back.one_time)
        & _within(joined.other_time, back.other_time, back.one_time)
    )
    return _has_circle(within.one.tolist(), within.other.tolist())


def _within(times: Numbers, starts: Numbers, ends: Numbers) -> NDArray[np.bool_]:
    """Say of times whether they lie in any of some spans, their ends included."""
    order = np.argsort(starts, kind="stable")
    reached = np.maximum.accumulate(ends[order])
    index = np.searchsorted(starts[order], times, side="right") - 1
    found: NDArray[np.bool_] = (index >= 0) & (reached[np.maximum(index, 0)] >= times)
    return found


def _has_circle(ones: list[int], others: list[int]) -> bool:
    """Take away whoever nobody comes before, again and again; say whether anybody is left."""
    following: dict[int, list[int]] = {}
    waiting: dict[int, int] = {}
    for one, other in zip(ones, others, strict=True):
        following.setdefault(one, []).append(other)
        waiting[other] = waiting.get(other, 0) + 1
        waiting.setdefault(one, 0)
    free = [each for each, count in waiting.items() if not count]
    taken = 0
    while free:
        taken += 1
        for other in following.get(free.pop(), ()):
            waiting[other] -= 1
            if not waiting[other]:
                free.append(other)
    return taken < len(waiting)
