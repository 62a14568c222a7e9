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
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from coterie.client.methods import RemoteObject, RemoteQuery, RemoteUpdate
    from coterie.client.pending import PendingCall
    from coterie.client.results import Result
    from coterie.client.settings import ClientSettings
    from coterie.kernel.engine import Standing
    from coterie.kernel.views import Viewstamp
    from coterie.objects.execution.commands import Grounds

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class LoopThread:
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

    def call(
        self,
        method: Callable[..., PendingCall[R]],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> R:
        """Make a call in the loop, and wait for its outcome.

        The same as `run`, without a task and a second future for each call.
        """
        waiting = _WaitingCall(method, args, kwargs)
        try:
            # Whoever is interrupted between the two has asked, and must take it back.
            self.loop.call_soon_threadsafe(waiting.begin)
            waiting.is_over.acquire()
        except BaseException:
            self.loop.call_soon_threadsafe(waiting.cancel)
            raise
        if waiting.error is not None:
            try:
                raise waiting.error
            finally:
                del waiting  # or the error and this frame would keep each other alive
        return cast("R", waiting.value)

    def stop(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class _WaitingCall:
    """A call that a thread waits for."""

    __slots__ = (
        "_args",
        "_is_cancelled",
        "_kwargs",
        "_method",
        "_pending",
        "error",
        "is_over",
        "value",
    )

    def __init__(
        self,
        method: Callable[..., PendingCall[Any]],
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> None:
        self._method = method
        self._args = args
        self._kwargs = kwargs
        self._pending: PendingCall[Any] | None = None
        self._is_cancelled = False
        self.value: object = None
        self.error: BaseException | None = None
        self.is_over = threading.Lock()
        """Held until the outcome is known."""
        self.is_over.acquire()

    # ---- in the loop

    def begin(self) -> None:
        if self._is_cancelled:
            return
        try:
            self._pending = self._method(*self._args, **self._kwargs)
            self._pending.add_done_callback(self._done)
        except BaseException as error:  # noqa: BLE001 -- it is the caller's
            self.error = error
            self.is_over.release()

    def cancel(self) -> None:
        """The caller was interrupted, and wants no answer any more."""
        self._is_cancelled = True
        if self._pending is not None:
            self._pending.cancel()

    def _done(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self.error = asyncio.CancelledError()
        else:
            self.error = future.exception()
            if self.error is None:
                self.value = future.result()
        self.is_over.release()


class BlockingResult(Generic[R_co]):
    """What a method answered, and what that answer may claim; see `coterie.client.Result`."""

    def __init__(self, thread: LoopThread, result: Result[R_co]) -> None:
        self._thread = thread
        self._result = result
        self.value: R_co = result.value
        self.viewstamp: Viewstamp = result.viewstamp
        self.position: int = result.position
        self.standing: Standing = result.standing
        self.has_changed: bool = result.has_changed
        self.age: float | None = result.age
        self.seen: Grounds | None = result.seen

    def settled(self) -> BlockingResult[R_co]:
        """Wait until it cannot be rolled back any more, and give the last answer."""
        return BlockingResult(self._thread, self._thread.run(self._result.settled()))

    def __repr__(self) -> str:
        return repr(self._result)


class BlockingMethod:
    """A method, to be called."""

    __slots__ = ("remote", "thread")

    def __init__(self, thread: LoopThread, remote: RemoteUpdate | RemoteQuery) -> None:
        self.thread = thread
        self.remote = remote

    def __call__(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401 -- as annotated
        """Call it, and wait for the answer."""
        return self.thread.call(self.remote, args, kwargs)

    def detailed(self, *args: object, **kwargs: object) -> BlockingResult[Any]:
        """Call it, and wait for the answer and what it may claim."""
        result = self.thread.call(self.remote.detailed, args, kwargs)
        return BlockingResult(self.thread, result)


class BlockingObject:
    """An object of a known class; its attributes are the methods of the class."""

    def __init__(self, thread: LoopThread, remote: RemoteObject) -> None:
        self.__thread = thread
        self.__remote = remote

    def __getattr__(self, name: str) -> BlockingMethod:
        return BlockingMethod(self.__thread, getattr(self.__remote, name))

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_BlockingObject__"):
            setattr(self.__remote, name, value)  # which says why not
        super().__setattr__(name, value)

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
        thread = LoopThread()
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


def behind(replicated: object) -> tuple[LoopThread, RemoteObject]:
    """Give the thread in which an object is called, and the object as that thread sees it."""
    if not isinstance(replicated, BlockingObject):
        raise TypeError(f"{replicated!r} is no object that connect_blocking() gave")
    known = vars(replicated)
    return known["_BlockingObject__thread"], known["_BlockingObject__remote"]


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
