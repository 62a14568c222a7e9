"""Tables of updates with typed columns: one for each method, from the signatures of the class.

    <tables>/update_<class>_<method>/class_version=<n>/group_name=<group>/range_number=<range>/

A row is an event (`coterie.pipeline.publish.events`) of that method, with a column for each
argument by its name, and one for the result. A class that changes has a new version, and its rows
lie apart: readers join versions by the names of their columns. What does not fit its column is
null, and the column is named in `misfits`; `events` has it as JSON.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from coterie.pipeline.publish.arrow_types import Misfit, arrow_type, converted
from coterie.pipeline.publish.manifest import VERSION
from coterie.pipeline.read.schemas import TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.objects.classes.definition import Definition
    from coterie.objects.classes.methods import Method
    from coterie.pipeline.publish.arrow_types import ArrowType

Row = dict[str, Any]
PREFIX = "update_"
RESULT = "result"
FIXED = pa.schema(
    [
        ("group_name", pa.string()),
        ("position", pa.int64()),
        ("index", pa.int64()),
        ("session", pa.int64()),
        ("request", pa.int64()),
        ("executed_at", TIME),
        ("asked_at", TIME),
        ("error", pa.string()),
        ("misfits", pa.list_(pa.string())),
    ]
)
"""What every table of updates has, whatever the method."""
_WORDS = """
all analyse analyze anti any array asc asof asymmetric at authorization binary both by case
cast check collate collation column concurrently constraint create cross default deferrable
desc describe distinct do end false fetch foreign freeze full glob group having ilike
initially inner intersect into isnull join lateral leading left like limit minus natural
notnull null offset on only order outer overlaps pivot pivot_longer pivot_wider placing
positional primary qualify references returning right select semi show similar some
summarize symmetric table tablesample then to trailing true union unique unpack unpivot user
using variadic verbose when where window
"""
_QUOTED = frozenset(_WORDS.split())
"""Words that a query would have to quote."""
_TAKEN = {*FIXED.names, *_QUOTED, RESULT, VERSION, "range_number"}
"""What no column of an argument is called: it gets `_argument` behind its name."""


def table_name(class_name: str, method: str) -> str:
    """Give the name of the table of a method; it needs no quotes."""
    return PREFIX + re.sub(r"\W+", "_", f"{class_name}_{method}", flags=re.ASCII).lower()


class Typed(NamedTuple):
    """An update with its values, beside its row of `events`."""

    definition: Definition
    method: Method
    arguments: tuple[Any, ...]
    result: object
    is_done: bool


class Columns:
    """The columns of one method."""

    def __init__(self, method: Method) -> None:
        self.names: list[str] = []
        self.kinds: list[ArrowType] = []
        seen = set(_TAKEN)
        for argument in method.arguments:
            name = argument.name
            # Readers do not tell capital letters from small ones.
            while name.lower() in seen:
                name = f"{name}_argument"
            seen.add(name.lower())
            self.names.append(name)
            self.kinds.append(arrow_type(argument.type))
        self.result = arrow_type(method.result)
        fields = [pa.field(*each) for each in self._fields()]
        self.schema = pa.schema([*FIXED, *fields])

    def _fields(self) -> Iterator[tuple[str, pa.DataType]]:
        for name, kind in zip(self.names, self.kinds, strict=True):
            yield name, kind.type
        yield RESULT, self.result.type

    def row(self, event: Row, typed: Typed) -> Row:
        """Give the row of an event."""
        row: Row = {name: event.get(name) for name in FIXED.names}
        misfits: list[str] = []
        values = [*zip(self.names, self.kinds, typed.arguments, strict=True)]
        if typed.is_done:
            values.append((RESULT, self.result, typed.result))
        for name, kind, value in values:
            try:
                row[name] = converted(kind, value)
            except Misfit:
                misfits.append(name)
        row["misfits"] = misfits or None
        return row


class TypedRows:
    """The updates of one range, by their tables."""

    def __init__(self) -> None:
        self._columns: dict[tuple[str, int, str], Columns] = {}
        self._rows: dict[tuple[str, int, str], list[Row]] = {}

    def add(self, event: Row, typed: Typed) -> None:
        """Take an event."""
        key = typed.definition.name, typed.definition.version, typed.method.name
        columns = self._columns.get(key)
        if columns is None:
            columns = self._columns[key] = Columns(typed.method)
        self._rows.setdefault(key, []).append(columns.row(event, typed))

    def take(self) -> Iterator[tuple[str, pa.Table]]:
        """Give the tables, each with where it lies, and begin anew."""
        rows, self._rows = self._rows, {}
        for key, mine in sorted(rows.items()):
            name, version, method = key
            place = f"{table_name(name, method)}/{VERSION}={version}"
            yield place, pa.Table.from_pylist(mine, self._columns[key].schema)
