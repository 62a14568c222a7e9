"""The faults of the simulated disk. That it is a disk is shown by the conformance suite."""

import errno

import pytest

from coterie.simulation.world.disk import SECTOR_BYTES, Died, SimulatedDisk


def put(disk: SimulatedDisk, path: str, data: bytes, *, sync: bool = True) -> None:
    file = disk.create(path)
    file.write(data)
    if sync:
        file.sync()
        disk.sync_folder(path.rpartition("/")[0])


def outcomes(size: int = 4 * SECTOR_BYTES) -> list[bytes]:
    """What may be left of an unsynced write, over many seeds."""
    found = []
    for seed in range(60):
        disk = SimulatedDisk(seed=seed)
        put(disk, "f/x", b"")
        file = disk.create("f/y")
        disk.sync_folder("f")
        file.write(b"x" * size)
        disk.lose_power()
        found.append(disk.read("f/y", 0, size))
    return found


def test_what_is_synced_survives_the_loss_of_the_machine() -> None:
    for seed in range(20):
        disk = SimulatedDisk(seed=seed)
        put(disk, "f/x", b"kept" * 500)
        disk.lose_power()
        assert disk.read("f/x", 0, 9999) == b"kept" * 500


def test_unsynced_writes_are_lost_kept_or_torn() -> None:
    found = outcomes()
    assert b"" in found
    assert b"x" * 4 * SECTOR_BYTES in found
    assert any(0 < len(data) < 4 * SECTOR_BYTES for data in found), "cut off"
    assert any(b"\0x" in data for data in found), "a hole in the middle"


def test_the_same_seed_gives_the_same_loss() -> None:
    assert outcomes() == outcomes()


def test_an_unsynced_name_may_be_lost_with_its_file() -> None:
    kept = set()
    for seed in range(20):
        disk = SimulatedDisk(seed=seed)
        file = disk.create("f/x")
        file.write(b"1")
        file.sync()
        disk.lose_power()
        kept.add(tuple(disk.names("f")))
    assert kept == {(), ("x",)}


def test_an_unsynced_rename_leaves_the_old_or_the_new_file() -> None:
    seen = set()
    for seed in range(20):
        disk = SimulatedDisk(seed=seed)
        put(disk, "f/x", b"old")
        file = disk.create("f/y")
        file.write(b"new")
        file.sync()
        disk.rename("f/y", "f/x")
        disk.lose_power()
        seen.add(disk.read("f/x", 0, 9))
    assert seen == {b"old", b"new"}


def test_the_machine_has_another_boot_id_after_it_was_lost() -> None:
    disk = SimulatedDisk()
    before = disk.boot_id
    disk.lose_power()
    assert disk.boot_id != before


def test_a_process_can_die_in_the_middle_of_a_write() -> None:
    disk = SimulatedDisk()
    file = disk.create("x")
    file.write(b"one")
    disk.die_in_write(after_bytes=2)
    with pytest.raises(Died):
        file.write(b"two")
    assert disk.read("x", 0, 9) == b"onetw"
    file.write(b"!")  # the fault is over
    assert disk.boot_id == SimulatedDisk().boot_id


def test_a_full_disk_takes_what_fits_and_says_so() -> None:
    disk = SimulatedDisk(capacity_bytes=10)
    file = disk.create("x")
    file.write(b"12345678")
    with pytest.raises(OSError, match="no space") as caught:
        file.write(b"9abc")
    assert caught.value.errno == errno.ENOSPC
    assert disk.read("x", 0, 99) == b"123456789a"
    assert disk.free_bytes() == 0
    with pytest.raises(OSError, match="no space"):
        disk.create("y", zeros=1)
    assert disk.names("") == ["x"]
    disk.remove("x")
    assert disk.free_bytes() == 10


def test_a_sync_can_fail() -> None:
    disk = SimulatedDisk()
    file = disk.create("x")
    disk.fail_syncs()
    with pytest.raises(OSError, match="failed") as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    file.sync()


def test_a_flipped_bit_is_one_bit_and_stays_flipped() -> None:
    disk = SimulatedDisk(seed=3)
    put(disk, "f/x", bytes(100))
    path, offset = disk.flip_bit()
    disk.lose_power()
    data = disk.read("f/x", 0, 100)
    assert path == "f/x"
    assert [place for place, byte in enumerate(data) if byte] == [offset]
    assert data[offset].bit_count() == 1


def test_the_disk_can_be_replaced_by_an_empty_one_or_an_old_copy() -> None:
    disk = SimulatedDisk()
    put(disk, "f/x", b"old")
    copy = disk.keep_copy()
    file = disk.create("f/y")
    file.write(b"new")
    before = disk.boot_id
    disk.replace_by(copy)
    assert disk.names("f") == ["x"]
    assert disk.boot_id != before
    put(disk, "f/z", b"later")
    disk.replace_by(copy)
    assert disk.names("f") == ["x"], "the copy stays as it was"
    disk.replace_by_empty()
    assert disk.paths == []
