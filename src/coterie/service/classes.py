"""Finding the class of a group: module:Class, from the working directory or the installed packages.

The class is the operator's own code, named in their own configuration; nothing that comes over
the network or from a journal is ever imported.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.kernel.errors import CoterieError
from coterie.objects import define

if TYPE_CHECKING:
    from coterie.objects import Definition


class ClassNotFound(CoterieError):
    """The class of a group cannot be loaded; the message says why."""


def load_class(where: str) -> Definition:
    """Import and define the class at *where*; raises `ClassNotFound` or `NotReplicable`."""
    module_name, _, name = where.partition(":")
    if not module_name or not name:
        raise ClassNotFound(f"{where!r} should say module:Class, for example airline.seats:Seats")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.split(".")[0] == error.name.split(".")[0]:
            raise ClassNotFound(
                f"there is no module {module_name!r}, neither in {here} nor installed"
            ) from None
        raise ClassNotFound(f"the module {module_name!r} cannot be imported: {error}") from error
    except Exception as error:
        raise ClassNotFound(f"the module {module_name!r} cannot be imported: {error!r}") from error
    found = getattr(module, name, None)
    if not isinstance(found, type):
        classes = [
            each.__name__
            for each in vars(module).values()
            if isinstance(each, type) and each.__module__ == module.__name__
        ]
        there = ", ".join(classes) or "no classes"
        raise ClassNotFound(f"the module {module_name!r} has no class {name!r}; it has {there}")
    return define(found)
