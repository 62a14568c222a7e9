from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.journal.recording import (
    RecordingError,
    RecordingReader,
    RecordingWriter,
    encode_records,
    next_incarnation,
    read_recordings,
    recording_path,
    recordings,
)
from coterie.kernel.records import Delivered, Delivery, Record, Sent, Started, Stopped
from coterie.kernel.views import Configuration, Member, ViewId

A = Member("a", 1)
VIEW = ViewId(2, "a", 1)
RECORDS: list[Record] = [
    Started(group="g", member=A, at=5, stack="VSYNC", configuration=Configuration(1, ("a", "b"))),
    Sent(group="g", member=A, at=7, view=VIEW, first=1, count=2, safe=False, digest=99),
    Delivered(
        group="g",
        member=A,
        at=8,
        view=VIEW,
        sender=A,
        first=1,
        count=2,
        number=1,
        safe=False,
        delivery=Delivery.REGULAR,
        digest=99,
    ),
    Stopped(group="g", member=A, at=9),
]
HEAD = b"COTREC\x00\x01"


def written(path: Path) -> Path:
    writer = RecordingWriter(path)
    writer.append(RECORDS[:1])
    writer.append(RECORDS[1:])
    writer.close()
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "x")
    assert read_recordings([path]) == (RECORDS, [])


def test_the_format_is_the_documented_one(tmp_path: Path) -> None:
    """Golden bytes: a change of the format needs a new version."""
    data = written(tmp_path / "x").read_bytes()
    assert data.startswith(HEAD)
    body = b"\x94\x02\xa1g\x92\xa1a\x01\x09"
    assert data.endswith(b"\x00\x00\x00\x09" + bytes.fromhex("b0bbc53b") + body)


def test_a_recording_can_be_read_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "x"
    writer = RecordingWriter(path)
    reader = RecordingReader(path)
    assert list(reader.read()) == []
    writer.append(RECORDS[:2])
    assert list(reader.read()) == RECORDS[:2]
    writer.append(RECORDS[2:])
    assert list(reader.read()) == RECORDS[2:]
    writer.close()


@given(st.data())
def test_whatever_is_cut_off_the_rest_is_read_and_the_tear_is_named(data: st.DataObject) -> None:
    whole = HEAD + encode_records(RECORDS)
    length = data.draw(st.integers(0, len(whole)))
    ends = [len(HEAD + encode_records(RECORDS[:count])) for count in range(len(RECORDS) + 1)]
    records, tail = read_bytes(whole[:length])
    complete = [end for end in ends if end <= length]
    assert records == RECORDS[: max(len(complete) - 1, 0)]
    if length in ends:
        assert tail == ""
    else:
        assert f"is torn at byte {max(complete, default=0)}: " in tail


@given(st.data())
def test_a_damaged_record_and_all_after_it_are_not_given(data: st.DataObject) -> None:
    whole = bytearray(HEAD + encode_records(RECORDS))
    place = data.draw(st.integers(len(HEAD), len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    records, tail = read_bytes(bytes(whole))
    assert records == RECORDS[: len(records)]
    assert len(records) < len(RECORDS)
    assert "is torn at byte " in tail


def read_bytes(data: bytes) -> tuple[list[Record], str]:
    with NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        records, tails = read_recordings([Path(file.name)])
    return records, "".join(map(str, tails))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"#!/bin/sh\n", "is not a recording of Coterie"),
        (b"COTREC\x00\x09", "of version 9, and this release reads version 1"),
    ],
)
def test_a_foreign_file_is_refused(data: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(RecordingError, match=sentence):
        read_recordings([path])


def test_the_files_count_the_lives(tmp_path: Path) -> None:
    assert next_incarnation(tmp_path, "a") == 1
    for id, life in (("a", 1), ("a", 2), ("b", 7), ("a-b", 9)):
        RecordingWriter(recording_path(tmp_path, id, life)).close()
    (tmp_path / "a-notes.txt").touch()
    assert next_incarnation(tmp_path, "a") == 3
    assert next_incarnation(tmp_path, "a-b") == 10
    assert [path.name for path in recordings(tmp_path)] == [
        "a-000001.recording",
        "a-000002.recording",
        "a-b-000009.recording",
        "b-000007.recording",
    ]


def test_no_life_continues_the_file_of_another(tmp_path: Path) -> None:
    path = written(tmp_path / "x")
    with pytest.raises(FileExistsError):
        RecordingWriter(path)
