"""The disk port: all that the journal asks of a disk.

There are two of them, which pass the same conformance suite: `FileDisk` here, a folder of a real
file system, and `SimulatedDisk` in `coterie.simulation.world.disk`, in memory, with every fault on
demand.

Paths are relative, with "/" between names. What the port promises is what POSIX does, no more:

- what was written is there for every later reader, and survives the death of the process;
- only after `sync` does it survive the loss of the machine; a part of an unsynced write may;
- a name (of a file created, renamed or removed) survives it only after `sync_folder`;
- a rename within a folder is atomic and replaces what had the new name.

Failures are `OSError`, with the `errno` of the system; a write that fails may have written a part.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

Buffer = bytes | bytearray | memoryview
DRAFT = ".draft"
"""How the name of a file ends that is not finished yet, and means nothing."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ZEROS = bytes(1 << 20)
_sync_data = getattr(os, "fdatasync", os.fsync)  # not every system has the cheaper one


class DiskFile(Protocol):
    """A file that is being written, from its beginning to its end."""

    def write(self, data: Buffer) -> None:
        """Write all of *data* after what was written before."""

    def sync(self) -> None:
        """Make everything written so far survive the loss of the machine."""

    def truncate(self, size: int) -> None:
        """Cut the file off, and go on writing there."""

    def close(self) -> None:
        """Write no more; nothing is synced by this."""


class Disk(Protocol):
    """A folder that outlives the process."""

    @property
    def boot_id(self) -> str:
        """What names the machine's present run; empty where the system does not tell."""

    def create(self, path: str, *, zeros: int = 0) -> DiskFile:
        """Begin a new file, and the folders above it; `FileExistsError` if it is there.

        With *zeros* the file is that long at once, filled with zeros, and writing begins at its
        beginning: later syncs then need not record that the file has grown.
        """

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Give up to *length* bytes from *offset*; fewer only where the file ends."""

    def size(self, path: str) -> int:
        """Give the length of a file."""

    def names(self, folder: str) -> list[str]:
        """Give the names in a folder, sorted; none if there is no such folder.

        The disk's own folder has the empty name.
        """

    def rename(self, old: str, new: str) -> None:
        """Give a file a new name in the same folder, in place of whatever has that name."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def sync(self, path: str) -> None:
        """Make the content of a file survive the loss of the machine."""

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder, and the folder's own, survive the loss of the machine."""

    def free_bytes(self) -> int:
        """Say how much more can be written, about."""


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for nobody but their owner.

    Folders that are there keep their permissions, and so does what their owner gave to others.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)


class FileDisk:
    """A folder of the file system."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def __repr__(self) -> str:
        return f"FileDisk({str(self.root)!r})"

    @property
    def boot_id(self) -> str:
        try:
            return _BOOT_ID.read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def create(self, path: str, *, zeros: int = 0) -> _File:
        place = self.root / path
        # What replicas hold is their owner's affair: others get in if the owner lets them.
        make_private_folder(place.parent)
        file = _File(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            while zeros > 0:
                file.write(_ZEROS[:zeros])
                zeros -= len(_ZEROS)
            os.lseek(file.number, 0, os.SEEK_SET)
        except OSError:
            file.close()
            place.unlink()
            raise
        return file

    def read(self, path: str, offset: int, length: int) -> bytes:
        number = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(number, length, offset)
            if not data or len(data) == length:
                return data
            parts = [data]
            read = len(data)
            while read < length and (data := os.pread(number, length - read, offset + read)):
                parts.append(data)
                read += len(data)
            return b"".join(parts)
        finally:
            os.close(number)

    def size(self, path: str) -> int:
        return (self.root / path).stat().st_size

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self.root / folder))  # noqa: PTH208 -- names are wanted
        except (FileNotFoundError, NotADirectoryError):
            return []

    def rename(self, old: str, new: str) -> None:
        (self.root / old).replace(self.root / new)

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def sync(self, path: str) -> None:
        sync_place(self.root / path)

    def sync_folder(self, folder: str) -> None:
        place = self.root / folder
        sync_place(place)
        while place != self.root:
            place = place.parent
            sync_place(place)
        sync_place(self.root.parent)

    def free_bytes(self) -> int:
        place = self.root
        while not place.exists():
            place = place.parent
        status = os.statvfs(place)
        return status.f_bavail * status.f_frsize


class _File:
    def __init__(self, number: int) -> None:
        self.number = number

    def write(self, data: Buffer) -> None:
        written = os.write(self.number, data)
        length = len(data) if type(data) is bytearray else memoryview(data).nbytes
        while written < length:  # a full disk, a limit or a signal: the next call says which
            written += os.write(self.number, memoryview(data)[written:])

    def sync(self) -> None:
        # Also for a file that has grown: fdatasync leaves out only what reading does not need.
        _sync_data(self.number)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.number, size)
        os.lseek(self.number, size, os.SEEK_SET)

    def close(self) -> None:
        if self.number >= 0:
            os.close(self.number)
            self.number = -1

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


def sync_place(place: Path) -> None:
    """Make a file, or the names in a folder, survive the loss of the machine."""
    number = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def replace_file(disk: Disk, folder: str, name: str, data: bytes) -> None:
    """Give a small file new content: whatever happens, it is the old or the new one, whole."""
    draft = f"{folder}/{name}{DRAFT}"
    if f"{name}{DRAFT}" in disk.names(folder):
        disk.remove(draft)
    file = disk.create(draft)
    try:
        file.write(data)
        file.sync()
    finally:
        file.close()
    disk.rename(draft, f"{folder}/{name}")
    disk.sync_folder(folder)
