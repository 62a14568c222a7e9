"""What would make replicas differ, and can be recognised when a class is defined.

An update may depend on its arguments and on the object, and on nothing else. Recognised, in the
update itself and in the functions of its class and module that it names, are

- calls whose answer differs from machine to machine: clocks, chance, addresses, files, sockets …;
- changes of what is outside the object, which no other replica takes over: globals, attributes of
  classes and modules, containers that hang there;
- what depends on the order of a set, which differs from process to process.

The last is refused even where the order would not matter after all: `sorted` costs little, and
nobody can see from outside whether it matters. Comprehensions that give a set, and generator
expressions, are left alone.
"""

from __future__ import annotations

import enum
import types
from collections import deque
from typing import TYPE_CHECKING

from coterie.objects import bytecode

if TYPE_CHECKING:
    import dis
    from collections.abc import Iterator, Sequence

_TIME = "use coterie.objects.now()"
_CHANCE = "use coterie.objects.random()"
_IDS = "use coterie.objects.new_id()"
_OUTSIDE = "an update may depend on its arguments and the object's state only"

_DIFFERS: dict[str, dict[str, str]] = {
    "time": dict.fromkeys(
        (
            *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
            *("process_time", "localtime", "gmtime", "ctime", "asctime", "sleep", "thread_time"),
            *("clock_gettime", "clock_gettime_ns"),
        ),
        _TIME,
    ),
    "datetime": dict.fromkeys(("now", "utcnow", "today"), _TIME),
    "random": dict.fromkeys(
        (
            *("random", "randint", "randrange", "choice", "choices", "shuffle", "sample"),
            *("uniform", "gauss", "getrandbits", "randbytes", "seed", "SystemRandom"),
            *("betavariate", "expovariate", "normalvariate", "triangular", "paretovariate"),
        ),
        _CHANCE,
    ),
    "numpy.random": {"*": _CHANCE},
    "secrets": {"*": _CHANCE},
    "uuid": dict.fromkeys(("uuid1", "uuid4", "uuid6", "uuid7", "getnode"), _IDS),
    "os": {
        "urandom": _CHANCE,
        **dict.fromkeys(
            (
                *("getpid", "environ", "getenv", "listdir", "stat", "open", "system", "getcwd"),
                *("cpu_count", "scandir", "remove", "mkdir", "uname"),
            ),
            _OUTSIDE,
        ),
    },
    "builtins": {
        "id": _IDS,
        "hash": "it differs from process to process; use zlib.crc32 or hashlib",
        "open": _OUTSIDE,
        "input": _OUTSIDE,
    },
    **{
        module: {"*": _OUTSIDE}
        for module in (
            *("asyncio", "concurrent", "genericpath", "getpass", "glob", "http", "httpx", "locale"),
            *("multiprocessing", "platform", "queue", "requests", "select", "shutil", "signal"),
            *("socket", "sqlite3", "subprocess", "tempfile", "threading", "urllib3"),
        )
    },
    "pathlib": dict.fromkeys(("Path", "PosixPath", "WindowsPath"), _OUTSIDE),
}
"""Module, name, and what to do instead; `*` is every name."""

_ALIASES = {
    "_io": "builtins",
    "io": "builtins",
    "posix": "os",
    "nt": "os",
    "_random": "random",
    "_thread": "threading",
    "_socket": "socket",
    "_queue": "queue",
    "_asyncio": "asyncio",
}

_CONTAINERS = (dict, list, set, deque, bytearray)

_NOT_REPLICATED = "what is outside the object is not replicated; make it a field"

_ORDERED_BY = frozenset({"enumerate", "iter", "list", "reversed", "tuple"})
"""Built-in functions whose answer shows the order of what they are given."""


def recognised_differences(
    cls: type, function: types.FunctionType, sets: set[str], set_arguments: set[str]
) -> list[str]:
    """Say what in an update, and in what it names, would differ elsewhere, and what to do.

    *sets* are the fields of the class that are sets, *set_arguments* the arguments of the update
    that are.
    """
    found: list[str] = []
    seen: set[types.CodeType] = set()
    waiting: list[types.FunctionType] = [function]
    while waiting:
        current = waiting.pop()
        if current.__code__ in seen:
            continue
        seen.add(current.__code__)
        arguments = set_arguments if current is function else set[str]()
        found += _calls(current)
        found += _changes_outside(current)
        found += _orders_of_sets(current, sets, arguments)
        waiting += _named(cls, current)
    return list(dict.fromkeys(found))


def _named(cls: type, function: types.FunctionType) -> Iterator[types.FunctionType]:
    """Give the functions of its class and module that a function names."""
    for code in bytecode.with_nested(function.__code__):
        for value, _ in bytecode.values_used(function, code):
            if isinstance(value, types.FunctionType) and value.__module__ == cls.__module__:
                yield value
        for name in code.co_names:
            helper = getattr(cls, name, None)
            if isinstance(helper, types.FunctionType):
                yield helper


# ---- calls


def _calls(function: types.FunctionType) -> Iterator[str]:
    for code in bytecode.with_nested(function.__code__):
        for value, path in bytecode.values_used(function, code):
            advice = _advice(value, path)
            if advice is not None:
                yield f"{path}: {advice}"


def _advice(value: object, path: str) -> str | None:
    if isinstance(value, types.ModuleType):
        return None
    module: object = getattr(value, "__module__", None)
    owner: object = getattr(value, "__self__", None)
    if not isinstance(module, str):
        # A method of a built-in type, or of the hidden generator behind the module `random`.
        module = (owner if isinstance(owner, type) else type(owner)).__module__
    parts = _ALIASES.get(module, module).split(".")
    names = _DIFFERS.get(parts[0]) or _DIFFERS.get(".".join(parts[:2]), {})
    kind = value if isinstance(value, type) else type(value)
    if "*" in names and issubclass(kind, BaseException | enum.Enum):
        return None
    name = getattr(value, "__name__", path.rpartition(".")[2])
    return names.get(name) or names.get("*")


# ---- changes of what is outside


def _changes_outside(function: types.FunctionType) -> Iterator[str]:
    for code in bytecode.with_nested(function.__code__):
        found = bytecode.steps(code)
        for index, step in enumerate(found):
            if step.opname in {"STORE_GLOBAL", "DELETE_GLOBAL"}:
                yield f"it sets the global {step.argval}: {_NOT_REPLICATED}"
            elif step.opname == "LOAD_GLOBAL":
                value = bytecode.global_value(function, str(step.argval))
                if _is_changed(value, found, index + 1):
                    yield f"it changes {step.argval}: {_NOT_REPLICATED}"


def _is_changed(value: object, found: Sequence[dis.Instruction], index: int) -> bool:
    """Whether a class, a module, or a container in one, is changed from step *index* on."""
    while isinstance(value, type | types.ModuleType):
        step = found[index]
        if not bytecode.loads_attribute(step):
            is_stored = step.opname in {"STORE_ATTR", "DELETE_ATTR", "COPY"}
            return is_stored and bytecode.is_changed_in_place(found, index)
        value = getattr(value, str(step.argval), None)
        index += 1
    return isinstance(value, _CONTAINERS) and bytecode.is_changed_in_place(found, index)


# ---- the order of sets


def _orders_of_sets(
    function: types.FunctionType, sets: set[str], arguments: set[str]
) -> Iterator[str]:
    for name, found, index in bytecode.own_uses(function):
        if name in sets and _shows_order(found, index - 2, index):
            yield _set_order(f"self.{name}")
    code = function.__code__
    found = bytecode.steps(code)
    for name in sorted(arguments):
        if any(step.opname.startswith("STORE_FAST") and step.argval == name for step in found):
            continue  # it may be something else by then
        for index, step in enumerate(found):
            if bytecode.is_load(step, name) and _shows_order(found, index, index + 1):
                yield _set_order(name)


def _set_order(name: str) -> str:
    return f"the order of the set {name} differs from process to process: use sorted({name})"


def _shows_order(  # noqa: PLR0911 -- a table of cases
    found: Sequence[dis.Instruction], start: int, end: int
) -> bool:
    """Whether the order of a set shows, that was loaded by the steps from *start* to *end*."""
    after = found[end : end + 5]
    before = found[max(0, start - 3) : start]
    if not after:
        return False
    name = after[0].opname
    if name == "GET_ITER":
        is_set = any(step.opname == "BUILD_SET" for step in after)
        inner = [step.argval for step in before if isinstance(step.argval, types.CodeType)]
        return not is_set and not any(
            code.co_name in {"<genexpr>", "<setcomp>"} for code in inner[-1:]
        )
    if bytecode.loads_attribute(after[0]):
        return bool(after[0].argval == "pop")
    if name in {"LIST_EXTEND", "UNPACK_SEQUENCE", "UNPACK_EX"}:
        return True
    if name.startswith("CALL") and before:
        called = before[-1]
        if called.opname == "LOAD_GLOBAL":
            return called.argval in _ORDERED_BY
        return bytecode.loads_attribute(called) and bool(called.argval == "join")
    return False
