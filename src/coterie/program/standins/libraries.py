"""Libraries with chance or clocks of their own: asyncio, sqlite, the garbage collector."""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

from coterie.program.machine import machine
from coterie.program.standins.clocks import draw
from coterie.program.standins.replacing import replace, when_imported
from coterie.program.standins.threads import numbered_hash
from coterie.program.wire import WireKind

# An event loop in C has sockets and clocks that nobody can order; its users fall back to asyncio.
HIDDEN = ("uvloop",)
_TIMES = ("date", "time", "datetime", "julianday", "unixepoch", "strftime")


def install_libraries() -> None:
    """Change libraries when they are imported, and hold the collector."""
    gc.disable()
    replace(gc, "enable", lambda: None)
    for name in HIDDEN:
        sys.modules[name] = None  # type: ignore[assignment]
    when_imported("asyncio.futures", _number_futures)
    when_imported("asyncio.tasks", _number_tasks)
    when_imported("sqlite3.dbapi2", _change_sqlite)
    sys.meta_path.insert(0, _Telling())


class _Telling:
    """Says once that a module is hidden."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname in HIDDEN and machine().is_leading:
            machine().course.tell(WireKind.SAID, f"{fullname} is hidden from the program")


def _number_futures(module: Any) -> None:
    class Future(module.Future):  # type: ignore[misc]
        __hash__ = numbered_hash

    Future.__module__, Future.__qualname__ = "_asyncio", "Future"
    replace(module, "Future", Future)


def _number_tasks(module: Any) -> None:
    class Task(module.Task):  # type: ignore[misc]
        __hash__ = numbered_hash

    Task.__module__, Task.__qualname__ = "_asyncio", "Task"
    replace(module, "Task", Task)


def _change_sqlite(module: Any) -> None:
    """Have every connection ask us for the time and for chance."""
    connect = module.connect
    plain = connect(":memory:")

    def ask(name: str, *args: Any) -> Any:
        now = f"{time.time():.6f}"
        given = [now if isinstance(each, str) and each.lower() == "now" else each for each in args]
        at = 1 if name == "strftime" else 0
        is_now = len(given) == at or given[at] == now
        if len(given) == at:
            given.append(now)
        if is_now:
            given.insert(at + 1, "unixepoch")
        marks = ",".join("?" * len(given))
        return plain.execute(f"SELECT {name}({marks})", given).fetchone()[0]

    def connecting(*args: Any, **kwargs: Any) -> Any:
        found = connect(*args, **kwargs)
        for name in _TIMES:
            found.create_function(name, -1, lambda *values, name=name: ask(name, *values))
        for word, name in (("timestamp", "datetime"), ("date", "date"), ("time", "time")):
            found.create_function(f"current_{word}", 0, lambda name=name: ask(name))
        found.create_function("random", 0, lambda: int.from_bytes(draw(8), signed=True))
        found.create_function("randomblob", 1, lambda size: draw(max(1, size)))
        return found

    replace(module, "connect", connecting)
