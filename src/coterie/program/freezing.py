"""Frozen copies: the state of a program is a process that waits.

Memory, threads and calls that are half done cannot be written down; but a process can be forked.
Where the entries say FREEZE, the program's process forks in every replica, between two entries. The
copy runs nothing. It waits at a socket in its agent's folder, and answers three words:

- *thaw*, with a stream and a folder: it forks, and that process follows the orders behind FREEZE on
  the stream; copies of its own go into the folder, which may be another agent's;
- *leash*: as long as whoever said it keeps the connection, the copy stays;
- *quit*: it is needed no more.

It is not of the agent's processes, so it outlives the agent and the app; the agent's next life
begins with it. Who has been on no leash for `UNLEASHED_MS` ends.

Python's own `os.fork` would run hooks (new locks, a new seed for `random`) that the replicas do not
have in common, so the C library is asked. That is enough where the process has one thread of the
system; `is_alone` says whether it has.
"""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import os
import select
import signal
import stat
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from coterie.program import refusals

if TYPE_CHECKING:
    from typing import Any

THAW, LEASH, QUIT = b"T", b"L", b"Q"
UNLEASHED_MS = 120_000
PID = struct.Struct("<q")
_RIGHTS = struct.Struct("ii")
_BACKLOG = 8

# The determinizer replaces many of these names in their modules; a copy needs the real ones.
_fork = ctypes.PyDLL(None).fork
_Socket, _poll = _socket.socket, select.poll
_open, _close, _dup2, _lseek = os.open, os.close, os.dup2, os.lseek
_fstat, _listdir, _unlink = os.fstat, os.listdir, os.unlink
_exit, _getpid, _setsid = os._exit, os.getpid, os.setsid
_fcntl, _signal = fcntl.fcntl, signal.signal
_made = 0


def is_alone() -> bool:
    """Say whether this process has one thread of the system: others would be gone in a copy."""
    return len(_listdir("/proc/self/task")) == 1


def path_in(folder: int, name: str) -> str:
    """Give a short path of a socket: those of folders may be longer than sockets allow."""
    return f"/proc/self/fd/{folder}/{name}"


def freeze(folder: int, wire: int) -> tuple[int, str]:
    """Make a frozen copy; give its process and the name of its socket.

    Returns once more in each process that is thawed from it, there with nothing, and with a new
    stream under the number of the wire.
    """
    global _made  # noqa: PLW0603 -- a name for each copy
    refusals.allowed += 1
    try:
        _made += 1
        name = f"{_getpid()}-{_made}"
        listener = _Socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        listener.bind(path_in(folder, name))
        listener.listen(_BACKLOG)
        files = _files({wire, folder, listener.fileno()})
        pid = _fork()
        if pid < 0:
            raise OSError("no copy could be made")
        if pid:
            listener.close()
            return pid, name
        _Copy(listener, path_in(folder, name), wire, folder).serve()
        for fd, flags, at in files:
            # What was open is shared with the process that went on, and so is the place in it.
            new = _open(path_in(fd, "").rstrip("/"), flags)
            _lseek(new, at, os.SEEK_SET)
            _dup2(new, fd)
            _close(new)
        return 0, ""
    finally:
        refusals.allowed -= 1


def _files(without: set[int]) -> list[tuple[int, int, int]]:
    """Give the files that are open, each with its flags and how far it is read."""
    found = []
    for word in _listdir("/proc/self/fd"):
        fd = int(word)
        with suppress(OSError):  # the folder that is being listed is closed by now
            if fd not in without and fd > 2 and stat.S_ISREG(_fstat(fd).st_mode):  # noqa: PLR2004
                found.append((fd, _fcntl(fd, fcntl.F_GETFL), _lseek(fd, 0, os.SEEK_CUR)))
    return found


class _Copy:
    """The life of a frozen copy."""

    def __init__(self, listener: Any, path: str, wire: int, folder: int) -> None:
        self._listener, self._path, self._wire = listener, path, wire
        self._folder = folder
        self._conns: dict[int, Any] = {}
        self._leashes: set[int] = set()
        self._poll = _poll()
        _setsid()
        _signal(signal.SIGCHLD, signal.SIG_IGN)  # who is thawed is nobody's to wait for
        # Who reads the wire's other end must not take this process for the program's.
        null = _open("/dev/null", os.O_RDWR)
        _dup2(null, wire)
        _close(null)

    def serve(self) -> None:
        """Wait, and answer; returns only in a process that was thawed."""
        self._poll.register(self._listener.fileno(), select.POLLIN)
        while True:
            found = self._poll.poll(None if self._leashes else UNLEASHED_MS)
            if not found:
                self._end()
            for fd, _ in found:
                if fd == self._listener.fileno():
                    self._accept()
                elif self._answer(fd):
                    return

    def _accept(self) -> None:
        fd, _ = self._listener._accept()
        self._conns[fd] = _Socket(fileno=fd)
        self._poll.register(fd, select.POLLIN)

    def _answer(self, fd: int) -> bool:
        """Take a word; say whether this is a process that was thawed by it."""
        conn = self._conns[fd]
        try:
            word, given, _, _ = conn.recvmsg(1, _socket.CMSG_SPACE(_RIGHTS.size))
        except OSError:
            word, given = b"", []
        rights = [fd for _, _, data in given for (fd,) in struct.iter_unpack("i", data)]
        if word == THAW and len(rights) == 2 and self._thaw(conn, *rights):  # noqa: PLR2004 -- two
            return True
        for each in rights:
            _close(each)
        if word == LEASH:
            self._leashes.add(fd)
        elif word == QUIT:
            self._end()
        elif not word:
            self._poll.unregister(fd)
            self._leashes.discard(fd)
            self._conns.pop(fd).close()
        return False

    def _thaw(self, conn: Any, stream: int, folder: int) -> bool:
        if _fork():
            return False
        _setsid()
        _signal(signal.SIGCHLD, signal.SIG_DFL)
        for given, place in ((stream, self._wire), (folder, self._folder)):
            _dup2(given, place, inheritable=False)
            _close(given)
        with suppress(OSError):
            conn.send(PID.pack(_getpid()))
        for each in (self._listener, *self._conns.values()):
            each.close()
        return True

    def _end(self) -> None:
        with suppress(OSError):
            _unlink(self._path)
        _exit(0)
