"""Addresses: folders of a store, such as `s3://bucket/journals`, in the place of folders here.

Arrow's own file systems come first (`s3`, `gs`, `abfs`, `hdfs`, `file`), with the parameters that
Arrow takes behind a question mark; any other address is looked up in `fsspec`, if it is installed.
Credentials come from where these look for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import Iterator


class StoreFailed(CoterieError):
    """A store cannot be used, or not as we are asked to; the message says what to do."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store, as a listing shows it."""

    path: str
    """Below the address."""
    bytes: int
    changed: int | None
    """When it was written, in nanoseconds; None if the store does not tell."""


def public(address: str) -> str:
    """Give an address without credentials and parameters, to be shown."""
    scheme, _, rest = address.partition("://")
    place = rest.partition("?")[0]
    authority, slash, path = place.partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}".rstrip("/")


class RemoteFolder:
    """A folder of a store."""

    def __init__(self, address: str) -> None:
        self.address = public(address)
        self.system, root = _open(address)
        self._root = root.rstrip("/")

    def files(self) -> Iterator[StoredFile]:
        """Give all files in and below the folder; none if there is no such folder."""
        selector = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        with self._failing():
            found = self.system.get_file_info(selector)
        for info in found:
            if info.type == fs.FileType.File:
                path = info.path[len(self._root) :].lstrip("/")
                _check(self.address, path)
                changed = None if info.mtime is None else info.mtime_ns
                yield StoredFile(path, info.size, changed)

    def read(self, path: str) -> bytes | None:
        """Give the content of a small file; None if there is none."""
        with self._failing():
            place = f"{self._root}/{path}"
            if self.system.get_file_info(place).type != fs.FileType.File:
                return None
            with self.system.open_input_stream(place) as file:
                content: bytes = file.read()
                return content

    def get(self, path: str, target: str) -> None:
        """Copy a file from the store to a file here."""
        here = fs.LocalFileSystem()
        with self._failing():
            fs.copy_files(f"{self._root}/{path}", target, self.system, here, use_threads=False)

    def put(self, source: str, path: str) -> None:
        """Copy a file from here to the store; it is there as a whole, or as it was."""
        target = f"{self._root}/{path}"
        here = fs.LocalFileSystem()
        with self._failing():
            if isinstance(self.system, fs.LocalFileSystem | fs.PyFileSystem | fs.SubTreeFileSystem):
                # Stores of objects have no folders; file systems do.
                self.system.create_dir(target.rpartition("/")[0], recursive=True)
            fs.copy_files(source, target, here, self.system, use_threads=False)

    def remove(self, path: str) -> None:
        """Remove a file from the store."""
        with self._failing():
            self.system.delete_file(f"{self._root}/{path}")

    def _failing(self) -> _Failing:
        return _Failing(self.address)


class _Failing:
    """What a store complains of becomes a sentence."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError | pa.ArrowException):
            reason = str(error).partition(" (Request ID")[0].partition("\n")[0]
            raise StoreFailed(f"{self._address} cannot be used: {reason}") from None


def _check(address: str, path: str) -> None:
    """See that a name from a store leads nowhere else here."""
    parts = path.split("/")
    if not path or any(part in {"", ".", ".."} for part in parts) or "\0" in path:
        raise StoreFailed(f"{address} has a file whose name cannot be one here: {path!r}")


def _open(address: str) -> tuple[Any, str]:
    """Give the file system of an address, and the place in it."""
    try:
        system, root = fs.FileSystem.from_uri(address)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem" not in str(error):
            raise StoreFailed(f"{public(address)} is no address: {error}") from None
    except OSError as error:
        raise StoreFailed(f"{public(address)} cannot be used: {error}") from None
    else:
        return system, root
    scheme = address.partition("://")[0]
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 -- only where it is installed

        found, root = url_to_fs(address)
    except ImportError as error:
        raise StoreFailed(
            f"{public(address)}: Arrow knows no {scheme}://, and for others it takes fsspec and "
            f"what it needs: {error}"
        ) from None
    except ValueError as error:
        raise StoreFailed(f"{public(address)} is no address: {error}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(found)), root
