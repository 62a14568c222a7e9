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
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class _Gathering:
    """Lists that grow with the events."""

    signed: list[int] = field(default_factory=list)
    """Which event names a call, of which group, at which position: three lists alike."""
    groups: list[str] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    touching: list[int] = field(default_factory=list)
    """Which event touches an object, how, which one, and in which version: four lists alike."""
    kinds: list[int] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)


class Tracer:
    """Traces the events of one group."""

    def __init__(self, group: str, told: Mapping[str, CohortGroup]) -> None:
        self._group = group
        self._told = told
        self._keys = Keys()
        self._known: dict[str, dict[ViewId, tuple[int, int]]] = {}
        self._names: dict[object, tuple[str, int]] = {}

    def trace(self, events: Sequence[Event | None], positions: Numbers) -> Traces:
        """Give what events tell, each at its position."""
        size = len(events)
        kinds = np.full(size, NO_KIND, np.int8)
        hashed = np.zeros(size, np.int64)
        parts = np.zeros(size, np.int32)
        is_odd = np.zeros(size, np.bool_)
        names: list[str | None] = [None] * size
        found = _Gathering()
        for index, event in enumerate(events):
            if event is None:
                continue
            code = kinds[index] = CODES[type(event)]
            known = self._names.get(event.aid)
            if known is None:
                name = str(event.aid)
                bits = _bits(name)
                known = self._names[event.aid] = name, bits - (1 << 64 if bits >> 63 else 0)
            names[index], hashed[index] = known
            if code == _CALL:
                assert isinstance(event, Completed)
                self._touch(index, event, found)
            elif code == _INSTALLED:
                assert isinstance(event, Installed)
                parts[index] = event.is_read_only
                is_odd[index] = not self._sign(index, self._group, event.calls, found)
            elif code == _DECIDED:
                assert isinstance(event, Decided)
                parts[index] = len(event.parts)
                for part in event.parts:
                    is_odd[index] |= not self._sign(index, part.group, part.calls, found)
        return self._tabulate(found, names, kinds, hashed, parts, is_odd, positions)

    def _touch(self, index: int, event: Completed, found: _Gathering) -> None:
        for read in event.reads:
            found.touching.append(index)
            found.kinds.append(READ)
            found.keys.append(self._keys.of(self._group, read.name))
            version = read.version
            found.versions.append(
                NOTHING if version is None else self._position(self._group, version)
            )
        for write in event.writes:
            found.touching.append(index)
            found.kinds.append(WRITTEN)
            found.keys.append(self._keys.of(self._group, write.name))
            found.versions.append(NOTHING)

    def _sign(self, index: int, group: str, calls: Sequence[Viewstamp], found: _Gathering) -> bool:
        """Take calls that an event names; say whether all of them are there."""
        is_there = group in self._told and bool(calls)
        for call in calls if is_there else ():
            position = self._position(group, call)
            is_there &= position > 0
            found.signed.append(index)
            found.groups.append(group)
            found.positions.append(position)
        return is_there

    def _position(self, group: str, stamp: Viewstamp) -> int:
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = self._told[group].positions()
        before, count = known.get(stamp.view, (0, 0))
        return before + stamp.number if 0 < stamp.number <= count else UNKNOWN

    def _tabulate(  # noqa: PLR0913, PLR0917 -- the columns
        self,
        found: _Gathering,
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
        named = np.array(found.signed, np.int64)
        of_groups, places = np.array(found.groups, np.str_), np.array(found.positions, np.int64)
        for group in set(found.groups):
            mine = of_groups == group
            np.add.at(sums, named[mine], signs(group, places[mine]))
        touching = np.array(found.touching, np.int64)
        how = np.array(found.kinds, np.int8)
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
        touched = {
            "transaction": hashed[touching],
            "kind": how,
            "key": np.array(found.keys, np.int64),
            "position": positions[touching],
            "version": np.array(found.versions, np.int64),
        }
        return Traces(
            names,
            pa.table({name: pa.array(rows[name], TRACES.field(name).type) for name in rows}),
            pa.table(touched, schema=TOUCHED),
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
