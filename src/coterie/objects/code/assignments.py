"""Which fields an update can assign, proved from its compiled code.

Before an update runs, what its fields hold is kept, so that a failure can be set back, and what
they hold afterwards is looked at (`Definition.check_change`). For most updates it is plain from
their code which fields they assign, often one or none, and then nothing else has to be kept or
looked at. The loop that executes calls lives from this.

A field that is assigned nothing but an argument, whose type was checked when it was read, or a
constant, need not be looked at either.

The proof is one-sided: it holds if all that happens to `self` is that its attributes are loaded
and fields assigned, in the method itself and in the methods of the class that it loads. Where
`self` goes anywhere else (an argument, a closure, `super()`, a list), nothing is known.
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING

from coterie.objects.code import bytecode

if TYPE_CHECKING:
    import dis
    from collections.abc import Iterable, Mapping, Sequence

_SELF_REACHING = frozenset({"eval", "exec", "locals", "vars", "super"})
"""Built-in functions that find `self` without being given it."""
_ACCESS = ("__setattr__", "__delattr__", "__getattribute__", "__getattr__")
"""Methods by which a class can make more of an attribute than it is."""
_CONSTANTS = (bool, int, float, str, bytes, tuple, frozenset)


Kinds = frozenset[type]
"""The types of values; none are values of which nothing is known."""


def assigned_fields(
    cls: type, function: types.FunctionType, fields: Iterable[str], arguments: Mapping[str, Kinds]
) -> dict[str, Kinds] | None:
    """Name the fields that a method can assign, and the types of what; None if nobody knows.

    *arguments* are the types of the method's arguments, as far as they are known.
    """
    if any(getattr(cls, name, None) is not getattr(object, name, None) for name in _ACCESS):
        return None
    known = frozenset(fields)
    assigned: dict[str, Kinds] = {}
    seen: set[types.FunctionType] = set()
    waiting = [function]
    while waiting:
        method = waiting.pop()
        if method in seen:
            continue
        seen.add(method)
        uses = _uses_of_self(method, arguments if method is function else {})
        if uses is None or not uses.stored.keys() <= known:
            return None
        for name, kinds in uses.stored.items():
            assigned[name] = _both(assigned.get(name, kinds), kinds)
        for name in uses.loaded - known:
            found = inspect.getattr_static(cls, name, None)
            if isinstance(found, types.FunctionType):
                waiting.append(found)
            elif not isinstance(found, _CONSTANTS):
                return None
    return assigned


class _Uses:
    """What a function does with the attributes of its object."""

    def __init__(self) -> None:
        self.loaded: set[str] = set()
        self.stored: dict[str, Kinds] = {}


def _uses_of_self(function: types.FunctionType, arguments: Mapping[str, Kinds]) -> _Uses | None:
    """Give the attributes of its object that a function loads and stores; None if it does more."""
    code = function.__code__
    if not code.co_argcount:
        return None
    me = code.co_varnames[0]
    if me in code.co_cellvars or any(name in _SELF_REACHING for name in code.co_names):
        return None
    found = bytecode.steps(code)
    stored_to = {
        name
        for step in found
        if step.opname.startswith(("STORE_FAST", "STORE_DEREF", "DELETE_"))
        for name in (step.argval if isinstance(step.argval, tuple) else (step.argval,))
    }
    steady = {name: kinds for name, kinds in arguments.items() if name not in stored_to}
    uses = _Uses()
    for index, step in enumerate(found):
        if not _mentions(step, me):
            continue
        if not bytecode.is_load(step, me) or _mentions_before_last(step, me):
            return None
        use = _use(found, index + 1)
        if use is None:
            return None
        name, is_stored, is_plain = use
        if is_stored:
            kinds = _kinds(found, index, steady) if is_plain else frozenset()
            uses.stored[name] = _both(uses.stored.get(name, kinds), kinds)
        else:
            uses.loaded.add(name)
    return uses


def _kinds(found: Sequence[dis.Instruction], index: int, arguments: Mapping[str, Kinds]) -> Kinds:
    """Give the types of what is stored to an attribute of what step *index* loads."""
    before = found[index - 1] if index else None
    loads = found[index]
    if isinstance(loads.argval, tuple):
        return arguments.get(loads.argval[0], frozenset())
    if before is None or before.is_jump_target or loads.is_jump_target:
        return frozenset()
    if before.opname == "LOAD_CONST" and type(before.argval) in {bool, type(None), str, float}:
        return frozenset({type(before.argval)})
    if before.opname in {"LOAD_FAST", "LOAD_FAST_BORROW"}:
        return arguments.get(before.argval, frozenset())
    return frozenset()


def _both(one: Kinds, other: Kinds) -> Kinds:
    """Give the types of values that come from either of two places."""
    return one | other if one and other else frozenset()


def _use(found: Sequence[dis.Instruction], index: int) -> tuple[str, bool, bool] | None:
    """Say which attribute of what was just loaded is used, whether it is assigned, and plainly."""
    step = found[index]
    if bytecode.loads_attribute(step):
        return str(step.argval), False, False
    if step.opname == "STORE_ATTR":
        return str(step.argval), True, True
    # As in self.total += 1: once to load from, once to store to.
    if step.opname == "COPY" and step.arg == 1 and bytecode.loads_attribute(found[index + 1]):
        return str(found[index + 1].argval), True, False
    return None


def _mentions(step: dis.Instruction, name: str) -> bool:
    if "FAST" not in step.opname:
        return False
    argument = step.argval
    return name in argument if isinstance(argument, tuple) else bool(argument == name)


def _mentions_before_last(step: dis.Instruction, name: str) -> bool:
    return isinstance(step.argval, tuple) and name in step.argval[:-1]
