"""What is read from a class, and what is refused with which reason."""

from __future__ import annotations

import datetime as dt
import enum
import random as chance
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import IO, Annotated, Any, ClassVar, Generic, Literal, TypeVar

import msgspec
import pytest
from tests.objects import classes

from coterie.objects import (
    BadArguments,
    MethodKind,
    NotReplicable,
    ReplicatedObject,
    StateNotEncodable,
    UnknownMethod,
    define,
    query,
    update,
)


def test_methods_and_their_types_are_read() -> None:
    bank = define(classes.Bank)
    move = bank.method("move")
    assert move.kind is MethodKind.UPDATE
    assert [argument.name for argument in move.arguments] == ["source", "target", "amount", "note"]
    assert move.arguments[2].type is classes.Money
    assert move.arguments[3].default == ""
    assert move.result is int
    assert bank.method("balance").kind is MethodKind.QUERY
    assert [field.name for field in bank.fields] == ["accounts", "fee", "recent", "owners", "moves"]
    assert not bank.commuting
    assert define(classes.Tally).commuting


def test_a_class_stays_a_plain_class() -> None:
    counter = classes.Counter()
    assert counter.add(2) == 2
    assert counter.total() == 2


def test_objects_share_nothing_even_if_the_class_body_does() -> None:
    seats = define(classes.Seats)
    one, two = seats.make(), seats.make()
    assert isinstance(one, classes.Seats)
    assert isinstance(two, classes.Seats)
    one.book("1A", "Ada")
    assert two.taken == {} == classes.Seats.taken


def test_an_object_may_be_made_by_a_function() -> None:
    class Sized:
        def __init__(self, size: int) -> None:
            self.size = size

        @update
        def grow(self) -> int:
            self.size += 1
            return self.size

    with pytest.raises(NotReplicable, match="cannot be made without arguments"):
        define(Sized)
    assert vars(define(Sized, lambda: Sized(4)).make()) == {"size": 4}


# ---- arguments


class Colour(enum.Enum):
    RED = "red"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Box:
    corner: Point
    names: list[str]


class Shop:
    sold: int = 0

    @update
    def sell(
        self,
        item: str,
        count: Annotated[int, msgspec.Meta(ge=1)] = 1,
        *,
        colour: Colour = Colour.RED,
        boxes: list[Box] | None = None,
    ) -> int:
        del item, colour, boxes
        self.sold += count
        return self.sold

    @update
    def put(self, where: tuple[int, float], tags: set[str], what: dict[str, Any]) -> None:
        del where, tags, what
        self.sold -= 1

    @update
    def nothing(self) -> None:
        self.sold = 0


SHOP = define(Shop)


def decoded(method: str, *args: object, **kwargs: object) -> tuple[object, ...]:
    return SHOP.method(method).decode(SHOP.encode_call(method, args, kwargs))


def test_defaults_and_keywords_are_filled_in_by_the_caller() -> None:
    assert decoded("sell", "pen") == ("pen", 1, Colour.RED, None)
    assert decoded("sell", count=3, item="pen") == ("pen", 3, Colour.RED, None)
    box = Box(Point(1), ["a"])
    assert decoded("sell", "pen", 2, boxes=[box]) == ("pen", 2, Colour.RED, [box])
    assert decoded("nothing") == ()


def test_arguments_are_converted_as_their_types_say() -> None:
    assert decoded("put", [1, 2], ["b", "a", "b"], {"x": [1, 2]}) == (
        (1, 2.0),
        {"a", "b"},
        {"x": [1, 2]},
    )


@pytest.mark.parametrize(
    ("method", "args", "kwargs", "message"),
    [
        ("sell", (3,), {}, "Shop.sell: argument 'item' must be str: got 3"),
        ("sell", ("pen", "two"), {}, "argument 'count' must be .*int.*: got 'two'"),
        ("sell", ("pen", 0), {}, "argument 'count' must be .*: got 0 .*>= 1"),
        ("sell", ("pen",), {"colour": "blue"}, "argument 'colour' must be Colour: got 'blue'"),
        ("sell", (), {}, r"argument 'item' \(str\) is missing: sell\(item: str"),
        ("sell", ("pen", 1, Colour.RED), {}, "takes 2 arguments by position, not 3"),
        ("sell", ("pen",), {"item": "ink"}, "argument 'item' is given twice"),
        ("sell", ("pen",), {"size": 3}, "has no argument 'size'"),
        ("sell", ("pen",), {"boxes": [Box("x", [])]}, "'boxes' must be .*Box.*got"),  # type: ignore[arg-type]
        ("put", ((1, 2), {"a"}, {"x": object()}), {}, "'what' must be .*cannot be encoded"),
        ("put", ((1, 2), {"a"}, {"x": 1 << 70}), {}, "'what' must be .*cannot be encoded"),
        ("nothing", (1,), {}, "takes 0 arguments by position, not 1"),
    ],
)
def test_bad_arguments_name_the_method_the_argument_and_its_type(
    method: str, args: tuple[object, ...], kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(BadArguments, match=message):
        SHOP.encode_call(method, args, kwargs)


def test_deep_nesting_is_refused_before_it_meets_somebodys_stack() -> None:
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(BadArguments, match=r"'what' must be .*: nested deeper than 64"):
        SHOP.encode_call("put", ((1, 2), set(), {"x": deep}), {})
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadArguments, match="'what' must be"):
        SHOP.encode_call("put", ((1, 2), set(), {"x": endless}), {})


def test_arguments_that_come_encoded_are_checked_as_well() -> None:
    sell = SHOP.method("sell")
    encode = msgspec.msgpack.encode
    # A caller that does not know of the last arguments gets their defaults.
    assert sell.read(encode(["pen"])) == ("pen", 1, Colour.RED, None)
    for data, message in [
        (encode(["pen", "two"]), "argument 'count' must be"),
        (encode([]), "argument 'item' .* is missing"),
        (encode(["pen", 1, "red", None, 5]), "takes 4 arguments, not 5"),
        (encode({"item": "pen"}), "are no array"),
        (b"\xc1", "are no array"),
    ]:
        with pytest.raises(BadArguments, match=message):
            sell.check(data)


def test_results_are_read_by_their_type() -> None:
    assert SHOP.method("sell").decode_result(b"\x05") == 5
    with pytest.raises(msgspec.ValidationError):
        SHOP.method("sell").decode_result(b"\xa1x")
    with pytest.raises(UnknownMethod, match="Shop has no method 'steal'; it has"):
        SHOP.method("steal")


# ---- what is refused


def with_field(type_: object, value: object) -> type:
    class Holder:
        @update
        def go(self) -> None: ...

    Holder.__annotations__["held"] = type_
    Holder.held = value  # type: ignore[attr-defined]
    return Holder


def with_argument(type_: object) -> type:
    def go(self: object, held: object) -> None: ...

    go.__annotations__ = {"held": type_, "return": None}
    return type("Holder", (), {"go": update(go)})


class Opaque:
    pass


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (Opaque, "Opaque cannot be encoded: make it a dataclass or a msgspec.Struct"),
        (list[Opaque], "Opaque cannot be encoded"),
        (dict[str, list[tuple[int, Opaque]]], "Opaque cannot be encoded"),
        (defaultdict[str, int], "use a dict and setdefault"),
        (object, "say what it is"),
        (IO[str], "cannot be"),
        (Callable[[int], int], "cannot be|not supported"),
        (Generator[int, None, None], "a generator cannot be copied"),
        (Iterator[int], "an? iterator cannot be copied"),
        (type(threading.Lock()), "a lock cannot be copied"),
        (threading.Thread, "a thread or a lock cannot be copied"),
        (complex, "use a tuple of two floats"),
        ("Nowhere", "cannot be read"),
    ],
)
def test_types_that_cannot_travel_are_refused(type_: object, message: str) -> None:
    with pytest.raises(NotReplicable, match=message):
        define(with_argument(type_))


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        (int, threading.Lock(), "Holder.held holds .*: a lock cannot be copied"),
        (int, (each for each in [1]), "a generator cannot be copied"),
        (int, chance, "a module cannot be copied"),
        (int, "x", "Expected `int`, got `str`|declared int, but holds 'x'"),
        (list[Opaque], [], "Opaque cannot be encoded"),
    ],
)
def test_fields_that_cannot_travel_are_refused(type_: object, value: object, message: str) -> None:
    with pytest.raises(NotReplicable, match=message):
        define(with_field(type_, value))


@pytest.mark.parametrize(
    "type_",
    [
        None,
        int,
        bytes,
        list[int],
        dict[int, set[str]],
        tuple[int, ...],
        frozenset[bytes],
        deque[int],
        Point | None,
        Literal["a", "b"],
        dt.datetime,
        dt.timedelta,
        uuid.UUID,
        Colour,
        Box,
        Any,
        Annotated[str, msgspec.Meta(max_length=3)],
    ],
    ids=str,
)
def test_types_that_can_travel_are_taken(type_: object) -> None:
    define(with_argument(type_))


def test_an_open_file_in_an_attribute_is_refused() -> None:
    class Logger:
        def __init__(self) -> None:
            self.file = open(__file__)  # noqa: SIM115, PTH123

        @update
        def log(self) -> None: ...

    made: list[Logger] = []

    def make() -> Logger:
        made.append(Logger())
        return made[-1]

    with pytest.raises(
        NotReplicable, match=r"Logger\.file holds .*: an open file cannot be copied"
    ):
        define(Logger, make)
    made[0].file.close()


class Undecided:
    def __init__(self) -> None:
        self.things = {}  # type: ignore[var-annotated]

    @update
    def go(self) -> None: ...


class Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    @update
    def go(self) -> None: ...


class WithoutValue:
    value: int

    @update
    def go(self) -> None: ...


class NoUpdates:
    @query
    def look(self) -> int:
        return 1


class Untyped:
    @update
    def go(self, amount) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001


class Silent:
    @update
    def go(self): ...  # type: ignore[no-untyped-def]  # noqa: ANN201


class Variadic:
    @update
    def go(self, *amounts: int) -> None: ...


class Asynchronous:
    @update
    async def go(self) -> None: ...


class Yielding:
    @update
    def go(self) -> Iterator[int]:
        yield 1


class Hidden:
    @update
    def _go(self) -> None: ...


class Static:
    @update  # type: ignore[arg-type]
    @staticmethod
    def go() -> None: ...


class BadDefault:
    @update
    def go(self, amount: int = "x") -> None: ...  # type: ignore[assignment]


class Overriding(classes.Counter):
    def add(self, amount: int) -> int:
        return amount


class HalfSnapshot:
    @update
    def go(self) -> None: ...

    def snapshot(self) -> int:
        return 1


class VagueSnapshot(HalfSnapshot):
    def snapshot(self):  # type: ignore[no-untyped-def]  # noqa: ANN201
        return 1

    def restore(self, state: int) -> None: ...


class WritingQuery:
    value: int = 0

    @update
    def go(self) -> None: ...

    @query
    def look(self) -> int:
        self.value += 1
        return self.value


class Undeclared:
    @update
    def go(self) -> None:
        self.last = 1


class TickingWrong(ReplicatedObject):
    @update
    def go(self) -> None: ...

    def on_tick(self, now: int) -> None: ...


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Undecided, r"Undecided\.things has no annotation"),
        (Slotted, "uses __slots__"),
        (WithoutValue, r"WithoutValue\.value has no initial value"),
        (NoUpdates, "has no update: mark one with @update"),
        (Untyped, r"Untyped\.go: argument 'amount' has no annotation"),
        (Silent, r"Silent\.go does not say what it answers"),
        (Variadic, "'amounts' takes any number of arguments: use a list or a dict"),
        (Asynchronous, "is async"),
        (Yielding, "is a generator"),
        (Hidden, "begins with an underscore"),
        (Static, "is not a plain method"),
        (BadDefault, "the default of 'amount' is 'x', not int"),
        (Overriding, r"Overriding\.add hides the update of Counter: mark it with @update, too"),
        (HalfSnapshot, "has one of snapshot"),
        (VagueSnapshot, r"snapshot\(\) does not say what it gives"),
        (WritingQuery, r"WritingQuery\.look is a query, but sets 'value': make it an update"),
        (Undeclared, r"Undeclared\.go sets self\.last, which is not declared"),
        (TickingWrong, "on_tick takes no arguments"),
        (7, "is not a class"),
    ],
)
def test_a_class_that_cannot_be_replicated_is_refused(cls: type, message: str) -> None:
    with pytest.raises(NotReplicable, match=message):
        define(cls)


def helper() -> float:
    return time.monotonic()


class UsesClock:
    @update
    def go(self) -> float:
        return time.time()


class UsesDate:
    @update
    def go(self) -> str:
        return str(dt.datetime.now(dt.UTC))


class UsesChance:
    @update
    def go(self, names: list[str]) -> str:
        return chance.choice(names)  # noqa: S311


class UsesImportedName:
    @update
    def go(self) -> str:
        return str(uuid.uuid4())


class UsesAddress:
    @update
    def go(self) -> int:
        return id(self)


class UsesHelper:
    @update
    def go(self) -> float:
        return self._later()

    def _later(self) -> float:
        return helper()


class UsesInComprehension:
    @update
    def go(self) -> list[float]:
        return [chance.random() for _ in range(3)]  # noqa: S311


class UsesFile:
    @update
    def go(self) -> str:
        with open("/dev/null") as file:  # noqa: PTH123
            return file.read()


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (UsesClock, r"UsesClock\.go would differ.*time\.time: use coterie\.now\(\)"),
        (UsesDate, r"dt\.datetime\.now: use coterie\.now\(\)"),
        (UsesChance, r"chance\.choice: use coterie\.random\(\)"),
        (UsesImportedName, r"uuid\.uuid4: use coterie\.new_id\(\)"),
        (UsesAddress, "id: use"),
        (UsesHelper, r"time\.monotonic: use"),
        (UsesInComprehension, r"chance\.random: use"),
        (UsesFile, "open: an update may depend on its arguments and the object's state only"),
    ],
)
def test_a_call_that_differs_from_machine_to_machine_is_refused(cls: type, message: str) -> None:
    with pytest.raises(NotReplicable, match=message):
        define(cls)


class Harmless:
    """Uses the same modules for what is the same everywhere."""

    limit: ClassVar[int] = 3
    when: dt.datetime = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)

    @update
    def go(self, seed: int) -> str:
        self.when += dt.timedelta(seconds=1)
        return str(uuid.UUID(int=chance.Random(seed).getrandbits(128)))  # noqa: S311

    @query
    def age(self) -> float:
        return time.time() - self.when.timestamp()


def test_what_is_the_same_everywhere_is_taken() -> None:
    definition = define(Harmless)
    assert [field.name for field in definition.fields] == ["when"]


# ---- state


def test_an_undeclared_or_deleted_attribute_is_found() -> None:
    counter = define(classes.Counter)
    made = counter.make()
    vars(made)["extra"] = 1
    with pytest.raises(StateNotEncodable, match="has set 'extra', which is not declared"):
        counter.canonical_state(made)
    vars(made).clear()
    with pytest.raises(StateNotEncodable, match="has deleted its field 'value'"):
        counter.canonical_state(made)


def test_a_field_that_holds_something_else_is_found() -> None:
    bank = define(classes.Bank)
    made = bank.make()
    vars(made)["accounts"][1] = "not an account"
    with pytest.raises(StateNotEncodable, match=r"the field 'accounts' of Bank is declared dict"):
        bank.check(made)
    vars(made)["accounts"][1] = object()
    with pytest.raises(StateNotEncodable, match=r"holds .*, which cannot be encoded"):
        bank.canonical_state(made)


class Fields:
    """Fields whose types have arguments that are no types."""

    last: tuple[int, ...] = ()
    mode: Literal["on", "off"] = "on"
    maybe: Annotated[tuple[str, ...] | None, "a note"] = None

    @update
    def go(self) -> None:
        self.last = (*self.last, 1)


def test_fields_may_have_types_whose_arguments_are_no_types() -> None:
    definition = define(Fields)
    assert definition.copies_cheaply
    made = definition.make()
    made.go()  # type: ignore[attr-defined]
    assert vars(definition.copy(made)) == {"last": (1,), "mode": "on", "maybe": None}
    assert vars(definition.assemble(definition.pieces(made, 99))) == vars(made)


# ---- generic classes

V = TypeVar("V")
W = TypeVar("W")
Named = TypeVar("Named", bound=str)


class Crate(msgspec.Struct, Generic[V], frozen=True):
    value: V


class Shelf(Generic[V, Named]):
    crates: dict[str, Crate[V]] = {}  # noqa: RUF012
    last: Named | None = None

    @update
    def put(self, key: str, value: V) -> list[V]:
        self.crates[key] = Crate(value)
        return [crate.value for crate in self.crates.values()]

    @query
    def named(self) -> Named | None:
        return self.last


class Pairs(Shelf[tuple[V, V], str], Generic[V]):
    """The same variable means something else here than in its base."""

    first: V | None = None


class PairsOfInts(Pairs[int]): ...


class OpenShelf(Shelf): ...  # type: ignore[type-arg]


def test_whoever_inherits_from_a_generic_class_says_what_it_holds() -> None:
    definition = define(PairsOfInts)
    assert {field.name: field.type for field in definition.fields} == {
        "crates": dict[str, Crate[tuple[int, int]]],
        "last": str | None,
        "first": int | None,
    }
    assert definition.copies_cheaply
    put = definition.method("put")
    assert put.result == list[tuple[int, int]]
    put.encode(("a", (1, 2)), {})
    with pytest.raises(BadArguments, match=r"argument 'value' must be tuple\[int, int\]"):
        put.encode(("a", ("x", 2)), {})
    made = definition.make()
    assert isinstance(made, PairsOfInts)
    made.put("a", (1, 2))
    copy = definition.assemble(definition.pieces(made, 1 << 16))
    assert vars(copy) == vars(made)


def test_what_nobody_says_may_be_anything() -> None:
    for cls in (OpenShelf, Shelf):
        definition = define(cls)
        definition.method("put").encode(("a", {"any": ["thing"]}), {})
        assert definition.method("named").result == str | None
        assert not definition.copies_cheaply


def test_attrs_classes_are_records_like_others() -> None:
    """They ended in an AttributeError."""
    attrs = pytest.importorskip("attrs")
    point = attrs.make_class("Point", {"x": attrs.field(type=int, default=0)})
    steady = attrs.make_class("Steady", {"x": attrs.field(type=int, default=0)}, frozen=True)

    class Places:
        points: list[point] = []  # type: ignore[valid-type]  # noqa: RUF012
        last: steady | None = None  # type: ignore[valid-type]

        @update
        def go(self, to: int) -> None:
            self.points.append(point(to))
            self.last = steady(to)

    Places.__annotations__ = {"points": list[point], "last": steady | None}  # type: ignore[valid-type]
    definition = define(Places)
    made = definition.make()
    made.go(3)  # type: ignore[attr-defined]
    twin = definition.copy(made)
    assert vars(twin) == vars(made)
    assert definition.canonical_state(twin) == definition.canonical_state(made)

    slotted = attrs.make_class("Slotted", {"x": attrs.field(type=int, default=0)}, slots=True)
    with pytest.raises(NotReplicable, match=r"Slotted has slots: write @define\(slots=False\)"):
        define(slotted)


def test_a_pydantic_model_is_refused_with_what_to_do() -> None:
    """They are not supported; the sentence is that for all classes of others."""

    class Model:
        __pydantic_fields__: ClassVar[dict[str, object]] = {}

    class Shop:
        sold: int = 0

        @update
        def sell(self, what: Model) -> int:
            self.sold += bool(what)
            return self.sold

    Shop.sell.__annotations__["what"] = Model
    with pytest.raises(NotReplicable, match=r"Model cannot be encoded: make it a dataclass or a m"):
        define(Shop)
