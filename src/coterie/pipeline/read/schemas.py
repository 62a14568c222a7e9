"""The tables of the pipeline. `docs/operate/pipeline.md` says what each column means.

Each schema is written once, as Arrow has it, because Arrow is what readers and tasks make; Spark's
view of it is derived. Columns that name a place in a journal (group, replica, incarnation,
sequence) come first in every table that is read from one.

No name needs quotes in SQL. Times are timestamps wherever others read them; what computes with
them takes them as microseconds (`as_numbers`). The group is part of the path of a file, as Hive has
it, and not of its content (`stored`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql.types import StructType

TIME = pa.timestamp("us", tz="UTC")
"""A moment on somebody's clock; null where nobody said it."""
GROUP = "group_name"
RANGE = "range_number"
"""The columns that are folders: `group_name=<group>`, and within it `range_number=<number>`."""

VIEW = pa.struct([("number", pa.int64()), ("proposer", pa.string()), ("incarnation", pa.int64())])
"""A view id; compared field by field this is the order of view ids."""
MEMBER = pa.struct([("id", pa.string()), ("incarnation", pa.int64())])
PLACE = pa.struct([("replica", pa.string()), ("incarnation", pa.int64()), ("sequence", pa.int64())])
"""Where a record stands: what a violation points at."""

VIEWSTAMP = pa.struct([("view", VIEW), ("number", pa.int64())])

_MEMBERS = pa.list_(MEMBER)
_NAMES = pa.list_(pa.string())
_NUMBERS = pa.list_(pa.int64())
_PLACE = [
    ("group_name", pa.string()),
    ("replica", pa.string()),
    ("incarnation", pa.int64()),
    ("sequence", pa.int64()),
    ("recorded_at", TIME),
]

ENTRIES = pa.schema(
    [
        *_PLACE,
        ("position", pa.int64()),
        ("view", VIEW),
        ("number", pa.int64()),
        ("origin", MEMBER),
        ("identity", pa.int64()),
        ("payload", pa.binary()),
        ("stamp", pa.int64()),
        ("fingerprint", pa.int64()),
    ]
)
"""Entries as replicas accepted them: one row for each entry, replica and acceptance."""

REPLIES = pa.schema(
    [
        *_PLACE,
        ("session", pa.int64()),
        ("request", pa.int64()),
        ("count", pa.int64()),
        ("position", pa.int64()),
        ("view", VIEW),
        ("number", pa.int64()),
        ("stamp", pa.int64()),
        ("standing", pa.int64()),
        ("asked_at", TIME),
        ("digest", pa.int64()),
    ]
)
"""Answers to clients."""

DIGESTS = pa.schema([*_PLACE, ("position", pa.int64()), ("digest", pa.binary())])
"""Digests of the object's state."""

VIEWS = pa.schema(
    [
        *_PLACE,
        ("event", pa.string()),
        ("view", VIEW),
        ("members", _MEMBERS),
        ("previous", VIEW),
        ("transitional", _MEMBERS),
        ("version", VIEW),
        ("position", pa.int64()),
        ("counts", _NUMBERS),
        ("digest", pa.int64()),
        ("transitional_counts", _NUMBERS),
        ("transitional_digest", pa.int64()),
    ]
)
"""What happened to views: proposed, installed, transitional, ended, accepted, confirmed."""

STANDINGS = pa.schema(
    [
        *_PLACE,
        ("event", pa.string()),
        ("position", pa.int64()),
        ("view", VIEW),
        ("source", MEMBER),
        ("version", VIEW),
        ("version_position", pa.int64()),
        ("restored", pa.int64()),
    ]
)
"""What became of a replica's history: settled, rolled back, adopted, recovered."""

CONFIGURATIONS = pa.schema(
    [
        *_PLACE,
        ("position", pa.int64()),
        ("configuration", pa.int64()),
        ("members", _NAMES),
        ("before", _NAMES),
        ("learners", _NAMES),
        ("removed", _NAMES),
        ("known", VIEWSTAMP),
    ]
)
"""By whom quorums are counted from a position on, where members have changed; under **vsr**, from
`known` on, and `position` is the number in its view."""

LIVES = pa.schema(
    [
        *_PLACE,
        ("event", pa.string()),
        ("stack", pa.string()),
        ("configuration", pa.int64()),
        ("replicas", _NAMES),
        ("is_zombie", pa.bool_()),
    ]
)
"""Lives of replicas: started, stopped."""

AUDIT = pa.schema(
    [
        *_PLACE,
        ("client", pa.string()),
        ("address", pa.string()),
        ("what", pa.string()),
        ("method", pa.string()),
        ("session", pa.int64()),
        ("request", pa.int64()),
        ("count", pa.int64()),
        ("transaction", pa.string()),
        ("refused", pa.string()),
    ]
)
"""Who asked for what, in groups that are audited."""

MESSAGES = pa.schema(
    [
        *_PLACE,
        ("event", pa.string()),
        ("view", VIEW),
        ("sender", MEMBER),
        ("first", pa.int64()),
        ("count", pa.int64()),
        ("number", pa.int64()),
        ("safe", pa.bool_()),
        ("delivery", pa.int64()),
        ("digest", pa.int64()),
    ]
)
"""Multicasts of stacks without an engine: sent, delivered."""

COHORTS = pa.schema(
    [
        *_PLACE,
        ("event", pa.string()),
        ("view", VIEW),
        ("primary_member", MEMBER),
        ("members", _MEMBERS),
        ("history", pa.list_(VIEWSTAMP)),
        ("number", pa.int64()),
        ("known", VIEWSTAMP),
        ("is_crashed", pa.bool_()),
        ("source", MEMBER),
        ("digest", pa.binary()),
    ]
)
"""What happened to cohorts: invited, accepted, formed, started, members, state taken, forced,
catastrophe, state."""

EVENT_RECORDS = pa.schema(
    [
        *_PLACE,
        ("view", VIEW),
        ("number", pa.int64()),
        ("data", pa.binary()),
        ("digest", pa.int64()),
    ]
)
"""Events as cohorts came to know them: one row for each event and cohort."""

SEGMENTS = pa.schema(
    [
        ("group_name", pa.string()),
        ("replica", pa.string()),
        ("incarnation", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("path", pa.string()),
        ("bytes", pa.int64()),
        ("records", pa.int64()),
        ("last_valid", pa.int64()),
        ("is_over", pa.bool_()),
        ("is_whole", pa.bool_()),
        ("follows_incarnation", pa.int64()),
        ("follows_sequence", pa.int64()),
        ("follows_digest", pa.binary()),
        ("digest", pa.binary()),
        ("sync", pa.string()),
        ("boot_id", pa.string()),
        ("version", VIEW),
        ("version_position", pa.int64()),
        ("settled", pa.int64()),
        ("is_zombie", pa.bool_()),
        ("read", pa.int64()),
        ("content", pa.binary()),
        ("is_altered", pa.bool_()),
        ("files", _NAMES),
        ("sizes", _NUMBERS),
        ("digests", pa.list_(pa.binary())),
    ]
)
"""The files of the journals, and what the replica remembered at the beginning of each."""

FINDINGS = pa.schema(
    [
        ("group_name", pa.string()),
        ("replica", pa.string()),
        ("incarnation", pa.int64()),
        ("path", pa.string()),
        ("byte_offset", pa.int64()),
        ("kind", pa.string()),
        ("reason", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)
"""What could not be read, or should be said of a journal."""

HISTORY = pa.schema(
    [
        ("group_name", pa.string()),
        ("position", pa.int64()),
        ("view", VIEW),
        ("number", pa.int64()),
        ("origin", MEMBER),
        ("identity", pa.int64()),
        ("payload", pa.binary()),
        ("stamp", pa.int64()),
        ("fingerprint", pa.int64()),
        ("standing", pa.string()),
        ("evidence", pa.string()),
        ("accepted_by", _NAMES),
        ("transferred_to", _NAMES),
        ("settled_by", _NAMES),
        ("given_up_by", _NAMES),
    ]
)
"""Every entry of a group once, with its standing and who holds it."""

FORCED = pa.schema(
    [
        ("group_name", pa.string()),
        ("position", pa.int64()),
        ("view", VIEW),
        ("number", pa.int64()),
        ("aid", pa.string()),
        ("kind", pa.string()),
        ("data", pa.binary()),
        ("standing", pa.string()),
        ("known_by", _NAMES),
    ]
)
"""Every event of a group of cohorts once, with its standing."""

TRANSACTIONS = pa.schema(
    [
        ("aid", pa.string()),
        ("coordinator", pa.string()),
        ("groups", _NAMES),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("calls", pa.int64()),
        ("reads", pa.int64()),
        ("writes", pa.int64()),
        ("began_at", TIME),
        ("ended_at", TIME),
    ]
)
"""Transactions over groups of cohorts, and how they ended."""

EVENTS = pa.schema(
    [
        ("group_name", pa.string()),
        ("position", pa.int64()),
        ("index", pa.int64()),
        ("view", VIEW),
        ("number", pa.int64()),
        ("session", pa.int64()),
        ("request", pa.int64()),
        ("method", pa.string()),
        ("arguments", pa.string()),
        ("result", pa.string()),
        ("error", pa.string()),
        ("executed_at", TIME),
        ("asked_at", TIME),
    ]
)
"""Updates that were executed, once each: what an application makes its tables of."""

STATES = pa.schema(
    [
        ("group_name", pa.string()),
        ("position", pa.int64()),
        ("view", VIEW),
        ("number", pa.int64()),
        ("executed_at", TIME),
        ("class_name", pa.string()),
        ("class_version", pa.int64()),
        ("digest", pa.binary()),
        ("state", pa.string()),
    ]
)
"""States of the object, at the end of every range of positions."""

VERDICTS = pa.schema(
    [
        ("group_name", pa.string()),
        ("check_name", pa.string()),
        ("paper", pa.string()),
        ("promise", pa.string()),
        ("verdict", pa.string()),
        ("checked", pa.int64()),
        ("violations", pa.int64()),
        ("remark", pa.string()),
        ("journals", pa.int64()),
        ("journals_known", pa.int64()),
        ("lives", pa.int64()),
        ("lives_known", pa.int64()),
        ("positions", pa.int64()),
        ("positions_known", pa.int64()),
    ]
)
"""One row for each check and group, and how much of the group's journals it rests on."""

VIOLATIONS = pa.schema(
    [
        ("group_name", pa.string()),
        ("check_name", pa.string()),
        ("position", pa.int64()),
        ("view", VIEW),
        ("replicas", _NAMES),
        ("evidence", pa.string()),
        ("rows", pa.list_(PLACE)),
    ]
)
"""Broken promises, with the rows that prove them."""


def stored(schema: pa.Schema) -> pa.Schema:
    """Give what a file of a table has: all but the group, which its path says."""
    return pa.schema([field for field in schema if field.name != GROUP])


def as_numbers(table: pa.Table) -> pa.Table:
    """Give times as microseconds, 0 where nobody said any: what checks compute with."""
    for index, field in enumerate(table.schema):
        if field.type == TIME:
            numbers = table.column(index).cast(pa.int64())
            if numbers.null_count:
                numbers = numbers.fill_null(0)
            table = table.set_column(index, pa.field(field.name, pa.int64()), numbers)
    return table


def times(values: NDArray[np.int64]) -> pa.Array:
    """Give microseconds as a column of times."""
    return pa.array(values).cast(TIME)


def times_or_none(values: NDArray[np.int64]) -> pa.Array:
    """Give microseconds as a column of times; 0 is none."""
    return pa.array(values, mask=values == 0).cast(TIME)


def spark_schema(schema: pa.Schema) -> StructType:
    """Give a schema as Spark has it."""
    return from_arrow_schema(schema)
