"""What would make replicas differ is refused; what looks like it, and would not, is taken."""

from __future__ import annotations

import http
import importlib
import operator
import os
import os.path
import pathlib
import random as chance
import threading
import time as clock
import types
import urllib.parse
import urllib.request
import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from typing import Any, ClassVar

import msgspec
import pytest
from tests.objects import shapes

from coterie.objects import NotReplicable, define, now, query, update


class Shelf:
    items: ClassVar[dict[str, int]] = {}
    first: ClassVar[int] = 0

    @staticmethod
    def add(one: int, two: int) -> int:
        return one + two


@dataclass
class Ticket:
    seat: str
    number: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass
class Stamped:
    at: float = field(default_factory=clock.time)


class Noted(msgspec.Struct):
    at: float = msgspec.field(default_factory=clock.time)


class Plainly:
    def __init__(self) -> None:
        self.number = chance.random()  # noqa: S311

    @property
    def doubled(self) -> float:
        return self.number * 2


@dataclass
class Steady:
    names: list[str] = field(default_factory=list)
    parts: dict[str, int] = field(default_factory=lambda: {"a": 1})


GENERATOR = chance.Random(7)  # noqa: S311
CACHE: dict[str, int] = {}
LOG: list[str] = []
PRICES = {"tea": 3}
COUNT = 0


def later() -> int:
    return round(clock.time())


def around() -> tuple[type, type]:
    """Classes that reach a clock by a variable of the function around them."""
    import time as own_clock  # noqa: PLC0415
    from time import monotonic  # noqa: PLC0415

    class ByModule:
        @update
        def go(self) -> float:
            return own_clock.perf_counter()

    class ByName:
        @update
        def go(self) -> float:
            return monotonic()

    return ByModule, ByName


class Refused:
    """Each update is refused, by what its name says."""

    total: ClassVar[int] = 0
    tags: set[str] = set()  # noqa: RUF012
    fixed: frozenset[str] = frozenset()
    names: list[str] = []  # noqa: RUF012
    by_name: dict[str, list[str]] = {}  # noqa: RUF012

    def import_inside(self) -> float:
        import time  # noqa: PLC0415

        return time.time()

    def import_from_inside(self) -> str:
        from uuid import uuid4  # noqa: PLC0415

        return str(uuid4())

    def unseeded(self) -> float:
        return chance.betavariate(1, 2)

    def entropy(self) -> bytes:
        return os.urandom(3)

    def path(self) -> bool:
        return os.path.exists("/")  # noqa: PTH110

    def pathlib(self) -> str:
        return pathlib.Path("/").read_text()

    def thread_lock(self) -> None:
        lock = threading.Lock()
        lock.acquire()

    def text_hash(self, name: str) -> int:
        return hash(name)

    def helper(self) -> int:
        return later()

    def set_global(self) -> None:
        global COUNT  # noqa: PLW0603
        COUNT = 1

    def change_global_item(self, key: str) -> None:
        CACHE[key] = 1

    def change_global_list(self) -> None:
        LOG.append("x")

    def change_class(self) -> None:
        Refused.total += 1

    def change_module(self) -> None:
        clock.here = 1  # type: ignore[attr-defined]

    def change_module_list(self) -> None:
        shapes.SHELF.append("x")

    def change_class_item(self, key: str) -> None:
        Shelf.items[key] = 1

    def set_loop(self) -> None:
        for tag in self.tags:
            self.names.append(tag)

    def set_list(self) -> list[str]:
        return list(self.tags)

    def set_list_comprehension(self) -> list[str]:
        return [tag.upper() for tag in self.fixed]

    def set_dict_comprehension(self) -> dict[str, int]:
        return {tag: 1 for tag in self.tags}  # noqa: C420

    def set_pop(self) -> str:
        return self.tags.pop()

    def set_first(self) -> str:
        return next(iter(self.tags))

    def set_join(self) -> str:
        return ",".join(self.fixed)

    def set_star(self) -> list[str]:
        return [*self.tags]

    def set_unpacked(self) -> str:
        first, _ = self.tags
        return first

    def set_argument(self, tags: set[str]) -> None:
        for tag in tags:
            self.names.append(tag)

    def set_local(self, names: list[str]) -> None:
        seen = set(names)
        seen |= {"a", "b"}
        for name in seen:
            self.names.append(name)

    def set_expression(self, names: list[str]) -> list[str]:
        return list(set(names) - set(self.names))

    def set_constant(self) -> None:
        for name in {"a", "b", "c"}:  # noqa: PLC0208
            self.names.append(name)

    def set_comprehended(self, names: list[str]) -> str:
        upper = {name.upper() for name in names}
        return upper.pop()

    def set_union(self, names: list[str]) -> str:
        return ", ".join(self.tags.union(names))

    def set_printed(self) -> str:
        return f"all of {self.tags}"

    def set_keys(self) -> dict[str, None]:
        return dict.fromkeys(self.tags)

    def set_copied(self, names: list[str]) -> list[str]:
        one = frozenset(names)
        two = one.copy()
        return [*two]

    def generator(self) -> float:
        return chance.Random().random()  # noqa: S311

    def old_generator(self) -> float:
        return GENERATOR.random()

    def by_fixed_name(self) -> float:
        return float(getattr(chance, "random")())  # noqa: B009

    def by_some_name(self, name: str) -> float:
        return float(getattr(chance, name)())

    def by_import(self) -> float:
        return float(importlib.import_module("random").random())

    def by_text(self) -> float:
        return float(eval("1.0"))  # noqa: S307

    def download(self) -> bytes:
        with urllib.request.urlopen("http://localhost") as answer:
            return bytes(answer.read())

    def local_time(self, at: int) -> int:
        return datetime.fromtimestamp(at).hour  # noqa: DTZ006

    def factory(self, seat: str) -> str:
        return Ticket(seat).number

    def factory_builtin(self) -> float:
        return Stamped().at

    def factory_struct(self) -> float:
        return Noted().at

    def constructor(self) -> float:
        return Plainly().doubled

    def other_module(self) -> str:
        return shapes.code()

    def own_property(self) -> float:
        return self.hidden

    @property
    def hidden(self) -> float:
        return clock.time()


REFUSED = {
    "import_inside": r"time\.time: use coterie\.now\(\)",
    "import_from_inside": r"uuid\.uuid4: use coterie\.new_id\(\)",
    "unseeded": r"chance\.betavariate: use coterie\.random\(\)",
    "entropy": r"os\.urandom: use coterie\.random\(\)",
    "path": r"os\.path\.exists: an update may depend on its arguments",
    "pathlib": r"pathlib\.Path: an update may depend on",
    "thread_lock": r"threading\.Lock: an update may depend on",
    "text_hash": r"hash: it differs from process to process; use zlib\.crc32 or hashlib",
    "helper": r"clock\.time: use coterie\.now\(\)",
    "set_global": "it sets the global COUNT: what is outside the object is not replicated",
    "change_global_item": "it changes CACHE: what is outside the object is not replicated; make it",
    "change_global_list": "it changes LOG: what",
    "change_class": "it changes Refused: what",
    "change_module": "it changes clock: what",
    "change_module_list": "it changes shapes: what",
    "change_class_item": "it changes Shelf: what",
    "set_loop": r"the order of the set self\.tags differs .*: use sorted\(self\.tags\)",
    "set_list": r"the order of the set self\.tags",
    "set_list_comprehension": r"the order of the set self\.fixed",
    "set_dict_comprehension": r"the order of the set self\.tags",
    "set_pop": r"the order of the set self\.tags",
    "set_first": r"the order of the set self\.tags",
    "set_join": r"the order of the set self\.fixed",
    "set_star": r"the order of the set self\.tags",
    "set_unpacked": r"the order of the set self\.tags",
    "set_argument": r"the order of the set tags differs .*: use sorted\(tags\)",
    "set_local": r"the order of the set seen differs .*: use sorted\(seen\)",
    "set_expression": r"the order of a set differs from process to process: use sorted\(\)",
    "set_constant": "the order of a set",
    "set_comprehended": "the order of the set upper",
    "set_union": "the order of a set",
    "set_printed": r"the order of the set self\.tags",
    "set_keys": r"the order of the set self\.tags",
    "set_copied": "the order of the set two",
    "generator": r"chance\.Random: use coterie\.random\(\)",
    "old_generator": r"GENERATOR: use coterie\.random\(\)",
    "by_fixed_name": r"getattr\(chance, 'random'\): use coterie\.random\(\)",
    "by_some_name": r"getattr\(chance, …\): use coterie\.random\(\)",
    "by_import": r"importlib\.import_module: what it names cannot be looked at",
    "by_text": "eval: what it names cannot be looked at",
    "download": r"urllib\.request\.urlopen: an update may depend on",
    "local_time": r"datetime\.fromtimestamp: where it is called decides the time zone",
    "factory": r"uuid\.uuid4: use coterie\.new_id\(\)",
    "factory_builtin": r"a default of Stamped: use coterie\.now\(\)",
    "factory_struct": r"a default of Noted: use coterie\.now\(\)",
    "constructor": r"chance\.random: use coterie\.random\(\)",
    "other_module": r"secrets\.token_hex: use coterie\.random\(\)",
    "own_property": r"clock\.time: use coterie\.now\(\)",
}
METHODS = [name for name, value in vars(Refused).items() if isinstance(value, types.FunctionType)]


class Other:
    @update
    def other(self) -> None: ...


def class_with(base: type, name: str, mark: Any) -> type:  # noqa: ANN401 -- update or query
    """Give a class with the fields of another and one of its methods."""
    body = {each: getattr(base, each) for each in base.__annotations__}
    body |= {each: value for each, value in vars(base).items() if isinstance(value, property)}
    body |= {"__annotations__": base.__annotations__, "__module__": __name__}
    body |= {"other": vars(Other)["other"], name: mark(vars(base)[name])}
    return type(base.__name__, (), body)


@pytest.mark.parametrize("name", METHODS)
def test_what_would_differ_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(NotReplicable, match=rf"Refused\.{name} would differ.*{REFUSED[name]}"):
        define(class_with(Refused, name, update))


@pytest.mark.parametrize("cls", around(), ids=["module", "name"])
def test_a_clock_is_found_in_the_function_around_the_class(cls: type) -> None:
    with pytest.raises(NotReplicable, match=r"go would differ.*use coterie\.now\(\)"):
        define(cls)


class Taken:
    """Looks like it, and is the same everywhere."""

    tags: set[str] = set()  # noqa: RUF012
    names: list[str] = []  # noqa: RUF012
    update: int = 0
    """A field named like a method by which containers change."""

    def sorted_loop(self) -> None:
        for tag in sorted(self.tags):
            self.names.append(tag)

    def set_comprehension(self) -> set[str]:
        return {tag.upper() for tag in self.tags}

    def sum_of_all(self) -> int:
        return sum(len(tag) for tag in self.tags)

    def is_member(self, tag: str) -> bool:
        return tag in self.tags and len(self.tags) < max(3, len(PRICES))

    def sorted_argument(self, tags: set[str]) -> None:
        ordered = sorted(tags)
        for tag in ordered:
            self.names.append(tag)

    def replaced_argument(self, tags: set[str]) -> None:
        tags = sorted(tags)  # type: ignore[assignment]
        for tag in tags:
            self.names.append(tag)

    def constant(self, name: str) -> int:
        return PRICES.get(name, 0) + PRICES["tea"] + Refused.total

    def local_list(self) -> list[str]:
        found = []
        found.append("x")
        found[0] = PRICES["tea"]  # type: ignore[call-overload]
        return found

    def error(self) -> None:
        raise threading.BrokenBarrierError

    def status(self) -> int:
        return http.HTTPStatus.OK

    def functions_called_like_changes(self, amounts: list[int]) -> int:
        self.names[Shelf.first] = str(Shelf.first)
        return reduce(operator.add, amounts) + Shelf.add(1, 2)

    def time_of_the_group(self) -> int:
        return now()

    def seeded(self, seed: int) -> float:
        return chance.Random(seed).random()  # noqa: S311

    def zone(self, at: int) -> int:
        return datetime.fromtimestamp(at, UTC).hour

    def quoted(self, name: str) -> str:
        return urllib.parse.quote(name)

    def steady_factory(self) -> int:
        return len(Steady().parts)

    def unique(self, names: list[str]) -> list[str]:
        seen: set[str] = set()
        kept = []
        for name in names:
            if name not in seen:
                seen.add(name)
                kept.append(name)
        return kept

    def sorted_local(self, names: list[str]) -> list[str]:
        seen = set(names) | self.tags
        return [*sorted(seen), str(len(seen)), str(max(seen))]

    def first_a_set_then_a_list(self, names: list[str]) -> None:
        found: Any = set(names)
        found = sorted(found)
        for name in found:
            self.names.append(name)

    def set_of_a_set(self) -> frozenset[str]:
        return frozenset(self.tags)

    def a_number_of_sets(self, names: list[str]) -> int:
        return sum(len(each) for each in ({*names}, self.tags))

    def an_attribute(self, name: str) -> bool:
        return getattr(self, name, None) is None

    def pops_a_list(self) -> str:
        return [*self.names, "x"].pop()

    def pure_path(self, name: str) -> str:
        return pathlib.PurePosixPath(name).name + os.path.join("a", "b")  # noqa: PTH118


@pytest.mark.parametrize(
    "name", [name for name, value in vars(Taken).items() if isinstance(value, types.FunctionType)]
)
def test_what_is_the_same_everywhere_is_taken(name: str) -> None:
    define(class_with(Taken, name, update))


class Asking:
    """Each query changes something."""

    names: list[str] = []  # noqa: RUF012
    by_name: dict[str, list[str]] = {}  # noqa: RUF012
    last: deque[int] = deque()  # noqa: RUF012

    def append(self) -> int:
        self.names.append("x")
        return 1

    def item(self, name: str) -> None:
        self.by_name[name] = []

    def deleted_item(self, name: str) -> None:
        del self.by_name[name]

    def inner(self, name: str) -> None:
        self.by_name[name].append("x")

    def computed_key(self) -> None:
        self.by_name[self.names[0]] = []

    def augmented(self, name: str) -> None:
        self.by_name[name] += ["x"]

    def inside(self) -> list[int]:
        return [self.last.pop() for _ in range(3)]

    def a_call(self) -> None:
        self.other()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("append", "changes what is in 'names': make it an update"),
        ("item", "changes what is in 'by_name'"),
        ("deleted_item", "changes what is in 'by_name'"),
        ("inner", "changes what is in 'by_name'"),
        ("computed_key", "changes what is in 'by_name'"),
        ("augmented", "changes what is in 'by_name'"),
        ("inside", "changes what is in 'last'"),
        ("a_call", "is a query, but calls the update 'other'"),
    ],
)
def test_a_query_that_changes_something_is_refused(name: str, message: str) -> None:
    with pytest.raises(NotReplicable, match=rf"Asking\.{name} is a query, but.*{message[-20:]}"):
        define(class_with(Asking, name, query))


@dataclass(frozen=True)
class Money:
    cents: int = 0

    def add(self, other: Money) -> Money:
        return Money(self.cents + other.cents)


class AskingOnly:
    """Uses what is called like a change, and is none."""

    balance: Money = Money()
    names: list[str] = []  # noqa: RUF012
    by_name: dict[str, list[str]] = {}  # noqa: RUF012
    update: int = 0

    def copies(self) -> list[str]:
        found = self.names.copy()
        found.append("x")
        return sorted([*found, *self.by_name.get("x", [])])

    def adds(self) -> Money:
        return self.balance.add(Money(3))

    def compares(self) -> bool:
        return len(self.names) < self.update

    def item_of_a_local(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for name in self.names:
            counts[name] = len(self.by_name[name])
        return counts


@pytest.mark.parametrize("name", ["copies", "adds", "compares", "item_of_a_local"])
def test_a_query_that_only_looks_like_it_is_taken(name: str) -> None:
    define(class_with(AskingOnly, name, query))


def test_chance_from_numpy_is_found() -> None:
    numpy = pytest.importorskip("numpy")

    class Draws:
        @update
        def go(self) -> float:
            return float(numpy.random.rand())

    with pytest.raises(NotReplicable, match=r"numpy\.random\.rand: use coterie\.random"):
        define(Draws)

    class Adds:
        @update
        def go(self, amounts: list[int]) -> int:
            return int(numpy.add(*amounts[:2]))

    define(Adds)


@dataclass
class Made:
    at: float = field(default_factory=clock.time)

    @update
    def go(self) -> None: ...


class MadeByInit:
    number: float

    def __init__(self) -> None:
        self.number = chance.random()  # noqa: S311

    @update
    def go(self) -> None: ...


COUNTED = iter(range(1000))


class MadeByCounting:
    number: int

    def __init__(self) -> None:
        self.number = next(COUNTED)

    @update
    def go(self) -> None: ...


class TakesTicket:
    @update
    def go(self, tickets: list[Ticket]) -> None: ...


class TakesSteady:
    @update
    def go(self, steady: Steady) -> None: ...


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Made, r"Made, when it is made, would differ.*a default of Made: use coterie\.now"),
        (MadeByInit, r"MadeByInit, when it is made, would differ.*chance\.random"),
        (MadeByCounting, "MadeByCounting is not the same when it is made twice"),
        (TakesTicket, r"TakesTicket\.go: argument 'tickets', where a caller leaves .*uuid\.uuid4"),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_what_is_made_must_be_the_same_everywhere(cls: type, message: str) -> None:
    with pytest.raises(NotReplicable, match=message):
        define(cls)


def test_factories_that_are_the_same_everywhere_are_taken() -> None:
    define(TakesSteady)
