"""A family of engines is added to the journal by registering it: nothing else changes.

The family here keeps notes. It has a record of its own, a promise that is on stable storage before
the turn that makes it counts, snapshots, and a recovery; all of it stands in this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest

from coterie.journal import (
    FAMILIES,
    JournalReader,
    JournalSettings,
    Keeper,
    KeeperSettings,
    Sync,
    WrongJournal,
    journal_family,
    recover,
)
from coterie.journal.disk import Disk
from coterie.journal.engines import memory_for, register
from coterie.journal.facts import Facts, Memory
from coterie.journal.family import JournalFamily, LifeFound
from coterie.journal.format import SegmentHead
from coterie.journal.replay import Recalling
from coterie.journal.snapshots import Snapshot, mark_of
from coterie.kernel import records
from coterie.kernel.engine import Checkpoint, Version
from coterie.kernel.records import Record
from coterie.kernel.views import NO_VIEW, Configuration, Member
from coterie.simulation.world.disk import SimulatedDisk

GROUP, ID = "pad", "a"
ME = Member(ID, 1)
SMALL = KeeperSettings(journal=JournalSettings(sync=Sync.NONE), snapshot_bytes=500)


class Noted(Record, tag=-70, frozen=True, kw_only=True):
    """Somebody wrote a note; it is essential to know."""

    text: str


class Vow(msgspec.Struct, frozen=True, array_like=True):
    """How many notes may never be forgotten."""

    notes: int = 0


def vow_of(promises: msgspec.Raw | None) -> Vow:
    return Vow() if promises is None else msgspec.msgpack.decode(promises, type=Vow)


class NotesMemory(Memory):
    """Counts the promises among the notes."""

    def __init__(self, facts: Facts, vow: Vow) -> None:
        super().__init__(facts)
        self.promises = vow
        self.acts = {Noted: self.take}

    def take(self, record: Noted) -> None:
        if record.text.startswith("I promise"):
            assert isinstance(self.promises, Vow)
            self.promises = Vow(self.promises.notes + 1)


class NotesRead(NotesMemory):
    """The notes that records tell, above a snapshot."""

    def __init__(self, base: Snapshot | None, vow: Vow) -> None:
        super().__init__(Facts(), vow)
        self.base = base
        self.notes: list[str] = []
        self.lost = ""
        self.reached = (0, 0)

    def begin_life(self, facts: Facts) -> None:
        """Nothing is said there that is needed here."""

    def break_off(self, reason: str) -> None:
        self.lost = self.lost or reason

    def take(self, record: Noted) -> None:
        super().take(record)
        if self.base is None or self.place > mark_of(self.base):
            self.notes.append(record.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesFound(LifeFound):
    """What was on the pad."""

    vow: Vow
    above: list[str]

    @property
    def family(self) -> JournalFamily:
        return NOTES

    @property
    def promises(self) -> Vow:
        return self.vow

    def notes(self) -> list[str]:
        return [*(chunk.decode() for chunk in self.chunks()), *self.above]


class Reading(Recalling):
    """One recovery."""

    def recover(self, incarnation_min: int) -> NotesFound:
        if not NOTES.owns(self.stable.values):
            raise WrongJournal("this is no pad")
        base = next(self.snapshots.good(), None)
        taken = (0, 0) if base is None else mark_of(base)

        def is_enough(head: SegmentHead) -> bool:
            return (head.incarnation, head.first) <= taken

        read = NotesRead(base, Vow())
        stages = self.walk_back(is_enough)
        for stage in stages:
            self.read(stage, read)
        return NotesFound(
            group=self.group,
            replica=self.replica,
            incarnation=self.next_incarnation(incarnation_min),
            reason=read.lost or "all notes are there",
            facts=Facts(),
            snapshot=base,
            findings=tuple(self.findings),
            end=self.end,
            unsynced=tuple(file.path for stage in stages for file in stage.segments),
            vow=vow_of(self.stable.promises),
            above=read.notes,
        )


class NotesJournal(JournalFamily):
    """The family."""

    name = "notes"
    kinds = frozenset({Noted})
    syncs_before_snapshots = True

    def memory(self, facts: Facts, promises: msgspec.Raw | None = None) -> Memory:
        return NotesMemory(facts, vow_of(promises))

    def recover(
        self,
        disk: Disk,
        group: str,
        replica: str,
        configuration: Configuration | None = None,
        *,
        incarnation_min: int = 1,
    ) -> NotesFound:
        del configuration
        return Reading(disk, group, replica).recover(incarnation_min)


NOTES = NotesJournal()


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    records.register(Noted)
    register(NOTES)
    yield
    del FAMILIES["notes"]
    records.forget(Noted)


def note(text: str) -> Noted:
    return Noted(GROUP, ME, 0, text=text)


def begin(disk: Disk, settings: KeeperSettings) -> Keeper:
    family = journal_family("notes")
    return family.open(disk, family.recover(disk, GROUP, ID), settings)


def lives(disk: Disk) -> Iterator[list[str]]:
    """Begin lives one after the other, each with a few more notes; give what each found."""
    while True:
        pad = begin(disk, SMALL)
        assert isinstance(pad.recovery, NotesFound)
        notes = pad.recovery.notes()
        yield list(notes)

        def checkpoint(notes: list[str] = notes) -> Checkpoint:
            chunks = iter([each.encode() for each in notes])
            return Checkpoint(len(notes), Version(NO_VIEW, len(notes)), chunks)

        pad.checkpoint = checkpoint
        for number in range(10):
            promise = "I promise" if number % 3 == 0 else "I say"
            notes.append(f"{promise} {len(notes)}")
            pad.write([note(notes[-1])])
            if work := pad.housekeeping():
                work()


def test_a_family_keeps_its_journal_through_lives_and_lost_machines() -> None:
    disk = SimulatedDisk()
    journal_family("notes").found(disk, GROUP, ID)
    begun = lives(disk)
    assert next(begun) == []
    first = next(begun)
    assert len(first) == 10
    second = next(begun)
    assert second[:10] == first
    assert len(second) == 20
    assert disk.names(f"{GROUP}/{ID}/snapshots")
    found = NOTES.recover(disk, GROUP, ID)
    assert found.snapshot is not None
    assert 0 < len(found.above) < 20
    assert found.vow.notes == 8  # known also where the journal were gone
    assert found.reason == "all notes are there"


def test_what_was_promised_survives_the_machine_though_nothing_else_is_synced() -> None:
    disk = SimulatedDisk()
    NOTES.found(disk, GROUP, ID)
    never = msgspec.structs.replace(SMALL, snapshot_bytes=1 << 30)
    pad = begin(disk, never)
    pad.write([note("I promise")])
    pad.write([note("I say")])
    disk.lose_power()
    found = NOTES.recover(disk, GROUP, ID)
    assert found.vow == Vow(1)
    assert found.notes()[:1] == ["I promise"]


def test_journals_of_other_families_are_told_apart() -> None:
    disk = SimulatedDisk()
    NOTES.found(disk, GROUP, ID)
    with pytest.raises(WrongJournal, match="has no stack by its journal"):
        recover(disk, GROUP, ID)
    with pytest.raises(WrongJournal, match="is no cohort by its journal"):
        journal_family("vsr").recover(disk, GROUP, ID, Configuration(1, ("a", "b", "c")))
    journal_family("stack").found(disk, "other", ID)
    with pytest.raises(WrongJournal, match="this is no pad"):
        NOTES.recover(disk, "other", ID)


def test_readers_know_whose_records_they_read() -> None:
    disk = SimulatedDisk()
    NOTES.found(disk, GROUP, ID)
    begun = lives(disk)
    next(begun)
    next(begun)
    read = list(JournalReader(disk, GROUP, ID, strict=True).records())
    assert isinstance(memory_for(Facts(), read), NotesMemory)
    assert memory_for(Facts(), []) is None


def test_a_sync_that_means_nothing_to_a_family_is_refused() -> None:
    disk = SimulatedDisk()
    NOTES.found(disk, GROUP, ID)
    settings = KeeperSettings(journal=JournalSettings(sync=Sync.PRIMARY))
    with pytest.raises(ValueError, match="sync = 'primary' means nothing to group pad: take one"):
        NOTES.open(disk, NOTES.recover(disk, GROUP, ID), settings)
