"""Stories of replicas that come back. The properties are in test_recovery_properties.py."""

from __future__ import annotations

import pytest
from tests.journal import by_hand
from tests.journal.writing import (
    GROUP,
    ID,
    ME,
    VIEW,
    accepted,
    begin,
    confirmed,
    note,
    segment,
    settled,
    taken,
)

from coterie.journal.engines.stack import STACK, recover
from coterie.journal.engines.stack_keeper import mark_recovered
from coterie.journal.format import Kind, Sync, VersionUnknown
from coterie.journal.life import begin_life
from coterie.journal.reader import JournalReader
from coterie.journal.replay import is_whole_after_process_death
from coterie.journal.snapshots import SnapshotStore
from coterie.journal.stable import Stable, found_group
from coterie.journal.writer import JournalSettings, JournalWriter
from coterie.kernel.engine import Past, Run, Version
from coterie.kernel.records import (
    HistoryAdopted,
    Recovered,
    RolledBack,
    Started,
    Stopped,
    ViewInstalled,
    ViewProposed,
)
from coterie.kernel.views import NO_VIEW, Configuration, Member, ViewId
from coterie.simulation.world.disk import SimulatedDisk

OTHER = Member("b", 1)
LATER = ViewId(9, "b", 1)


def adopted(version: Version, *, kept: int = 0, restored: int = 0) -> HistoryAdopted:
    return HistoryAdopted(
        group=GROUP,
        member=ME,
        at=8,
        view=version.view,
        source=OTHER,
        version=version,
        kept=kept,
        restored=restored,
    )


def busy(disk: SimulatedDisk, *, sync: Sync = Sync.TURN, entries: int = 5) -> JournalWriter:
    """A life in a primary view, with entries, of which all but two are settled."""
    writer = begin(disk, sync=sync)
    start = writer.facts().version.position
    writer.append([accepted(start), confirmed(start)])
    for position in range(start + 1, start + entries + 1):
        writer.append([taken(position, b"%d" % position)])
        if writer.needs_sync(0):
            writer.sync()
    writer.append([settled(start + entries - 2)])
    if writer.needs_sync(0):
        writer.sync()
    return writer


def payloads(runs: list[Run]) -> list[bytes]:
    return [payload for run in runs for payload in run.payloads]


# ---- who is a zombie


def test_a_founder_that_crashes_before_the_first_primary_view_is_no_zombie() -> None:
    """Objects, appendix A: the bit is set before the first primary view, and not earlier."""
    for sync in STACK.syncs:
        disk = SimulatedDisk()
        writer = begin(disk, sync=sync)
        writer.append([note(1)])
        disk.lose_power()
        recovery = recover(disk, GROUP, ID)
        assert (recovery.is_zombie, recovery.is_founder, recovery.incarnation) == (False, True, 2)
        assert recovery.reason == "it founds the group and has not been in a primary view yet"


def test_an_empty_disk_without_the_bootstrap_mark_is_that_of_a_zombie() -> None:
    recovery = recover(SimulatedDisk(), GROUP, ID)
    assert recovery.is_zombie
    assert recovery.incarnation == 1
    assert "not even a bootstrap mark" in recovery.reason
    assert recovery.past() == Past(is_zombie=True)


def test_a_dead_machine_is_replaced_under_the_same_id_as_a_zombie() -> None:
    disk = SimulatedDisk()
    busy(disk)
    disk.replace_by_empty()
    recovery = recover(disk, GROUP, ID, incarnation_min=7)
    assert (recovery.is_zombie, recovery.incarnation) == (True, 7)
    writer = begin_life(disk, recovery)
    writer.append([note(1)])
    writer.sync()
    recovery = recover(disk, GROUP, ID)  # it stays one until it has been brought up to date
    assert (recovery.is_zombie, recovery.incarnation) == (True, 8)
    writer = begin_life(disk, recovery)
    writer.append([adopted(Version(LATER, 2)), taken(1, b"1"), taken(2, b"2")])
    writer.sync()
    assert recover(disk, GROUP, ID).is_zombie
    writer.append([accepted(2, view=LATER)])
    writer.sync()
    recovery = recover(disk, GROUP, ID)
    assert not recovery.is_zombie
    assert (recovery.version, payloads(recovery.runs)) == (Version(LATER, 2), [b"1", b"2"])


def test_synced_every_turn_a_replica_survives_its_machine() -> None:
    disk = SimulatedDisk()
    busy(disk)
    disk.lose_power()
    recovery = recover(disk, GROUP, ID)
    assert (recovery.is_zombie, recovery.reason) == (False, "its journal is whole")
    assert recovery.past() == Past(
        highest_view=3,
        version=Version(VIEW, 5),
        settled=3,
        runs=tuple(taken(n, b"%d" % n).run for n in range(1, 6)),
    )
    assert recovery.accepted == VIEW


@pytest.mark.parametrize("sync", [Sync.INTERVAL, Sync.NONE])
def test_otherwise_it_survives_its_process_only(sync: Sync) -> None:
    disk = SimulatedDisk()
    busy(disk, sync=sync)
    recovery = recover(disk, GROUP, ID)
    assert (recovery.is_zombie, recovery.version.position) == (False, 5)
    disk.lose_power()
    recovery = recover(disk, GROUP, ID)
    assert recovery.is_zombie
    assert f"its machine has been restarted, and with sync = '{sync.value}'" in recovery.reason


@pytest.mark.parametrize("sync", [Sync.INTERVAL, Sync.NONE])
def test_one_that_stopped_on_purpose_survives_its_machine_if_that_is_on_the_disk(
    sync: Sync,
) -> None:
    """Nothing follows the last record of such a life, so nothing can be missing behind it."""
    outcomes = set()
    for seed in range(100):
        disk = SimulatedDisk(seed=seed)
        writer = busy(disk, sync=sync)
        writer.append([Stopped(group=GROUP, member=ME, at=10)])
        if seed % 2:
            writer.sync()  # as an orderly machine does before it goes down
        disk.lose_power()
        recovery = recover(disk, GROUP, ID)
        outcomes.add(recovery.is_zombie)
        if seed % 2:
            assert not recovery.is_zombie
        if not recovery.is_zombie:
            assert (recovery.version.position, recovery.settled) == (5, 3)
    assert outcomes == {True, False}


def test_a_stop_of_an_earlier_life_says_nothing_of_the_last() -> None:
    disk = SimulatedDisk()
    writer = busy(disk, sync=Sync.NONE)
    writer.append([Stopped(group=GROUP, member=ME, at=10)])
    begin(disk, sync=Sync.NONE)  # and nothing of what it did is there
    disk.lose_power()
    assert recover(disk, GROUP, ID).is_zombie


def test_a_life_that_synced_every_turn_vouches_for_those_before_it() -> None:
    """What a new life rests on is synced before it begins."""
    for seed in range(10):
        disk = SimulatedDisk(seed=seed)
        busy(disk, sync=Sync.NONE)
        busy(disk, sync=Sync.TURN)
        disk.lose_power()
        recovery = recover(disk, GROUP, ID)
        assert (recovery.is_zombie, recovery.version.position) == (False, 10)


def test_a_life_that_came_to_nothing_does_not_hide_a_restart() -> None:
    disk = SimulatedDisk()
    busy(disk, sync=Sync.NONE)
    disk.lose_power()
    assert recover(disk, GROUP, ID).is_zombie
    Stable(disk, GROUP, ID).claim(2, has_been_primary=False)  # and crashes before its first segment
    assert recover(disk, GROUP, ID).is_zombie
    disk.create(segment(1, incarnation=3)).write(b"COTJRNL")  # or in the middle of it
    assert recover(disk, GROUP, ID).is_zombie


def test_an_unknown_boot_id_is_not_taken_for_the_same() -> None:
    assert is_whole_after_process_death("x", "x")
    assert not is_whole_after_process_death("x", "y")
    assert not is_whole_after_process_death("", "")


def test_a_journal_that_is_gone_makes_a_zombie() -> None:
    disk = SimulatedDisk()
    busy(disk)
    disk.remove(segment(1))
    recovery = recover(disk, GROUP, ID)
    assert recovery.is_zombie
    assert recovery.reason == "it has been in a primary view, and its journal is gone"
    assert recovery.incarnation == 2


def test_stable_values_that_are_gone_make_a_zombie() -> None:
    disk = SimulatedDisk()
    busy(disk)
    disk.remove("g/a/stable")
    recovery = recover(disk, GROUP, ID)
    assert (recovery.is_zombie, recovery.incarnation) == (True, 2)
    assert recovery.reason.startswith("its stable values are gone")


# ---- damage


def test_a_turn_that_the_crash_interrupted_is_no_loss() -> None:
    disk = SimulatedDisk()
    writer = busy(disk)
    before = recover(disk, GROUP, ID)
    writer.append([taken(6, b"6" * 100)])
    disk.cut_off(segment(1), disk.size(segment(1)) - 20)
    recovery = recover(disk, GROUP, ID)
    assert not recovery.is_zombie
    assert (recovery.facts, recovery.runs) == (before.facts, before.runs)
    assert [finding.kind for finding in recovery.findings] == [Kind.TORN_TAIL]


def test_lost_turns_that_were_never_synced_are_no_loss_though_later_ones_are_there() -> None:
    """Pages of a file reach the disk in any order."""
    disk = SimulatedDisk()
    writer = busy(disk)
    offset = disk.size(segment(1))
    writer.append([taken(6, b"6")])
    writer.append([taken(7, b"7")])
    disk.flip_bit(segment(1), offset + 50)
    assert recover(disk, GROUP, ID).is_zombie  # a process that dies leaves no gap: this is damage
    disk._boots += 1
    recovery = recover(disk, GROUP, ID)
    assert (recovery.is_zombie, recovery.version.position) == (False, 5)
    writer = begin_life(disk, recovery)
    writer.append([taken(6, b"another")])
    writer.sync()
    recovery = recover(disk, GROUP, ID)
    assert payloads(recovery.runs)[5:] == [b"another"]


def test_lost_turns_that_had_been_synced_make_a_zombie_with_the_place_in_words() -> None:
    disk = SimulatedDisk()
    busy(disk)
    turns = list(JournalReader(disk, GROUP, ID).turns())
    disk.flip_bit(segment(1), turns[2].offset + 50)
    recovery = recover(disk, GROUP, ID)
    assert recovery.is_zombie
    assert recovery.reason == (
        "records that were safely written cannot be read: "
        f"{segment(1)} at byte {turns[2].offset}: damaged: a turn does not fit its checksum "
        "(records 4 to 4)"
    )
    assert payloads(recovery.runs) == [b"1"], "what comes before the damage"
    assert recovery.accepted == VIEW


def test_damage_below_the_snapshot_does_not_matter() -> None:
    disk = SimulatedDisk()
    writer = begin(disk, sync=Sync.TURN, segment_bytes=300)
    writer.append([accepted(), confirmed()])
    for position in range(1, 20):
        writer.append([taken(position, b"x" * 20)])
    writer.append([settled(15)])
    writer.sync()
    SnapshotStore(disk, GROUP, ID).begin(15, writer.facts().version, after=writer.end).write([b"s"])
    [life] = [path for path in disk.paths if path.endswith(f"{1:015}.segment")]
    disk.flip_bit(life)
    recovery = recover(disk, GROUP, ID)
    assert (recovery.is_zombie, recovery.version.position) == (False, 19)
    assert recovery.snapshot is not None
    assert recovery.snapshot.position == 15
    assert [run.position for run in recovery.runs] == [16, 17, 18, 19]


def test_a_zombie_keeps_what_is_left_and_can_be_brought_up_to_date_from_there() -> None:
    disk = SimulatedDisk()
    busy(disk)
    turns = list(JournalReader(disk, GROUP, ID).turns())
    disk.flip_bit(segment(1), turns[3].offset + 50)
    writer = begin_life(disk, recover(disk, GROUP, ID))
    recovery = recover(disk, GROUP, ID)
    assert (recovery.is_zombie, payloads(recovery.runs)) == (True, [b"1", b"2"])
    writer.append([adopted(Version(LATER, 3), kept=2), taken(3, b"three"), accepted(3, view=LATER)])
    writer.sync()
    recovery = recover(disk, GROUP, ID)
    assert (recovery.is_zombie, recovery.reason) == (False, "its journal is whole")
    assert payloads(recovery.runs) == [b"1", b"2", b"three"]


# ---- adopting


def test_a_history_counts_once_it_is_adopted_whole() -> None:
    disk = SimulatedDisk()
    writer = busy(disk)
    before = recover(disk, GROUP, ID)
    rolled_back = RolledBack(group=GROUP, member=ME, at=8, position=4)
    writer.append([adopted(Version(LATER, 7), kept=4), rolled_back, taken(5, b"five")])
    writer.append([taken(6, b"six")])
    writer.sync()
    recovery = recover(disk, GROUP, ID)
    assert (recovery.version, recovery.runs) == (before.version, before.runs)
    writer.append([taken(7, b"seven")])
    writer.sync()
    recovery = recover(disk, GROUP, ID)
    assert recovery.version == Version(LATER, 7)
    assert payloads(recovery.runs) == [b"1", b"2", b"3", b"4", b"five", b"six", b"seven"]


def test_a_state_taken_over_must_be_on_the_disk_before_its_record() -> None:
    disk = SimulatedDisk()
    writer = busy(disk)
    SnapshotStore(disk, GROUP, ID).begin(
        50, Version(LATER, 51), after=writer.end, origins=[(OTHER, 44)], adopts=50
    ).write([b"the", b"state"])
    before = recover(disk, GROUP, ID)
    assert before.version == Version(VIEW, 5), "without the record it means nothing"
    writer.append([adopted(Version(LATER, 51), kept=3, restored=50), taken(51, b"51")])
    writer.append([accepted(51, view=LATER)])
    writer.sync()
    past = recover(disk, GROUP, ID).past()
    assert (past.position, past.chunks, past.origins) == (50, (b"the", b"state"), ((OTHER, 44),))
    assert (past.version, past.settled, past.is_zombie) == (Version(LATER, 51), 50, False)
    assert payloads(list(past.runs)) == [b"51"]
    # The next life needs neither the record nor the segment it is in.
    writer = begin_life(disk, recover(disk, GROUP, ID), JournalSettings(segment_bytes=200))
    writer.append([taken(52, b"52")])
    writer.sync()
    assert recover(disk, GROUP, ID).version == Version(LATER, 52)


def test_a_state_taken_over_that_is_not_there_makes_a_zombie() -> None:
    disk = SimulatedDisk()
    writer = busy(disk)
    writer.append([adopted(Version(LATER, 50), kept=3, restored=50), accepted(50, view=LATER)])
    writer.sync()
    recovery = recover(disk, GROUP, ID)
    assert recovery.is_zombie
    assert recovery.reason == "the state taken over at position 50 is not on the disk"
    assert recovery.version == Version(VIEW, 5)


def test_records_that_contradict_each_other_make_a_zombie() -> None:
    disk = SimulatedDisk()
    writer = busy(disk)
    writer.append([taken(9, b"9")])
    writer.sync()
    recovery = recover(disk, GROUP, ID)
    assert recovery.is_zombie
    assert "entry 9 was accepted where 6 comes next" in recovery.reason
    assert recovery.version.position == 5


# ---- views


def test_promises_about_views_are_remembered() -> None:
    disk = SimulatedDisk()
    writer = begin(disk, segment_bytes=200)
    view = ViewId(40, "c", 2)
    writer.append(
        [ViewProposed(group=GROUP, member=ME, at=1, view=view, members=(), after=NO_VIEW)]
    )
    view = ViewId(41, "c", 2)
    writer.append(
        [
            ViewInstalled(
                group=GROUP,
                member=ME,
                at=1,
                view=view,
                members=(),
                previous=NO_VIEW,
                transitional=(),
            )
        ]
    )
    writer.append([accepted(view=ViewId(38, "b", 1))])
    writer.append([note(n) for n in range(20)])
    writer.append([note(20)])
    recovery = recover(disk, GROUP, ID)
    assert recovery.highest_view_number == 41
    assert recovery.accepted == ViewId(38, "b", 1)
    assert recovery.version == Version(ViewId(38, "b", 1), 0)


def test_a_zombies_own_word_is_believed() -> None:
    disk = SimulatedDisk()
    writer = busy(disk)
    configuration = Configuration(1, ("a", "b", "c"))
    started = Started(
        group=GROUP, member=ME, at=1, stack="X", configuration=configuration, is_zombie=True
    )
    writer.append([started])
    writer.sync()
    assert recover(disk, GROUP, ID).is_zombie


# ---- recovery by hand


def test_an_operator_can_let_a_zombies_history_count() -> None:
    """Design 10 (f): explicit and journalled."""
    disk = SimulatedDisk()
    busy(disk, sync=Sync.NONE)
    for path in disk.paths:
        disk.sync(path)
    disk.lose_power()
    assert recover(disk, GROUP, ID).is_zombie
    recovery = mark_recovered(disk, GROUP, ID, at=77)
    assert (recovery.is_zombie, recovery.incarnation) == (False, 3)
    assert (recovery.version, recovery.settled) == (Version(VIEW, 5), 3)
    *_, record = JournalReader(disk, GROUP, ID, strict=True).records()
    assert record == Recovered(group=GROUP, member=Member("a", 2), at=77, version=Version(VIEW, 5))
    disk.lose_power()
    recovery = recover(disk, GROUP, ID)
    assert (recovery.is_zombie, recovery.version) == (False, Version(VIEW, 5))


def test_the_word_of_an_operator_is_not_wanted_where_nothing_is_lost() -> None:
    disk = SimulatedDisk()
    busy(disk)
    before = disk.paths
    with pytest.raises(ValueError, match=r"has lost nothing \(its journal is whole\)"):
        mark_recovered(disk, GROUP, ID, at=1)
    assert disk.paths == before


def test_even_a_replica_with_nothing_can_be_recovered() -> None:
    disk = SimulatedDisk()
    recovery = mark_recovered(disk, GROUP, ID, at=1)
    assert (recovery.is_zombie, recovery.version, recovery.incarnation) == (
        False,
        Version(NO_VIEW, 0),
        2,
    )


# ---- releases


def test_a_journal_of_a_later_format_is_refused_rather_than_forgotten() -> None:
    disk = SimulatedDisk()
    busy(disk)
    disk.remove(segment(1))
    disk.create(segment(1)).write(by_hand.segment_head(version=2))
    with pytest.raises(VersionUnknown, match="use the release that wrote it"):
        recover(disk, GROUP, ID)


@pytest.mark.parametrize(
    ("tag", "is_zombie"), [(63, True), (127, False), (-1, True), (-32, True), (-1000, True)]
)
def test_records_of_a_later_release_matter_by_their_tag(tag: int, *, is_zombie: bool) -> None:
    disk = SimulatedDisk()
    found_group(disk, GROUP, ID)
    Stable(disk, GROUP, ID).claim(1, has_been_primary=True)
    head = by_hand.segment_head(kinds=99, fields=999)
    body = by_hand.block([[tag, "from the future"]], head=head, first=1)
    disk.create(segment(1)).write(head + body)
    assert recover(disk, GROUP, ID).is_zombie == is_zombie


@pytest.mark.parametrize(("source", "target"), [(3, 1), (3, 2), (1, 3), (2, 3), (2, 1), (1, 2)])
@pytest.mark.parametrize("damaged", [0, 1, 2, 3])
def test_segments_in_the_wrong_place_do_not_lead_in_a_circle(
    source: int, target: int, damaged: int
) -> None:
    """Recovery walked from life to life for ever, and the replica never started."""
    disk = SimulatedDisk()
    for _ in range(3):
        busy(disk)
    names = [segment(1, incarnation=life) for life in (1, 2, 3)]
    data = disk.read(names[source - 1], 0, disk.size(names[source - 1]))
    disk.remove(names[target - 1])
    file = disk.create(names[target - 1])
    file.write(data)
    file.sync()
    if damaged:
        disk.flip_bit(names[damaged - 1], 20)
    assert recover(disk, GROUP, ID).incarnation == 4
