"""The history of a member of group communication is a journal like every other."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.journal import FileDisk, JournalReader, StorageFailed
from coterie.kernel.records import Record, Started, Stopped
from coterie.kernel.views import Configuration, Member
from coterie.runtime.recorder import FileRecorder

EVERYONE = Configuration(1, ("a", "b"))


def life(folder: Path, *, id: str = "a", ends: bool = True) -> int:
    recorder = FileRecorder(folder, "g", id)
    me = Member(id, recorder.incarnation)
    records: list[Record] = [
        Started(group="g", member=me, at=5, stack="VSYNC", configuration=EVERYONE),
        Stopped(group="g", member=me, at=9),
    ]
    recorder.record(records[:1])
    if ends:
        recorder.record(records[1:])
        recorder.close()
    return recorder.incarnation


def test_what_is_recorded_is_read_as_a_journal_and_counts_the_lives(tmp_path: Path) -> None:
    assert [life(tmp_path), life(tmp_path, ends=False), life(tmp_path)] == [1, 2, 3]
    assert life(tmp_path, id="b") == 1
    reader = JournalReader(FileDisk(tmp_path), "g", "a", strict=True)
    told = [(type(record), record.member.incarnation) for record in reader.records()]
    assert told == [(Started, 1), (Stopped, 1), (Started, 2), (Started, 3), (Stopped, 3)]


def test_a_recording_can_be_read_while_it_grows(tmp_path: Path) -> None:
    recorder = FileRecorder(tmp_path, "g", "a")
    reader = JournalReader(FileDisk(tmp_path), "g", "a", strict=True)
    assert list(reader.records(growing=True)) == []
    stopped = Stopped(group="g", member=Member("a", 1), at=9)
    recorder.record([stopped])
    assert list(reader.records(growing=True)) == [stopped]
    recorder.close()


def test_a_life_that_cannot_be_written_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "g").write_text("a file where a folder is to be")
    with pytest.raises(StorageFailed, match="cannot start"):
        FileRecorder(tmp_path, "g", "a")
