"""Today's reader reads the golden journal, and today's writer writes it byte for byte.

What fails here cannot be read by a release in use, or cannot read what one wrote. See
golden_journal.py for what to do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from tests.journal.golden_journal import (
    COHORT_GROUP,
    COHORTS,
    FOLDER,
    GROUP,
    ID,
    NEW,
    OLD,
    PLACE,
    SCHEMA,
    B,
    cohort_turns,
    make,
    turns,
)

from coterie.journal.cohorts import recover_cohort
from coterie.journal.disk import FileDisk
from coterie.journal.format import FIELD_COUNT, KIND_COUNT, KINDS, Kind
from coterie.journal.reader import JournalReader
from coterie.journal.recovery import recover
from coterie.journal.segments import list_lives
from coterie.journal.snapshots import DUMPS, SnapshotStore
from coterie.journal.writer import JournalWriter
from coterie.kernel.cohorts import CohortViews
from coterie.kernel.engine import Version
from coterie.kernel.records import Record
from coterie.kernel.views import Viewstamp


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


def test_the_writer_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JournalWriter, "schema", SCHEMA)
    disk = make()
    golden = {
        path.relative_to(FOLDER).as_posix(): path.read_bytes()
        for path in FOLDER.rglob("*")
        if path.is_file()
    }
    assert disk.paths == sorted(golden)
    assert all(path.startswith((PLACE, COHORT_GROUP)) for path in golden)
    for path in disk.paths:
        assert disk.read(path, 0, 1 << 20).hex(" ") == golden[path].hex(" "), path


def test_every_kind_of_record_is_in_it() -> None:
    present = {type(record) for turn in [*turns(), *cohort_turns()] for record in turn}
    assert present == set(get_args(Record))


def test_the_document_lists_every_record_with_its_fields() -> None:
    document = Path(__file__).parents[2] / "docs" / "journal-format.md"
    rows = re.findall(
        r"^\| (\d+) \| (\w+) \| ([\w, ]+) \|$", document.read_text("utf-8"), re.MULTILINE
    )
    listed = {int(tag): (name, tuple(fields.split(", "))) for tag, name, fields in rows}
    assert listed == {tag: (kind.__name__, kind.__struct_fields__) for tag, kind in KINDS.items()}


def test_kinds_and_fields_are_only_ever_added() -> None:
    assert SCHEMA[0] <= KIND_COUNT
    assert SCHEMA[1] <= FIELD_COUNT
