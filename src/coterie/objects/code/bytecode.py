"""What the compiled code of a method tells before it ever runs.

The instructions are asked, not the source, so that it works for classes whose source is not at
hand. Everything here is about what can be recognised on the face of it: a name is taken for what
it stands for now, and a value is followed through attributes and subscripts, not through variables
or calls. So what is found is there, and what is not found may be there all the same.

Two modules build on it: `coterie.objects.code.nondeterminism` (what would differ from replica to
replica) and `coterie.objects.code.raise_safety` (where a method that raises has changed nothing).
"""

from __future__ import annotations

import builtins
import dis
import sys
import types
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

UNKNOWN = object()
"""What a name stands for that nobody knows."""

MUTATORS = frozenset(
    {
        *("add", "append", "appendleft", "clear", "difference_update", "discard", "extend"),
        *("extendleft", "insert", "intersection_update", "pop", "popitem", "popleft", "remove"),
        *("reverse", "rotate", "setdefault", "sort", "symmetric_difference_update", "update"),
    }
)
"""Methods by which dictionaries, lists, sets and deques change in place."""

_NO_STEPS = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "PUSH_NULL", "NOT_TAKEN"})


def code_of(function: Callable[..., object]) -> types.CodeType | None:
    """Give the compiled code of a function, if it is a plain one."""
    return function.__code__ if isinstance(function, types.FunctionType) else None


def with_nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """Give a code object and those of the functions and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from with_nested(constant)


@lru_cache(maxsize=256)  # a helper is looked at for every update that calls it
def steps(code: types.CodeType) -> Sequence[dis.Instruction]:
    """Give the instructions that do something."""
    return tuple(step for step in dis.get_instructions(code) if step.opname not in _NO_STEPS)


def is_load(step: dis.Instruction, name: str) -> bool:
    """Whether an instruction, and nothing after it, loads a variable of that name."""
    if not step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "STORE_FAST_LOAD_FAST")):
        return False
    loaded = step.argval[-1] if isinstance(step.argval, tuple) else step.argval
    return bool(loaded == name)


def loads_attribute(step: dis.Instruction) -> bool:
    """Whether an instruction loads an attribute, or a method to call."""
    return step.opname in {"LOAD_ATTR", "LOAD_METHOD"}


# ---- names


def global_value(function: types.FunctionType, name: str) -> object:
    """Give what a global name stands for in a function."""
    found = function.__globals__.get(name, UNKNOWN)
    return getattr(builtins, name, UNKNOWN) if found is UNKNOWN else found


def values_used(
    function: types.FunctionType, code: types.CodeType
) -> Iterator[tuple[object, str, int]]:
    """Give the values that come from outside a function, as far as attributes lead from them.

    They come by global names, by variables of functions around it, and by imports inside it. With
    each come its path, and which of the `steps` follows.
    """
    outside = _outside(function)
    value: object = UNKNOWN
    path = ""
    module = ""
    found = steps(code)
    for index, step in enumerate(found):
        name = str(step.argval)
        if loads_attribute(step) and value is not UNKNOWN:
            if isinstance(value, types.ModuleType | type):
                value, path = getattr(value, name, UNKNOWN), f"{path}.{name}"
            else:
                yield value, path, index
                value = UNKNOWN
            continue
        if value is not UNKNOWN:
            yield value, path, index
            value = UNKNOWN
        if step.opname == "LOAD_GLOBAL":
            value, path = global_value(function, name), name
        elif step.opname == "IMPORT_NAME":
            module = name
            outside[name.partition(".")[0]] = sys.modules.get(name.partition(".")[0], UNKNOWN)
        elif step.opname == "IMPORT_FROM":
            value = getattr(sys.modules.get(module), name, UNKNOWN)
            path = f"{module}.{name}"
        elif name in outside and is_load(step, name):
            value, path = outside[name], name
    if value is not UNKNOWN:
        yield value, path, len(found)


def _outside(function: types.FunctionType) -> dict[str, object]:
    """Give the variables of the functions around one."""
    found: dict[str, object] = {}
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not yet filled
            continue
    return found


# ---- the object itself


def own_uses(function: types.FunctionType) -> Iterator[tuple[str, Sequence[dis.Instruction], int]]:
    """Give each place where a method uses an attribute of its object: name, steps, next step."""
    outer = function.__code__
    me = outer.co_varnames[0] if outer.co_argcount else ""
    for code in with_nested(outer):
        if code is not outer and me not in code.co_freevars:
            continue
        found = steps(code)
        for index, (step, following) in enumerate(pairwise(found)):
            if is_load(step, me) and loads_attribute(following):
                yield str(following.argval), found, index + 2


def attributes_set(function: types.FunctionType) -> set[str]:
    """Name the attributes of the object itself that a method sets by plain assignment."""
    code = function.__code__
    me = code.co_varnames[0] if code.co_argcount else ""
    found = steps(code)
    return {
        str(step.argval)
        for before, step in pairwise(found)
        if step.opname in {"STORE_ATTR", "DELETE_ATTR"} and is_load(before, me)
    }


def attributes_stored(function: types.FunctionType) -> set[str]:
    """Name all attributes that a method stores to, of whatever object."""
    return {
        str(step.argval)
        for code in with_nested(function.__code__)
        for step in steps(code)
        if step.opname in {"STORE_ATTR", "DELETE_ATTR"}
    }


def fields_changed_in_place(function: types.FunctionType, fields: set[str]) -> set[str]:
    """Name the fields whose contents a method changes, as in `self.items.append(…)`."""
    return {
        name
        for name, found, index in own_uses(function)
        if name in fields and is_changed_in_place(found, index)
    }


def is_changed_in_place(found: Sequence[dis.Instruction], index: int) -> bool:
    """Whether what was loaded before step *index* is changed, through subscripts and attributes."""
    above = 0  # how many values lie above it on the stack
    for step, following in pairwise(found[index:]):
        if step.opname == "COPY":
            # It will be needed again, to be stored to: x.y += 1, or x[y] += 1.
            return (above, following.opname) in {(0, "LOAD_ATTR"), (1, "COPY")}
        if step.opname in {"STORE_SUBSCR", "DELETE_SUBSCR"}:
            return above == 1
        if step.opname in {"STORE_ATTR", "DELETE_ATTR"}:
            return not above
        if loads_attribute(step):
            if not above and step.argval in MUTATORS:
                return True
        elif step.opname == "BINARY_SUBSCR" and above:
            above -= 1
        elif step.opname.startswith("LOAD_"):
            above += len(step.argval) if isinstance(step.argval, tuple) else 1
        else:
            return False
    return False
