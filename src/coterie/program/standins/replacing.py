"""Replacing names: in their own module, and wherever somebody has bound them before.

A stand-in takes its original's place in the module that has it. Who imported the original earlier
still holds it, as a global, an attribute of a class or a default: `sweep` finds those.
Modules that come later are changed when they are imported (`when_imported`).
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_replaced: dict[int, tuple[object, object]] = {}
# Modules that must go on with the real thing: the import system, and ourselves.
_REAL = ("coterie.program", "importlib", "_frozen_importlib", "posix", "zipimport", "greenlet")


def replace(module: ModuleType, name: str, standin: object) -> Any:
    """Put a stand-in in the place of a name of a module; give the original."""
    original = getattr(module, name, None)
    if original is None:
        return None
    _replaced[id(original)] = (original, standin)
    setattr(module, name, standin)
    return original


def _instead(value: object) -> object | None:
    found = _replaced.get(id(value))
    return found[1] if found is not None and found[0] is value else None


def sweep() -> int:
    """Replace what was bound early, in all modules; say how often."""
    count = 0
    for name, module in list(sys.modules.items()):
        if name.startswith(_REAL) or not isinstance(module, ModuleType):
            continue
        for key, value in list(vars(module).items()):
            standin = _instead(value)
            if standin is not None:
                setattr(module, key, standin)
                count += 1
            elif isinstance(value, type) and value.__module__ == name:
                count += _sweep_class(value)
            elif isinstance(value, FunctionType):
                count += _sweep_defaults(value)
    return count


def _sweep_class(owner: type) -> int:
    count = 0
    for key, value in list(vars(owner).items()):
        held = value.__func__ if isinstance(value, staticmethod) else value
        standin = _instead(held)
        if standin is not None:
            try:
                setattr(owner, key, staticmethod(standin) if held is not value else standin)  # type: ignore[arg-type]
                count += 1
            except TypeError:
                continue
        elif isinstance(held, FunctionType):
            count += _sweep_defaults(held)
    return count


def _sweep_defaults(function: FunctionType) -> int:
    count = 0
    if function.__defaults__ and any(_instead(each) for each in function.__defaults__):
        function.__defaults__ = tuple(_instead(each) or each for each in function.__defaults__)
        count += 1
    named = function.__kwdefaults__ or {}
    for key, value in list(named.items()):
        standin = _instead(value)
        if standin is not None:
            named[key] = standin
            count += 1
    return count


def replace_in_type(owner: type, name: str, value: object) -> None:
    """Replace an attribute of a type that Python says is immutable, such as `datetime.now`."""
    import ctypes  # noqa: PLC0415 -- only where such a type is met

    [attributes] = [each for each in gc.get_referents(owner.__dict__) if isinstance(each, dict)]
    attributes[name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))


# ---- modules that come later

_hooks: dict[str, Callable[[Any], None]] = {}


def when_imported(name: str, change: Callable[[Any], None]) -> None:
    """Change a module once it is imported, or now if it is."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
    else:
        _hooks[name] = change


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as everybody else does, and has them changed when they are loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = _hooks.pop(fullname, None)
        if change is None:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, change)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, change: Callable[[Any], None]) -> None:
        self._loader = loader
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._loader.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._change(module)


def install_finder() -> None:
    """Have modules that come later changed."""
    sys.meta_path.insert(0, _Finder())
