"""The start of a process: all its journals are read once, and begin a life of the same number."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from tests.journal.counting_disk import HEAD_BYTES, CountingDisk
from tests.journal.naive_cohort import EVERYONE, NaiveCohort

from coterie.journal import (
    JournalKeeper,
    JournalSettings,
    Keeper,
    KeeperSettings,
    found_group,
    journal_family,
)
from coterie.journal.engines.vsr import CohortRecovery
from coterie.kernel.engine import Checkpoint, Run, Version
from coterie.kernel.errors import CoterieError
from coterie.kernel.records import EntriesAccepted, Settled
from coterie.kernel.views import NO_VIEW, Member, ViewId

VIEW = ViewId(1, "a", 1)
ME = Member("a", 1)
LARGE = KeeperSettings(journal=JournalSettings(segment_bytes=1 << 20), snapshot_bytes=300_000)


def start(disk: CountingDisk, **families: str) -> dict[str, Keeper]:
    """Begin a life in several journals, all with the same number, as a process does."""
    found = {
        group: journal_family(family).recover(disk, group, "a", EVERYONE)
        for group, family in families.items()
    }
    incarnation = max(each.incarnation for each in found.values())
    return {
        group: each.family.open(disk, replace(each, incarnation=incarnation), LARGE)
        for group, each in found.items()
    }


def fill(disk: CountingDisk) -> None:
    """Make a journal of each family with a snapshot, and records above it, of many pages each."""
    found_group(disk, "seats", "a")
    keeper = JournalKeeper(disk, "seats", "a", LARGE)
    state = [bytes([n]) * 10_000 for n in range(30)]
    keeper.checkpoint = lambda: Checkpoint(
        keeper.writer.facts().settled, Version(NO_VIEW, 0), iter(state)
    )
    for position in range(1, 61):
        run = Run(VIEW, position, position, ME, position, [b"x" * 8000])
        keeper.write(
            [
                EntriesAccepted(group="seats", member=ME, at=position, run=run),
                Settled(group="seats", member=ME, at=position, position=position),
            ]
        )
        if work := keeper.housekeeping():
            work()
    keeper.close()
    found_group(disk, "bank", "a", EVERYONE)
    cohort = NaiveCohort(disk, LARGE, Random(1))  # noqa: S311 -- not for secrets
    cohort.start()
    cohort.invite()
    cohort.end_turn()
    cohort.lead()
    for _ in range(2000):
        cohort.learn(20)
        cohort.end_turn()
        if work := cohort.keeper.housekeeping():
            work()
    cohort.keeper.close()


def test_every_journal_is_read_once_at_a_start() -> None:
    disk = CountingDisk()
    fill(disk)
    disk.forget_reads()
    keepers = start(disk, seats="stack", bank="vsr")
    seats, bank = keepers["seats"], keepers["bank"]
    assert isinstance(seats, JournalKeeper)
    past = seats.past()
    assert (past.position, sum(map(len, past.chunks))) == (38, 300_000)
    assert [run.position for run in past.runs] == list(range(39, 61))
    assert isinstance(bank.recovery, CohortRecovery)
    assert bank.recovery.has_state
    assert sum(map(len, bank.recovery.chunks())) > 300_000
    times = disk.times_read()
    large = [path for path in disk.paths if disk.size(path) > 10 * HEAD_BYTES]
    assert {path.split("/")[0] for path in large} == {"seats", "bank"}
    assert {path for path in large if "/snapshots/" in path} & times.keys()
    assert set(times.values()) == {1}


def test_what_was_read_of_a_snapshot_is_not_kept_in_memory() -> None:
    disk = CountingDisk()
    fill(disk)
    keeper = start(disk, seats="stack")["seats"]
    assert keeper.recovery.snapshot is not None
    first = keeper.recovery.chunks()
    assert keeper.recovery.snapshot._read is None
    assert keeper.recovery.chunks() == first  # from the disk


def test_all_journals_of_a_process_count_its_lives_alike() -> None:
    disk = CountingDisk()
    fill(disk)
    for _ in range(2):
        start(disk, seats="stack")["seats"].close()
    keepers = start(disk, seats="stack", bank="vsr")
    assert {keeper.incarnation for keeper in keepers.values()} == {4}


def test_a_family_that_is_not_there_is_named() -> None:
    with pytest.raises(
        CoterieError, match=r"no engine family 'onus' .*there are colours, llft, stack, vsr"
    ):
        journal_family("onus")
