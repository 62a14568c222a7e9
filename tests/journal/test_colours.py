"""The journal of a server of **transis**: what it knows again after a restart."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.colours.stories import STACKS, cut, until

from coterie.colours.layer import Colours
from coterie.journal.engines.colours import COLOURS, ColoursRecovery
from coterie.journal.engines.stack import recover
from coterie.journal.format import Sync, WrongJournal
from coterie.journal.keeper import KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.components import ServerMemory
from coterie.simulation.engines.colours.group import ColoursGroup, ColoursSimulation
from coterie.simulation.world.disk import SimulatedDisk

SMALL = KeeperSettings(
    journal=JournalSettings(sync=Sync.TURN, segment_bytes=1000),
    retention=Retention(journal_bytes_max=0),
    snapshot_bytes=1500,
)


def a_group(journal: KeeperSettings = SMALL) -> ColoursGroup:
    """A group that has been cut in two while both sides were busy."""
    group = ColoursSimulation(seed=3, stack=STACKS[0], journal=journal).group("a", "b", "c")
    until(group, lambda: group.is_one, "all are one primary component")
    for number in range(40):
        group["a"].propose(b"%d" % number)
        group.run(milliseconds(10))
    cut(group, "ab", "c")
    for number in range(20):
        group["a"].propose(b"green %d" % number)
        group["c"].propose(b"red %d" % number)
        group.run(milliseconds(10))
    group.run(seconds(1))
    return group


def found(group: ColoursGroup, id: str) -> ColoursRecovery:
    return COLOURS.recover(group[id].disk, "group", id)


def is_same(engine: Colours, recovered: ColoursRecovery) -> bool:
    memory = recovered.memory
    assert isinstance(memory, ServerMemory)
    return (
        memory.promises == engine.promises
        and memory.position == engine.green_end
        and dict(memory.greens) == engine.queue.log.contained
        and [each.id for each in memory.actions] == [each.id for each in engine.queue.shown()]
        and dict(memory.lines) == engine.lines
    )


@pytest.mark.parametrize("snapshot_bytes", [1500, 1 << 30])
def test_a_server_knows_again_what_it_knew(snapshot_bytes: int) -> None:
    group = a_group(replace(SMALL, snapshot_bytes=snapshot_bytes))
    for id in "abc":
        recovered = found(group, id)
        assert not recovered.is_zombie, recovered.reason
        assert (recovered.snapshot is not None) == (snapshot_bytes == 1500)
        assert is_same(group.engine(id), recovered)
    assert len(group.engine("c").queue) == 20


def test_a_snapshot_that_cannot_be_read_is_passed_over_for_the_one_before() -> None:
    group = a_group()
    disk = group["c"].disk
    newest = max(path for path in disk.paths if "/snapshots/" in path)
    disk.flip_bit(newest)
    assert is_same(group.engine("c"), found(group, "c"))


def test_a_journal_that_ends_before_its_promises_makes_a_zombie() -> None:
    group = a_group(replace(SMALL, snapshot_bytes=1 << 30, retention=Retention()))
    disk = group["a"].disk
    segments = [path for path in disk.paths if path.endswith(".segment")]
    for path in segments[len(segments) // 2 :]:
        disk.remove(path)
    recovered = found(group, "a")
    assert recovered.is_zombie
    assert recovered.memory is None
    assert recovered.is_fresh


def test_a_zombie_s_first_life_rests_on_nothing_and_later_ones_on_that() -> None:
    group = a_group()
    group["b"].crash()
    disk = group["b"].disk
    for path in [path for path in disk.paths if path.endswith(".segment")]:
        disk.remove(path)
    group["b"].start()
    assert group.engine("b").is_zombie
    assert group.engine("b").green_end == 0
    group.partition("a", "b", "c")
    group.run(milliseconds(50))
    group["b"].restart()
    assert group.engine("b").is_zombie  # still
    assert found(group, "b").memory is not None
    group.heal()
    until(group, lambda: group.is_one, "all are one primary component")
    assert not found(group, "b").is_zombie


def test_nothing_is_forgotten_that_was_forced_when_a_machine_is_lost() -> None:
    """With `sync = "none"` actions may go with the machine, promises do not, nor is it a zombie."""
    journal = replace(SMALL, journal=JournalSettings(sync=Sync.NONE, segment_bytes=1 << 20))
    group = a_group(journal)
    for id in "abc":
        promises = group.engine(id).promises
        group[id].lose_power()
        recovered = found(group, id)
        assert not recovered.is_zombie, recovered.reason
        assert recovered.memory is not None
        assert recovered.memory.promises.prim == promises.prim
        kept = recovered.memory.promises.vulnerable
        if id == "c":
            assert kept is None
            continue
        assert promises.vulnerable is not None
        assert promises.vulnerable.is_same(kept)
        # What it made green may be gone: it no longer says that it knows all of that.
        assert (promises.vulnerable.seen, kept and kept.seen) == ((id,), ())


def test_a_stop_in_good_order_is_on_disk_and_leaves_no_doubt() -> None:
    """The end of its component is forced, with all it had received, whatever `sync` says."""
    journal = replace(SMALL, journal=JournalSettings(sync=Sync.NONE, segment_bytes=1 << 20))
    group = a_group(journal)
    group["a"].leave()
    group.run(seconds(1))
    engine = group.engine("a")
    group["a"].lose_power()
    recovered = found(group, "a")
    assert is_same(engine, recovered)
    assert recovered.memory is not None
    assert recovered.memory.promises.vulnerable is None
    assert recovered.memory.promises.yellow is not None


def test_no_action_of_a_primary_component_waits_for_the_disk() -> None:
    journal = replace(SMALL, journal=JournalSettings(sync=Sync.NONE), snapshot_bytes=1 << 30)
    group = ColoursSimulation(seed=3, stack=STACKS[0], journal=journal).group("a", "b", "c")
    until(group, lambda: group.is_one, "all are one primary component")
    keepers = [host.keeper for host in group]
    synced = [keeper.writer.synced for keeper in keepers if keeper is not None]
    for number in range(50):
        group["a"].propose(b"%d" % number)
        group.run(milliseconds(5))
    assert group.engine("b").green_end == 50
    assert [keeper.writer.synced for keeper in keepers if keeper is not None] == synced


def test_the_journal_of_another_engine_is_refused() -> None:
    disk = SimulatedDisk()
    found_group(disk, "group", "a")
    with pytest.raises(WrongJournal, match="has another engine by its journal"):
        COLOURS.recover(disk, "group", "a")
    other = SimulatedDisk()
    COLOURS.found(other, "group", "a")
    with pytest.raises(WrongJournal):
        recover(other, "group", "a")
