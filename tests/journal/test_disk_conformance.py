"""What the journal asks of a disk, asked of the real one and of the simulated one."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.journal.disk import Disk, FileDisk, _File, replace_file
from coterie.simulation.world.disk import SimulatedDisk


@pytest.fixture(params=["file", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return FileDisk(tmp_path / "disk") if request.param == "file" else SimulatedDisk(seed=1)


def put(disk: Disk, path: str, *parts: bytes) -> None:
    file = disk.create(path)
    for part in parts:
        file.write(part)
    file.close()


def test_what_is_written_is_read_at_once(disk: Disk) -> None:
    file = disk.create("a/b/c")
    file.write(b"one")
    assert disk.read("a/b/c", 0, 100) == b"one"
    file.write(bytearray(b"two"))
    file.write(memoryview(b"three"))
    assert disk.read("a/b/c", 0, 100) == b"onetwothree"
    assert disk.size("a/b/c") == 11
    file.close()


def test_reading_gives_what_there_is(disk: Disk) -> None:
    put(disk, "x", b"0123456789")
    assert disk.read("x", 3, 4) == b"3456"
    assert disk.read("x", 8, 4) == b"89"
    assert disk.read("x", 10, 4) == b""
    assert disk.read("x", 99, 4) == b""
    assert disk.read("x", 0, 0) == b""


def test_a_file_is_begun_once(disk: Disk) -> None:
    put(disk, "a/x", b"old")
    with pytest.raises(FileExistsError):
        disk.create("a/x")
    assert disk.read("a/x", 0, 9) == b"old"


@pytest.mark.parametrize("call", ["read", "size", "remove", "rename", "sync"])
def test_what_is_not_there_is_an_error(disk: Disk, call: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: disk.read("x", 0, 1),
        "size": lambda: disk.size("x"),
        "remove": lambda: disk.remove("x"),
        "rename": lambda: disk.rename("x", "y"),
        "sync": lambda: disk.sync("x"),
    }
    put(disk, "other", b"")
    with pytest.raises(FileNotFoundError) as caught:
        calls[call]()
    assert caught.value.errno == errno.ENOENT


def test_names_are_sorted_and_of_one_folder(disk: Disk) -> None:
    for path in ("f/b", "f/a", "f/sub/x", "f/sub/y", "other/z", "fx"):
        put(disk, path, b"")
    assert disk.names("f") == ["a", "b", "sub"]
    assert disk.names("f/sub") == ["x", "y"]
    assert disk.names("nowhere") == []
    assert disk.names("") == ["f", "fx", "other"]


def test_a_rename_replaces(disk: Disk) -> None:
    put(disk, "f/old", b"old")
    put(disk, "f/new", b"new")
    disk.rename("f/new", "f/old")
    assert disk.names("f") == ["old"]
    assert disk.read("f/old", 0, 9) == b"new"


def test_a_file_can_be_renamed_while_it_is_written(disk: Disk) -> None:
    file = disk.create("f/spare")
    file.write(b"one")
    disk.rename("f/spare", "f/used")
    file.write(b"two")
    file.sync()
    file.close()
    assert disk.read("f/used", 0, 9) == b"onetwo"


def test_removed_is_gone(disk: Disk) -> None:
    put(disk, "f/x", b"1")
    disk.remove("f/x")
    assert disk.names("f") == []
    put(disk, "f/x", b"2")
    assert disk.read("f/x", 0, 9) == b"2"


def test_room_made_in_advance_is_zeros_until_it_is_written(disk: Disk) -> None:
    size = (1 << 20) + 7
    file = disk.create("x", zeros=size)
    assert disk.size("x") == size
    assert disk.read("x", 0, size) == bytes(size)
    file.write(b"abc")
    file.write(b"def")
    assert disk.read("x", 0, 8) == b"abcdef\0\0"
    assert disk.size("x") == size
    file.truncate(6)
    assert disk.size("x") == 6
    file.write(b"!")
    assert disk.read("x", 0, 99) == b"abcdef!"
    file.close()


def test_truncated_is_gone_and_writing_goes_on_there(disk: Disk) -> None:
    file = disk.create("x")
    file.write(b"0123456789")
    file.truncate(4)
    file.write(b"ab")
    file.close()
    assert disk.read("x", 0, 99) == b"0123ab"


def test_syncing_changes_nothing_that_is_seen(disk: Disk) -> None:
    file = disk.create("f/g/x")
    file.write(b"one")
    file.sync()
    disk.sync("f/g/x")
    disk.sync_folder("f/g")
    file.write(b"two")
    file.close()
    assert disk.read("f/g/x", 0, 9) == b"onetwo"


def test_a_small_file_is_replaced_whole(disk: Disk) -> None:
    replace_file(disk, "f", "x", b"first and long")
    replace_file(disk, "f", "x", b"second")
    assert disk.read("f/x", 0, 99) == b"second"
    assert disk.names("f") == ["x"]


def test_a_draft_left_by_a_crash_is_in_nobodys_way(disk: Disk) -> None:
    put(disk, "f/x.draft", b"half of someth")
    replace_file(disk, "f", "x", b"whole")
    assert disk.names("f") == ["x"]


def test_the_boot_id_stays_while_the_machine_runs(disk: Disk) -> None:
    assert disk.boot_id == disk.boot_id
    assert disk.boot_id != ""


def test_there_is_room(disk: Disk) -> None:
    assert disk.free_bytes() > 0


def test_a_real_disk_that_is_full_says_so() -> None:
    """The device that is always full stands for a disk that is: the error is the system's own."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    file = _File(os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(OSError, match="space") as caught:
        file.write(b"x")
    assert caught.value.errno == errno.ENOSPC
    file.close()
