"""What would make replicas differ, and can be recognised when a class is defined.

An update may depend on its arguments and on the object, and on nothing else. Recognised, in the
update itself and in what it names (`coterie.objects.code.followed`), are

- calls whose answer differs from machine to machine: clocks, chance, addresses, files, sockets …;
- changes of what is outside the object, which no other replica takes over: globals, attributes of
  classes and modules, containers that hang there;
- what depends on the order of a set, which differs from process to process
  (`coterie.objects.code.set_order`).
"""

from __future__ import annotations

import enum
import random
import types
from collections import deque
from typing import TYPE_CHECKING

from coterie.objects.code import bytecode
from coterie.objects.code.followed import Followed
from coterie.objects.code.set_order import orders_of_sets

if TYPE_CHECKING:
    import dis
    from collections.abc import Iterable, Iterator, Sequence

_TIME = "use coterie.now()"
_CHANCE = "use coterie.random()"
_IDS = "use coterie.new_id()"
_OUTSIDE = "an update may depend on its arguments and the object's state only"
_BY_NAME = "what it names cannot be looked at: name what you use, and import it at the top"

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
        **dict.fromkeys(("eval", "exec", "__import__"), _BY_NAME),
    },
    "importlib": {"*": _BY_NAME},
    "urllib.request": {"*": _OUTSIDE},
    **{
        module: {"*": _OUTSIDE}
        for module in (
            *("aiohttp", "asyncio", "concurrent", "ftplib", "genericpath", "getpass", "glob"),
            *("http", "httpx", "imaplib", "locale", "multiprocessing", "platform", "poplib"),
            *("queue", "requests", "select", "shutil", "signal", "smtplib", "socket"),
            *("socketserver", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "urllib3"),
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

_TOO_FEW = {
    ("random", "Random"): (0, _CHANCE),
    ("datetime", "fromtimestamp"): (1, "where it is called decides the time zone: give it one"),
}
"""What differs if it is called with no more arguments than these, and what to do instead."""


def recognised_differences(
    cls: type, function: types.FunctionType, sets: set[str], set_arguments: set[str]
) -> list[str]:
    """Say what in an update, and in what it names, would differ elsewhere, and what to do.

    *sets* are the fields of the class that are sets, *set_arguments* the arguments of the update
    that are.
    """
    followed = Followed(cls)
    followed.add(function)
    return _differences(followed, function, sets, set_arguments)


def making_differences(cls: type, make: object, sets: set[str]) -> list[str]:
    """Say what would differ elsewhere in an object that was just made."""
    followed = Followed(cls)
    followed.add(make)
    return _differences(followed, None, sets, set())


def factory_differences(cls: type, records: Iterable[type]) -> list[str]:
    """Say what would differ elsewhere in the defaults of records that come as arguments."""
    followed = Followed(cls)
    for record in records:
        followed.add(record)
    return _differences(followed, None, set(), set())


def _differences(
    followed: Followed,
    first: types.FunctionType | None,
    sets: set[str],
    set_arguments: set[str],
) -> list[str]:
    found: list[str] = []
    for function in followed:
        arguments = set_arguments if function is first else set[str]()
        found += _calls(function)
        found += _changes_outside(function)
        found += orders_of_sets(function, sets, arguments)
    for path, value in followed.values:
        advice = _advice(value, path)
        if advice is not None:
            found.append(f"{path}: {advice}")
    return list(dict.fromkeys(found))


# ---- calls


def _calls(function: types.FunctionType) -> Iterator[str]:
    for code in bytecode.with_nested(function.__code__):
        found = bytecode.steps(code)
        for value, path, after in bytecode.values_used(function, code):
            advice = _advice(value, path) or _with_too_few(value, found[after : after + 8])
            if advice is not None:
                yield f"{path}: {advice}"
        yield from _by_getattr(function, found)


def _with_too_few(value: object, after: Sequence[dis.Instruction]) -> str | None:
    """Say what to do about a call that was given so little that it decides for itself."""
    module, name = _place(value, "")
    few, advice = _TOO_FEW.get((module, name), (-1, ""))
    if few < 0 or not after:
        return None
    for loads, step in enumerate(after):
        if step.opname == "CALL":
            return advice if step.arg == loads and loads <= few else None
        if not step.opname.startswith(("LOAD_FAST", "LOAD_CONST", "LOAD_SMALL_INT")):
            return None
    return None


def _by_getattr(function: types.FunctionType, found: Sequence[dis.Instruction]) -> Iterator[str]:
    """Say what is reached by `getattr` from a module or a class that differs."""
    for index, step in enumerate(found[:-2]):
        if step.opname != "LOAD_GLOBAL" or step.argval != "getattr":
            continue
        owner = found[index + 1]
        if owner.opname != "LOAD_GLOBAL":
            continue
        value = bytecode.global_value(function, str(owner.argval))
        name = found[index + 2]
        path = f"getattr({owner.argval}, …)"
        if name.opname == "LOAD_CONST" and isinstance(name.argval, str):
            path = f"getattr({owner.argval}, {name.argval!r})"
            advice = _advice(getattr(value, name.argval, None), name.argval)
        else:
            advice = _advice_of_any(value)
        if advice is not None:
            yield f"{path}: {advice}"


def _advice_of_any(value: object) -> str | None:
    """Say what to do about whatever is taken from a module."""
    if not isinstance(value, types.ModuleType):
        return None
    name = _ALIASES.get(value.__name__, value.__name__)
    return next(iter(_DIFFERS.get(name, {}).values()), None)


def _advice(value: object, path: str) -> str | None:
    if isinstance(value, types.ModuleType):
        return None
    if isinstance(value, random.Random):
        return _CHANCE  # what it gives depends on all that was asked of it before
    module, name = _place(value, path)
    parts = module.split(".")
    names = _DIFFERS.get(parts[0]) or _DIFFERS.get(".".join(parts[:2]), {})
    kind = value if isinstance(value, type) else type(value)
    if "*" in names and issubclass(kind, BaseException | enum.Enum):
        return None
    return names.get(name) or names.get("*")


def _place(value: object, path: str) -> tuple[str, str]:
    """Give the module and the name by which a value is known."""
    module: object = getattr(value, "__module__", None)
    owner: object = getattr(value, "__self__", None)
    if not isinstance(module, str):
        # A method of a built-in type, or of the hidden generator behind the module `random`.
        module = (owner if isinstance(owner, type) else type(owner)).__module__
    name = getattr(value, "__name__", path.rpartition(".")[2])
    return _ALIASES.get(module, module), str(name)


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
