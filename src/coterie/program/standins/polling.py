"""Polling: what is ready is an entry, whether the files are inside the program or outside."""

from __future__ import annotations

import errno
import select
import struct
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

from coterie.program.entries import EntryKind, Wake
from coterie.program.machine import machine
from coterie.program.refusals import refuse
from coterie.program.standins.descriptors import (
    POLLERR,
    POLLHUP,
    POLLIN,
    POLLOUT,
    POLLRDHUP,
    VirtualFile,
    add_file,
    close_descriptor,
    file_of,
    is_virtual,
    os_error,
    pollers,
)
from coterie.program.standins.threads import deadline_in

if TYPE_CHECKING:
    from coterie.program.machine import WaitQueue

_ROW = struct.Struct("<II")
_ALWAYS = POLLERR | POLLHUP
_ET, _ONESHOT = 1 << 31, 1 << 30


def poll_files(
    wanted: dict[int, int], timeout: float | None, more: WaitQueue | None = None
) -> list[tuple[int, int]]:
    """Wait until one of the descriptors is ready for what is wanted of it; give those that are."""
    here = machine()
    deadline = deadline_in(timeout) if timeout else None
    thread = here.current

    def attempt() -> tuple[int, bytes] | None:
        found = b"".join(
            _ROW.pack(fd, events)
            for fd, mask in wanted.items()
            if (events := file_of(fd).ready() & (mask | _ALWAYS))
        )
        return (0, found) if found or timeout == 0 else None

    while True:
        here.checkpoint()
        found = here.decide_or_wait(EntryKind.READY, 0, attempt)
        if found is not None:
            break
        queues = [file_of(fd).changed for fd in wanted] + ([more] if more is not None else [])
        for queue in queues:
            queue.add(thread)
        try:
            if here.block(deadline) is Wake.TIMEOUT:
                return []
        finally:
            for queue in queues:
                queue.discard(thread)
    return list(_ROW.iter_unpack(found[1]))


def _number(fd: Any) -> int:
    number = fd if isinstance(fd, int) else fd.fileno()
    if number < 0:
        raise ValueError("file descriptor cannot be a negative integer (-1)")
    if not is_virtual(number):
        raise refuse("descriptor", number, errno.EPERM)
    return int(number)


class VirtualEpoll(VirtualFile):
    """`select.epoll`, level-triggered."""

    def __init__(self, sizehint: int = -1, flags: int = 0) -> None:
        super().__init__()
        self._wanted: dict[int, int] = {}
        self._once: set[int] = set()
        self._fd = add_file(self)
        pollers.append(self)

    @property
    def closed(self) -> bool:
        return self._fd == -1

    def fileno(self) -> int:
        self._check()
        return self._fd

    @classmethod
    def fromfd(cls, fd: int) -> Self:
        raise os_error(errno.EINVAL)

    def _check(self) -> None:
        if self._fd == -1:
            raise ValueError("I/O operation on closed epoll object")

    def register(self, fd: Any, eventmask: int = POLLIN | POLLOUT | 2) -> None:
        self._check()
        number = _number(fd)
        file_of(number)
        if number in self._wanted:
            raise os_error(errno.EEXIST)
        self._set(number, eventmask)

    def modify(self, fd: Any, eventmask: int) -> None:
        self._check()
        number = _number(fd)
        if number not in self._wanted:
            raise os_error(errno.ENOENT)
        self._set(number, eventmask)

    def _set(self, number: int, mask: int) -> None:
        if mask & _ET:
            raise refuse("edge-triggered", number=errno.EINVAL)
        self._wanted[number] = mask & ~_ONESHOT
        self._once.discard(number)
        if mask & _ONESHOT:
            self._once.add(number)
        # Another thread may be polling: it looks again, with this one.
        self.changed.wake_all()

    def unregister(self, fd: Any) -> None:
        self._check()
        number = _number(fd)
        if number not in self._wanted:
            raise os_error(errno.ENOENT)
        self.forget(number)

    def forget(self, number: int) -> None:
        """Forget a descriptor that is closed."""
        if self._wanted.pop(number, None) is not None:
            self._once.discard(number)
            self.changed.wake_all()

    def poll(self, timeout: float | None = None, maxevents: int = -1) -> list[tuple[int, int]]:
        self._check()
        if timeout is not None and timeout < 0:
            timeout = None
        found = poll_files(self._wanted, timeout, self.changed)
        if maxevents > 0:
            found = found[:maxevents]
        for number, _ in found:
            if number in self._once:
                self._wanted[number] = 0
        return found

    def ready(self) -> int:
        ready = any(file_of(fd).ready() & (mask | _ALWAYS) for fd, mask in self._wanted.items())
        return POLLIN if ready else 0

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd != -1:
            pollers.remove(self)
            close_descriptor(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class VirtualPoll:
    """`select.poll`."""

    def __init__(self) -> None:
        self._wanted: dict[int, int] = {}

    def register(self, fd: Any, eventmask: int = POLLIN | POLLOUT | 2) -> None:
        self._wanted[_number(fd)] = eventmask

    def modify(self, fd: Any, eventmask: int) -> None:
        number = _number(fd)
        if number not in self._wanted:
            raise os_error(errno.ENOENT)
        self._wanted[number] = eventmask

    def unregister(self, fd: Any) -> None:
        del self._wanted[_number(fd)]

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        seconds = None if timeout is None or timeout < 0 else timeout / 1000
        return poll_files(self._wanted, seconds)


def virtual_select(
    rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """`select.select`."""
    if timeout is not None and timeout < 0:
        raise ValueError("timeout must be non-negative")
    wanted: dict[int, int] = {}
    sides = [(list(rlist), POLLIN | POLLRDHUP), (list(wlist), POLLOUT), (list(xlist), 0)]
    for side, mask in sides:
        for each in side:
            number = _number(each)
            wanted[number] = wanted.get(number, 0) | mask
    found = dict(poll_files(wanted, timeout))
    reading, writing = (
        [each for each in side if found.get(_number(each), 0) & (mask | _ALWAYS)]
        for side, mask in sides[:2]
    )
    return reading, writing, []


def install_polling() -> None:
    """Have modules that come later find the stand-in as `select`."""
    standin = ModuleType("select")
    hidden = {"__name__", "epoll", "poll", "select", "kqueue", "devpoll"}
    vars(standin).update({k: v for k, v in vars(select).items() if k not in hidden})
    vars(standin).update(epoll=VirtualEpoll, poll=VirtualPoll, select=virtual_select)
    sys.modules["select"] = standin
    sys.modules.pop("selectors", None)
