"""What becomes of a group whose processes, machines and disks die, told as stories."""

from __future__ import annotations

import msgspec
import pytest

from coterie.checking.replication import EngineTracker, EntryKey
from coterie.journal.format import Sync
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import seconds
from coterie.simulation import Group, Host, Simulation
from coterie.simulation.simulation import SIMULATED_JOURNAL

STACK = "SAFE:DYNSEQ:PVSYNC"


def group_of(names: str = "abc", *, sync: Sync = Sync.TURN, stack: str = STACK) -> Group:
    journal = msgspec.structs.replace(
        SIMULATED_JOURNAL, journal=JournalSettings(sync=sync, segment_bytes=2000)
    )
    group = Simulation(seed=7, stack=stack, journal=journal).group(*names)
    group.run_until_whole()
    return group


def write(group: Group, id: str, count: int = 20) -> None:
    for number in range(count):
        group[id].propose(b"%s/%d/%d" % (id.encode(), group.simulation.now, number))
    group.run(seconds(1))


def settled(host: Host) -> int:
    assert host.ledger is not None
    return host.ledger.settled.position


def lost(group: Group) -> set[EntryKey]:
    """What was authoritative until an operator gave it up."""
    assert isinstance(group.tracker, EngineTracker)
    return group.tracker.lost


def positions(group: Group) -> set[int]:
    return {settled(host) for host in group if host.is_up}


def is_zombie(host: Host) -> bool:
    return (
        host.ledger is not None
        and (standing := host.ledger.standing) is not None
        and (standing.is_zombie)
    )


# ---- nothing is lost


@pytest.mark.parametrize("sync", list(Sync), ids=lambda sync: sync.value)
def test_processes_killed_at_once_come_back_with_everything(sync: Sync) -> None:
    group = group_of(sync=sync)
    write(group, "b")
    for host in group:
        host.crash()
    for host in group:
        host.start()
    assert {host.incarnation for host in group} == {2}
    group.run_until_whole()
    assert positions(group) == {20}
    write(group, "c", 5)
    assert positions(group) == {25}
    group.check()


def test_machines_lost_at_once_come_back_with_everything_if_turns_were_synced() -> None:
    group = group_of()
    write(group, "b")
    for host in group:
        host.lose_power()
    for host in group:
        host.start()
    group.run_until_whole()
    assert positions(group) == {20}
    group.check()


def test_a_lost_machine_forgets_what_was_not_synced_and_catches_up_as_a_zombie() -> None:
    group = group_of(sync=Sync.NONE)
    write(group, "b")
    group["c"].lose_power()
    group["c"].start()
    assert group["c"].lacks_memory
    group.run_until_whole()
    assert positions(group) == {20}
    assert not group["c"].lacks_memory
    group.check()


def test_a_dead_machine_is_replaced_under_the_same_id() -> None:
    group = group_of()
    write(group, "b")
    group["c"].replace_machine()
    write(group, "a")
    group["c"].start()
    assert group["c"].incarnation == 2
    assert group["c"].lacks_memory
    group.run_until_whole()
    assert positions(group) == {40}
    group.check()


def test_a_replica_whose_disk_is_full_stops_and_comes_back_when_there_is_room() -> None:
    group = group_of()
    group["c"].disk.capacity_bytes = group["c"].disk.used_bytes + 500
    write(group, "b", 200)
    assert not group["c"].is_up
    group["c"].start()
    group.run(seconds(1))
    assert not group["c"].is_up, "there is still no room"
    assert positions(group) == {200}
    group["c"].repair()
    group.run_until_whole()
    assert positions(group) == {200}
    group.check()


def test_a_replica_whose_disk_fails_to_sync_stops() -> None:
    group = group_of()
    group["c"].disk.fail_syncs()
    write(group, "b")
    assert not group["c"].is_up
    group["c"].start()
    group.run_until_whole()
    assert positions(group) == {20}
    group.check()


def test_a_turn_that_was_torn_never_happened() -> None:
    group = group_of()
    write(group, "b")
    group["c"].disk.die_in_write(after_bytes=30)
    write(group, "a")
    assert not group["c"].is_up
    group["c"].start()
    assert not group["c"].lacks_memory
    group.run_until_whole()
    assert positions(group) == {40}
    group.check()


def test_damage_to_old_segments_is_found_and_the_replica_catches_up() -> None:
    group = group_of()
    for _ in range(3):
        write(group, "b")
    disk = group["c"].disk
    for path in [path for path in disk.paths if "segment" in path or "snapshots" in path][:-1]:
        disk.flip_bit(path)
    group["c"].restart()
    assert group["c"].lacks_memory
    group.run_until_whole()
    assert positions(group) == {60}
    group.check()


# ---- a majority forgets


def forget_all(group: Group) -> None:
    for host in group:
        host.lose_power()
    for host in group:
        host.start()
    group.run(seconds(3))


@pytest.mark.parametrize("stack", ["DYNSEQ:PVSYNC", "SAFE:TOKEN:PVSYNC"])
def test_a_group_that_has_forgotten_stops_until_its_operator_accepts_the_loss(stack: str) -> None:
    group = group_of("abcde", sync=Sync.NONE, stack=stack)
    write(group, "b")
    forget_all(group)
    assert all(is_zombie(host) for host in group)
    assert all(host.place is None for host in group), "nobody serves"
    group["a"].propose(b"too early")
    group.run(seconds(3))
    assert len(positions(group) - {20}) > 0, "something must have been lost for this story"
    best = max(group, key=lambda host: host.version)
    group.recover_by_hand()
    group.run_until_whole()
    known = settled(best)
    write(group, "c", 5)
    assert positions(group) == {known + 5} or positions(group) == {known + 6}
    assert lost(group) or known >= 20
    group.check()


def test_who_was_away_gives_up_what_was_lost_without_it() -> None:
    """A survivor whose settled history is not the group's any more takes over the group's."""
    group = group_of("abcde")
    write(group, "b")
    group.partition("a", "bcde")
    write(group, "b", 7)
    group["b"].crash()
    for id in "cde":
        group[id].replace_machine()
        group[id].start()
    group.heal()
    group.run(seconds(3))
    assert group["a"].place is None
    assert settled(group["a"]) == 20
    group["a"].accept_loss()
    group.run_until_whole()
    write(group, "c", 3)
    group["b"].start()
    assert group["b"].keeper is not None
    assert group["b"].keeper.past().settled == 27
    group.run_until_whole()
    write(group, "d", 5)
    assert positions(group) == {28}
    assert len(lost(group)) == 7
    group["b"].restart()
    group.run_until_whole()
    assert positions(group) == {28}
    group.check()


def test_a_word_of_the_operator_is_not_enough_without_a_majority() -> None:
    group = group_of("abcde", sync=Sync.NONE)
    write(group, "b")
    for host in group:
        host.lose_power()
    for id in "ab":
        group[id].start()
    group.run(seconds(2))
    group["a"].accept_loss()
    group.run(seconds(2))
    assert group["a"].place is None
    group["c"].start()
    group.run_until_whole()
    assert group["a"].view == "abc"
    group.check()
