"""What a cohort remembers: its views whatever happens, its state as the group wants it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tests.journal.naive_cohort import EVERYONE, GROUP, ID, NaiveCohort
from tests.seeded import seeded

from coterie.journal.engines.stack_keeper import JournalKeeper
from coterie.journal.engines.vsr import CohortRecovery, recover_cohort
from coterie.journal.engines.vsr_keeper import CohortKeeper
from coterie.journal.format import Kind, Sync, WrongJournal
from coterie.journal.keeper import KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.segments import list_lives
from coterie.journal.snapshots import SnapshotStore
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings, StorageFailed
from coterie.kernel.cohorts import CohortViews
from coterie.kernel.records import EventsKnown, StateTaken
from coterie.kernel.views import NO_VIEW, Configuration, Viewstamp
from coterie.simulation.world.disk import Died, SimulatedDisk

SMALL = KeeperSettings(
    journal=JournalSettings(segment_bytes=600),
    snapshot_bytes=900,
    retention=Retention(journal_bytes_max=0),
)


def begun(
    sync: Sync = Sync.TURN, settings: KeeperSettings | None = None, seed: object = 0
) -> tuple[NaiveCohort, SimulatedDisk]:
    disk = SimulatedDisk(seed=f"{seed}")
    found_group(disk, GROUP, ID, EVERYONE)
    settings = settings or KeeperSettings(journal=JournalSettings(sync=sync))
    cohort = NaiveCohort(disk, settings, Random(f"{seed}"))  # noqa: S311 -- reproducible
    cohort.start()
    return cohort, disk


def recovered(disk: SimulatedDisk) -> CohortRecovery:
    return recover_cohort(disk, GROUP, ID, EVERYONE)


def events_of(recovery: CohortRecovery) -> list[bytes]:
    return [event for span in recovery.spans for event in span.events]


# ---- stable storage


def test_a_founder_knows_the_empty_state() -> None:
    disk = SimulatedDisk()
    found_group(disk, GROUP, ID, EVERYONE)
    found = recovered(disk)
    assert (found.incarnation, found.has_state) == (1, True)
    assert found.history == (Viewstamp(NO_VIEW, 0),)
    assert found.views == CohortViews()


def test_without_stable_values_it_does_not_take_part() -> None:
    disk = SimulatedDisk()
    with pytest.raises(WrongJournal, match="cannot take part without its stable values"):
        CohortKeeper(disk, GROUP, ID, EVERYONE)


def test_damaged_stable_values_are_none() -> None:
    _, disk = begun()
    disk.cut_off(f"{GROUP}/{ID}/stable", 20)
    with pytest.raises(WrongJournal, match="cut off"):
        recovered(disk)


def test_the_file_of_another_group_is_refused() -> None:
    _, disk = begun()
    with pytest.raises(WrongJournal, match="a group of a, b, c, and was started with x, y"):
        recover_cohort(disk, GROUP, ID, Configuration(1, ("x", "y")))


def test_with_whom_a_cohort_was_founded_is_on_its_disk_and_the_file_is_a_seed() -> None:
    _, disk = begun()
    for file in (Configuration(1, ("c", "a", "b")), Configuration(1, ("a", "d", "e"))):
        found = recover_cohort(disk, GROUP, ID, file)
        assert found.has_state
        assert found.configuration == Configuration(1, ("a", "b", "c"))


def test_engines_are_not_mixed_up() -> None:
    _, disk = begun()
    with pytest.raises(WrongJournal, match="has no stack by its journal"):
        JournalKeeper(disk, GROUP, ID)
    found_group(disk, "other", ID)
    with pytest.raises(WrongJournal, match="is no cohort by its journal"):
        CohortKeeper(disk, "other", ID, EVERYONE)
    with pytest.raises(ValueError, match="means nothing to group other"):
        JournalKeeper(disk, "other", ID, KeeperSettings(journal=JournalSettings(sync=Sync.PRIMARY)))


@pytest.mark.parametrize("sync", Sync)
def test_promises_survive_the_loss_of_the_machine(sync: Sync) -> None:
    cohort, disk = begun(sync)
    cohort.accept()
    cohort.end_turn()
    disk.lose_power()
    assert recovered(disk).views == cohort.views
    cohort.start()
    cohort.invite()
    cohort.end_turn()
    cohort.lead()
    cohort.end_turn()
    disk.lose_power()
    found = recovered(disk)
    assert found.views == cohort.views
    assert found.views.led == found.views.cur_viewid == found.views.max_viewid


def test_promises_survive_damage_to_the_journal() -> None:
    cohort, disk = begun()
    cohort.invite()
    cohort.end_turn()
    cohort.lead()
    cohort.end_turn()
    cohort.learn(3)
    cohort.end_turn()
    cohort.learn(3)
    cohort.end_turn()
    path = list_lives(disk, GROUP, ID)[0].segments[0].path
    disk.flip_bit(path, disk.size(path) // 2)
    found = recovered(disk)
    assert found.views == cohort.views
    assert not found.has_state
    assert any(finding.kind is Kind.DAMAGED for finding in found.findings)


def test_a_promise_that_cannot_be_stored_stops_the_cohort() -> None:
    cohort, disk = begun(Sync.NONE)
    cohort.accept()
    disk.fail_syncs(10)
    with pytest.raises(StorageFailed):
        cohort.end_turn()


# ---- the state


def leading(sync: Sync) -> tuple[NaiveCohort, SimulatedDisk]:
    cohort, disk = begun(sync)
    cohort.invite()
    cohort.end_turn()
    cohort.lead()
    cohort.learn(2)
    cohort.end_turn()
    return cohort, disk


def following(sync: Sync) -> tuple[NaiveCohort, SimulatedDisk]:
    cohort, disk = begun(sync, seed=1)
    cohort.accept()
    cohort.end_turn()
    cohort.follow()
    cohort.end_turn()
    cohort.learn(2)
    cohort.end_turn()
    return cohort, disk


@pytest.mark.parametrize("sync", Sync)
@pytest.mark.parametrize("make", [leading, following])
def test_the_death_of_the_process_costs_nothing(
    sync: Sync, make: Callable[[Sync], tuple[NaiveCohort, SimulatedDisk]]
) -> None:
    cohort, disk = make(sync)
    found = recovered(disk)
    assert cohort.state is not None
    assert (found.has_state, list(found.history)) == (True, cohort.state.history)
    cohort.start()
    assert found.history[-1].number == 2


@pytest.mark.parametrize(
    ("make", "sync", "has_state"),
    [
        (leading, Sync.TURN, True),
        (following, Sync.TURN, True),
        (leading, Sync.PRIMARY, True),
        (following, Sync.PRIMARY, False),
        (leading, Sync.INTERVAL, False),
        (following, Sync.NONE, False),
    ],
)
def test_the_loss_of_the_machine_costs_what_was_not_to_be_synced(
    make: Callable[[Sync], tuple[NaiveCohort, SimulatedDisk]], sync: Sync, *, has_state: bool
) -> None:
    cohort, disk = make(sync)
    disk.lose_power()
    found = recovered(disk)
    assert found.has_state == has_state
    assert has_state or "nobody knows which events were lost" in found.reason
    assert cohort.state is not None
    assert not has_state or list(found.history) == cohort.state.history


def test_what_an_invitation_was_answered_with_is_there_again() -> None:
    cohort, disk = following(Sync.NONE)
    cohort.accept()
    cohort.end_turn()
    disk.lose_power()
    found = recovered(disk)
    assert cohort.state is not None
    assert (found.has_state, list(found.history)) == (True, cohort.state.history)


def test_one_that_stopped_on_purpose_has_lost_nothing() -> None:
    cohort, disk = following(Sync.INTERVAL)
    cohort.stop()
    cohort.end_turn()
    cohort.keeper.close()
    disk.lose_power()
    assert recovered(disk).has_state


def test_a_lost_state_stays_lost_until_another_is_taken_over() -> None:
    cohort, disk = following(Sync.NONE)
    disk.lose_power()
    cohort.start()
    assert cohort.state is None
    cohort.start()
    assert "had lost its state before" in cohort.keeper.recovery.reason
    cohort.accept()
    cohort.end_turn()
    cohort.follow()
    cohort.end_turn()
    known = cohort.state
    cohort.start()
    assert cohort.state == known


def test_a_torn_turn_never_was() -> None:
    cohort, disk = leading(Sync.TURN)
    assert cohort.state is not None
    before = cohort.state.copy()
    cohort.learn(5)
    disk.die_in_write(after_bytes=60)
    with pytest.raises(Died):
        cohort.end_turn()
    found = recovered(disk)
    assert (found.has_state, list(found.history)) == (True, before.history)
    assert events_of(found) == before.events
    assert [finding.kind for finding in found.findings] == [Kind.TORN_TAIL]


def test_a_state_whose_turn_was_never_written_is_not_used() -> None:
    cohort, disk = leading(Sync.TURN)
    assert cohort.state is not None
    before = cohort.state.copy()
    cohort.accept()
    cohort.end_turn()
    cohort.state.history = [*before.history[:1], Viewstamp(cohort.views.max_viewid, 0)]
    cohort.state.events = [b"taken over"]
    taken = StateTaken(
        group=GROUP,
        member=cohort.me,
        at=0,
        view=cohort.views.max_viewid,
        source=cohort.me,
        history=tuple(cohort.state.history),
    )
    keeper = cohort.keeper
    store = keeper._adopted_by([taken])  # half of what `write` does
    assert store is not None
    store()
    assert len(SnapshotStore(disk, GROUP, ID).names()) == 1
    found = recovered(disk)
    assert list(found.history) == before.history
    cohort.start()
    assert SnapshotStore(disk, GROUP, ID).names() == []


def test_snapshots_bound_what_is_kept_and_read() -> None:
    cohort, disk = begun(settings=SMALL)
    cohort.invite()
    cohort.end_turn()
    cohort.lead()
    for _ in range(200):
        cohort.learn(3)
        cohort.end_turn()
        work = cohort.keeper.housekeeping()
        if work is not None:
            work()
    assert cohort.keeper.trouble == ""
    found = recovered(disk)
    assert found.snapshot is not None
    assert len(events_of(found)) < 100
    segments = [file for life in list_lives(disk, GROUP, ID) for file in life.segments]
    assert sum(disk.size(file.path) for file in segments) < 10_000
    known = cohort.state
    cohort.start()
    assert cohort.state == known


def test_events_out_of_order_are_a_contradiction() -> None:
    cohort, disk = leading(Sync.TURN)
    view = cohort.views.cur_viewid
    wrong = EventsKnown(group=GROUP, member=cohort.me, at=0, view=view, first=9, events=[b"x"])
    cohort.keeper.write([wrong])
    cohort.keeper.sync()
    found = recovered(disk)
    assert not found.has_state
    assert "was learned after" in found.reason


def test_a_journal_that_ends_before_its_view_has_lost_something() -> None:
    cohort, disk = leading(Sync.TURN)
    for life in list_lives(disk, GROUP, ID):
        for file in life.segments:
            disk.remove(file.path)
    found = recovered(disk)
    assert found.views == cohort.views
    assert not found.has_state
    assert "its journal ends in" in found.reason


# ---- whatever happens


@pytest.mark.parametrize("sync", Sync)
def test_random_lives(sync: Sync) -> None:
    """With its views it comes back always; with its state as promised, or knowing that it lacks."""
    for seed in range(40):
        random = seeded("cohorts", seed, sync)
        settings = KeeperSettings(
            journal=JournalSettings(sync=sync, segment_bytes=random.choice((300, 1000, 5000))),
            snapshot_bytes=random.choice((200, 1500)),
            retention=Retention(journal_bytes_max=0, snapshots=random.randint(1, 2)),
        )
        cohort, disk = begun(settings=settings, seed=f"{sync}{seed}")
        for _ in range(6):
            _live_and_die(cohort, disk, random, sync)


def _live_and_die(cohort: NaiveCohort, disk: SimulatedDisk, random: Random, sync: Sync) -> None:
    written = (cohort.views, None if cohort.state is None else cohort.state.copy())
    dies_in = random.randrange(40) if random.random() < 0.5 else -1
    has_died = False
    for turn in range(random.randrange(40)):
        cohort.act()
        if turn == dies_in:
            disk.die_in_write(after_bytes=random.randrange(120))
        try:
            cohort.end_turn(now=turn * 30_000)
            written = (cohort.views, None if cohort.state is None else cohort.state.copy())
            work = cohort.keeper.housekeeping()
            if work is not None:
                work()
        except Died:
            has_died = True
            break
    was_in_turn = (cohort.views, cohort.state)
    has_lost_power = random.random() < 0.5
    if has_lost_power:
        disk.lose_power()
    disk.heal()
    cohort.start()
    found = cohort.keeper.recovery
    views, state = written
    assert found.views in {views, was_in_turn[0]} if has_died else found.views == views
    allowed = [state, was_in_turn[1]] if has_died else [state]
    if found.has_state:
        assert cohort.state in allowed
    elif not has_died:
        is_owed = sync is Sync.TURN or not has_lost_power or not views.is_active
        is_owed |= sync is Sync.PRIMARY and views.led == views.cur_viewid
        assert state is None or not is_owed, found.reason
