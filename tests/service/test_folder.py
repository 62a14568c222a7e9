"""One process, one folder: no second one works in it, and it holds nobody else's journals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coterie.journal.disk import FileDisk
from coterie.journal.engines.stack_keeper import JournalKeeper
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


def test_what_a_replica_keeps_is_for_its_owner_only(tmp_path: Path) -> None:
    """Every local user could read the journals, and speak to the process by its socket."""
    folder = tmp_path / "state" / "group" / "a"
    with lock_folder(folder, "taken"):
        FileDisk(folder).create("g/a/000001/x.segment").close()
    for place in (folder.parent.parent, folder, folder / "g" / "a" / "000001"):
        assert place.stat().st_mode & 0o777 == 0o700, place
    assert (folder / "g/a/000001/x.segment").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_there_keeps_the_permissions_its_owner_gave(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    with lock_folder(shared, "taken"):
        pass
    assert shared.stat().st_mode & 0o777 == 0o755
