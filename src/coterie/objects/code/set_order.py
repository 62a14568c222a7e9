"""Where the order of a set shows in a method.

The order of a set differs from process to process, so nothing that depends on it is the same on
all replicas. Sets are recognised as fields and arguments that are declared so, as what `set()`,
`{…}`, comprehensions and the operators of sets give, and as variables that hold nothing else.
Their order shows where they are iterated over, listed, unpacked, joined, popped from or printed.

It is refused even where the order would not matter after all: `sorted` costs little, and nobody
can see from outside whether it matters. Comprehensions that give a set, and generator expressions
(as in `sum(len(tag) for tag in tags)`), are left alone.
"""

from __future__ import annotations

import dis
import types
from typing import TYPE_CHECKING

from coterie.objects.code import bytecode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ORDERED_BY = frozenset({"enumerate", "iter", "list", "repr", "reversed", "str", "tuple"})
"""Built-in functions whose answer shows the order of what they are given."""
_GIVING_SETS = frozenset(
    {"copy", "difference", "intersection", "symmetric_difference", "union"},
)
"""Methods of sets that give sets."""
_LOADS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")
_STORES = ("STORE_FAST", "STORE_DEREF")


def orders_of_sets(
    function: types.FunctionType, fields: set[str], arguments: set[str]
) -> Iterator[str]:
    """Say which sets show their order in a function, and what to do."""
    outer = function.__code__
    me = outer.co_varnames[0] if outer.co_argcount else ""
    around: set[str] = set()
    for code in bytecode.with_nested(outer):
        is_outer = code is outer
        if is_outer:
            reader = _Reader(function, code, me, fields, arguments)
            around = reader.sets
        else:
            mine = me if me in code.co_freevars else ""
            reader = _Reader(function, code, mine, fields, around & set(code.co_freevars))
        yield from reader.orders()


class _Reader:
    """One piece of compiled code."""

    def __init__(
        self,
        function: types.FunctionType,
        code: types.CodeType,
        me: str,
        fields: set[str],
        known: set[str],
    ) -> None:
        self._function = function
        self._me = me
        self._fields = fields
        self._steps: Sequence[dis.Instruction] = [
            step for step in dis.get_instructions(code) if step.opname not in _NOTHING
        ]
        self.sets: set[str] = set()
        """Variables that hold sets, and nothing else."""
        stores = self._stores()
        self.sets = {name for name in known if name not in stores}
        while True:
            found = {
                name
                for name, places in stores.items()
                if name not in known and all(self._keeps_set(name, at) for at in places)
            }
            if found <= self.sets:
                return
            self.sets |= found

    def _stores(self) -> dict[str, list[int]]:
        """Give where each variable is stored to."""
        places: dict[str, list[int]] = {}
        for index, step in enumerate(self._steps):
            if step.opname.startswith(_STORES):
                names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
                if step.opname == "STORE_FAST_LOAD_FAST":
                    names = names[:1]
                for name in names:
                    # Of two that are stored at once nobody knows which gets what.
                    places.setdefault(name, []).append(index if len(names) == 1 else 0)
        return places

    def _keeps_set(self, name: str, at: int) -> bool:
        """Whether what is stored to a variable there is a set, if the variable held one before."""
        step = self._steps[at - 1]
        if step.opname == "BINARY_OP" and step.argrepr in {"|=", "&=", "-=", "^="}:
            right = self._start(at - 2)
            return right is not None and _loaded(self._steps[right - 1]) == name
        return at > 0 and self._is_set(at - 1)

    # ---- what is a set

    def _is_set(self, end: int) -> bool:  # noqa: PLR0911 -- a table of cases
        """Whether the expression whose last step is *end* gives a set."""
        if end < 0:
            return False
        step = self._steps[end]
        name = step.opname
        if name in {"BUILD_SET", "SET_UPDATE"}:
            return True
        if name == "LOAD_CONST":
            return isinstance(step.argval, frozenset)
        if _loaded(step) in self.sets:
            return True
        if self._own_field(end):
            return True
        if name == "CALL":
            return self._calls_for_set(end)
        if name == "BINARY_OP" and step.argrepr in {"|", "&", "-", "^"}:
            right = self._start(end - 1)
            if right is None:
                return False
            return self._is_set(right - 1) or (step.argrepr != "-" and self._is_set(end - 1))
        return False

    def _own_field(self, end: int) -> str:
        """Name the field of the object that is loaded, if it is a set."""
        step = self._steps[end]
        if not bytecode.loads_attribute(step) or step.argval not in self._fields or not self._me:
            return ""
        return str(step.argval) if end and _loaded(self._steps[end - 1]) == self._me else ""

    def _calls_for_set(self, end: int) -> bool:
        called = self._callee(end)
        if called is None:
            return False
        step = self._steps[called]
        if step.opname == "LOAD_GLOBAL":
            return bytecode.global_value(self._function, str(step.argval)) in {set, frozenset}
        if bytecode.loads_attribute(step):
            return step.argval in _GIVING_SETS and self._is_set(called - 1)
        if step.opname == "GET_ITER":
            # A comprehension is a function that is called with what it iterates over.
            start = self._start(called)
            code = self._steps[start - 2].argval if start is not None and start > 1 else None
            return isinstance(code, types.CodeType) and code.co_name == "<setcomp>"
        return False

    def _callee(self, end: int) -> int | None:
        """Give the last step of what a call calls."""
        places = self._arguments(end)
        if places is None:
            return None
        called = (places[0][0] if places else end) - 1
        if called >= 0 and self._steps[called].opname == "PUSH_NULL":
            called -= 1  # where what is called comes first
        return called if called >= 0 else None

    def _arguments(self, end: int) -> list[tuple[int, int]] | None:
        """Give where each argument of a call begins and ends."""
        places: list[tuple[int, int]] = []
        last = end - 1
        for _ in range(self._steps[end].arg or 0):
            start = self._start(last)
            if start is None:
                return None
            places.append((start, last))
            last = start - 1
        return places[::-1]

    def _start(self, end: int) -> int | None:
        """Give where the expression begins whose last step is *end*; None if that is not plain."""
        missing = 1
        for index in range(end, -1, -1):
            step = self._steps[index]
            if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs or step.opname == "SWAP":
                return None
            missing -= _effect(step)
            if missing <= 0:
                return index if not missing else None
            if step.is_jump_target:
                return None
        return None

    # ---- where order shows

    def orders(self) -> Iterator[str]:
        """Say which sets show their order."""
        for index, step in enumerate(self._steps):
            name = step.opname
            shown: int | None = None
            if name == "GET_ITER":
                shown = index - 1 if self._order_matters(index) else None
            elif name in {"LIST_EXTEND", "UNPACK_SEQUENCE", "UNPACK_EX"} or name.startswith(
                ("FORMAT_VALUE", "FORMAT_SIMPLE", "CONVERT_VALUE")
            ):
                shown = index - 1
            elif name == "CALL":
                shown = self._shown_by_call(index)
            if shown is not None and self._is_set(shown):
                yield self._complaint(shown)

    def _order_matters(self, index: int) -> bool:
        """Whether what is iterated over there is given to more than a set, or a generator."""
        start = self._start(index - 1)
        if start is None:
            return False
        before = self._steps[max(0, start - 3) : start]
        inner = [step.argval for step in before if isinstance(step.argval, types.CodeType)]
        is_set = any(step.opname == "BUILD_SET" for step in self._steps[index : index + 5])
        return not is_set and not any(
            code.co_name in {"<genexpr>", "<setcomp>"} for code in inner[-1:]
        )

    def _shown_by_call(self, end: int) -> int | None:
        """Give the last step of the argument, or of the object, whose order a call shows."""
        places = self._arguments(end)
        called = self._callee(end)
        if places is None or called is None:
            return None
        step = self._steps[called]
        if not places:
            is_pop = bytecode.loads_attribute(step) and step.argval == "pop"
            return called - 1 if is_pop else None
        first = places[0][1]
        if step.opname == "LOAD_GLOBAL":
            return first if step.argval in _ORDERED_BY else None
        is_join = bytecode.loads_attribute(step) and step.argval in {"join", "fromkeys"}
        return first if is_join else None

    def _complaint(self, end: int) -> str:
        field = self._own_field(end)
        name = f"self.{field}" if field else _loaded(self._steps[end])
        if not name:
            return "the order of a set differs from process to process: use sorted()"
        return f"the order of the set {name} differs from process to process: use sorted({name})"


_NOTHING = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PRECALL", "KW_NAMES"})
"""Steps that do nothing to the stack, or only together with the call after them."""


def _loaded(step: dis.Instruction) -> str:
    """Name the variable that is loaded last by a step, if one is."""
    if not step.opname.startswith((*_LOADS, "STORE_FAST_LOAD_FAST")):
        return ""
    return str(step.argval[-1] if isinstance(step.argval, tuple) else step.argval)


def _effect(step: dis.Instruction) -> int:
    """Give how many values more lie on the stack after a step."""
    has_argument = (
        step.opcode in dis.hasarg if hasattr(dis, "hasarg") else (step.opcode >= dis.HAVE_ARGUMENT)
    )
    effect = dis.stack_effect(step.opcode, step.arg if has_argument else None, jump=False)
    if step.opname == "CALL" and _CALLS_IN_TWO:
        effect -= step.arg or 0  # what the step before it takes, which we have left out
    return effect


_CALLS_IN_TWO = "PRECALL" in dis.opmap
"""Python 3.11 has two steps for a call."""
