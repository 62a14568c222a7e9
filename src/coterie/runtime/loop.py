"""Which event loop runs us: uvloop when it is there, asyncio's own otherwise.

The one place that decides it. The environment variable COTERIE_LOOP=asyncio or =uvloop overrides
the choice, for measurements and for finding out whether a problem is the loop's.
"""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

LOOPS = ("uvloop", "asyncio")


def loop_name() -> str:
    """Give the name of the loop that `run` uses."""
    name = os.environ.get("COTERIE_LOOP", "")
    if name not in ("", *LOOPS):
        raise CoterieError(f"COTERIE_LOOP is {name!r}; it may be {' or '.join(LOOPS)}, or unset")
    if name:
        return name
    return "uvloop" if find_spec("uvloop") is not None else "asyncio"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make the loop that `loop_name` names."""
    if loop_name() == "uvloop":
        try:
            import uvloop  # noqa: PLC0415 -- it is an extra
        except ImportError:
            raise CoterieError(
                "COTERIE_LOOP asks for uvloop, which is not installed: pip install 'coterie[fast]'"
            ) from None
        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


def run(main: Coroutine[object, object, T]) -> T:
    """Run *main* to its end on the chosen loop, as `asyncio.run` does."""
    try:
        loop = new_event_loop()
    except CoterieError:
        main.close()
        raise
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main)
