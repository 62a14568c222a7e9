"""Which journals are still being written, told without asking anybody and without any trace.

A replica's process holds a lock in its folder, and the segment that it writes is open. Both can be
seen from outside: the system lists who has locked what, and which files are open. A copy of a
journal shows neither: whoever reads copies of live journals has to say so.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LOCK = "in-use"
"""The file that the process of a replica has locked, in the folder of its journals."""
_LOCKS = Path("/proc/locks")
_PROCESSES = Path("/proc")
_INODE_FIELD = 2


class Live:
    """What is in use on this machine at one moment."""

    def __init__(self) -> None:
        self._locked = _locked_inodes()
        self._open: set[str] | None = None

    def is_locked(self, root: str | Path) -> bool:
        """Say whether the process of a replica works in a folder of journals."""
        place = Path(root) / LOCK
        try:
            inode = place.stat().st_ino
        except OSError:
            return False
        return _is_locked(place) if self._locked is None else inode in self._locked

    def is_open(self, file: str | Path) -> bool:
        """Say whether somebody has a file open to write to it."""
        if self._open is None:
            self._open = _open_files()
        return os.path.realpath(file) in self._open


def _locked_inodes() -> set[int] | None:
    """Give the inodes of all files that are locked as a whole; None where no system tells."""
    try:
        lines = _LOCKS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found: set[int] = set()
    for line in lines:
        words = line.replace("->", "").split()
        # 1: FLOCK  ADVISORY  WRITE 4711 08:01:123456 0 EOF
        if "FLOCK" in words and "WRITE" in words:
            numbers = next((word for word in words if word.count(":") == _INODE_FIELD), "")
            with suppress(ValueError):
                found.add(int(numbers.rpartition(":")[2]))
    return found


def _is_locked(place: Path) -> bool:
    """Try the lock itself, for the shortest time: on systems that do not list locks."""
    import fcntl  # noqa: PLC0415 -- not every system has it

    try:
        with place.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _open_files() -> set[str]:
    """Give the segments that processes have open to write to, as far as we may know."""
    found: set[str] = set()
    for process in _PROCESSES.glob("[0-9]*"):
        try:
            numbers = os.listdir(process / "fd")  # noqa: PTH208 -- names are wanted
        except OSError:
            continue
        for number in numbers:
            with suppress(OSError):
                target = str((process / "fd" / number).readlink())
                if target.endswith(".segment") and _is_written(process, number):
                    found.add(target)
    return found


def _is_written(process: Path, number: str) -> bool:
    """Say whether a file was opened to write to it."""
    for line in (process / "fdinfo" / number).read_text(encoding="ascii").splitlines():
        if line.startswith("flags:"):
            return bool(int(line.split()[1], 8) & (os.O_WRONLY | os.O_RDWR))
    return False
