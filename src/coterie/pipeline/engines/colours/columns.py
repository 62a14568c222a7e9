"""From the records of colours to columns: `actions`, `greens` and `components`.

An action is known by its identity, so `actions` has no positions. `greens` has, and is cut by
ranges of them. Its fingerprint is of identity and content alone: an action that one replica made
green as its component ended, another one makes green in the next component, at the same place and
by another viewstamp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from coterie.kernel.records import (
    ActionsGreen,
    ActionsKnown,
    ComponentAttempted,
    ComponentInstalled,
    ComponentState,
    GreenLines,
    StateAdopted,
    StateEntered,
    WordGiven,
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
from coterie.pipeline.read.rows import member_row, view_row
from coterie.pipeline.read.schemas import times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.components import Action, ActionId, Promises
    from coterie.kernel.views import Member
    from coterie.pipeline.engines.family import ToRow

_PLACE = list(schemas.ENTRIES)[:5]
_ID = pa.struct([("creator", schemas.MEMBER), ("index", pa.int64())])
_LINE = pa.struct([("replica", pa.string()), ("position", pa.int64())])
_NAMES = pa.list_(pa.string())

ACTIONS = pa.schema(
    [
        *_PLACE,
        ("creator", schemas.MEMBER),
        ("index", pa.int64()),
        ("lamport_time", pa.int64()),
        ("payload", pa.binary()),
        ("digest", pa.int64()),
    ]
)
"""Actions as replicas came to know them, red: one row for each action and replica."""

GREENS = pa.schema(
    [
        *_PLACE,
        ("position", pa.int64()),
        ("view", schemas.VIEW),
        ("number", pa.int64()),
        ("creator", schemas.MEMBER),
        ("index", pa.int64()),
        ("digest", pa.int64()),
        ("stamp", pa.int64()),
        ("fingerprint", pa.int64()),
    ]
)
"""Actions as replicas came to know their place in the global order."""

COMPONENTS = pa.schema(
    [
        *_PLACE,
        ("event", pa.string()),
        ("view", schemas.VIEW),
        ("position", pa.int64()),
        ("component", pa.int64()),
        ("attempt", schemas.VIEW),
        ("members", _NAMES),
        ("doubt", pa.int64()),
        ("doubt_attempt", schemas.VIEW),
        ("doubt_members", _NAMES),
        ("yellow_start", pa.int64()),
        ("yellow", pa.list_(_ID)),
        ("is_zombie", pa.bool_()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("source", schemas.MEMBER),
        ("greens", pa.list_(_ID)),
        ("lines", pa.list_(_LINE)),
        ("white", pa.int64()),
    ]
)
"""What happened to components: state, attempted, installed, adopted, word, entered, lines."""


class _Known(NamedTuple):
    sequence: int
    at: int
    action: Action


class ActionsMaker:
    """Makes rows of `actions`."""

    def __init__(self, group: str, replica: str, incarnation: int) -> None:
        self._constants = (group, replica, incarnation)
        self._known: list[_Known] = []

    def __len__(self) -> int:
        return len(self._known)

    def add(self, record: ActionsKnown, sequence: int) -> None:
        """Take a record."""
        self._known += [_Known(sequence, record.at, action) for action in record.actions]

    def take(self) -> pa.RecordBatch:
        """Give the rows of what was added since the last time."""
        known, self._known = self._known, []
        actions = [each.action for each in known]
        return pa.RecordBatch.from_arrays(
            [
                *_constants(self._constants, len(known)),
                pa.array([each.sequence for each in known], pa.int64()),
                times(np.array([each.at for each in known], np.int64)),
                members_array(each.creator for each in actions),
                pa.array([each.index for each in actions], pa.int64()),
                pa.array([each.time for each in actions], pa.int64()),
                pa.array([each.command for each in actions], pa.binary()),
                pa.array([crc32(each.command) for each in actions], pa.int64()),
            ],
            schema=ACTIONS,
        )


class GreensMaker:
    """Makes rows of `greens`: whole records are gathered, and spread into rows at once."""

    def __init__(self, group: str, replica: str, incarnation: int) -> None:
        self._constants = (group, replica, incarnation)
        self._bases = Bases()
        self._records: list[tuple[int, ActionsGreen]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, record: ActionsGreen, sequence: int) -> None:
        """Take a record."""
        # What has no checksum of its own could not be compared: it counts as not said.
        size = min(len(record.actions), len(record.digests))
        if size:
            self._records.append((sequence, record))
            self._size += size

    def take(self) -> pa.RecordBatch:
        """Give the rows of what was added since the last time."""
        records, size = self._records, self._size
        self._records, self._size = [], 0
        lengths = np.array(
            [min(len(each.actions), len(each.digests)) for _, each in records], np.int64
        )
        ids: list[ActionId] = []
        checksums: list[int] = []
        for (_, record), length in zip(records, lengths.tolist(), strict=True):
            ids += record.actions[:length]
            checksums += record.digests[:length]
        which = pa.array(np.repeat(np.arange(len(records)), lengths))
        sequences = np.array([sequence for sequence, _ in records], np.int64)
        at = np.array([record.at for _, record in records], np.int64)
        numbers = spread((record.number for _, record in records), lengths)
        of_views = np.array([self._bases.of(record.view) for _, record in records], np.uint64)
        of_creators = np.array([self._bases.of(id.creator) for id in ids], np.uint64)
        indices = np.array([id.index for id in ids], np.int64)
        digests = np.array(checksums, np.int64)
        prints = fingerprints(
            np.zeros(size, np.uint64), of_creators, indices, digests.astype(np.uint64)
        )
        return pa.RecordBatch.from_arrays(
            [
                *_constants(self._constants, size),
                pa.array(np.repeat(sequences, lengths)),
                times(np.repeat(at, lengths)),
                pa.array(spread((record.position for _, record in records), lengths)),
                views_array(record.view for _, record in records).take(which),
                pa.array(numbers),
                members_array(id.creator for id in ids),
                pa.array(indices),
                pa.array(digests),
                pa.array(stamps(np.repeat(of_views, lengths), numbers).view(np.int64)),
                pa.array(prints.view(np.int64)),
            ],
            schema=GREENS,
        )


def _constants(place: tuple[str, str, int], size: int) -> list[pa.Array]:
    group, replica, incarnation = place
    return [
        pa.repeat(pa.scalar(group), size),
        pa.repeat(pa.scalar(replica), size),
        pa.repeat(pa.scalar(incarnation, pa.int64()), size),
    ]


def _promises(promises: Promises) -> dict[str, Any]:
    prim, doubt, yellow = promises.prim, promises.vulnerable, promises.yellow
    row: dict[str, Any] = {
        "component": prim.index,
        "attempt": view_row(prim.attempt),
        "members": list(prim.members),
        "is_zombie": promises.is_zombie,
    }
    if doubt is not None:
        row |= {
            "doubt": doubt.index,
            "doubt_attempt": view_row(doubt.attempt),
            "doubt_members": list(doubt.members),
        }
    if yellow is not None:
        row |= {
            "yellow_start": yellow.start,
            "yellow": [
                {"creator": member_row(i.creator), "index": i.index} for i in yellow.actions
            ],
        }
    return row


def _vector(greens: Sequence[tuple[Member, int]]) -> list[dict[str, Any]]:
    return [{"creator": member_row(creator), "index": index} for creator, index in greens]


_COMPONENTS: dict[type, ToRow] = {
    ComponentState: lambda record: {
        "event": "state",
        "view": view_row(record.view),
        "position": record.position,
        **_promises(record.promises),
    },
    ComponentAttempted: lambda record: {
        "event": "attempted",
        "view": view_row(record.view),
        **_promises(record.promises),
    },
    ComponentInstalled: lambda record: {
        "event": "installed",
        "view": view_row(record.view),
        "position": record.position,
        **_promises(record.promises),
    },
    StateAdopted: lambda record: {
        "event": "adopted",
        "position": record.position,
        "source": member_row(record.source),
        "greens": _vector(record.greens),
    },
    WordGiven: lambda record: {
        "event": "word",
        "position": record.position,
        "component": record.prim.index,
        "attempt": view_row(record.prim.attempt),
        "members": list(record.prim.members),
    },
    StateEntered: lambda record: {
        "event": "entered",
        "view": view_row(record.view),
        "state": record.state,
        "reason": record.reason,
    },
    GreenLines: lambda record: {
        "event": "lines",
        "lines": [{"replica": id, "position": position} for id, position in record.lines],
        "white": record.white,
    },
}

TABLES = {
    "actions": Table(ACTIONS, maker=ActionsMaker, kinds=(ActionsKnown,)),
    "greens": Table(GREENS, maker=GreensMaker, kinds=(ActionsGreen,), is_positioned=True),
    "components": Table(COMPONENTS, _COMPONENTS),
}
"""What the records of colours become."""
