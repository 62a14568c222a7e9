"""The blocking face: the same client for programs without an event loop.

    with connect_blocking(Counter, "127.0.0.1:7001") as counter:
        total = counter.add(3)
        done = detailed(counter.add)(4)
        quick = options(counter.add, deadline=0.5)(5)

The client runs in a thread of its own. The object may be used from any number of threads at once:
what they ask for at the same moment travels together.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from coterie.client.connecting import connect
from coterie.client.settings import DEFAULT_CLIENT_SETTINGS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
    from contextlib import AbstractContextManager

    from coterie.client.methods import RemoteObject, RemoteQuery, RemoteUpdate
    from coterie.client.results import Result
    from coterie.client.settings import ClientSettings
    from coterie.kernel.engine import Standing
    from coterie.kernel.views import Viewstamp

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class _LoopThread:
    """An event loop in a thread, for whoever has none."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="coterie client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Have work done in the loop, and wait for it."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupted caller wants no answer any more
            raise

    def stop(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class BlockingResult(Generic[R_co]):
    """What a method answered, and what that answer may claim; see `coterie.client.Result`."""

    def __init__(self, thread: _LoopThread, result: Result[R_co]) -> None:
        self._thread = thread
        self._result = result
        self.value: R_co = result.value
        self.viewstamp: Viewstamp = result.viewstamp
        self.position: int = result.position
        self.standing: Standing = result.standing

    def settled(self) -> BlockingResult[R_co]:
        """Wait until it cannot be rolled back any more, and give the last answer."""
        return BlockingResult(self._thread, self._thread.run(self._result.settled()))

    def __repr__(self) -> str:
        return repr(self._result)


class BlockingMethod:
    """A method, to be called."""

    __slots__ = ("remote", "thread")

    def __init__(self, thread: _LoopThread, remote: RemoteUpdate | RemoteQuery) -> None:
        self.thread = thread
        self.remote = remote

    def __call__(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401 -- as annotated
        """Call it, and wait for the answer."""
        return self.thread.run(_await(self.remote, args, kwargs))

    def detailed(self, *args: object, **kwargs: object) -> BlockingResult[Any]:
        """Call it, and wait for the answer and what it may claim."""
        result = self.thread.run(_await(self.remote.detailed, args, kwargs))
        return BlockingResult(self.thread, result)


async def _await(
    call: Callable[..., Awaitable[Any]], args: Sequence[object], kwargs: dict[str, object]
) -> Any:  # noqa: ANN401 -- as annotated
    return await call(*args, **kwargs)


class BlockingObject:
    """An object of a known class; its attributes are the methods of the class."""

    def __init__(self, thread: _LoopThread, remote: RemoteObject) -> None:
        self.__thread = thread
        self.__remote = remote

    def __getattr__(self, name: str) -> BlockingMethod:
        return BlockingMethod(self.__thread, getattr(self.__remote, name))

    def __dir__(self) -> list[str]:
        return dir(self.__remote)

    def __repr__(self) -> str:
        return repr(self.__remote)


def connect_blocking(  # noqa: PLR0913 -- all by name
    cls: type[T],
    addresses: str | Sequence[str],
    *,
    group: str = "",
    secret: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    settings: ClientSettings = DEFAULT_CLIENT_SETTINGS,
) -> AbstractContextManager[T]:
    """Connect to a replicated object of class *cls*; `with` gives it. See `connect`."""

    @contextmanager
    def connected() -> Iterator[BlockingObject]:
        thread = _LoopThread()
        try:
            remote = connect(cls, addresses, group=group, secret=secret, tls=tls, settings=settings)
            entered = cast("RemoteObject", thread.run(_enter(remote)))
            try:
                yield BlockingObject(thread, entered)
            finally:
                thread.run(_leave(remote))
        finally:
            thread.stop()

    return cast("AbstractContextManager[T]", connected())


async def _enter(manager: Any) -> object:  # noqa: ANN401 -- any async context manager
    return await manager.__aenter__()


async def _leave(manager: Any) -> None:  # noqa: ANN401 -- any async context manager
    await manager.__aexit__(None, None, None)


def options(method: Callable[P, R], **choices: object) -> Callable[P, R]:
    """Give a method with other options: those of `AsyncUpdate` and `AsyncQuery`."""
    blocking = _blocking(method)
    choose = cast("Callable[..., RemoteUpdate | RemoteQuery]", blocking.remote.options)
    return cast("Callable[P, R]", BlockingMethod(blocking.thread, choose(**choices)))


def detailed(method: Callable[P, R]) -> Callable[P, BlockingResult[R]]:
    """Give a method that answers with a `BlockingResult`."""
    return cast("Callable[P, BlockingResult[R]]", _blocking(method).detailed)


def _blocking(method: object) -> BlockingMethod:
    if not isinstance(method, BlockingMethod):
        raise TypeError("give a method of an object that connect_blocking() gave")
    return method
