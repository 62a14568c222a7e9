"""One process, one folder: no second one works in it, and it holds nobody else's journals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coterie.journal.keeper import JournalKeeper
from coterie.service.folder import FolderTaken, lock_folder, open_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_two_cannot_work_in_one_folder(tmp_path: Path) -> None:
    with (
        open_folder(tmp_path / "new" / "a", "a", ["g"]),
        pytest.raises(FolderTaken, match="a replica 'a' is running already, or two replicas"),
        open_folder(tmp_path / "new" / "a", "a", ["g"]),
    ):
        pass
    with open_folder(tmp_path / "new" / "a", "a", ["g"]):
        pass  # free again


def test_a_lock_says_what_its_owner_wants_said(tmp_path: Path) -> None:
    with (
        lock_folder(tmp_path, "someone is here"),
        pytest.raises(FolderTaken, match=r"^someone is here$"),
        lock_folder(tmp_path, "someone is here"),
    ):
        pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(FolderTaken, match="cannot be used: Not a directory"),
        lock_folder(tmp_path / "file" / "a", ""),
    ):
        pass


def test_journals_of_someone_else_are_refused(tmp_path: Path) -> None:
    with open_folder(tmp_path, "a", ["g"]) as disk:
        JournalKeeper(disk, "g", "a").close()
    with (
        pytest.raises(FolderTaken, match="holds the journal of replica 'a' of group 'g', and this"),
        open_folder(tmp_path, "b", ["g"]),
    ):
        pass
    with (
        pytest.raises(FolderTaken, match="holds journals of g only, and this process runs h: is"),
        open_folder(tmp_path, "a", ["h"]),
    ):
        pass
    with open_folder(tmp_path, "a", ["g", "h"]):
        pass  # a group was added
