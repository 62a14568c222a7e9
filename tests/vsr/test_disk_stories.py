"""Cohorts on simulated disks: what the death of a process, of a machine, and of a disk costs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.vsr.chain import ChainWorld, run_chain

from coterie.journal.disk import FileDisk
from coterie.journal.reader import JournalReader
from coterie.journal.segments import list_journals
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.records import EventsKnown, StateTaken
from coterie.simulation.campaign import run_seed
from coterie.simulation.engines.vsr.trial import TransactionOptions
from coterie.simulation.engines.vsr.world import COHORT_FAULTS
from coterie.simulation.world.export import TRUE_TIMES


def whole(*, is_durable: bool = False) -> ChainWorld:
    world = ChainWorld("abc", is_durable=is_durable)
    world.run_until_whole()
    world.tell(b"one", b"two")
    world.run(milliseconds(5))
    return world


def has_state(world: ChainWorld, name: str) -> bool:
    return world[name].up_to_date


def test_all_processes_die_and_nothing_is_lost() -> None:
    """Events are written before they are acknowledged, whatever is synced."""
    world = whole()
    for host in world.machines.values():
        host.kill()
        host.start()
    world.run_until_whole()
    assert all(world[name].log.knows(world.forced[0]) for name in "abc")
    assert not any(isinstance(record, StateTaken) for record in world.records)
    world.check()


def test_a_machine_that_is_lost_comes_back_without_its_state() -> None:
    world = whole()
    world.machines["c"].crash()
    world.machines["c"].start()
    assert not has_state(world, "c")
    world.run_until_whole()
    assert any(isinstance(record, StateTaken) for record in world.records)
    # What it took over is on its disk: the death of its process costs nothing any more.
    world.machines["c"].kill()
    world.machines["c"].start()
    assert has_state(world, "c")
    world.check()


def test_a_death_in_the_middle_of_a_write_leaves_what_was_before() -> None:
    world = whole(is_durable=True)
    host = world.machines["b"]
    host.disk.die_in_write(after_bytes=10)
    world.tell(b"three")
    world.run(milliseconds(5))
    assert not host.is_up
    host.repair()
    assert world["b"].up_to_date
    assert world["b"].log.last.number == 2
    world.run_until_whole()
    assert world["b"].log.last == world["a"].log.last
    world.check()


def test_a_disk_that_cannot_sync_stops_the_cohort() -> None:
    world = whole(is_durable=True)
    host = world.machines["c"]
    host.disk.fail_syncs()
    world.tell(b"three")
    world.run(milliseconds(5))
    assert not host.is_up
    assert world.forced[-1].number == 3  # the others are a majority
    host.repair()
    world.run_until_whole()
    world.check()


def test_damage_to_an_old_segment_costs_the_state_and_no_promise() -> None:
    world = whole(is_durable=True)
    host = world.machines["c"]
    promised = world["c"].max_viewid
    path = next(path for path in host.disk.paths if path.endswith(".segment"))
    host.disk.flip_bit(path, host.disk.size(path) // 2)
    host.kill()
    host.start()
    assert not world["c"].up_to_date
    assert world["c"].max_viewid == promised
    world.run_until_whole()
    world.check()


@pytest.mark.slow  # twenty runs
@pytest.mark.parametrize("is_durable", [False, True])
def test_random_runs_with_failing_disks_keep_all_promises(*, is_durable: bool) -> None:
    for seed in range(10):
        world = run_chain(seed, duration=seconds(6), is_durable=is_durable, kinds=COHORT_FAULTS)
        world.check()


def test_journals_of_a_run_are_written_and_can_be_read(tmp_path: Path) -> None:
    options = TransactionOptions(duration=seconds(1), faults=("kill",), journals=str(tmp_path))
    run = run_seed(3, options)
    assert run.violations == []
    folder = tmp_path / "3"
    journals = list_journals(FileDisk(folder))
    assert {group for group, _ in journals} == {"bank0", "bank1", "bank2"}
    assert len(journals) == 9
    for group, replica in journals:
        records = list(JournalReader(FileDisk(folder), group, replica, strict=True).records())
        assert any(isinstance(record, EventsKnown) for record in records)
    assert (folder / TRUE_TIMES).read_text("utf-8").startswith("group,replica,incarnation,")


def test_the_same_seed_writes_the_same_journals(tmp_path: Path) -> None:
    options = TransactionOptions(duration=seconds(1), journals="")
    digests = {run_seed(4, options).digest for _ in range(2)}
    assert len(digests) == 1
    written = []
    for name in ("one", "two"):
        folder = tmp_path / name
        run_seed(4, TransactionOptions(duration=seconds(1), journals=str(folder)))
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        written.append([(path.relative_to(folder), path.read_bytes()) for path in files])
    assert written[0] == written[1]
