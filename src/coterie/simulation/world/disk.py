"""A disk in memory, with every fault on demand.

It keeps apart what a program sees and what would survive the loss of the machine. While the machine
runs, a program sees everything it wrote. `lose_power` then decides by the seed what of the unsynced
writes and names survived: sectors of each file independently, names of each folder up to some
point, in the order in which they changed. A seed gives the same outcome every time.

    disk = SimulatedDisk(seed=7)
    ...                          # a replica writes its journal
    disk.lose_power()            # the machine is gone, and with it what was not synced
    ...                          # the replica comes back, under another boot id
"""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from coterie.journal.disk import Buffer

SECTOR_BYTES = 512


class Died(Exception):
    """The process died in the middle of a write, as planned with `die_in_write`."""


class _Inode:
    """One file: what programs see, and what is on the platters."""

    __slots__ = ("data", "dirty", "durable")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty: list[tuple[int, int]] = []
        """Ranges that were written since the last sync: first byte, last byte + 1."""

    def sync(self) -> None:
        del self.durable[len(self.data) :]
        for start, end in self.dirty:
            if len(self.durable) < start:
                self.durable.extend(bytes(start - len(self.durable)))
            self.durable[start:end] = self.data[start:end]
        self.durable.extend(bytes(len(self.data) - len(self.durable)))
        self.dirty.clear()

    def copy(self) -> _Inode:
        other = _Inode()
        other.data = bytearray(self.data)
        other.durable = bytearray(self.durable)
        other.dirty = list(self.dirty)
        return other


_Change = tuple[tuple[str, "_Inode | None"], ...]
"""Names that changed together, and the file each names from then on; None if none."""


class SimulatedDisk:
    """Passes the conformance suite of `coterie.journal.disk.Disk`.

    Without *capacity_bytes* it is never full.
    """

    def __init__(self, *, seed: int | str = 0, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self._random = Random(f"disk/{seed}")  # noqa: S311 -- reproducible on purpose
        self._boots = 1
        self._files: dict[str, _Inode] = {}
        self._folders = _Folders()
        self._durable: dict[str, _Inode] = {}
        self._changes: dict[str, list[_Change]] = {}
        self._dies_after: int | None = None
        self._failing_syncs = 0

    # ---- the port

    @property
    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def create(self, path: str, *, zeros: int = 0) -> _File:
        if path in self._files:
            raise FileExistsError(errno.EEXIST, "the file exists", path)
        if self._folders.names(path):
            raise IsADirectoryError(errno.EISDIR, "there is a folder", path)
        inode = _Inode()
        file = _File(self, inode)
        self._change(path, ((path, inode),))
        if zeros:
            try:
                file.write(bytes(zeros))
            except OSError:
                self._change(path, ((path, None),))
                raise
            file.place = 0
        return file

    def read(self, path: str, offset: int, length: int) -> bytes:
        return bytes(self._inode(path).data[offset : offset + length])

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def names(self, folder: str) -> list[str]:
        return sorted(self._folders.names(folder))

    def rename(self, old: str, new: str) -> None:
        assert _folder(old) == _folder(new), "a rename across folders is not atomic"
        inode = self._inode(old)
        if old != new:
            self._change(old, ((new, inode), (old, None)))

    def remove(self, path: str) -> None:
        self._inode(path)
        self._change(path, ((path, None),))

    def sync(self, path: str) -> None:
        self._may_fail_to_sync()
        self._inode(path).sync()

    def sync_folder(self, folder: str) -> None:
        self._may_fail_to_sync()
        for change in self._changes.pop(folder, []):
            _apply(self._durable, change)

    def free_bytes(self) -> int:
        if self.capacity_bytes is None:
            return 1 << 62
        return max(0, self.capacity_bytes - self.used_bytes)

    # ---- faults

    @property
    def used_bytes(self) -> int:
        """How much all files take together."""
        return sum(len(inode.data) for inode in self._files.values())

    @property
    def paths(self) -> list[str]:
        """All files, sorted."""
        return sorted(self._files)

    def die_in_write(self, *, after_bytes: int | None = None) -> None:
        """Have the process die in its next write, after so many bytes, or a random number.

        The write raises `Died`; what it had written by then is there.
        """
        self._dies_after = -1 if after_bytes is None else after_bytes

    def fail_syncs(self, count: int = 1) -> None:
        """Have the next syncs fail with an input/output error."""
        self._failing_syncs = count

    def heal(self) -> None:
        """End all faults that were planned and have not happened; make room."""
        self._dies_after = None
        self._failing_syncs = 0
        self.capacity_bytes = None

    def lose_power(self) -> None:
        """Lose the machine: what was not synced is lost, or torn; another boot begins."""
        random = self._random
        self._boots += 1
        self._dies_after = None
        self._failing_syncs = 0
        for folder in sorted(self._changes):
            changes = self._changes[folder]
            for change in changes[: random.randint(0, len(changes))]:
                _apply(self._durable, change)
        self._changes.clear()
        self._files = dict(self._durable)
        self._folders = _Folders(self._files)
        for path in sorted(self._files):
            _tear(self._files[path], random)

    def flip_bit(self, path: str | None = None, offset: int | None = None) -> tuple[str, int]:
        """Flip one bit on the platters, of a random file or at a random place; say which byte."""
        random = self._random
        if path is None:
            path = random.choice([path for path in self.paths if self._files[path].data])
        inode = self._files[path]
        if offset is None:
            offset = random.randrange(len(inode.data))
        bit = 1 << random.randrange(8)
        inode.data[offset] ^= bit
        if offset < len(inode.durable):
            inode.durable[offset] ^= bit
        return path, offset

    def cut_off(self, path: str, size: int) -> None:
        """Lose the end of a file, synced or not."""
        inode = self._files[path]
        del inode.data[size:]
        del inode.durable[size:]
        inode.dirty = [(start, min(end, size)) for start, end in inode.dirty if start < size]

    def write_out(self, folder: Path) -> None:
        """Write everything that programs see into a folder of the real disk."""
        for path, inode in self._files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(inode.data)

    def keep_copy(self) -> SimulatedDisk:
        """Give a copy of the disk as it is now, for `replace_by` later."""
        other = SimulatedDisk(capacity_bytes=self.capacity_bytes)
        inodes = {id(inode): inode.copy() for inode in self._files.values()}
        other._files = {path: inodes[id(inode)] for path, inode in self._files.items()}
        for inode in inodes.values():
            inode.dirty.append((0, len(inode.data)))
            inode.sync()
        other._folders = _Folders(other._files)
        other._durable = dict(other._files)
        return other

    def replace_by(self, other: SimulatedDisk) -> None:
        """Put an old copy of the disk in place of it; the machine starts anew."""
        copy = other.keep_copy()
        self._files, self._durable = copy._files, copy._durable  # noqa: SLF001
        self._folders = copy._folders  # noqa: SLF001
        self._changes.clear()
        self._boots += 1

    def replace_by_empty(self) -> None:
        """Put an empty disk in place of this one; the machine starts anew."""
        self.replace_by(SimulatedDisk())

    # ---- inside

    def _inode(self, path: str) -> _Inode:
        inode = self._files.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        return inode

    def _change(self, path: str, change: _Change) -> None:
        for name, inode in change:
            if inode is None:
                self._folders.remove(name)
            elif name not in self._files:
                self._folders.add(name)
        _apply(self._files, change)
        self._changes.setdefault(_folder(path), []).append(change)

    def _may_fail_to_sync(self) -> None:
        if self._failing_syncs:
            self._failing_syncs -= 1
            raise OSError(errno.EIO, "the disk failed")

    def _write(self, inode: _Inode, place: int, data: Buffer) -> int:
        """Write as much as there is room and life for; give how much that was."""
        data = bytes(data)
        length = len(data)
        error: Exception | None = None
        if self._dies_after is not None:
            length = min(length, self._dies_after)
            if self._dies_after < 0:
                length = self._random.randint(0, len(data))
            self._dies_after = None
            error = Died("the process died in the middle of a write")
        growth = max(0, place + length - len(inode.data))
        if self.capacity_bytes is not None and growth > self.free_bytes():
            length -= growth - self.free_bytes()
            error = error or OSError(errno.ENOSPC, "there is no space left on the disk")
        inode.data[place : place + length] = data[:length]
        if inode.dirty and inode.dirty[-1][1] == place:
            inode.dirty[-1] = (inode.dirty[-1][0], place + length)
        elif length:
            inode.dirty.append((place, place + length))
        if error is not None:
            raise error
        return length


class _Folders:
    """Which names each folder has: a run makes thousands of files, and asks at every turn."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._names: dict[str, dict[str, int]] = {}
        """By folder: how many files each name there stands for."""
        for path in paths:
            self.add(path)

    def names(self, folder: str) -> Collection[str]:
        """Give the names in a folder; none if there is no such folder."""
        return self._names.get(folder, {})

    def add(self, path: str) -> None:
        """Learn of a new file."""
        for folder, name in _steps(path):
            names = self._names.setdefault(folder, {})
            names[name] = names.get(name, 0) + 1

    def remove(self, path: str) -> None:
        """Learn that a file is gone."""
        for folder, name in _steps(path):
            names = self._names[folder]
            names[name] -= 1
            if not names[name]:
                del names[name]


class _File:
    def __init__(self, disk: SimulatedDisk, inode: _Inode) -> None:
        self.disk = disk
        self.inode = inode
        self.place = 0

    def write(self, data: Buffer) -> None:
        self.place += self.disk._write(self.inode, self.place, data)  # noqa: SLF001

    def sync(self) -> None:
        self.disk._may_fail_to_sync()  # noqa: SLF001
        self.inode.sync()

    def truncate(self, size: int) -> None:
        data = self.inode.data
        del data[size:]
        data.extend(bytes(size - len(data)))
        self.inode.dirty = [
            (start, min(end, size)) for start, end in self.inode.dirty if start < size
        ]
        self.place = size

    def close(self) -> None:
        pass


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _steps(path: str) -> Iterator[tuple[str, str]]:
    """Give each folder on the way to a file, from the innermost on, with what follows in it."""
    while path:
        path, _, name = path.rpartition("/")
        yield path, name


def _apply(files: dict[str, _Inode], change: _Change) -> None:
    for path, inode in change:
        if inode is None:
            files.pop(path, None)
        else:
            files[path] = inode


def _tear(inode: _Inode, random: Random) -> None:
    """Decide what of the unsynced writes to a file survived."""
    survived = bytearray(inode.durable)
    luck = random.choice((0.0, 0.5, 0.9, 1.0))
    for start, end in inode.dirty:
        place = start
        while place < end:
            upto = min(end, (place // SECTOR_BYTES + 1) * SECTOR_BYTES)
            if random.random() < luck:
                # A sector is written whole; the file's new length may lag behind.
                cut = upto if random.random() < luck else random.randint(place, upto)
                survived.extend(bytes(max(0, cut - len(survived))))
                survived[place:cut] = inode.data[place:cut]
            place = upto
    inode.data = survived
    inode.durable = bytearray(survived)
    inode.dirty.clear()
