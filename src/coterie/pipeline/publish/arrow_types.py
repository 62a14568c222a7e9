"""From the annotations of a class to columns: which Arrow type a Python type becomes.

`docs/operate/tables.md` has the table. What has no type of its own, such as `Any`, unions, and
types that contain themselves, becomes JSON.

A value that does not fit its column (an integer of more than 64 bits, a tenth digit behind the
point) raises `Misfit`.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import inspect

from coterie.pipeline.publish.json_text import json_of

DIGITS, SCALE = 38, 9
"""Of decimal numbers: how many digits, and how many of them behind the point."""
_INT64 = 1 << 63


class Misfit(ValueError):
    """A value is none of those that its column can have."""


class ArrowType(NamedTuple):
    """The type of a column, and what makes its values from those of Python."""

    type: pa.DataType
    convert: Callable[[Any], Any]


def arrow_type(annotation: object) -> ArrowType:
    """Give the type that values of an annotation have as a column."""
    try:
        return _plan(inspect.type_info(annotation), ())
    except TypeError:  # msgspec does not know it; the object taught its decoder
        return _JSON


def _text(value: object) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Misfit("it is no text") from None
        return value
    return str(value)


def _number(value: int) -> int:
    if not -_INT64 <= value < _INT64:
        raise Misfit(f"{value} has more than 64 bits")
    return value


def _decimal(value: Decimal) -> Decimal:
    digits = value.as_tuple()
    if not isinstance(digits.exponent, int):
        raise Misfit(f"{value} is no number")
    if value and -digits.exponent > SCALE and value != round(value, SCALE):
        raise Misfit(f"{value} has more than {SCALE} digits behind the point")
    if value.adjusted() >= DIGITS - SCALE:
        raise Misfit(f"{value} has more than {DIGITS - SCALE} digits before the point")
    return round(value, SCALE)


def _moment(value: dt.datetime) -> dt.datetime:
    if value.tzinfo is None:
        return value.replace(tzinfo=dt.UTC)
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:
        raise Misfit(f"{value} is no time in UTC") from None


def _microseconds(value: dt.timedelta) -> int:
    return _number(value // dt.timedelta(microseconds=1))


_JSON = ArrowType(pa.string(), json_of)
_SIMPLE: dict[type, ArrowType] = {
    inspect.IntType: ArrowType(pa.int64(), _number),
    inspect.FloatType: ArrowType(pa.float64(), float),
    inspect.BoolType: ArrowType(pa.bool_(), bool),
    inspect.StrType: ArrowType(pa.string(), _text),
    inspect.BytesType: ArrowType(pa.binary(), bytes),
    inspect.ByteArrayType: ArrowType(pa.binary(), bytes),
    inspect.MemoryViewType: ArrowType(pa.binary(), bytes),
    inspect.DecimalType: ArrowType(pa.decimal128(DIGITS, SCALE), _decimal),
    inspect.DateTimeType: ArrowType(pa.timestamp("us", tz="UTC"), _moment),
    inspect.DateType: ArrowType(pa.date32(), lambda value: value),
    inspect.TimeType: ArrowType(pa.string(), lambda value: value.isoformat()),
    inspect.TimeDeltaType: ArrowType(pa.int64(), _microseconds),
    inspect.UUIDType: ArrowType(pa.string(), str),
    inspect.NoneType: ArrowType(pa.string(), lambda _: None),
}
_RECORDS = (
    inspect.StructType,
    inspect.DataclassType,
    inspect.NamedTupleType,
    inspect.TypedDictType,
)


def _plan(  # noqa: PLR0911 -- a case each
    info: inspect.Type, inside: tuple[type, ...]
) -> ArrowType:
    """Give the type of a column; *inside* are the records it is a part of."""
    if isinstance(info, inspect.Metadata):
        return _plan(info.type, inside)
    match info:
        case inspect.UnionType(types=types):
            rest = [each for each in types if not isinstance(each, inspect.NoneType)]
            return _plan(rest[0], inside) if len(rest) == 1 else _JSON
        case inspect.EnumType(cls=cls):
            return _choice([each.value for each in cls])
        case inspect.LiteralType(values=values):
            return _choice(list(values))
        case inspect.DictType(key_type=key, value_type=value):
            return _map(_plan(key, inside), _plan(value, inside))
        case inspect.SetType() | inspect.FrozenSetType():
            # In an order that is the same whoever makes the table.
            return _list(_plan(info.item_type, inside), lambda value: sorted(value, key=json_of))
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
            return _list(_plan(info.item_type, inside), list)
        case _:
            return _SIMPLE.get(type(info)) or _plan_record(info, inside) or _JSON


def _plan_record(info: inspect.Type, inside: tuple[type, ...]) -> ArrowType | None:
    """Give the type of a column of what has fields; None if it has none, or contains itself."""
    if isinstance(info, inspect.TupleType):
        parts = [_plan(each, inside) for each in info.item_types]
        names = [f"_{number}" for number in range(1, len(parts) + 1)]
        return _struct(names, parts, list) if parts else None
    if not isinstance(info, _RECORDS) or not info.fields or info.cls in inside:
        return None
    names = [each.name for each in info.fields]
    parts = [_plan(each.type, (*inside, info.cls)) for each in info.fields]
    is_mapping = isinstance(info, inspect.TypedDictType)

    def unpack(value: Any) -> list[Any]:  # noqa: ANN401 -- a record of any kind
        return [value.get(name) if is_mapping else getattr(value, name) for name in names]

    return _struct(names, parts, unpack)


def _choice(values: list[Any]) -> ArrowType:
    is_number = all(isinstance(each, int) and not isinstance(each, bool) for each in values)

    def convert(value: object) -> object:
        plain = value.value if isinstance(value, enum.Enum) else value
        return _number(plain) if is_number and isinstance(plain, int) else _text(plain)

    return ArrowType(pa.int64() if is_number else pa.string(), convert)


def _list(item: ArrowType, unpack: Callable[[Any], list[Any]]) -> ArrowType:
    return ArrowType(
        pa.list_(item.type), lambda value: [_convert(item, each) for each in unpack(value)]
    )


def _map(key: ArrowType, value: ArrowType) -> ArrowType:
    def convert(mapping: dict[Any, Any]) -> list[tuple[Any, Any]]:
        return [(key.convert(each), _convert(value, found)) for each, found in mapping.items()]

    return ArrowType(pa.map_(key.type, value.type), convert)


def _struct(
    names: list[str], parts: list[ArrowType], unpack: Callable[[Any], list[Any]]
) -> ArrowType:
    fields = [pa.field(name, part.type) for name, part in zip(names, parts, strict=True)]

    def convert(value: object) -> dict[str, Any]:
        values = zip(names, parts, unpack(value), strict=True)
        return {name: _convert(part, each) for name, part, each in values}

    return ArrowType(pa.struct(fields), convert)


def _convert(kind: ArrowType, value: object) -> object:
    if value is None or value is msgspec.UNSET:
        return None
    return kind.convert(value)


def converted(kind: ArrowType, value: object) -> Any:  # noqa: ANN401 -- what Arrow takes
    """Give a value as its column has it; raises `Misfit`."""
    try:
        return _convert(kind, value)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise Misfit(str(error)) from None
