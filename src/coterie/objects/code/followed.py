"""What an update names, directly or not: the code that runs when it runs.

Followed are the functions of users, in whichever of their modules they are; methods of the class
that are called by their names; and, where a class of users is called, what makes its objects:
`__init__`, `__post_init__` and the factories of defaults, of dataclasses, attrs classes and
`msgspec` structs. Not followed are the standard library, installed packages and Coterie itself:
what of these differs is known by name (`coterie.objects.code.nondeterminism`). Nor are methods of
objects of which only running the code would tell what they are.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from typing import TYPE_CHECKING

import msgspec

from coterie.objects.code import bytecode

if TYPE_CHECKING:
    from collections.abc import Iterator

_INSTALLED = ("/site-packages/", "/dist-packages/")


class Followed:
    """The functions that a function of a class may run, each once. More may come while it is read.

    `values` are factories of defaults that are no functions of users, by where they were found.
    """

    def __init__(self, cls: type) -> None:
        self._cls = cls
        self._waiting: list[types.FunctionType] = []
        self._seen: set[object] = set()
        self.values: list[tuple[str, object]] = []

    def add(self, value: object) -> None:
        """Follow a function, or what makes objects of a class."""
        if isinstance(value, types.MethodType):
            value = value.__func__
        if not isinstance(value, types.FunctionType | type) or value in self._seen:
            return
        self._seen.add(value)
        if isinstance(value, types.FunctionType):
            self._waiting.append(value)
            return
        for name in ("__new__", "__init__", "__post_init__", "__attrs_post_init__"):
            made_by = getattr(value, name, None)
            if isinstance(made_by, types.FunctionType) and _is_written(made_by):
                self.add(made_by)
        for factory in factories_of(value):
            if isinstance(factory, types.FunctionType | type) and self._is_ours(factory):
                self.add(factory)
            else:
                self.values.append((f"a default of {value.__qualname__}", factory))

    def __iter__(self) -> Iterator[types.FunctionType]:
        while self._waiting:
            function = self._waiting.pop()
            yield function
            for code in bytecode.with_nested(function.__code__):
                for value, _, _ in bytecode.values_used(function, code):
                    if self._is_ours(value):
                        self.add(value)
                for name in code.co_names:
                    helper = getattr(self._cls, name, None)
                    if isinstance(helper, property):
                        helper = helper.fget
                    if isinstance(helper, types.FunctionType | types.MethodType):
                        self.add(helper)

    def _is_ours(self, value: object) -> bool:
        """Whether a function or class is of users, so that its code is theirs to change."""
        if isinstance(value, types.MethodType):
            value = value.__func__
        if not isinstance(value, types.FunctionType | type):
            return False
        module = value.__module__
        if module == self._cls.__module__:
            return True
        top = str(module).partition(".")[0]
        if top in sys.stdlib_module_names or top == "coterie":
            return False
        file = str(getattr(sys.modules.get(module), "__file__", None) or "")
        return bool(file) and not any(part in file for part in _INSTALLED)


def _is_written(function: types.FunctionType) -> bool:
    """Whether somebody has written a function, and no tool has."""
    return not function.__code__.co_filename.startswith("<")


def factories_of(cls: type) -> Iterator[object]:
    """Give what makes the defaults of a record's fields."""
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            if field.default_factory is not dataclasses.MISSING:
                yield field.default_factory
    if issubclass(cls, msgspec.Struct):
        for default in cls.__struct_defaults__:
            factory = getattr(default, "factory", None)
            if factory is not None:
                yield factory
    for attribute in getattr(cls, "__attrs_attrs__", ()):
        factory = getattr(attribute.default, "factory", None)
        if factory is not None:
            yield factory
