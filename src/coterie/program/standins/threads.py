"""Threads, locks and queues of the program, on the machine's one thread at a time.

A lock that is released while others wait for it goes to the first of them. Hashes are numbers in
the order of making: a set of locks is then walked in the same order everywhere, which addresses
would not give.
"""

from __future__ import annotations

import _queue
import _thread
import sys
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from coterie.program.machine import ProgramThread, WaitQueue, machine
from coterie.program.standins.replacing import replace, when_imported

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT_MAX = threading.TIMEOUT_MAX


def deadline_in(seconds: float | None) -> int | None:
    """Give the time on the group's clock in so many seconds; it is read, if it must be."""
    if seconds is None:
        return None
    from coterie.program.standins.clocks import group_clock  # noqa: PLC0415 -- it needs threads

    return group_clock() + max(0, int(seconds * 1e9))


class VirtualLock:
    """`_thread.lock`."""

    __slots__ = ("__weakref__", "_is_locked", "_number", "_owed", "_waiting")

    def __init__(self) -> None:
        self._number = machine().number()
        self._is_locked = False
        self._waiting: WaitQueue | None = None
        self._owed: set[ProgramThread] = set()
        """Threads that the lock was given to and that have not gone on yet."""

    def __hash__(self) -> int:
        return self._number

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock."""
        if timeout != -1:
            if not blocking:
                raise ValueError("can't specify a timeout for a non-blocking call")
            if timeout < 0:
                raise ValueError("timeout value must be a non-negative number")
            if timeout > _TIMEOUT_MAX:
                raise OverflowError("timeout value is too large")
        here = machine()
        here.step(1, self._number)
        if not self._is_locked:
            self._is_locked = True
            return True
        if not blocking or timeout == 0:
            return False
        deadline = None if timeout == -1 else deadline_in(timeout)
        if self._waiting is None:
            self._waiting = WaitQueue()
        thread = here.current
        try:
            here.wait(lambda: thread in self._owed, (self._waiting,), deadline)
        except BaseException:
            if thread in self._owed:
                self._owed.discard(thread)
                self.release()
            raise
        if thread in self._owed:
            self._owed.discard(thread)
            return True
        return False

    def release(self) -> None:
        """Give the lock to the first who waits, or free it."""
        if not self._is_locked:
            raise RuntimeError("release unlocked lock")
        here = machine()
        here.note(2, self._number)
        thread = self._waiting.pop() if self._waiting is not None else None
        if thread is None:
            self._is_locked = False
            return
        self._owed.add(thread)
        here.wake(thread)

    def locked(self) -> bool:
        """Say whether somebody has it."""
        return self._is_locked

    acquire_lock, release_lock, locked_lock = acquire, release, locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def __repr__(self) -> str:
        word = "locked" if self._is_locked else "unlocked"
        return f"<{word} _thread.lock object number {self._number}>"

    def _at_fork_reinit(self) -> None:
        self._is_locked = False


class VirtualRLock:
    """`_thread.RLock`."""

    __slots__ = ("__weakref__", "_block", "_count", "_owner")

    def __init__(self) -> None:
        self._block = VirtualLock()
        self._owner = 0
        self._count = 0

    def __hash__(self) -> int:
        return hash(self._block)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock, once more if it is ours."""
        me = machine().current.number
        if self._owner == me:
            self._count += 1
            return True
        if self._block.acquire(blocking, timeout):
            self._owner = me
            self._count = 1
            return True
        return False

    def release(self) -> None:
        """Give it back as often as it was taken."""
        if self._owner != machine().current.number:
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = 0
            self._block.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def __repr__(self) -> str:
        word = "locked" if self._count else "unlocked"
        return f"<{word} _thread.RLock object owner={self._owner} count={self._count}>"

    def _acquire_restore(self, state: tuple[int, int]) -> None:
        self._block.acquire()
        self._count, self._owner = state

    def _release_save(self) -> tuple[int, int]:
        if not self._count:
            raise RuntimeError("cannot release un-acquired lock")
        state = self._count, self._owner
        self._count = self._owner = 0
        self._block.release()
        return state

    def _is_owned(self) -> bool:
        return self._owner == machine().current.number

    def _recursion_count(self) -> int:
        return self._count if self._is_owned() else 0

    def _at_fork_reinit(self) -> None:
        self._block._at_fork_reinit()
        self._owner = self._count = 0


class VirtualSimpleQueue:
    """`_queue.SimpleQueue`."""

    __slots__ = ("__weakref__", "_items", "_number", "_waiting")

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting = WaitQueue()
        self._number = machine().number()

    def __hash__(self) -> int:
        return self._number

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put something in; there is always room."""
        machine().step(3, self._number)
        self._items.append(item)
        self._waiting.wake_all()

    def put_nowait(self, item: Any) -> None:
        """As `put`."""
        self.put(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest; wait for one."""
        if block and timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        here = machine()
        here.step(4, self._number)
        if not self._items and block:
            here.wait(lambda: self._items, (self._waiting,), deadline_in(timeout))
        if not self._items:
            raise _queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        """Take the oldest, if there is one."""
        return self.get(block=False)

    def empty(self) -> bool:
        """Say whether nothing is in it."""
        machine().step(5, self._number)
        return not self._items

    def qsize(self) -> int:
        """Say how many are in it."""
        machine().step(5, self._number)
        return len(self._items)

    __class_getitem__ = classmethod(lambda cls, _: cls)


class VirtualLocal:
    """`threading.local`: each thread of the program sees attributes of its own."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if (args or kwargs) and cls.__init__ is object.__init__:
            raise TypeError("Initialization arguments are not supported")
        self = object.__new__(cls)
        mine: dict[str, Any] = {}
        dicts = weakref.WeakKeyDictionary({machine().current: mine})
        object.__setattr__(self, "_local__state", [machine().current.number, dicts, args, kwargs])
        state = object.__getattribute__(self, "_local__state")
        object.__setattr__(self, "__dict__", mine)
        mine["_local__state"] = state
        return self

    def __getattribute__(self, name: str) -> Any:
        _turn_to_current(self)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _turn_to_current(self)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        _turn_to_current(self)
        object.__delattr__(self, name)


def _turn_to_current(local: VirtualLocal) -> None:
    state = object.__getattribute__(local, "_local__state")
    thread = machine().current
    if state[0] == thread.number:
        return
    state[0] = thread.number
    mine = state[1].get(thread)
    if mine is not None:
        object.__setattr__(local, "__dict__", mine)
        return
    mine = state[1][thread] = {"_local__state": state}
    object.__setattr__(local, "__dict__", mine)
    type(local).__init__(local, *state[2], **state[3])


# ---- the functions of `_thread`


def start_new_thread(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> int:
    """Begin a thread."""
    if not callable(function):
        raise TypeError("first arg must be callable")

    def run() -> None:
        try:
            function(*args, **(kwargs or {}))
        except SystemExit:
            pass
        except BaseException as error:  # noqa: BLE001 -- as Python does with what nobody catches
            _tell_unraisable(error, function)

    return machine().start(run).number


class _Unraisable:
    def __init__(self, *values: Any) -> None:
        self.exc_type, self.exc_value, self.exc_traceback, self.err_msg, self.object = values


def _tell_unraisable(error: BaseException, function: object) -> None:
    """Do what Python does with an error that ends a thread."""
    hook: Any = sys.unraisablehook
    if hook is not sys.__unraisablehook__:
        hook(_Unraisable(type(error), error, error.__traceback__, "in thread started by", function))
        return
    # Python's own takes nothing but what Python made. No address is shown: they differ.
    name = getattr(function, "__qualname__", type(function).__name__)
    sys.stderr.write(f"Exception ignored in thread started by: {name}\n")
    sys.excepthook(type(error), error, error.__traceback__)


def get_ident() -> int:
    """Give the current thread's number."""
    return machine().current.number


def _set_sentinel() -> VirtualLock:
    """Give a lock that is released when the current thread ends (Python 3.11 and 3.12)."""
    lock = VirtualLock()
    reference = weakref.ref(lock)

    def release() -> None:
        found = reference()
        if found is not None and found.locked():
            found.release()

    machine().current.at_end.append(release)
    return lock


def numbered_hash(self: object) -> int:
    """Give a hash that is a number in the order of first use, not an address."""
    found: Any = self
    try:
        number: int = found._coterie_number
    except AttributeError:
        number = found._coterie_number = machine().number()
    return number


def install_threads() -> None:
    """Replace threads, locks and queues."""
    for name, standin in {
        "start_new_thread": start_new_thread,
        "start_new": start_new_thread,
        "allocate_lock": VirtualLock,
        "allocate": VirtualLock,
        "LockType": VirtualLock,
        "lock": VirtualLock,
        "RLock": VirtualRLock,
        "get_ident": get_ident,
        "get_native_id": get_ident,
        "_set_sentinel": _set_sentinel,
        "_local": VirtualLocal,
    }.items():
        replace(_thread, name, standin)
    replace(_queue, "SimpleQueue", VirtualSimpleQueue)
    threading.Lock = VirtualLock  # type: ignore[assignment]
    threading.local = VirtualLocal  # type: ignore[assignment]
    state: Any = threading
    state._CRLock = VirtualRLock
    state._active_limbo_lock = VirtualRLock()
    if hasattr(threading, "_shutdown_locks_lock"):
        state._shutdown_locks_lock = VirtualLock()
    main = threading.main_thread()
    for ident in list(state._active):
        del state._active[ident]
    main._ident = get_ident()  # type: ignore[attr-defined]
    main._native_id = get_ident()  # type: ignore[attr-defined]
    state._active[get_ident()] = main
    for lock in (main._started._cond,):  # type: ignore[attr-defined]
        lock.__init__(VirtualLock())
    if getattr(main, "_tstate_lock", None) is not None:
        # Python 3.11 and 3.12 wait at exit for a lock that the main thread holds.
        state._shutdown_locks.discard(main._tstate_lock)  # type: ignore[attr-defined]
        main._tstate_lock = VirtualLock()  # type: ignore[attr-defined]
        main._tstate_lock.acquire()  # type: ignore[attr-defined]
    threading.Thread.__hash__ = numbered_hash  # type: ignore[method-assign]
    when_imported("concurrent.futures._base", _number_futures)


def _number_futures(module: Any) -> None:
    module.Future.__hash__ = numbered_hash


def end_threads() -> None:
    """Wait for all threads that are no daemons, as Python does before it exits."""
    state: Any = threading
    state._shutdown()
