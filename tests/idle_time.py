"""An event loop for tests, whose clock runs only while the loop has nothing to do.

Groups and clients of a test live in one process, and their time-outs are short, lest the test take
long. On a busy machine this process gets no turn for longer than they last: on the wall's clock
everybody is then suspected, silent, or too late, and nobody is to blame. On this clock the time in
which somebody would work does not pass, so a time-out comes only when all have done what they
could and nothing arrived. What arrived is taken before time-outs of the same moment, as in any
loop.

The time that does pass is real, because other processes, threads and the disk may be waited for;
and each round of the loop costs a little, so that who asks again and again for something that time
brings does get it.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import TYPE_CHECKING, TypeVar
from unittest import mock

from coterie.runtime import driver

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

_ROUND = 10e-6
_LOOK = 100e-9


class _Selector(selectors.DefaultSelector):
    """Counts the time in which it waited, and none that it was made to wait longer."""

    def __init__(self) -> None:
        super().__init__()
        self.now = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        begun = time.monotonic()
        ready = super().select(timeout)
        self.now += _ROUND
        if timeout:
            self.now += min(time.monotonic() - begun, timeout) if ready else timeout
        return ready


class IdleLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self._idle = _Selector()
        super().__init__(self._idle)

    def time(self) -> float:
        """The time, always later than what was given before: some tests judge what came first."""
        self._idle.now += _LOOK
        return self._idle.now


def run(main: Coroutine[object, object, T]) -> T:
    """Run *main* to its end, as `asyncio.run` does; what it hosts has the clock of the loop."""
    loop = IdleLoop()

    def now() -> int:
        return int(loop.time() * 1e9)

    with (
        mock.patch.object(driver, "monotonic_ns", now),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        return runner.run(main)
