"""What the events of a range tell of transactions, as columns of numbers.

An event is decoded once, where its range is read. What followed from it is handed on beside it: of
which transaction it tells, what kind it is, which calls it names, and which objects it touches. A
call is known by its *sign*, 64 bits for its group and position, and a set of calls by the sum of
their signs; so whether a group installed what it ran, and what was decided, is a comparison of two
numbers (`coterie.pipeline.engines.vsr.plain`).
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from coterie.pipeline.engines.vsr.events import (
    Completed,
    Decided,
    GivenUp,
    Installed,
    JournalAborted,
    JournalDone,
)
from coterie.pipeline.engines.vsr.serial import NOTHING, READ, UNKNOWN, WRITTEN, Keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from coterie.kernel.views import ViewId, Viewstamp
    from coterie.pipeline.engines.vsr.events import Event
    from coterie.pipeline.engines.vsr.history import CohortGroup

    Numbers = NDArray[np.int64]

KINDS = (Completed, GivenUp, Decided, JournalDone, Installed, JournalAborted)
"""Where columns have a number for a kind of event, it is the place here; others have -1."""
CODES = {kind: code for code, kind in enumerate(KINDS)}
NO_KIND = -1
_CALL, _DECIDED, _INSTALLED = CODES[Completed], CODES[Decided], CODES[Installed]
_ODD = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

TRACES = pa.schema(
    [
        ("transaction", pa.int64()),
        ("kind", pa.int8()),
        ("sign", pa.uint64()),
        ("calls", pa.int32()),
        ("reads", pa.int32()),
        ("writes", pa.int32()),
        ("parts", pa.int32()),
        ("is_odd", pa.bool_()),
    ]
)
"""What an event says: of which transaction, the sum of signs and the number of the calls it is or
names, what it read and wrote, how many groups it decides for (an installation: whether it has only
read), and whether it names something that is not there."""

TOUCHED = pa.schema(
    [
        ("transaction", pa.int64()),
        ("kind", pa.int8()),
        ("key", pa.int64()),
        ("position", pa.int64()),
        ("version", pa.int64()),
    ]
)
"""Objects that calls read, in which version, and wrote; `position` is that of the call."""


def signs(group: str, positions: Numbers) -> NDArray[np.uint64]:
    """Give the signs of calls of one group."""
    seed = np.uint64(_bits(group))
    mixed = positions.astype(np.uint64) * np.uint64(_ODD) ^ seed
    for shift, factor in zip((30, 27), _MIX, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _bits(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


@dataclass(slots=True)
class Traces:
    """The events of a range as rows of `TRACES`, and what they touched as rows of `TOUCHED`."""

    names: list[str | None]
    """Of which transaction each event tells, by its name in tables."""
    rows: pa.Table
    touched: pa.Table


class Tracer:
    """Traces the events of one group."""

    def __init__(self, group: str, told: Mapping[str, CohortGroup]) -> None:
        self._group = group
        self._told = told
        self._keys = Keys()
        self._known: dict[str, Mapping[ViewId, tuple[int, int]]] = {}
        self._numbers: dict[str, int] = {}
        """Groups of which calls were named, by numbers."""
        self._names: dict[object, tuple[str, int]] = {}

    def trace(  # noqa: C901 -- one loop over all events, without calls
        self, events: Sequence[Event | None], positions: Numbers
    ) -> Traces:
        """Give what events tell, each at its position.

        This is the one loop over all events there is, so it is written for speed: it appends to
        two lists of numbers, rows after rows, of which columns are made at once.
        """
        size = len(events)
        kinds = np.full(size, NO_KIND, np.int8)
        hashed = np.zeros(size, np.int64)
        parts = np.zeros(size, np.int32)
        is_odd = np.zeros(size, np.bool_)
        names: list[str | None] = [None] * size
        signed: list[int] = []
        """Calls that events name: which event, the place of the group, and the position."""
        touched: list[int] = []
        """Objects that calls touch: which call, how, which object, and in which version."""
        group = self._group
        known_names, keys = self._names, self._keys.of
        places, none = self._places_of(group), (0, 0)
        for index, event in enumerate(events):
            if event is None:
                continue
            aid = event.aid
            known = known_names.get(aid)
            if known is None:
                name = str(aid)
                bits = _bits(name)
                known = known_names[aid] = name, bits - (1 << 64 if bits >> 63 else 0)
            names[index], hashed[index] = known
            kinds[index] = CODES[type(event)]
            if isinstance(event, Completed):
                for read in event.reads:
                    version = read.version
                    place = NOTHING
                    if version is not None:
                        before, count = places.get(version.view, none)
                        place = before + version.number if 0 < version.number <= count else UNKNOWN
                    touched += (index, READ, keys(group, read.name), place)
                for write in event.writes:
                    touched += (index, WRITTEN, keys(group, write.name), NOTHING)
            elif isinstance(event, Installed):
                parts[index] = event.is_read_only
                is_odd[index] = not self._sign(index, group, event.calls, signed)
            elif isinstance(event, Decided):
                parts[index] = len(event.parts)
                for part in event.parts:
                    is_odd[index] |= not self._sign(index, part.group, part.calls, signed)
        named = np.array(signed, np.int64).reshape(-1, 3).T
        touching = np.array(touched, np.int64).reshape(-1, 4).T
        return self._tabulate(named, touching, names, kinds, hashed, parts, is_odd, positions)

    def _sign(self, index: int, group: str, calls: Sequence[Viewstamp], signed: list[int]) -> bool:
        """Take calls that an event names; say whether all of them are there."""
        if group not in self._told or not calls:
            return False
        places, number = self._places_of(group), self._numbers[group]
        is_there = True
        for call in calls:
            before, count = places.get(call.view, (0, 0))
            position = before + call.number if 0 < call.number <= count else UNKNOWN
            is_there &= position > 0
            signed += (index, number, position)
        return is_there

    def _places_of(self, group: str) -> Mapping[ViewId, tuple[int, int]]:
        """Give where the events of each view of a group stand in the order, and how many count."""
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = self._told[group].positions()
            self._numbers[group] = len(self._numbers)
        return known

    def _tabulate(  # noqa: PLR0913, PLR0917 -- the columns
        self,
        signed: Numbers,
        touched: Numbers,
        names: list[str | None],
        kinds: NDArray[np.int8],
        hashed: Numbers,
        parts: NDArray[np.int32],
        is_odd: NDArray[np.bool_],
        positions: Numbers,
    ) -> Traces:
        size = len(names)
        is_call = kinds == _CALL
        sums = np.where(is_call, signs(self._group, positions), np.uint64(0))
        named, of_groups, places = signed
        for group, number in self._numbers.items():
            mine = of_groups == number
            np.add.at(sums, named[mine], signs(group, places[mine]))
        touching, how, keys, versions = touched
        rows = {
            "transaction": hashed,
            "kind": kinds,
            "sign": sums,
            "calls": np.bincount(named, minlength=size) + is_call,
            "reads": np.bincount(touching[how == READ], minlength=size),
            "writes": np.bincount(touching[how == WRITTEN], minlength=size),
            "parts": parts,
            "is_odd": is_odd,
        }
        found = {
            "transaction": hashed[touching],
            "kind": how.astype(np.int8),
            "key": keys,
            "position": positions[touching],
            "version": versions,
        }
        return Traces(
            names,
            pa.table({name: pa.array(rows[name], TRACES.field(name).type) for name in rows}),
            pa.table({name: pa.array(values) for name, values in found.items()}, schema=TOUCHED),
        )


@contextmanager
def uncollected() -> Iterator[None]:
    """Let nobody look for circles among very many new values: there are none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
