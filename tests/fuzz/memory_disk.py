"""A disk that is a dictionary: what a fuzzer needs of one, quickly."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.journal.disk import Buffer


class _File:
    def __init__(self, disk: MemoryDisk, path: str, zeros: int) -> None:
        self._data = bytearray(zeros)
        self._at = 0
        disk.files[path] = self._data

    def write(self, data: Buffer) -> None:
        end = self._at + len(data)
        self._data[self._at : end] = data
        self._at = end

    def sync(self) -> None:
        pass

    def truncate(self, size: int) -> None:
        del self._data[size:]
        self._at = size

    def close(self) -> None:
        pass


class MemoryDisk:
    """Files by their paths; those it begins with are never changed in place."""

    boot_id = "boot-1"

    def __init__(self, files: Mapping[str, Buffer]) -> None:
        self.files: dict[str, Buffer] = dict(files)

    def _found(self, path: str) -> Buffer:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        return self.files[path]

    def create(self, path: str, *, zeros: int = 0) -> _File:
        if path in self.files:
            raise FileExistsError(errno.EEXIST, "the file exists", path)
        return _File(self, path, zeros)

    def read(self, path: str, offset: int, length: int) -> bytes:
        return bytes(self._found(path)[offset : offset + length])

    def size(self, path: str) -> int:
        return len(self._found(path))

    def names(self, folder: str) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        start = len(prefix)
        return sorted(
            {path[start:].partition("/")[0] for path in self.files if path.startswith(prefix)}
        )

    def rename(self, old: str, new: str) -> None:
        self.files[new] = self._found(old)
        del self.files[old]

    def remove(self, path: str) -> None:
        self._found(path)
        del self.files[path]

    def sync(self, path: str) -> None:
        self._found(path)

    def sync_folder(self, folder: str) -> None:
        pass

    def free_bytes(self) -> int:
        return 1 << 40
