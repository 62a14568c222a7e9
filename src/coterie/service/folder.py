"""The folder of one process: its journals, and a lock so that no second process uses them."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coterie.journal.disk import FileDisk, make_private_folder
from coterie.journal.segments import list_journals
from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

LOCK = "in-use"


class FolderTaken(CoterieError):
    """Another process works in the folder, or it belongs to someone else."""


@contextmanager
def lock_folder(folder: Path, taken: str) -> Iterator[None]:
    """Make the folder if need be, and keep others out until the block ends.

    Raises `FolderTaken` with the sentence *taken* if another process is inside.
    """
    try:
        make_private_folder(folder)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise FolderTaken(f"the folder {folder} cannot be used: {error.strerror}") from None
    try:
        try:
            # The system lets go of the lock when the process dies, however it dies.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FolderTaken(taken) from None
        yield
    finally:
        os.close(lock)


@contextmanager
def open_folder(folder: Path, id: str, groups: Iterable[str]) -> Iterator[FileDisk]:
    """Give the disk of a replica in its folder, for as long as the block lasts."""
    taken = (
        f"another process works in {folder}: a replica {id!r} is running already, or two replicas "
        "were given the same dir"
    )
    with lock_folder(folder, taken):
        disk = FileDisk(folder)
        _check_owner(disk, folder, id, set(groups))
        yield disk


def _check_owner(disk: FileDisk, folder: Path, id: str, groups: set[str]) -> None:
    """Refuse journals of another replica: they would be taken for a loss of memory, or worse."""
    journals = list_journals(disk)
    for group, replica in journals:
        if replica != id:
            raise FolderTaken(
                f"{folder} holds the journal of replica {replica!r} of group {group!r}, and this "
                f"is replica {id!r}: give it a dir of its own"
            )
    if journals and not groups & {group for group, _ in journals}:
        names = ", ".join(sorted({group for group, _ in journals}))
        raise FolderTaken(
            f"{folder} holds journals of {names} only, and this process runs "
            f"{', '.join(sorted(groups))}: is it the right dir?"
        )
