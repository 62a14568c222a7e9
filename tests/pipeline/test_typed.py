"""Typed tables of updates: the signatures of the class are the columns."""

from __future__ import annotations

import datetime as dt
import enum
from collections import deque
from decimal import Decimal
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import duckdb
import msgspec
import pyarrow as pa
import pytest
from tests.pipeline.by_hand import MEMBERS, NAMES, begin, entries, settled, write
from tests.pipeline.calls_book import CallsBook, Leg, Tariff
from tests.pipeline.here import publish_here

from coterie.objects.classes.methods import Argument, Method, MethodKind
from coterie.objects.classes.reading import define
from coterie.objects.execution.commands import Call, OpenSession, encode_command
from coterie.objects.execution.sessions import session_id
from coterie.pipeline.history.replay import Program
from coterie.pipeline.publish.arrow_types import Misfit, arrow_type, converted
from coterie.pipeline.publish.manifest import read_manifest
from coterie.pipeline.publish.typed import Columns, table_name

BOOK = Program(name="tests.pipeline.calls_book:CallsBook")
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


class Tree(msgspec.Struct):
    """Contains itself."""

    leaves: list[Tree]


class Place(NamedTuple):
    """A named tuple."""

    x: int
    y: float


class Options(TypedDict, total=False):
    """A typed dictionary."""

    speed: int


class Level(enum.IntEnum):
    LOW = 1


TYPES: dict[str, tuple[Any, str, Any, Any]] = {
    "int": (int, "int64", 7, 7),
    "bounded": (Annotated[int, msgspec.Meta(ge=0)], "int64", 7, 7),
    "float": (float, "double", 1.5, 1.5),
    "bool": (bool, "bool", True, True),
    "str": (str, "string", "a", "a"),
    "bytes": (bytes, "binary", b"a", b"a"),
    "decimal": (Decimal, "decimal128(38, 9)", Decimal("1.50"), Decimal("1.500000000")),
    "moment": (dt.datetime, "timestamp[us, tz=UTC]", NOON, NOON),
    "local": (dt.datetime, "timestamp[us, tz=UTC]", NOON.replace(tzinfo=None), NOON),
    "date": (dt.date, "date32[day]", NOON.date(), NOON.date()),
    "time": (dt.time, "string", dt.time(1, 2), "01:02:00"),
    "span": (dt.timedelta, "int64", dt.timedelta(milliseconds=1), 1000),
    "uuid": (UUID, "string", UUID(int=1), str(UUID(int=1))),
    "enum": (Tariff, "string", Tariff.NIGHT, "night"),
    "numbers": (Level, "int64", Level.LOW, 1),
    "literal": (Literal["a", "b"], "string", "a", "a"),
    "optional": (int | None, "int64", None, None),
    "list": (list[int], "list<item: int64>", [1, 2], [1, 2]),
    "set": (set[str], "list<item: string>", {"b", "a"}, ["a", "b"]),
    "pair": (tuple[int, str], "struct<_1: int64, _2: string>", (1, "a"), {"_1": 1, "_2": "a"}),
    "map": (dict[int, float], "map<int64, double>", {1: 2.0}, [(1, 2.0)]),
    "struct": (
        Leg,
        "struct<trunk: string, seconds: int64>",
        Leg("t", 3),
        {"trunk": "t", "seconds": 3},
    ),
    "named": (Place, "struct<x: int64, y: double>", Place(1, 2.0), {"x": 1, "y": 2.0}),
    "typed": (Options, "struct<speed: int64>", {}, {"speed": None}),
    "union": (int | str, "string", "a", '"a"'),
    "any": (Any, "string", [1, {"a": None}], '[1,{"a":null}]'),
    "itself": (Tree, "struct<leaves: list<item: string>>", Tree([Tree([])]), None),
    "deque": (deque[int], "string", deque([1]), "[1]"),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_becomes_a_column(name: str) -> None:
    annotation, expected, value, stored = TYPES[name]
    kind = arrow_type(annotation)
    assert str(kind.type) == expected
    made = pa.array([converted(kind, value)], kind.type)
    if name != "itself":
        assert made.to_pylist() == [stored]
    assert made.to_pylist() is not None


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 1 << 63),
        (list[int], [1, -(1 << 63) - 1]),
        (Decimal, Decimal("0.0000000001")),
        (Decimal, Decimal("1e29")),
        (Decimal, Decimal("NaN")),
        (str, "\ud800"),
        (dt.timedelta, dt.timedelta.max),
        (dt.datetime, dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=1)))),
    ],
)
def test_what_does_not_fit(annotation: Any, value: object) -> None:  # noqa: ANN401
    with pytest.raises(Misfit):
        converted(arrow_type(annotation), value)


def test_names_need_no_quotes() -> None:
    assert table_name("CallsBook", "record") == "update_callsbook_record"
    assert table_name("a.b:C", "d") == "update_a_b_c_d"


def test_columns_need_no_quotes() -> None:
    """Every word that DuckDB has reserved, as the name of an argument."""

    def called(name: str) -> str:
        argument = Argument(name, int)
        method = Method("c", MethodKind.UPDATE, lambda _: None, [argument], int)
        return Columns(method).names[0]

    with duckdb.connect() as connection:
        words = connection.execute("select keyword_name from duckdb_keywords()").fetchall()
        for [word] in words:
            if word.isidentifier() and not iskeyword(word):
                name = called(word)
                connection.execute(f"select t.{name} from (select 1 as {name}) t order by {name}")  # noqa: S608
    assert called("order") == "order_argument"
    assert called("Position") == "Position_argument"


def write_calls(folder: Path, calls: list[tuple[str, tuple[object, ...]]]) -> None:
    """Journals of three replicas that executed calls of one session."""
    definition = define(CallsBook)
    session = session_id(MEMBERS[0], 1)
    commands: list[object] = [OpenSession(1, 0, 1)]
    for number, (method, arguments) in enumerate(calls, 1):
        packed = msgspec.Raw(definition.encode_call(method, arguments, {}))
        commands.append(
            Call(session, number, method, packed, 5_000_000, number, 10_000_000 + number)
        )
    payloads = [encode_command(each) for each in commands]
    told = {
        name: [
            *begin("book", name),
            entries("book", name, 1, payloads),
            settled("book", name, len(payloads)),
        ]
        for name in NAMES
    }
    write(folder, "book", told)


CALLS: list[tuple[str, tuple[object, ...]]] = [
    ("record", ("ann", Decimal("1.25"), NOON, [Leg("x", 60), Leg("y", 5)], Tariff.NIGHT, 3)),
    ("record", ("bob", Decimal("0.10"), NOON, [Leg("x", 1)])),
    ("record", ("ann", Decimal("2.00"), NOON, [Leg("x", 90)])),
    ("record", ("bob", Decimal("9.00"), NOON, [])),
    ("record", ("eve", Decimal("0.00000000001"), NOON, [Leg("x", 1)])),
    ("pay", ("ann", Decimal(1))),
    ("record", ("ann", Decimal("0.50"), NOON, [Leg("x", 9)])),
]
BILLS = """
select account, sum(price) as owed, count(*) as calls, sum(list_sum([leg.seconds for leg in legs]))
from read_parquet('{folder}/**/*.parquet', hive_partitioning = true, union_by_name = true)
where error is null
group by account
order by account
"""


def test_bills_by_account_are_one_query(tmp_path: Path) -> None:
    write_calls(tmp_path / "journals", CALLS)
    outcome = publish_here(tmp_path / "journals", tmp_path / "out", {"book": BOOK}, width=4)
    assert outcome.unwritten == []
    assert outcome.is_kept, outcome.violations
    folder = tmp_path / "out" / "tables" / "update_callsbook_record"
    with duckdb.connect() as connection:
        bills = connection.execute(BILLS.format(folder=folder)).fetchall()
        rows = connection.execute(
            f"select result, misfits, tariff, position_argument, at_argument, class_version, "  # noqa: S608
            "group_name, error "
            f"from read_parquet('{folder}/**/*.parquet', hive_partitioning = true) "
            "order by position"
        ).fetchall()
    assert bills == [
        ("ann", Decimal("3.75"), 3, 164),
        ("bob", Decimal("0.10"), 1, 1),
        ("eve", None, 1, 1),
    ]
    assert rows[0][:4] == (Decimal("1.25"), None, "night", 3)
    assert rows[0][4] == NOON
    assert rows[0][5:7] == (1, "book")
    assert rows[3][0] is None
    assert rows[3][7].startswith("ValueError: ")
    # What has a tenth digit behind the point is not rounded: it is missed, and named.
    assert sorted(rows[4][1]) == ["price", "result"]
    assert rows[5][0] == Decimal("2.75")
    tables = read_manifest(tmp_path / "out").tables
    assert tables["update_callsbook_record"].rows == 6
    assert tables["update_callsbook_pay"].columns["amount"] == "decimal128(38, 9)"
    assert "amount decimal128(38, 9)" in tables["update_callsbook_pay"].about["class_version=1"]


def test_tables_of_methods_that_are_gone_are_not_taken_over(tmp_path: Path) -> None:
    write_calls(tmp_path / "journals", CALLS[:2])
    publish_here(tmp_path / "journals", tmp_path / "out", {"book": BOOK})
    assert "update_callsbook_record" in read_manifest(tmp_path / "out").tables
    publish_here(tmp_path / "journals", tmp_path / "out")
    assert "update_callsbook_record" not in read_manifest(tmp_path / "out").tables
