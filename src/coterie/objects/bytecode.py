"""What the compiled code of a method tells before it ever runs.

Three questions, all answered from the instructions, so that they can be asked of classes whose
source is not at hand:

- Does an update call something whose answer differs from machine to machine (a clock, chance, the
  address of an object)? Such calls are refused when the class is defined. Only what can be
  recognised is: a module or function reached by its global name, in the update itself and in the
  functions of the class and its module that it names.
- Does a query set a field, or an update one that is not declared?
- If a method raises here, has it surely changed nothing before? An update that raises leaves no
  trace, and undoing costs more than the rest of the call together. But most updates check first,
  raise, and only then begin to change things; for those nothing has to be undone, and this is
  where it is proved. The proof is one-sided: instructions, functions and methods that are not
  known to be harmless count as changes, whatever they really do, on any version of Python. It
  rests on operators (`==`, `in`, `+`) and on the making of exceptions and records not changing
  anything, which is true of everything that can be a field.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import types
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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

_HARMLESS = (
    *("BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "BUILD_", "CACHE", "CALL", "COMPARE_OP"),
    *("CONTAINS_OP", "CONVERT_VALUE", "COPY", "COPY_FREE_VARS", "DICT_MERGE", "DICT_UPDATE"),
    *("END_FOR", "EXTENDED_ARG", "FORMAT_", "FOR_ITER", "GET_ITER", "GET_LEN", "IS_OP", "JUMP_"),
    *(
        "CHECK_EXC_MATCH",
        "KW_NAMES",
        "LIST_APPEND",
        "LIST_EXTEND",
        "LIST_TO_TUPLE",
        "LOAD_ASSERTION_ERROR",
    ),
    *("LOAD_ATTR", "LOAD_COMMON_CONSTANT", "LOAD_CONST", "LOAD_FAST", "LOAD_GLOBAL"),
    *("LOAD_METHOD", "LOAD_SMALL_INT", "MAKE_CELL", "MAP_ADD", "NOP", "NOT_TAKEN", "POP_ITER"),
    *(
        "POP_EXCEPT",
        "POP_JUMP_",
        "POP_TOP",
        "PRECALL",
        "PUSH_EXC_INFO",
        "PUSH_NULL",
        "RAISE_VARARGS",
        "RERAISE",
        "RESUME",
    ),
    *("RETURN_", "SET_ADD", "SET_UPDATE", "STORE_FAST", "SWAP", "TO_BOOL", "UNARY_", "UNPACK_"),
)
"""Instructions, by the beginning of their names, that change nothing but the frame itself."""

_HARMLESS_FUNCTIONS = frozenset(
    {
        *("abs", "all", "any", "bool", "bytes", "chr", "dict", "divmod", "enumerate", "float"),
        *("format", "frozenset", "int", "isinstance", "len", "list", "max", "min", "ord", "pow"),
        *("range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip"),
    }
)

_HARMLESS_METHODS = frozenset(
    {
        *("bit_count", "bit_length", "capitalize", "casefold", "copy", "count", "decode"),
        *("difference", "encode", "endswith", "find", "format", "get", "hex", "index"),
        *("intersection", "isalnum", "isalpha", "isdecimal", "isdigit", "isdisjoint"),
        *("isidentifier", "islower", "isspace", "issubset", "issuperset", "isupper", "items"),
        *("join", "keys", "lower", "lstrip", "partition", "removeprefix", "removesuffix"),
        *("replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines"),
        *("startswith", "strip", "symmetric_difference", "title", "total_seconds", "union"),
        *("upper", "values", "zfill", "name", "value"),
    }
)
"""Methods of built-in values that change nothing, by name: no mutable one shares a name."""

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


def clean_offsets(function: types.FunctionType, harmless_attributes: set[str]) -> frozenset[int]:
    """Give the offsets of the instructions at which a method that raises has changed nothing.

    *harmless_attributes* are names whose loading gives data, not a method that changes things.

    An instruction is clean if no way leads to it from one that may change something, and if no
    handler around it may change something before it lets the exception go on.
    """
    harmless = _HARMLESS_METHODS | harmless_attributes
    code = function.__code__
    steps = {step.offset: step for step in dis.get_instructions(code)}
    guards: Sequence[_Guard] | None = getattr(dis.Bytecode(code), "exception_entries", None)
    if guards is None:
        if code.co_exceptiontable:
            return frozenset()
        guards = ()
    after = _successors(steps, guards)
    changes = {at for at, step in steps.items() if not _is_harmless(function, step, harmless)}
    dirty = changes | _reachable(changes, after)
    for guard in guards:
        if changes & ({guard.target} | _reachable({guard.target}, after)):
            dirty |= {at for at in steps if guard.start <= at < guard.end}
    return frozenset(steps) - dirty


class _Guard(Protocol):
    """An entry of a code object's exception table."""

    start: int
    end: int
    target: int


_LEAVES = ("JUMP_", "RAISE_VARARGS", "RERAISE", "RETURN_")
"""Instructions that never go on to the next one."""


def _successors(
    steps: dict[int, dis.Instruction], guards: Sequence[_Guard]
) -> dict[int, list[int]]:
    """Give, for every instruction, which may come after it."""
    after: dict[int, list[int]] = {}
    for (at, step), following in zip_longest(steps.items(), list(steps)[1:]):
        nexts = [guard.target for guard in guards if guard.start <= at < guard.end]
        if following is not None and not step.opname.startswith(_LEAVES):
            nexts.append(following)
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            nexts.append(step.argval)
        after[at] = nexts
    return after


def _reachable(begin: Iterable[int], after: dict[int, list[int]]) -> set[int]:
    """Give all that may come after any of *begin*."""
    seen: set[int] = set()
    waiting = list(begin)
    while waiting:
        for following in after[waiting.pop()]:
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return seen


def _is_harmless(  # noqa: PLR0911 -- a table of cases
    function: types.FunctionType, step: dis.Instruction, harmless: frozenset[str]
) -> bool:
    name = step.opname
    if name == "MAKE_FUNCTION":
        return True  # its code came by LOAD_CONST, and was looked at there
    if name in {"LOAD_CLOSURE", "LOAD_DEREF", "STORE_DEREF"}:
        return step.argval in function.__code__.co_cellvars
    if not name.startswith(_HARMLESS):
        return False
    if name == "LOAD_GLOBAL":
        return _is_harmless_global(_global(function, str(step.argval)))
    if name in {"LOAD_ATTR", "LOAD_METHOD"}:
        return step.argval in harmless
    if name == "BINARY_OP":
        return not step.argrepr.endswith("=")  # += and its kind change lists in place
    if name == "LOAD_CONST" and isinstance(step.argval, types.CodeType):
        return _is_harmless_code(function, step.argval, harmless)
    return True


def _is_harmless_code(
    function: types.FunctionType, code: types.CodeType, harmless: frozenset[str]
) -> bool:
    """Whether a comprehension or an inner function changes nothing."""
    return all(
        _is_harmless(function, step, harmless)
        or step.opname in {"LOAD_DEREF", "RETURN_GENERATOR", "YIELD_VALUE", "GEN_START"}
        for step in dis.get_instructions(code)
    )


def _is_harmless_global(value: object) -> bool:
    if isinstance(value, type):
        if issubclass(value, BaseException | msgspec.Struct) or dataclasses.is_dataclass(value):
            return True
        return value.__module__ == "builtins" and value.__name__ in _HARMLESS_FUNCTIONS
    if isinstance(value, types.BuiltinFunctionType):
        return value.__module__ == "builtins" and value.__name__ in _HARMLESS_FUNCTIONS
    module = getattr(value, "__module__", "")
    if isinstance(value, types.FunctionType):
        return module == "coterie.objects.current"
    return not callable(value) and not isinstance(value, types.ModuleType)


def code_of(function: Callable[..., object]) -> types.CodeType | None:
    """Give the compiled code of a function, if it is a plain one."""
    return function.__code__ if isinstance(function, types.FunctionType) else None
