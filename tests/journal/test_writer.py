from __future__ import annotations

import errno
import threading

import pytest
from tests.journal import by_hand
from tests.journal.writing import (
    GROUP,
    ID,
    accepted,
    begin,
    confirmed,
    note,
    segment,
    settled,
    taken,
)

from coterie.journal.disk import Buffer, Disk
from coterie.journal.engines.stack import recover
from coterie.journal.format import Sync
from coterie.journal.life import begin_life
from coterie.journal.reader import JournalReader
from coterie.journal.stable import Stable
from coterie.journal.writer import StorageFailed, StorageFull
from coterie.kernel.records import Record
from coterie.simulation.world.disk import SimulatedDisk


def all_records(disk: Disk) -> list[Record]:
    reader = JournalReader(disk, GROUP, ID, strict=True)
    return list(reader.records())


class CountingDisk(SimulatedDisk):
    """Counts writes and syncs of files."""

    writes = 0
    syncs = 0

    def _write(self, inode: object, place: int, data: Buffer) -> int:
        self.writes += 1
        return super()._write(inode, place, data)  # type: ignore[arg-type]

    def _may_fail_to_sync(self) -> None:
        self.syncs += 1
        super()._may_fail_to_sync()


def test_the_bytes_are_those_of_the_document() -> None:
    disk = SimulatedDisk()
    writer = begin(disk)
    writer.append([note(1), note(2)])
    writer.sync()
    writer.append([note(3)])
    data = disk.read(segment(1), 0, 9999)
    kinds, fields = writer.schema()
    head = by_hand.segment_head(kinds=kinds, fields=fields)
    first = by_hand.block([by_hand.stopped(1), by_hand.stopped(2)], head=head, first=1)
    second = by_hand.block([by_hand.stopped(3)], head=head, first=3, synced=2)
    assert data == head + first + second
    assert writer.end.digest == by_hand.digest(by_hand.ZEROS, first, second)


def test_a_turn_is_one_write() -> None:
    disk = CountingDisk()
    writer = begin(disk, sync=Sync.NONE)
    disk.writes = disk.syncs = 0
    writer.append([note(n) for n in range(100)])
    assert disk.writes == 1
    writer.append([])
    assert (disk.writes, disk.syncs) == (1, 0)


@pytest.mark.parametrize(
    ("sync", "due"),
    [(Sync.TURN, [1, 1, 1, 1]), (Sync.INTERVAL, [0, 0, 1, 0]), (Sync.NONE, [0] * 4)],
)
def test_when_a_sync_is_due(sync: Sync, due: list[int]) -> None:
    writer = begin(SimulatedDisk(), sync=sync)
    assert not writer.needs_sync(0)
    found = []
    for now in (1_000, 60_000, 101_000, 150_000):
        writer.append([note(now)])
        found.append(int(writer.needs_sync(now)))
        if found[-1]:
            writer.sync()
    assert found == due
    assert (writer.synced == writer.sequence) == (sync is Sync.TURN)


def test_what_follows_from_a_majority_is_synced_with_the_next_promise() -> None:
    writer = begin(SimulatedDisk(), sync=Sync.TURN)
    writer.append([taken(1, b"one"), settled(1)])
    assert writer.needs_sync(0)
    writer.sync()
    writer.append([settled(1)])
    assert not writer.needs_sync(0)
    writer.append([taken(2, b"two")])
    assert writer.needs_sync(0)
    writer.sync()
    assert writer.synced == writer.sequence == 4


def test_segments_are_cut_between_turns() -> None:
    disk = SimulatedDisk()
    writer = begin(disk, segment_bytes=600)
    turns = [[note(10 * n + k) for k in range(3)] for n in range(12)]
    for turn in turns:
        writer.append(turn)
    writer.append([taken(1, b"x" * 2000)])  # larger than a segment: one to itself
    writer.append([note(999)])
    names = disk.names("g/a/000001")
    assert len(names) > 3
    sizes = [disk.size(f"g/a/000001/{name}") for name in names]
    assert sum(size > 600 for size in sizes) == 1
    reader = JournalReader(disk, GROUP, ID, strict=True)
    found = list(reader.turns())
    assert [turn.records for turn in found[:12]] == turns
    assert [turn.first for turn in found] == [*range(1, 37, 3), 37, 38]


@pytest.mark.parametrize("sync", [Sync.TURN, Sync.INTERVAL])
def test_a_sync_covers_the_segments_that_were_ended_since_the_last_one(sync: Sync) -> None:
    for seed in range(10):
        disk = SimulatedDisk(seed=seed)
        writer = begin(disk, sync=sync, segment_bytes=300)
        for n in range(20):  # a driver that syncs several turns at once
            writer.append([note(n)])
        writer.sync()
        assert len(disk.names("g/a/000001")) > 2
        disk.lose_power()
        assert all_records(disk) == [note(n) for n in range(20)]


def test_nothing_half_written_counts_when_the_disk_is_full() -> None:
    disk = SimulatedDisk()
    writer = begin(disk, sync=Sync.NONE)
    writer.append([note(1)])
    disk.capacity_bytes = disk.used_bytes + 60
    with pytest.raises(StorageFull, match="replica a of group g must stop serving") as caught:
        writer.append([note(n) for n in range(2, 50)])
    assert isinstance(caught.value, StorageFailed)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    disk.capacity_bytes = None
    with pytest.raises(StorageFull):  # not even if there is room again
        writer.append([note(99)])
    with pytest.raises(StorageFull):
        writer.sync()
    writer.close()
    assert all_records(disk) == [note(1)]
    assert begin(disk).incarnation == 2


def test_a_full_disk_when_a_segment_is_to_be_begun() -> None:
    disk = SimulatedDisk()
    writer = begin(disk, sync=Sync.TURN, segment_bytes=200)
    writer.append([note(n) for n in range(10)])
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(StorageFull, match="a segment could not be begun"):
        writer.append([note(99)])
    disk.capacity_bytes = None
    recovery = recover(disk, GROUP, ID)
    assert (recovery.is_zombie, recovery.end.sequence) == (False, 10)


def test_after_a_failed_sync_nothing_more_is_written() -> None:
    disk = SimulatedDisk()
    writer = begin(disk)
    writer.append([note(1)])
    disk.fail_syncs()
    with pytest.raises(StorageFailed, match="could not be synced: the disk failed"):
        writer.sync()
    with pytest.raises(StorageFailed):
        writer.append([note(2)])
    assert writer.synced == 0


def test_a_life_that_cannot_be_begun_is_an_error_and_nothing_else() -> None:
    disk = SimulatedDisk()
    begin(disk).close()
    recovery = recover(disk, GROUP, ID)
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(StorageFailed, match="cannot start"):
        begin_life(disk, recovery)
    disk.capacity_bytes = None
    assert begin(disk).incarnation == 2


def test_the_recovery_bit_is_durable_before_the_turn_that_accepts_a_primary_view() -> None:
    """Objects, appendix A: on stable storage before the first primary view is accepted."""
    disk = SimulatedDisk()
    writer = begin(disk, sync=Sync.NONE)
    writer.append([note(1)])
    assert not Stable(disk, GROUP, ID).has_been_primary
    sequence = writer.sequence
    disk.fail_syncs()
    with pytest.raises(StorageFailed, match="the recovery bit could not be set"):
        writer.append([note(2), accepted()])
    assert writer.sequence == sequence
    writer = begin(disk, sync=Sync.NONE)
    writer.append([note(2), accepted()])
    disk.lose_power()
    assert Stable(disk, GROUP, ID).has_been_primary
    assert recover(disk, GROUP, ID).is_zombie


def test_the_recovery_bit_is_set_once() -> None:
    disk = CountingDisk()
    writer = begin(disk, sync=Sync.NONE)
    writer.append([accepted(), confirmed()])
    disk.syncs = 0
    writer.append([accepted(), confirmed()])
    assert disk.syncs == 0


def test_a_segment_made_in_advance_is_used_and_cut_to_size() -> None:
    disk = SimulatedDisk()
    writer = begin(disk, segment_bytes=1000, preallocate=True)
    writer.prepare()
    writer.prepare()  # once is enough
    assert disk.size("g/a/000001/spare") == 1000
    turns = [[note(10 * n + k) for k in range(16)] for n in range(12)]
    for turn in turns[:8]:
        writer.append(turn)
        writer.sync()
    assert "spare" not in disk.names("g/a/000001")
    written = [record for turn in turns[:8] for record in turn]
    assert list(JournalReader(disk, GROUP, ID).records(growing=True)) == written
    assert all_records(disk) == written
    writer.prepare()
    writer.close()
    assert "spare" not in disk.names("g/a/000001")
    assert all_records(disk) == written
    sizes = [disk.size(f"g/a/000001/{name}") for name in disk.names("g/a/000001")]
    assert all(size < 1000 for size in sizes)


def test_a_spare_segment_left_by_a_crash_is_cleared_away() -> None:
    disk = SimulatedDisk()
    writer = begin(disk, segment_bytes=1000, preallocate=True)
    writer.prepare()
    begin(disk)
    assert disk.names("g/a/000001") == ["000000000000001.segment"]


def test_no_room_for_a_spare_segment_is_no_harm() -> None:
    disk = SimulatedDisk()
    writer = begin(disk, segment_bytes=1000, preallocate=True)
    disk.capacity_bytes = disk.used_bytes + 500
    writer.prepare()
    assert disk.names("g/a/000001") == ["000000000000001.segment"]
    writer.append([note(1)])
    assert all_records(disk) == [note(1)]


def test_syncing_may_run_beside_appending() -> None:
    """A driver syncs one turn in a thread while it writes the next."""
    disk = SimulatedDisk()
    writer = begin(disk, segment_bytes=2000)
    writer.append([note(0)])
    done = threading.Event()

    def keep_syncing() -> None:
        while not done.is_set():
            writer.sync()

    thread = threading.Thread(target=keep_syncing)
    thread.start()
    try:
        for n in range(1, 2000):
            writer.append([note(n)])
    finally:
        done.set()
        thread.join()
    writer.sync()
    assert writer.synced == writer.sequence == 2000
    assert all_records(disk) == [note(n) for n in range(2000)]


def test_what_a_writer_remembers_is_in_the_head_of_its_next_segment() -> None:
    disk = SimulatedDisk()
    writer = begin(disk, segment_bytes=700)
    writer.append([accepted(), confirmed()])
    for position in range(1, 40):
        writer.append([taken(position, b"x" * 50)])
        assert recover(disk, GROUP, ID).version.position == position
    assert writer.facts().version.position == 39
    assert recover(disk, GROUP, ID).facts == writer.facts()
