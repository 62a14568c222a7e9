"""The system's other calls: descriptors by `os`, names, files' times, signals, and the exit.

Signals are handled where the order says: between two operations of the main thread, or inside one
in which it waits.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import io
import os
import signal
import stat
import struct
import sys
from typing import TYPE_CHECKING, Any, Self

from coterie.program.entries import CPUS, FILE_TIMES, LOAD, PARENT, PID, EntryKind
from coterie.program.machine import machine
from coterie.program.refusals import refuse
from coterie.program.standins import descriptors
from coterie.program.standins.descriptors import (
    STDERR,
    STDIN,
    STDOUT,
    EmptyInput,
    OutputFile,
    PairEnd,
    add_file,
    close_descriptor,
    file_of,
    is_virtual,
    os_error,
)
from coterie.program.standins.replacing import replace
from coterie.program.standins.sockets import guarded_buffer

if TYPE_CHECKING:
    from collections.abc import Callable

_real: dict[str, Any] = {}
_TIMES = struct.Struct("<10q3q3q")


def _asked(subject: int, choose: Callable[[], int]) -> int:
    return machine().decide(EntryKind.RESULT, subject, lambda: (choose(), b""))[0]


# ---- descriptors


def _read(fd: int, size: int) -> bytes:
    if is_virtual(fd):
        return file_of(fd).read(size, None)
    found: bytes = _real["read"](fd, size)
    return found


def _write(fd: int, data: Any) -> int:
    if is_virtual(fd):
        return file_of(fd).write(bytes(data), None)
    count: int = _real["write"](fd, data)
    return count


def _close(fd: int) -> None:
    if is_virtual(fd):
        close_descriptor(fd)
    else:
        _real["close"](fd)


def _pipe() -> tuple[int, int]:
    channel = descriptors.ByteChannel()
    return add_file(PairEnd(channel, None)), add_file(PairEnd(None, channel))


def _pipe2(flags: int) -> tuple[int, int]:
    ends = _pipe()
    for end in ends:
        file_of(end).is_blocking = not flags & os.O_NONBLOCK
    return ends


def _dup(fd: int) -> int:
    if is_virtual(fd):
        return add_file(file_of(fd))
    number: int = _real["dup"](fd)
    return number


def _set_blocking(fd: int, blocking: bool) -> None:
    if is_virtual(fd):
        file_of(fd).is_blocking = blocking
    else:
        _real["set_blocking"](fd, blocking)


def _get_blocking(fd: int) -> bool:
    return file_of(fd).is_blocking if is_virtual(fd) else bool(_real["get_blocking"](fd))


def _set_inheritable(fd: int, inheritable: bool) -> None:
    if not is_virtual(fd):
        _real["set_inheritable"](fd, inheritable)


def _get_inheritable(fd: int) -> bool:
    return False if is_virtual(fd) else bool(_real["get_inheritable"](fd))


def _isatty(fd: int) -> bool:
    return False if is_virtual(fd) else bool(_real["isatty"](fd))


def _sendfile(*args: Any, **kwargs: Any) -> int:
    raise os_error(errno.ENOSYS)


def _fcntl(fd: Any, command: int, argument: Any = 0) -> Any:
    number = fd if isinstance(fd, int) else fd.fileno()
    if not is_virtual(number):
        return _real["fcntl"](fd, command, argument)
    file = file_of(number)
    if command == fcntl.F_GETFL:
        return os.O_RDWR | (0 if file.is_blocking else os.O_NONBLOCK)
    if command == fcntl.F_SETFL:
        file.is_blocking = not argument & os.O_NONBLOCK
    return 0


class _VirtualRaw(io.RawIOBase):
    """A descriptor of the program as a file."""

    def __init__(self, fd: int, mode: str, closefd: bool) -> None:
        super().__init__()
        self._fd, self._mode, self._closes = fd, mode, closefd
        self.name = fd

    def fileno(self) -> int:
        return self._fd

    def readable(self) -> bool:
        return "r" in self._mode or "+" in self._mode

    def writable(self) -> bool:
        return "r" not in self._mode or "+" in self._mode

    def readinto(self, buffer: Any) -> int:
        data = file_of(self._fd).read(len(buffer), None)
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        return file_of(self._fd).write(bytes(data), None)

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self._closes:
                close_descriptor(self._fd)


def _open(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    if not is_virtual(file):
        return _real["open"](file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw: Any = _VirtualRaw(file, mode.replace("b", "").replace("t", ""), closefd)
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
    kind = io.BufferedReader if raw.readable() else io.BufferedWriter
    # Who writes may step aside for others in the middle of it.
    buffered = guarded_buffer(kind)(raw, size)
    if "b" in mode:
        return buffered
    return io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1)


# ---- names and times


def _listdir(path: Any = ".") -> list[Any]:
    return sorted(_real["listdir"](path))


class _Scan:
    """`os.scandir`, by name."""

    def __init__(self, path: Any = ".") -> None:
        with _real["scandir"](path) as found:
            self._entries = iter(sorted(found, key=lambda each: each.name))

    def __iter__(self) -> _Scan:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def _times(name: str, *args: Any, **kwargs: Any) -> os.stat_result:
    here = machine()

    def choose() -> tuple[int, bytes]:
        try:
            found = _real[name](*args, **kwargs)
        except OSError as error:
            return -(error.errno or errno.EIO), b""
        parts = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
        more = (found.st_blksize, found.st_blocks, found.st_rdev)
        return 0, _TIMES.pack(*tuple(found)[:10], *parts, *more)

    value, data = here.decide(EntryKind.RESULT, FILE_TIMES, choose)
    if value < 0:
        error = os_error(-value)
        error.filename = args[0] if args else None
        raise error
    numbers = _TIMES.unpack(data)
    nanoseconds = numbers[10:13]
    values = (*numbers[:10], *(each / 1e9 for each in nanoseconds), *nanoseconds, *numbers[13:])
    return os.stat_result(values)


def _stat(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
    if is_virtual(path):
        return _fstat(path)
    return _times("stat", path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)


def _lstat(path: Any, *, dir_fd: int | None = None) -> os.stat_result:
    return _times("lstat", path, dir_fd=dir_fd)


def _fstat(fd: int) -> os.stat_result:
    if not is_virtual(fd):
        return _times("fstat", fd)
    mode = stat.S_IFIFO if isinstance(file_of(fd), PairEnd | OutputFile) else stat.S_IFSOCK
    return os.stat_result((mode | 0o600, fd, 0, 1, 0, 0, 0, 0, 0, 0))


# ---- signals and the end

_handlers: dict[int, Any] = {}
_wakeup_fd = -1
_IGNORED = {signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT, signal.SIGPIPE}


def _signal(number: int, handler: Any) -> Any:
    before = _getsignal(number)
    _handlers[int(number)] = handler
    return before


def _getsignal(number: int) -> Any:
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    return _handlers.get(int(number), default)


def _set_wakeup_fd(fd: int, *, warn_on_full_buffer: bool = True) -> int:
    global _wakeup_fd
    before, _wakeup_fd = _wakeup_fd, fd
    return before


def handle_signal(number: int) -> None:
    """Do what the program wants done at a signal."""
    handler = _getsignal(number)
    if handler == signal.SIG_IGN or (handler == signal.SIG_DFL and number in _IGNORED):
        return
    if handler == signal.SIG_DFL or handler is None:
        machine().exit(128 + number)
    if _wakeup_fd != -1:
        with contextlib.suppress(BlockingIOError):
            file_of(_wakeup_fd).write(bytes([number]), None)
    handler(number, sys._getframe(1))


def _raise_signal(number: int) -> None:
    handle_signal(int(number))


def _kill(pid: int, number: int) -> None:
    if pid != _getpid():
        raise refuse("kill", pid)
    if number:
        handle_signal(int(number))


def _getpid() -> int:
    return _asked(PID, _real["getpid"])


def _refused_timer(name: str) -> Any:
    def refused(*args: Any) -> Any:
        raise refuse("timer", f"signal.{name}")

    return refused


def _pause() -> None:
    machine().block(None)


def _exit_now(status: int) -> None:
    machine().exit(status)


def install_system() -> None:
    """Replace the system's calls."""
    for number, file in ((STDIN, EmptyInput()), (STDOUT, OutputFile(1)), (STDERR, OutputFile(2))):
        descriptors.put_file(number, file)
    for module, names in (
        (
            os,
            {
                "read": _read,
                "write": _write,
                "close": _close,
                "pipe": _pipe,
                "pipe2": _pipe2,
                "dup": _dup,
                "set_blocking": _set_blocking,
                "get_blocking": _get_blocking,
                "set_inheritable": _set_inheritable,
                "get_inheritable": _get_inheritable,
                "isatty": _isatty,
                "sendfile": _sendfile,
                "listdir": _listdir,
                "scandir": _Scan,
                "stat": _stat,
                "lstat": _lstat,
                "fstat": _fstat,
                "getpid": _getpid,
                "getppid": lambda: _asked(PARENT, _real["getppid"]),
                "cpu_count": lambda: _asked(CPUS, lambda: _real["cpu_count"]() or 1),
                "process_cpu_count": lambda: _asked(CPUS, lambda: _real["cpu_count"]() or 1),
                "sched_getaffinity": lambda _: set(
                    range(_asked(CPUS, lambda: len(_real["sched_getaffinity"](0))))
                ),
                "getloadavg": lambda: (
                    (_asked(LOAD, lambda: int(_real["getloadavg"]()[0] * 100)) / 100,) * 3
                ),
                "kill": _kill,
                "_exit": _exit_now,
            },
        ),
        (fcntl, {"fcntl": _fcntl}),
        (
            signal,
            {
                "signal": _signal,
                "getsignal": _getsignal,
                "set_wakeup_fd": _set_wakeup_fd,
                "raise_signal": _raise_signal,
                "siginterrupt": lambda *_: None,
                "pause": _pause,
                "setitimer": _refused_timer("setitimer"),
                "alarm": _refused_timer("alarm"),
            },
        ),
    ):
        for name, standin in names.items():
            original = replace(module, name, standin)
            if original is not None:
                _real[name] = original
    _real["open"] = replace(io, "open", _open)
    builtins.open = _open
    machine().on_signal = handle_signal
    machine().input_queues = descriptors.queues_of
    for stream, number in (("stdout", STDOUT), ("stderr", STDERR)):
        wrapped = _open(number, "w", 1, "utf-8", "backslashreplace", closefd=False)
        setattr(sys, stream, wrapped)
        setattr(sys, f"__{stream}__", wrapped)
    sys.stdin = sys.__stdin__ = _open(STDIN, "r", encoding="utf-8", closefd=False)  # type: ignore[misc]
