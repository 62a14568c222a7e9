"""Files of backups, and folders that they are restored to, as they should not be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.fuzz.backups import GIVEN, MEMBERS, base, put
from tests.fuzz.lives import GROUP, ID, LivingObject
from tests.fuzz.memory_disk import MemoryDisk

from coterie.journal.backup import Backup, BackupHead, BadBackup, write_backup
from coterie.kernel.errors import CoterieError
from coterie.service.config import ClusterConfig, ReplicaConfig
from coterie.service.operate.backups import begin_with_backup

if TYPE_CHECKING:
    from pathlib import Path


def written(path: Path, **changed: object) -> Path:
    """Write a backup, with something else in its head."""
    body, chunks = base()
    head = msgspec.msgpack.decode(body, type=BackupHead)
    path.write_bytes(put(msgspec.msgpack.encode(msgspec.structs.replace(head, **changed)), chunks))
    return path


def restore(backup: Path, folder: Path) -> None:
    replica = ReplicaConfig(listen="127.0.0.1:1", clients="127.0.0.1:2", dir=str(folder))
    config = ClusterConfig(cluster="c", groups={GROUP: GIVEN}, replicas={ID: replica})
    begin_with_backup(Backup(backup), config, GROUP, ID)


def files(folder: Path) -> dict[str, bytes]:
    found = (each for each in folder.rglob("*") if each.is_file() and each.name != "in-use")
    return {str(each.relative_to(folder)): each.read_bytes() for each in found}


def test_a_replica_that_has_lived_is_not_written_over(tmp_path: Path) -> None:
    """A founder's folder was taken for an empty one, up to an assertion."""
    disk = MemoryDisk({})
    LivingObject.family.found(disk, GROUP, ID)
    LivingObject(disk, 1000).turns(40)
    for path, data in disk.files.items():
        place = tmp_path / "a" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    before = files(tmp_path / "a")
    with pytest.raises(CoterieError, match="restored to empty folders"):
        restore(written(tmp_path / "x"), tmp_path / "a")
    assert files(tmp_path / "a") == before


def test_it_is_restored_once(tmp_path: Path) -> None:
    restore(written(tmp_path / "x"), tmp_path / "a")
    before = files(tmp_path / "a")
    with pytest.raises(CoterieError, match="restored to empty folders"):
        restore(tmp_path / "x", tmp_path / "a")
    assert files(tmp_path / "a") == before


def test_what_cannot_be_restored_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that is founded and has no state would begin with an empty object."""

    def fail(*_: object, **__: object) -> None:
        raise CoterieError("the disk is full")

    monkeypatch.setattr("coterie.service.operate.backups.begin_with_state", fail)
    with pytest.raises(CoterieError, match="the disk is full"):
        restore(written(tmp_path / "x"), tmp_path / "a")
    assert files(tmp_path / "a") == {}
    monkeypatch.undo()
    restore(tmp_path / "x", tmp_path / "a")
    assert files(tmp_path / "a")


@pytest.mark.parametrize("position", [-1, 2**62 + 1, 2**63 - 1])
def test_a_place_that_cannot_be_is_a_sentence(tmp_path: Path, position: int) -> None:
    with pytest.raises(BadBackup, match="no place in a history"):
        Backup(written(tmp_path / "x", position=position))


def test_members_that_cannot_be_are_a_sentence(tmp_path: Path) -> None:
    body, chunks = base()
    (tmp_path / "x").write_bytes(put(body, [MEMBERS + b"\x93", *chunks]))
    with pytest.raises(BadBackup, match="of its members what cannot be"):
        Backup(tmp_path / "x").check()


def test_where_others_write_a_backup_is_no_file_of_theirs(tmp_path: Path) -> None:
    body, chunks = base()
    head = msgspec.msgpack.decode(body, type=BackupHead)
    (tmp_path / "theirs").write_bytes(b"")
    (tmp_path / "x.draft").symlink_to(tmp_path / "theirs")
    write_backup(tmp_path / "x", head, chunks)
    assert (tmp_path / "theirs").read_bytes() == b""
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600
    assert list(Backup(tmp_path / "x").chunks()) == chunks
    with pytest.raises(FileExistsError):
        write_backup(tmp_path / "x", head, chunks)
    assert not (tmp_path / "x.draft").exists()
