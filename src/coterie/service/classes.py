"""Finding the class of a group: module:Class or file.py:Class.

A module is looked for in the working directory and among the installed packages, a file where its
path says. The class is the operator's own code, named in their own configuration; nothing that
comes over the network or from a journal is ever imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.kernel.errors import CoterieError
from coterie.objects import define

if TYPE_CHECKING:
    from types import ModuleType

    from coterie.objects import Definition


class ClassNotFound(CoterieError):
    """The class of a group cannot be loaded; the message says why."""


def load_class(where: str, *, may_wait: bool = False) -> Definition:
    """Import and define the class at *where*; raises `ClassNotFound` or `NotReplicable`.

    With *may_wait* its updates may be `async`, as viewstamped replication allows.
    """
    found = find_class(where)
    try:
        return define(found, may_wait=may_wait)
    except CoterieError:
        raise
    except Exception as error:
        raise ClassNotFound(
            f"no {found.__name__} can be made: its __init__ raises {error!r}"
        ) from error


def find_class(where: str) -> type:
    """Import the class at *where*; raises `ClassNotFound`."""
    module_name, _, name = where.rpartition(":")
    if not module_name or not name:
        raise ClassNotFound(f"{where!r} should say module:Class, for example airline.seats:Seats")
    is_file = module_name.endswith(".py")
    module = _import_file(Path(module_name)) if is_file else _import_module(module_name)
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = [
            each.__name__
            for each in vars(module).values()
            if isinstance(each, type) and each.__module__ == module.__name__
        ]
        there = ", ".join(classes) or "no classes"
        what = "file" if is_file else "module"
        raise ClassNotFound(f"the {what} {module_name!r} has no class {name!r}; it has {there}")
    return found


def _import_module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.partition(".")[0] == error.name.partition(".")[0]:
            raise ClassNotFound(
                f"there is no module {name!r}, neither in {here} nor installed"
            ) from None
        raise ClassNotFound(f"the module {name!r} cannot be imported: {error}") from error
    except Exception as error:
        raise ClassNotFound(f"the module {name!r} cannot be imported: {error!r}") from error


def _import_file(path: Path) -> ModuleType:
    """Import a file as Python itself would run it: what lies beside it can be imported, too."""
    path = path.absolute()
    if not path.is_file():
        raise ClassNotFound(f"there is no file {path}")
    name = path.stem
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) == str(path):
            return known
        raise ClassNotFound(
            f"{path} cannot be imported, because another module is called {name!r}: rename the file"
        )
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a name that ends in .py is Python"
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ClassNotFound(f"{path} cannot be imported: {error!r}") from error
    return module
