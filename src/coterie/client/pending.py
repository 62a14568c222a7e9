"""What every call returns: one type, whichever method, engine or network it is.

A call is made when it is called, and not when somebody waits for it. What it returns is a coroutine
to Python, so it goes wherever one goes: `await`, `asyncio.gather`, `asyncio.wait_for`, and

    async with asyncio.TaskGroup() as tasks:
        for seat in seats:
            tasks.create_task(flight.book(seat))

(A future would not do: `TaskGroup.create_task` takes coroutines only, and `asyncio.wait` takes
nothing that is both.)
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

T = TypeVar("T")


class PendingCall(Coroutine[Any, Any, T]):
    """The outcome of a call that was made. It may be awaited more than once."""

    __slots__ = ("__weakref__", "_future", "_steps")

    def __init__(self, future: asyncio.Future[T]) -> None:
        self._future = future
        self._steps: Generator[Any, None, T] | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._future.__await__()

    def done(self) -> bool:
        """Say whether the outcome is known, or was given up."""
        return self._future.done()

    def add_done_callback(self, call: Callable[[asyncio.Future[T]], object]) -> None:
        """Have *call* made with the future behind this when the outcome is known."""
        self._future.add_done_callback(call)

    def cancel(self) -> bool:
        """Give the outcome up; the call may be executed all the same."""
        return self._future.cancel()

    # ---- what a task asks of a coroutine

    def send(self, value: None) -> object:
        """Go on with waiting, as a coroutine does."""
        if self._steps is None:
            self._steps = self._future.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> object:  # noqa: ANN401 -- as generators have it
        """Have an exception raised where it waits."""
        if self._steps is None:
            self._steps = self._future.__await__()
        return self._steps.throw(*error)

    def close(self) -> None:
        """End the waiting, as `cancel` does."""
        self._future.cancel()
