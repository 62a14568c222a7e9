"""The duties of a driver: what is stored in which order, when snapshots are due, what may fail."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.journal.writing import GROUP, ID, ME, VIEW, accepted, confirmed, taken

from coterie.journal.disk import Disk, FileDisk
from coterie.journal.engines.stack import recover
from coterie.journal.engines.stack_keeper import JournalKeeper
from coterie.journal.format import Sync
from coterie.journal.keeper import KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.snapshots import DUMPS, SnapshotStore
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings, StorageFailed, StorageFull
from coterie.kernel.engine import Checkpoint, Chunks, Version
from coterie.kernel.records import HistoryAdopted, Record, Settled
from coterie.kernel.views import Member
from coterie.simulation.world.disk import Died, SimulatedDisk

OTHER = Member("b", 1)
OFTEN = KeeperSettings(snapshot_bytes=300)


class State:
    """A replica's authoritative state, as a keeper asks for it."""

    def __init__(self, size: int = 10) -> None:
        self.position = 0
        self.size = size
        self.asked = 0

    def checkpoint(self) -> Checkpoint:
        self.asked += 1
        version = Version(VIEW, self.position)
        chunks = iter([b"%d." % self.position, bytes(self.size)])
        return Checkpoint(self.position, version, chunks, ((ME, self.position),))

    def take(self, keeper: JournalKeeper, count: int = 1) -> None:
        """One turn that takes and settles entries."""
        records: list[Record] = [taken(self.position + 1, *[b"x" * 50] * count)]
        self.position += count
        records.append(settled(self.position))
        keeper.write(records)


def settled(position: int) -> Settled:
    return Settled(group=GROUP, member=ME, at=8, position=position)


def adopted(position: int) -> HistoryAdopted:
    return HistoryAdopted(
        group=GROUP,
        member=ME,
        at=9,
        view=VIEW,
        source=OTHER,
        version=Version(VIEW, position),
        kept=0,
        restored=position,
    )


def begin(
    disk: Disk, settings: KeeperSettings = OFTEN, state: State | None = None
) -> tuple[JournalKeeper, State]:
    found_group(disk, GROUP, ID)
    keeper = JournalKeeper(disk, GROUP, ID, settings)
    state = state or State()
    keeper.checkpoint = state.checkpoint
    keeper.write([accepted(state.position), confirmed(state.position)])
    return keeper, state


def keep_house(keeper: JournalKeeper) -> bool:
    work = keeper.housekeeping()
    if work is not None:
        work()
    return work is not None


def snapshots(disk: Disk) -> list[int]:
    return [each.position for each in SnapshotStore(disk, GROUP, ID).all()[0]]


def dumps(disk: Disk) -> dict[int, bytes]:
    found, _ = SnapshotStore(disk, GROUP, ID, name=DUMPS).all()
    return {each.position: b"".join(each.chunks()) for each in found}


# ---- lives


def test_each_keeper_is_a_new_life_that_knows_the_last_one() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk)
    assert keeper.incarnation == 1
    assert not keeper.past().is_zombie
    state.take(keeper, 3)
    again = JournalKeeper(disk, GROUP, ID)
    assert again.incarnation == 2
    assert again.past().settled == 3
    assert [run.position for run in again.past().runs] == [1]


def test_a_replaced_machine_is_told_how_many_lives_there_were() -> None:
    keeper = JournalKeeper(SimulatedDisk(), GROUP, ID, incarnation_min=7)
    assert keeper.incarnation == 7
    assert keeper.past().is_zombie


# ---- states taken over


def test_a_state_taken_over_is_on_the_disk_before_its_record() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk)
    state.take(keeper, 3)
    state.position = 40
    keeper.write([adopted(40), accepted(40)])
    past = recover(disk, GROUP, ID).past()
    assert (past.position, past.settled, past.chunks[0]) == (40, 40, b"40.")


def test_a_process_that_dies_before_the_record_has_its_old_history() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk)
    state.take(keeper, 3)
    append = keeper.writer.append

    def die(records: list[Record]) -> None:
        disk.die_in_write(after_bytes=7)
        append(records)

    keeper.writer.append = die  # type: ignore[method-assign,assignment]
    state.position = 40
    with pytest.raises(Died):
        keeper.write([adopted(40), accepted(40)])
    assert snapshots(disk) == [40]
    past = recover(disk, GROUP, ID).past()
    assert (past.settled, past.is_zombie) == (3, False)


def test_a_state_that_cannot_be_stored_stops_the_replica() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk)
    state.take(keeper, 3)
    disk.capacity_bytes = disk.used_bytes + 600
    state.position, state.size = 40, 10_000
    with pytest.raises(StorageFull, match="must stop serving: a state taken over"):
        keeper.write([adopted(40), accepted(40)])
    with pytest.raises(StorageFull):
        keeper.write([settled(3)])
    assert keeper.housekeeping() is None
    disk.capacity_bytes = None
    assert recover(disk, GROUP, ID).past().settled == 3


# ---- snapshots


def test_a_snapshot_is_due_after_so_many_bytes() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk)
    taken_after: list[int] = []
    for _ in range(30):
        state.take(keeper)
        if keep_house(keeper):
            taken_after.append(keeper.writer.bytes_written)
    assert state.asked == len(taken_after) > 3
    assert all(300 <= b - a < 600 for a, b in itertools.pairwise(taken_after))
    past = recover(disk, GROUP, ID).past()
    assert past.settled == 30
    assert past.position == snapshots(disk)[0] > 20
    assert past.origins == ((ME, past.position),)


def test_large_states_are_written_less_often() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk, state=State(size=3000))
    for _ in range(60):
        state.take(keeper)
        keep_house(keeper)
    assert keeper.writer.bytes_written > 6000
    assert state.asked <= 1 + keeper.writer.bytes_written // 3000


def test_nothing_is_due_while_nothing_is_settled() -> None:
    keeper, _ = begin(SimulatedDisk())
    for position in range(1, 30):
        keeper.write([taken(position, b"x" * 50)])
    assert keeper.housekeeping() is None


def test_what_a_long_journal_holds_above_its_snapshot_counts_at_the_next_start() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk, KeeperSettings())
    state.take(keeper, 20)
    keeper, state = begin(disk, state=state)
    assert keep_house(keeper)
    assert snapshots(disk) == [20]


def test_a_snapshot_rests_on_turns_that_are_synced() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk)
    state.take(keeper, 10)
    assert keeper.needs_sync(0)
    assert keep_house(keeper)
    assert not keeper.needs_sync(0)
    disk.lose_power()
    recovery = recover(disk, GROUP, ID)
    assert recovery.past().settled == recovery.past().position == 10
    assert not recovery.is_zombie


def test_old_segments_go_once_a_snapshot_is_there() -> None:
    disk = SimulatedDisk()
    settings = KeeperSettings(
        journal=JournalSettings(segment_bytes=500),
        retention=Retention(journal_bytes_max=0),
        snapshot_bytes=300,
    )
    keeper, state = begin(disk, settings)
    for _ in range(60):
        state.take(keeper)
        keep_house(keeper)
    segments = [path for path in disk.paths if path.endswith(".segment")]
    assert len(segments) < 8 < keeper.writer.bytes_written // 500
    assert len(snapshots(disk)) == 2
    assert keeper.trouble == ""
    past = recover(disk, GROUP, ID).past()
    assert (past.settled, past.is_zombie) == (60, False)


def test_a_snapshot_that_fails_costs_nothing_but_room() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk, state=State(size=5000))
    state.take(keeper, 10)
    disk.capacity_bytes = disk.used_bytes + 2000
    assert keep_house(keeper)
    assert "no snapshot could be taken: there is no space" in keeper.trouble
    assert snapshots(disk) == []
    state.take(keeper, 1)
    assert keeper.housekeeping() is None, "it is tried again only after as much again"
    disk.capacity_bytes = None
    state.take(keeper, 10)
    assert keep_house(keeper)
    assert (keeper.trouble, snapshots(disk)) == ("", [21])


def test_a_failing_sync_stops_housekeeping_and_replica() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk)
    state.take(keeper, 10)
    disk.fail_syncs()
    with pytest.raises(StorageFailed):
        keep_house(keeper)
    with pytest.raises(StorageFailed):
        state.take(keeper)
    assert snapshots(disk) == []


def test_without_a_sync_every_turn_snapshots_sync_none() -> None:
    disk = SimulatedDisk()
    settings = KeeperSettings(journal=JournalSettings(sync=Sync.NONE), snapshot_bytes=300)
    keeper, state = begin(disk, settings)
    state.take(keeper, 10)
    assert keep_house(keeper)
    assert keeper.writer.synced == 0
    assert not keeper.needs_sync(1 << 40)


# ---- in a thread


class SlowState(State):
    """A state whose chunks come when they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.begun = threading.Event()

    def checkpoint(self) -> Checkpoint:
        checkpoint = super().checkpoint()
        return checkpoint._replace(chunks=self._slowly(list(checkpoint.chunks)))

    def _slowly(self, chunks: list[bytes]) -> Iterator[bytes]:
        self.begun.set()
        assert self.go_on.wait(30)
        yield from chunks


def test_turns_go_on_while_a_snapshot_is_written(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    state = SlowState()
    keeper, _ = begin(disk, state=state)
    state.take(keeper, 10)
    work = keeper.housekeeping()
    assert work is not None
    thread = threading.Thread(target=work)
    thread.start()
    assert state.begun.wait(30)
    for _ in range(10):
        state.take(keeper)
        keeper.sync()
        assert keeper.housekeeping() is None, "one thing at a time"
    keeper.checkpoint = State.checkpoint.__get__(state)
    state.position = 90
    keeper.write([adopted(90), accepted(90)])
    state.go_on.set()
    thread.join()
    assert keeper.trouble == ""
    assert sorted(snapshots(disk)) == [10, 90]
    past = recover(disk, GROUP, ID).past()
    assert (past.position, past.settled) == (90, 90)
    assert keeper.housekeeping() is None, "nothing has been written since"
    keeper.close()


# ---- dumps


def test_dumps_are_written_after_their_turn_and_the_oldest_go() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk, KeeperSettings(dumps=2))
    for position in (10, 20, 30):
        keeper.dump(position, Chunks([b"state at ", b"%d" % position]))
        state.take(keeper, 10)
        assert position not in dumps(disk)
        assert keep_house(keeper)
    assert dumps(disk) == {20: b"state at 20", 30: b"state at 30"}
    assert snapshots(disk) == []


class Closing(Chunks):
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_dump_that_comes_too_soon_takes_the_place_of_the_one_before() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk, KeeperSettings())
    passed_over = Closing([b"one"])
    keeper.dump(10, passed_over)
    keeper.dump(20, Chunks([b"two"]))
    state.take(keeper, 20)
    assert keep_house(keeper)
    assert dumps(disk) == {20: b"two"}
    assert keeper.dumps_skipped == 1
    assert passed_over.is_closed


def test_a_dump_that_fails_costs_nothing_but_the_dump() -> None:
    disk = SimulatedDisk()
    keeper, state = begin(disk, KeeperSettings())
    state.take(keeper, 10)
    disk.capacity_bytes = disk.used_bytes + 1000
    keeper.dump(10, Chunks([bytes(5000)]))
    assert keep_house(keeper)
    assert "a state could not be dumped" in keeper.trouble
    state.take(keeper)
    assert dumps(disk) == {}
