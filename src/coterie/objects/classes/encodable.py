"""Which types may be arguments, results and state, and how they are encoded.

Everything that travels or is kept is MessagePack, typed by annotations: nothing that is read can
run anything. A type is good if `msgspec` knows how to read it back, or if it is a `deque`, which
we teach it. What is not good is refused with a reason when the class is defined, not when the
first snapshot fails.

Two encoders: `encode` keeps the order of dictionaries, because a method may rely on it;
`canonical` gives the same bytes for equal values whatever their history, because digests of
different replicas are compared and the order of a set differs from process to process.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import operator
import types
import typing
from collections import deque
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import inspect

from coterie.kernel.decoding import Decoder

T = TypeVar("T")

_UNIONS = {typing.Union, types.UnionType}

NESTING_MAX = 64
"""How deep an argument may be nested. A reader's stack is not the same everywhere, and an argument
that one replica can read and another cannot would part them."""

_REASONS = {
    "_io": "an open file",
    "_thread": "a lock",
    "threading": "a thread or a lock",
    "_asyncio": "a task or future",
    "asyncio": "a part of an event loop",
    "_socket": "a socket",
    "socket": "a socket",
    "concurrent": "a thread or process pool",
    "multiprocessing": "a part of another process",
    "queue": "a queue between threads",
    "_queue": "a queue between threads",
    "sqlite3": "a database connection",
    "weakref": "a weak reference",
    "re": "a compiled pattern",
    "random": "a random generator (use coterie.random() in updates)",
}
"""What values of these modules are, for whoever meets the refusal."""

_INSTEAD = {
    "collections.defaultdict": "use a dict and setdefault()",
    "collections.OrderedDict": "use a dict, which keeps its order",
    "collections.Counter": "use dict[str, int]",
    "builtins.object": "say what it is, such as int | str | None",
    "builtins.complex": "use a tuple of two floats",
    "builtins.range": "use a tuple of its bounds",
}

_KINDS: list[tuple[type, str]] = [
    (types.GeneratorType, "a generator"),
    (types.CoroutineType, "a coroutine"),
    (types.AsyncGeneratorType, "a generator"),
    (types.FunctionType, "a function"),
    (types.BuiltinFunctionType, "a function"),
    (types.MethodType, "a bound method"),
    (types.ModuleType, "a module"),
    (type, "a class"),
]


def describe(type_: object) -> str:
    """Give a type as its author would write it, without notes."""
    type_ = _without_notes(type_)
    if type_ is type(None):
        return "None"
    if isinstance(type_, type) and not typing.get_args(type_):
        return type_.__qualname__
    return str(type_).replace("typing.", "").replace("collections.", "")


def _without_notes(type_: object) -> object:
    """Take the notes off all `Annotated` types in a type."""
    origin, args = typing.get_origin(type_), typing.get_args(type_)
    if origin is Annotated:
        return _without_notes(args[0])
    if origin is None or origin in {Literal, collections.abc.Callable}:
        return type_
    plain = tuple(map(_without_notes, args))
    if plain == args:
        return type_
    return functools.reduce(operator.or_, plain) if origin in _UNIONS else origin[plain]


def why_not(type_: object) -> str | None:
    """Say why values of a type cannot be replicated, or nothing if they can."""
    try:
        info = inspect.type_info(type_)
        Decoder(type_)
    except TypeError as error:
        return _first_line(error)
    return _why_not(info, set())


def _why_not(info: inspect.Type, seen: set[int]) -> str | None:
    if isinstance(info, inspect.CustomType):
        if info.cls is deque:
            return None
        name = f"{info.cls.__module__}.{info.cls.__qualname__}"
        kind = _of_type(info.cls)
        if kind is not None:
            return f"{kind} cannot be copied to another machine"
        advice = _INSTEAD.get(name, "make it a dataclass or a msgspec.Struct")
        return f"{info.cls.__qualname__} cannot be encoded: {advice}"
    if id(info) in seen:
        return None
    seen.add(id(info))
    for inner in _parts(info):
        reason = _why_not(inner, seen)
        if reason is not None:
            return reason
    return None


def why_not_value(value: object) -> str | None:
    """Say why this very value can never be replicated, whatever its annotation claims."""
    for kind, what in _KINDS:
        if isinstance(value, kind):
            return f"{what} cannot be copied to another machine"
    known = _of_type(type(value))
    return None if known is None else f"{known} cannot be copied to another machine"


def _of_type(cls: type) -> str | None:
    if issubclass(cls, types.GeneratorType):
        return "a generator"
    module = cls.__module__.partition(".")[0]
    if module == "collections" and cls.__name__ in {"Generator", "Iterator", "Coroutine"}:
        return f"a {cls.__name__.lower()}"
    return _REASONS.get(module)


def _parts(info: inspect.Type) -> list[inspect.Type]:
    """Give the types that a type is made of."""
    parts: list[inspect.Type] = []
    for name in ("item_type", "key_type", "value_type"):
        inner = getattr(info, name, None)
        if inner is not None:
            parts.append(inner)
    for name in ("types", "item_types"):
        parts.extend(getattr(info, name, ()))
    parts.extend(field.type for field in getattr(info, "fields", ()))
    return parts


_SCALARS = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.StrType,
    inspect.BytesType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.TimeType,
    inspect.TimeDeltaType,
    inspect.DecimalType,
    inspect.UUIDType,
    inspect.EnumType,
    inspect.LiteralType,
)


def is_immutable(type_: object) -> bool:
    """Say whether no value of a (good) type can change in place, however deep one looks."""
    return _is_immutable(inspect.type_info(type_), set())


def _is_immutable(info: inspect.Type, seen: set[int]) -> bool:
    if isinstance(info, _SCALARS) or id(info) in seen:
        return True
    seen.add(id(info))
    if isinstance(info, inspect.StructType | inspect.DataclassType):
        cls: Any = typing.get_origin(info.cls) or info.cls
        if isinstance(info, inspect.StructType):
            frozen = cls.__struct_config__.frozen
        else:
            # Of an attrs class nobody says; what can change is copied, what cannot may be.
            parameters = getattr(cls, "__dataclass_params__", None)
            frozen = parameters is not None and bool(parameters.frozen)
    else:
        frozen = isinstance(
            info,
            (
                inspect.TupleType,
                inspect.VarTupleType,
                inspect.FrozenSetType,
                inspect.NamedTupleType,
                inspect.UnionType,
            ),
        )
    return frozen and all(_is_immutable(inner, seen) for inner in _parts(info))


_PLAIN_KINDS: dict[type[inspect.Type], type] = {
    inspect.NoneType: type(None),
    inspect.BoolType: bool,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.StrType: str,
    inspect.BytesType: bytes,
}


def plain_kinds(type_: object) -> frozenset[type]:
    """Give the types whose values can be read back as a type, whatever the value.

    (Numbers beyond 64 bits and text that is none apart.) Values of other types may do, too.
    """
    info = inspect.type_info(type_)
    parts = info.types if isinstance(info, inspect.UnionType) else (info,)
    return frozenset(
        _PLAIN_KINDS[type(part)]
        for part in parts
        if type(part) in _PLAIN_KINDS and part == type(part)()  # no bounds
    )


def only_plain_kinds(type_: object) -> frozenset[type]:
    """Give the same if values of a type have no other types; otherwise nothing."""
    info = inspect.type_info(type_)
    count = len(info.types) if isinstance(info, inspect.UnionType) else 1
    kinds = plain_kinds(type_)
    return kinds if len(kinds) == count else frozenset()


def can_nest(type_: object) -> bool:
    """Say whether values of a type can be nested without end: it holds anything, or itself."""
    return _can_nest(inspect.type_info(type_), ())


def _can_nest(info: inspect.Type, outer: tuple[int, ...]) -> bool:
    if isinstance(info, inspect.AnyType) or id(info) in outer:
        return True
    return any(_can_nest(inner, (*outer, id(info))) for inner in _parts(info))


def depth(value: object) -> int:
    """Give how deep a value is nested; anything beyond `NESTING_MAX` counts as just beyond."""
    level, deepest = [value], 0
    while level and deepest <= NESTING_MAX:
        deepest += 1
        level = [inner for outer in level for inner in _inside(outer)]
    return deepest


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list(value)
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return []


def attribute_names(type_: object) -> set[str]:
    """Give the names of the attributes of all records a type is made of."""
    return {field.name for info in all_parts(type_) for field in getattr(info, "fields", ())}


def records_in(type_: object) -> set[type]:
    """Give the classes of all records a type is made of."""
    return {
        typing.get_origin(info.cls) or info.cls
        for info in all_parts(type_)
        if hasattr(info, "fields") and hasattr(info, "cls")
    }


def all_parts(type_: object) -> collections.abc.Iterator[inspect.Type]:
    """Give all types that a type is made of, each once, however they are nested."""
    waiting, seen = [inspect.type_info(type_)], set[int]()
    while waiting:
        info = waiting.pop()
        if id(info) not in seen:
            seen.add(id(info))
            yield info
            waiting.extend(_parts(info))


def outline(type_: object) -> str:
    """Give a text that types share whose values look the same on the way, bounds apart."""
    plain = strip(type_)
    if typing.get_origin(plain) is deque:
        return f"deque[{outline(typing.get_args(plain)[0])}]"
    return _outline(inspect.type_info(plain), ())


def _outline(info: inspect.Type, outer: tuple[object, ...]) -> str:
    name = type(info).__name__.removesuffix("Type").lower()
    if isinstance(info, inspect.EnumType):
        return f"enum{[member.value for member in info.cls]}"
    if isinstance(info, inspect.LiteralType):
        return f"literal{sorted(info.values, key=repr)}"
    if isinstance(info, inspect.CustomType):
        return info.cls.__qualname__
    fields = getattr(info, "fields", None)
    if fields is not None:
        cls = getattr(info, "cls", None)
        if cls in outer:
            return f"{name}^{outer.index(cls)}"
        inner = (f"{field.name}: {_outline(field.type, (*outer, cls))}" for field in fields)
        return f"{name}({', '.join(inner)})"
    parts = [_outline(part, outer) for part in _parts(info)]
    if isinstance(info, inspect.UnionType):
        parts.sort()
    return f"{name}[{', '.join(parts)}]" if parts else name


def strip(type_: object) -> object:
    """Take the notes off an `Annotated` type."""
    while typing.get_origin(type_) is Annotated:
        type_ = typing.get_args(type_)[0]
    return type_


# ---- encoding


def _encode_hook(value: object) -> object:
    if isinstance(value, deque):
        return list(value)
    raise TypeError(f"{type(value).__qualname__} cannot be encoded")


def _decode_hook(type_: type, value: object) -> object:
    if (typing.get_origin(type_) or type_) is not deque:
        raise TypeError(f"{describe(type_)} cannot be decoded")
    (item,) = typing.get_args(type_) or (typing.Any,)
    return deque(msgspec.convert(value, list[item], dec_hook=_decode_hook))  # type: ignore[valid-type]


encode = msgspec.msgpack.Encoder(enc_hook=_encode_hook).encode
"""Give a value as MessagePack, in its own order; raise what says why it cannot be."""

_canonical_encode = msgspec.msgpack.Encoder(enc_hook=_encode_hook, order="deterministic").encode


def as_text(text: str) -> str:
    """Give text that can be encoded: what is no character (half of a pair) is written out."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def decoder(type_: type[T]) -> Decoder[T]:
    """Give what reads values of a type back."""
    return Decoder(type_, dec_hook=_decode_hook)


def canonical(value: object) -> bytes:
    """Give equal bytes for equal values: sets and dictionaries are sorted."""
    try:
        return _canonical_encode(value)
    except TypeError:
        # Sorting fails for keys that are no strings; sort by encoded key instead.
        return encode(_sorted(value))


def has_sets(type_: object) -> bool:
    """Say whether values of a type can contain sets, whose order is nobody's business."""
    waiting, seen = [inspect.type_info(type_)], set[int]()
    while waiting:
        info = waiting.pop()
        if isinstance(info, inspect.SetType | inspect.FrozenSetType | inspect.AnyType):
            return True
        if id(info) not in seen:
            seen.add(id(info))
            waiting.extend(_parts(info))
    return False


def has_fractions(type_: object) -> bool:
    """Say whether values of a type can contain floats or decimals, for which others can stand."""
    waiting, seen = [inspect.type_info(type_)], set[int]()
    while waiting:
        info = waiting.pop()
        if isinstance(info, inspect.FloatType | inspect.DecimalType):
            return True
        if id(info) not in seen:
            seen.add(id(info))
            waiting.extend(_parts(info))
    return False


def encode_orderly(value: object) -> bytes:
    """Encode like `encode`, but sets in an order that all replicas share."""
    return encode(_with_sorted_sets(value))


def _with_sorted_sets(value: object) -> object:
    if isinstance(value, dict):
        return {key: _with_sorted_sets(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return [msgspec.Raw(item) for item in sorted(map(encode_orderly, value))]
    if isinstance(value, list | tuple | deque):
        return [_with_sorted_sets(item) for item in value]
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        return msgspec.Raw(_encode_record(value))
    return value


def _encode_record(value: object) -> bytes:
    try:
        return _canonical_encode(value)
    except TypeError:
        return encode(value)


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        items = {_canonical_key(key): _sorted(item) for key, item in value.items()}
        return [[key, items[key]] for key in sorted(items)]
    if isinstance(value, set | frozenset):
        return sorted(_canonical_key(item) for item in value)
    if isinstance(value, list | tuple | deque):
        return [_sorted(item) for item in value]
    if isinstance(value, msgspec.Struct):
        fields = [_sorted(getattr(value, name)) for name in value.__struct_fields__]
        return [type(value).__qualname__, *fields]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [_sorted(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return value


def _canonical_key(value: object) -> bytes:
    return encode(_sorted(value))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
