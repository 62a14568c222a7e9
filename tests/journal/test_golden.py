"""Today's reader reads the golden journal, and today's writer writes it byte for byte.

What fails here cannot be read by a release in use, or cannot read what one wrote. See
golden_journal.py for what to do.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.journal.golden_journal import (
    AUDITED_GROUP,
    BRANCHES_GROUP,
    CHANGED_GROUP,
    COHORT_GROUP,
    COHORTS,
    FOLDER,
    GROUP,
    ID,
    JOINING,
    NEW,
    OLD,
    PLACE,
    SCHEMA,
    SERVER_GROUP,
    B,
    audited_turns,
    branches_turns,
    changed_turns,
    cohort_turns,
    make,
    server_turns,
    turns,
)
from tests.journal.golden_llft import PROGRAM_GROUP, program_turns

from coterie.journal.disk import FileDisk
from coterie.journal.engines.colours import COLOURS
from coterie.journal.engines.llft import LLFT
from coterie.journal.engines.stack import recover
from coterie.journal.engines.vsr import recover_cohort
from coterie.journal.format import Kind
from coterie.journal.reader import JournalReader
from coterie.journal.segments import list_lives
from coterie.journal.snapshots import DUMPS, SnapshotStore
from coterie.journal.writer import JournalWriter
from coterie.kernel.cohorts import CohortViews
from coterie.kernel.engine import Version
from coterie.kernel.records import KINDS, Record, schema
from coterie.kernel.views import NO_VIEW, Configuration, Viewstamp


def test_the_reader_reads_it() -> None:
    disk = FileDisk(FOLDER)
    reader = JournalReader(disk, GROUP, ID, strict=True)
    read = [turn.records for turn in reader.turns()]
    assert read[:-1] == turns()
    assert [record.at for record in read[-1]] == [19]
    assert [finding.kind for finding in reader.findings] == [Kind.VOID]
    assert [len(life.segments) for life in list_lives(disk, GROUP, ID)] == [3, 1]


def test_recovery_understands_it() -> None:
    recovery = recover(FileDisk(FOLDER), GROUP, ID)
    assert (recovery.is_zombie, recovery.reason) == (False, "its journal is whole")
    assert recovery.incarnation == 3
    assert recovery.version == Version(NEW, 4)
    past = recovery.past()
    assert (past.position, past.chunks) == (2, (b"the state", b"in two chunks"))
    assert past.origins == ((B, 301),)
    assert [payload for run in past.runs for payload in run.payloads] == [b"three", b"four"]
    [dump], _ = SnapshotStore(FileDisk(FOLDER), GROUP, ID, name=DUMPS).all()
    assert list(dump.chunks()) == [b"the state"]


def test_the_cohort_is_understood() -> None:
    disk = FileDisk(FOLDER)
    reader = JournalReader(disk, COHORT_GROUP, ID, strict=True)
    assert [turn.records for turn in reader.turns()] == cohort_turns()
    found = recover_cohort(disk, COHORT_GROUP, ID, COHORTS)
    assert found.views == CohortViews(NEW, NEW, OLD)
    assert found.chunks() == (b"one two", b" and a half")
    assert [span.events for span in found.spans] == [[b"three"]]
    assert found.history[1:] == (Viewstamp(OLD, 3), Viewstamp(NEW, 1))


def test_who_asked_is_read_and_means_nothing_to_recovery() -> None:
    disk = FileDisk(FOLDER)
    reader = JournalReader(disk, AUDITED_GROUP, ID, strict=True)
    assert [turn.records for turn in reader.turns()] == audited_turns()
    recovery = recover(disk, AUDITED_GROUP, ID)
    assert (recovery.is_zombie, recovery.version.position) == (False, 0)


def test_changed_members_are_read_and_mean_nothing_to_recovery() -> None:
    disk = FileDisk(FOLDER)
    reader = JournalReader(disk, CHANGED_GROUP, ID, strict=True)
    assert [turn.records for turn in reader.turns()] == changed_turns()
    recovery = recover(disk, CHANGED_GROUP, ID)
    assert (recovery.is_zombie, recovery.version.position) == (False, 0)


def test_a_cohort_that_joined_is_understood() -> None:
    disk = FileDisk(FOLDER)
    reader = JournalReader(disk, BRANCHES_GROUP, ID, strict=True)
    assert [turn.records for turn in reader.turns()] == branches_turns()
    found = recover_cohort(disk, BRANCHES_GROUP, ID, Configuration(0, ("b", "c")))
    assert (found.configuration, found.views.cur_viewid) == (JOINING, NO_VIEW)


def test_the_server_is_understood() -> None:
    disk = FileDisk(FOLDER)
    reader = JournalReader(disk, SERVER_GROUP, ID, strict=True)
    assert [turn.records for turn in reader.turns()] == server_turns()
    found = COLOURS.recover(disk, SERVER_GROUP, ID)
    # It is read on another machine than it was written on, where nothing had been synced.
    reason = "its machine was lost in a primary component, with what was not synced"
    assert (found.is_zombie, found.reason) == (False, reason)
    past = found.past()
    assert (past.position, past.chunks) == (2, (b"the object",))
    assert [payload for run in past.runs for payload in run.payloads] == [b"yellow", b"red"]


def test_the_program_is_understood() -> None:
    disk = FileDisk(FOLDER)
    reader = JournalReader(disk, PROGRAM_GROUP, ID, strict=True)
    assert [turn.records for turn in reader.turns()] == program_turns()
    found = LLFT.recover(disk, PROGRAM_GROUP, ID)
    assert (found.reason, found.is_new) == ("its journal is whole", False)
    assert found.records == [record for turn in program_turns() for record in turn]


def test_the_writer_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JournalWriter, "schema", lambda _: SCHEMA)
    disk = make()
    golden = {
        path.relative_to(FOLDER).as_posix(): path.read_bytes()
        for path in FOLDER.rglob("*")
        if path.is_file()
    }
    assert disk.paths == sorted(golden)
    groups = (COHORT_GROUP, AUDITED_GROUP, SERVER_GROUP, PROGRAM_GROUP, CHANGED_GROUP)
    assert all(path.startswith((PLACE, BRANCHES_GROUP, *groups)) for path in golden)
    for path in disk.paths:
        assert disk.read(path, 0, 1 << 20).hex(" ") == golden[path].hex(" "), path


def test_every_kind_of_record_is_in_it() -> None:
    present = {
        type(record)
        for told in (
            turns(),
            cohort_turns(),
            audited_turns(),
            changed_turns(),
            branches_turns(),
            server_turns(),
            program_turns(),
        )
        for turn in told
        for record in turn
    }
    assert present == set(_ours().values())


def test_the_document_lists_every_record_with_its_fields() -> None:
    document = Path(__file__).parents[2] / "docs" / "internals" / "journal-format.md"
    rows = re.findall(
        r"^\| (-?\d+) \| (\w+) \| ([\w, ]+) \|$", document.read_text("utf-8"), re.MULTILINE
    )
    listed = {int(tag): (name, tuple(fields.split(", "))) for tag, name, fields in rows}
    assert listed == {tag: (kind.__name__, kind.__struct_fields__) for tag, kind in _ours().items()}


def test_kinds_and_fields_are_only_ever_added() -> None:
    kinds, fields = schema()
    assert SCHEMA[0] <= kinds
    assert SCHEMA[1] <= fields


def _ours() -> dict[int, type[Record]]:
    """The kinds of this release, without those that another test may have added."""
    return {
        number: kind
        for number, kind in KINDS.items()
        if kind.__module__.startswith("coterie.kernel.records.")
    }
