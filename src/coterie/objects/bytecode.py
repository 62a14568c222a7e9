"""What the compiled code of a method tells before it ever runs.

Two questions, answered from the instructions, so that they can be asked of classes whose source is
not at hand (a third, whether a method that raises has changed anything, has its own module:
`coterie.objects.clean`):

- Does an update call something whose answer differs from machine to machine (a clock, chance, the
  address of an object)? Such calls are refused when the class is defined. Only what can be
  recognised is: a module or function reached by its global name, in the update itself and in the
  functions of the class and its module that it names.
- Does a query set a field, or an update one that is not declared?
"""

from __future__ import annotations

import builtins
import dis
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TIME = "use coterie.objects.now()"
_CHANCE = "use coterie.objects.random()"
_IDS = "use coterie.objects.new_id()"
_OUTSIDE = "an update may depend on its arguments and the object's state only"

_DIFFERS: dict[str, dict[str, str]] = {
    "time": dict.fromkeys(
        (
            *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
            *("process_time", "localtime", "gmtime", "ctime", "asctime", "sleep"),
        ),
        _TIME,
    ),
    "datetime": dict.fromkeys(("now", "utcnow", "today"), _TIME),
    "random": dict.fromkeys(
        (
            *("random", "randint", "randrange", "choice", "choices", "shuffle", "sample"),
            *("uniform", "gauss", "getrandbits", "randbytes", "seed", "SystemRandom"),
        ),
        _CHANCE,
    ),
    "secrets": {"*": _CHANCE},
    "uuid": dict.fromkeys(("uuid1", "uuid4", "getnode"), _IDS),
    "os": {
        "urandom": _CHANCE,
        **dict.fromkeys(
            ("getpid", "environ", "getenv", "listdir", "stat", "open", "system"), _OUTSIDE
        ),
    },
    "builtins": {
        "id": _IDS,
        "hash": "it differs from process to process; use zlib.crc32 or hashlib",
        "open": _OUTSIDE,
        "input": _OUTSIDE,
    },
    "socket": {"*": _OUTSIDE},
    "subprocess": {"*": _OUTSIDE},
    "threading": {"*": _OUTSIDE},
    "asyncio": {"*": _OUTSIDE},
}
"""Module, name, and what to do instead; `*` is every name."""

_ALIASES = {"_io": "builtins", "io": "builtins", "posix": "os", "nt": "os", "_random": "random"}

_UNKNOWN = object()


def recognised_differences(cls: type, function: types.FunctionType) -> list[str]:
    """Name the calls in an update, and in what it names, that answer differently elsewhere."""
    found: list[str] = []
    seen: set[types.CodeType] = set()
    waiting: list[types.FunctionType] = [function]
    while waiting:
        current = waiting.pop()
        if current.__code__ in seen:
            continue
        seen.add(current.__code__)
        for code in _with_nested(current.__code__):
            for value, path in _globals_used(current, code):
                advice = _advice(value, path)
                if advice is not None and f"{path}: {advice}" not in found:
                    found.append(f"{path}: {advice}")
                if isinstance(value, types.FunctionType) and value.__module__ == cls.__module__:
                    waiting.append(value)
            for name in code.co_names:
                helper = getattr(cls, name, None)
                if isinstance(helper, types.FunctionType):
                    waiting.append(helper)
    return found


def _globals_used(
    function: types.FunctionType, code: types.CodeType
) -> Iterator[tuple[object, str]]:
    """Give the global values a code object names, as far as attributes lead from them."""
    value: object = _UNKNOWN
    path = ""
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name == "LOAD_GLOBAL":
            if value is not _UNKNOWN:
                yield value, path
            path = str(instruction.argval)
            value = _global(function, path)
        elif name in {"LOAD_ATTR", "LOAD_METHOD"} and value is not _UNKNOWN:
            path = f"{path}.{instruction.argval}"
            if isinstance(value, types.ModuleType | type):
                value = getattr(value, str(instruction.argval), _UNKNOWN)
            else:
                value = _UNKNOWN
        elif name not in {"CACHE", "PUSH_NULL", "EXTENDED_ARG"} and value is not _UNKNOWN:
            yield value, path
            value = _UNKNOWN
    if value is not _UNKNOWN:
        yield value, path


def _advice(value: object, path: str) -> str | None:
    if isinstance(value, types.ModuleType):
        return None
    module: object = getattr(value, "__module__", None)
    owner: object = getattr(value, "__self__", None)
    if not isinstance(module, str):
        # A method of a built-in type, or of the hidden generator behind the module `random`.
        module = (owner if isinstance(owner, type) else type(owner)).__module__
    module = _ALIASES.get(module, module).partition(".")[0]
    names = _DIFFERS.get(module, {})
    if "*" in names and isinstance(value, type) and issubclass(value, BaseException):
        return None
    name = getattr(value, "__name__", path.rpartition(".")[2])
    return names.get(name) or names.get("*")


def _global(function: types.FunctionType, name: str) -> object:
    found = function.__globals__.get(name, _UNKNOWN)
    return getattr(builtins, name, _UNKNOWN) if found is _UNKNOWN else found


def _with_nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_nested(constant)


def attributes_set(function: types.FunctionType) -> set[str]:
    """Name the attributes of the object itself that a method sets by plain assignment."""
    code = function.__code__
    me = code.co_varnames[0] if code.co_argcount else ""
    found: set[str] = set()
    before: object = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"STORE_ATTR", "DELETE_ATTR"} and before == me:
            found.add(str(instruction.argval))
        if instruction.opname in {"CACHE", "EXTENDED_ARG"}:
            continue
        before = instruction.argval if instruction.opname.startswith("LOAD_FAST") else None
        if isinstance(before, tuple):
            before = before[-1]
    return found


def attributes_stored(function: types.FunctionType) -> set[str]:
    """Name all attributes that a method stores to, of whatever object."""
    return {
        str(instruction.argval)
        for code in _with_nested(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in {"STORE_ATTR", "DELETE_ATTR"}
    }


def code_of(function: Callable[..., object]) -> types.CodeType | None:
    """Give the compiled code of a function, if it is a plain one."""
    return function.__code__ if isinstance(function, types.FunctionType) else None
