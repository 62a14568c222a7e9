"""Where a method can raise without having changed anything, proved from its compiled code.

An update that raises leaves no trace, and undoing costs more than the rest of the call together.
But most updates check first, raise, and only then begin to change things; for those nothing has
to be undone, and this is where it is proved.

The proof is one-sided: instructions, functions and methods that are not known to be harmless count
as changes, whatever they really do, on any version of Python. Harmless are the built-in functions
and methods in the tables below, and functions that consist of harmless instructions alone: those
the method names, and the other methods of its object. It rests on operators (`==`, `in`, `+`) and
on the making of exceptions and records not changing anything, which is true of everything that can
be a field.
"""

from __future__ import annotations

import dataclasses
import dis
import inspect
import types
from itertools import zip_longest
from typing import TYPE_CHECKING, Protocol

import msgspec

from coterie.kernel.errors import Refused
from coterie.objects.code import bytecode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.objects.classes.methods import Method

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

_HARMLESS_MODULES = {"math": (), "zlib": (), "msgspec._core": ("force_setattr",)}
"""Modules whose functions change nothing they are given, except those named."""


class SafetyProof:
    """What is proved of the methods of one class."""

    def __init__(self, cls: type, attributes: Iterable[str]) -> None:
        """*attributes* are names whose loading gives data, not a method that changes things."""
        self._cls = cls
        self._attributes = _HARMLESS_METHODS | frozenset(attributes)
        self._known: dict[types.CodeType, bool] = {}

    def clean_offsets(self, function: types.FunctionType) -> frozenset[int]:
        """Give the offsets of the instructions at which a method that raises has changed nothing.

        An instruction is clean if no way leads to it from one that may change something, and if no
        handler around it may change something before it lets the exception go on.
        """
        code = function.__code__
        steps = {step.offset: step for step in dis.get_instructions(code)}
        guards: Sequence[_Guard] | None = getattr(dis.Bytecode(code), "exception_entries", None)
        if guards is None:
            if code.co_exceptiontable:
                return frozenset()
            guards = ()
        after = _successors(steps, guards)
        changes = self._changes(function, code)
        dirty = changes | _reachable(changes, after)
        for guard in guards:
            if changes & ({guard.target} | _reachable({guard.target}, after)):
                dirty |= {at for at in steps if guard.start <= at < guard.end}
        # A call that raises is found at the end of its instruction, which can be long.
        ends = [*list(steps)[1:], len(code.co_code)]
        return frozenset(
            offset
            for at, end in zip(steps, ends, strict=True)
            if at not in dirty
            for offset in range(at, end)
        )

    def _is_harmless_function(self, function: types.FunctionType) -> bool:
        """Whether a function changes nothing at all."""
        code = function.__code__
        if code not in self._known:
            self._known[code] = False  # if it calls itself, while we look
            self._known[code] = self._is_harmless_code(function, code)
        return self._known[code]

    def _is_harmless_code(self, function: types.FunctionType, code: types.CodeType) -> bool:
        """Whether a function, or a comprehension or function inside it, changes nothing."""
        names = {step.offset: step.opname for step in dis.get_instructions(code)}
        return all(names[at] in _GENERATING for at in self._changes(function, code))

    def _changes(self, function: types.FunctionType, code: types.CodeType) -> set[int]:
        """Give where a function, or code inside it, may change something."""
        found: set[int] = set()
        outer = function.__code__
        me = outer.co_varnames[0] if outer.co_argcount else None
        loads = ("LOAD_FAST", "LOAD_DEREF") if code is outer else ("LOAD_DEREF",)
        is_mine = False
        for step in dis.get_instructions(code):
            if not self._is_harmless(function, step, is_mine=is_mine):
                found.add(step.offset)
            if step.opname not in {"CACHE", "EXTENDED_ARG"}:
                is_mine = step.opname.startswith(loads) and step.argval == me
        return found

    def _is_harmless(  # noqa: PLR0911 -- a table of cases
        self, function: types.FunctionType, step: dis.Instruction, *, is_mine: bool
    ) -> bool:
        """*is_mine* says that the object itself is what the instruction is about."""
        name = step.opname
        if name in {"MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"}:
            return True  # its code came by LOAD_CONST, and was looked at there
        if name in {"LOAD_CLOSURE", "LOAD_DEREF", "STORE_DEREF"}:
            return step.argval in function.__code__.co_cellvars
        if not name.startswith(_HARMLESS):
            return False
        if name == "LOAD_GLOBAL":
            return self._is_harmless_global(bytecode.global_value(function, str(step.argval)))
        if name in {"LOAD_ATTR", "LOAD_METHOD"}:
            attribute = str(step.argval)
            return attribute in self._attributes or (is_mine and self._is_harmless_own(attribute))
        if name == "BINARY_OP":
            return not step.argrepr.endswith("=")  # += and its kind change lists in place
        if name == "LOAD_CONST" and isinstance(step.argval, types.CodeType):
            return self._is_harmless_code(function, step.argval)
        return True

    def _is_harmless_own(self, attribute: str) -> bool:
        """Whether a name in the class is a constant, or a method that changes nothing."""
        found = inspect.getattr_static(self._cls, attribute, None)
        if isinstance(found, types.FunctionType):
            return self._is_harmless_function(found)
        return isinstance(found, bool | int | float | str | bytes | tuple | frozenset)

    def _is_harmless_global(self, value: object) -> bool:
        if isinstance(value, type):
            if issubclass(value, BaseException | msgspec.Struct) or dataclasses.is_dataclass(value):
                return True
            return value.__module__ == "builtins" and value.__name__ in _HARMLESS_FUNCTIONS
        if isinstance(value, types.BuiltinFunctionType):
            if value.__module__ in _HARMLESS_MODULES:
                return value.__name__ not in _HARMLESS_MODULES[value.__module__]
            return value.__module__ == "builtins" and value.__name__ in _HARMLESS_FUNCTIONS
        if isinstance(value, types.FunctionType):
            is_ours = value.__module__ == "coterie.objects.execution.current"
            return is_ours or self._is_harmless_function(value)
        return not callable(value) and not isinstance(value, types.ModuleType)


_GENERATING = frozenset({"RETURN_GENERATOR", "YIELD_VALUE", "GEN_START"})
"""What is harmless in code that is run by somebody else."""


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


def was_clean(error: BaseException, method: Method | None) -> bool:
    """Say whether an update surely had changed nothing when it raised."""
    if method is None:
        return True
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code is not method.code:
        traceback = traceback.tb_next
    if traceback is None:
        # It was never entered, if its arguments were at fault; or it has returned.
        return isinstance(error, Refused)
    return traceback.tb_lasti in method.clean_offsets
