"""Mirrors: a folder here that has what a folder of a store has.

Stores have no rename, no lock and no append, and journals and lakes are read in many small pieces.
So what lies in a store is worked on in a mirror: *pull* makes the folder here as the store is,
*push* makes the store as the folder here is. Both copy only what has changed since the mirror last
looked, which it notes beside the folder: size and time in the store, size and time here.

Who reads results in a store meanwhile finds one version of them: files come first, then the
manifest that names them, and only then is removed what it names no longer. One run at a time may
write to an address: a run that finds a manifest which it did not pull writes none.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from coterie.kernel.decoding import JsonDecoder
from coterie.pipeline.lake.lake import DRAFT, draft_of
from coterie.pipeline.publish.manifest import NAME as MANIFEST
from coterie.pipeline.stores.addresses import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coterie.pipeline.stores.addresses import RemoteFolder, StoredFile

Work = TypeVar("Work")

THREADS = 16
"""Files that are copied at a time."""
SETTLED_NANOSECONDS = 3 * 10**9
"""A file that was written more recently may be written again within the second that stores tell."""
_OWN = ("checkpoint", "_lock", "_scratch")
"""What belongs to the machine that works on results, and to nobody else."""


class _Noted(msgspec.Struct, array_like=True):
    """A file as both sides had it when they had the same."""

    bytes: int
    stored: int | None
    """Its time in the store; None if that does not tell whether it is written again."""
    here: int
    """Its time here."""


class _Notes(msgspec.Struct):
    """All that a mirror notes."""

    address: str
    files: dict[str, _Noted]


_decode = JsonDecoder(_Notes).decode


class Mirror:
    """A folder here, and a folder of a store."""

    def __init__(self, store: RemoteFolder, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self._place = folder.with_name(f"{folder.name}.mirror.json")
        self._known = self._read()
        self._manifest: bytes | None = None
        """The manifest of the store, as it was last pulled or pushed."""

    def pull(self, *, anew: bool = False) -> int:
        """Make the folder as the store is; give how many files were copied.

        With *anew* nothing that was copied before is believed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        known = {} if anew else self._known
        stored = self._stored()
        stale = [file for file in stored.values() if not self._is_here(file, known.get(file.path))]
        listed = time.time_ns()
        for path in list(self._local()):
            if path not in stored:
                (self.folder / path).unlink()
        _remove_empty(self.folder)
        fresh = {file.path for file in stale}
        self._known = {
            path: note for path, note in self._known.items() if path in stored and path not in fresh
        }

        def copy(file: StoredFile) -> None:
            target = self.folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = draft_of(target)
            self.store.get(file.path, str(draft))
            draft.replace(target)

        _each(copy, stale)
        for file in stale:
            # What was written just now may be written again without another time.
            is_settled = file.changed is not None and file.changed < listed - SETTLED_NANOSECONDS
            self._note(file.path, file.changed if is_settled else None)
        self._write()
        self._manifest = self._manifest_here()
        return len(stale)

    def push(self) -> int:
        """Make the store as the folder is; give how many files were copied.

        Raises `StoreFailed` if somebody else has written results there since they were pulled.
        """
        local = sorted(self._local(), key=_rank)
        stored = self._stored()
        stale = [path for path in local if not self._is_there(path, stored.get(path))]
        for rank in sorted(set(map(_rank, stale))):
            # Each of these steps rests on the one before.
            if rank == _rank(MANIFEST) and self.store.read(MANIFEST) != self._manifest:
                raise StoreFailed(
                    f"somebody else has written results to {self.store.address} meanwhile: let one "
                    "run at a time write there, and run again"
                )
            batch = [path for path in stale if _rank(path) == rank]
            _each(lambda path: self.store.put(str(self.folder / path), path), batch)
        self._manifest = self._manifest_here()
        for path in stored.keys() - set(local):
            self.store.remove(path)
            self._known.pop(path, None)
        stored = self._stored()
        for path in stale:
            self._note(path, stored[path].changed if path in stored else None)
        self._write()
        return len(stale)

    # ---- inside

    def _local(self) -> Iterator[str]:
        """Give all files here that both sides should have."""
        for folder, folders, files in os.walk(self.folder):
            place = Path(folder).relative_to(self.folder)
            folders[:] = [name for name in folders if not _is_own(str(place / name))]
            for name in files:
                path = str(place / name)
                if not name.startswith(DRAFT) and not _is_own(path):
                    yield path

    def _is_here(self, file: StoredFile, note: _Noted | None) -> bool:
        """Say whether a file of the store is here as it is there."""
        if note is None or note.stored is None:
            return False
        return (note.bytes, note.stored) == (file.bytes, file.changed) and self._is_kept(
            file.path, note
        )

    def _is_there(self, path: str, file: StoredFile | None) -> bool:
        """Say whether a file here is in the store as it is here."""
        note = self._known.get(path)
        if note is None or file is None:
            return False
        same = file.bytes == note.bytes and note.stored in {None, file.changed}
        return same and self._is_kept(path, note)

    def _is_kept(self, path: str, note: _Noted) -> bool:
        try:
            about = (self.folder / path).stat()
        except FileNotFoundError:
            return False
        return (about.st_size, about.st_mtime_ns) == (note.bytes, note.here)

    def _stored(self) -> dict[str, StoredFile]:
        return {file.path: file for file in self.store.files() if not _is_own(file.path)}

    def _note(self, path: str, changed: int | None) -> None:
        """Note that both sides have the same."""
        about = (self.folder / path).stat()
        self._known[path] = _Noted(about.st_size, changed, about.st_mtime_ns)

    def _manifest_here(self) -> bytes | None:
        try:
            return (self.folder / MANIFEST).read_bytes()
        except FileNotFoundError:
            return None

    def _read(self) -> dict[str, _Noted]:
        try:
            notes = _decode(self._place.read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}  # then everything is copied once more
        if notes.address != self.store.address:
            raise StoreFailed(
                f"{self.folder} has what lies at {notes.address}, not at {self.store.address}: "
                "name another folder to work in"
            )
        return notes.files

    def _write(self) -> None:
        draft = draft_of(self._place)
        draft.write_bytes(msgspec.json.encode(_Notes(self.store.address, self._known)))
        draft.replace(self._place)


def _is_own(path: str) -> bool:
    return path.partition("/")[0] in _OWN or path == "tables"


def _rank(path: str) -> int:
    """Say when a file is written: what names others comes after them."""
    if path == MANIFEST:
        return 2
    return int(path.startswith("lake/segments/") or "/" not in path)


def _remove_empty(folder: Path) -> None:
    """Remove folders without files, of which stores know nothing."""
    for place, _, _ in os.walk(folder, topdown=False):
        if Path(place) != folder and not any(Path(place).iterdir()):
            Path(place).rmdir()


def _each(work: Callable[[Work], object], items: Iterable[Work]) -> None:
    """Do a piece of work for each item, several at a time."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="coterie-store") as pool:
        for done in [pool.submit(work, item) for item in items]:
            done.result()
