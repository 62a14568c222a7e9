"""Where journals are: at or a little below the folders that somebody names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.journal import FileDisk, JournalError, list_journals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DEPTH = 4
"""How many folders below the one named journals are looked for."""
_LOST_AND_FOUND = "lost+found"
"""What file systems have at their root, for nobody else to read."""


class NoJournals(JournalError):
    """There is no journal where one was expected."""


def find_journals(folders: Sequence[str | Path]) -> list[str]:
    """Give the folders that hold journals, at or a little below those named."""
    return look_for_journals(folders)[0]


def look_for_journals(folders: Sequence[str | Path]) -> tuple[list[str], list[str]]:
    """Give the folders that hold journals, and sentences on those that could not be looked into."""
    found: dict[str, None] = {}
    unread: list[str] = []
    for folder in folders:
        place = Path(folder)
        if not place.is_dir():
            raise NoJournals(f"{folder} is no folder: name one with journals in it, or below it")
        roots = list(_roots_below(place, _DEPTH, unread))
        if not roots:
            also = "".join(f"; {sentence}" for sentence in unread)
            raise NoJournals(
                f"there is no journal in {folder}: a journal is a folder <group>/<replica> with "
                f"numbered lives in it, as replicas write it into their dir{also}"
            )
        found.update(dict.fromkeys(roots))
    return list(found), unread


def _roots_below(folder: Path, depth: int, unread: list[str]) -> Iterator[str]:
    try:
        if list_journals(FileDisk(folder)):
            yield str(folder)
            return
        inner = sorted(each for each in folder.iterdir() if each.is_dir()) if depth else []
    except OSError as error:
        if folder.name != _LOST_AND_FOUND:
            place = as_text(str(error.filename or folder))
            unread.append(f"{place} cannot be read ({error.strerror}): journals may be there")
        return
    for each in inner:
        yield from _roots_below(each, depth - 1, unread)


def is_text(name: str) -> bool:
    """Say whether a name from a folder is text, and not only bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(name: str) -> str:
    """Give a name from a folder in a form that can be shown, whatever its bytes are."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
