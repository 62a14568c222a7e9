"""Reading segments: everything that is there, and a finding for everything that is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
from tests.pipeline.by_hand import begin, entries, write
from tests.pipeline.here import seal_here

from coterie.journal import FileDisk, JournalDamaged, JournalReader, list_journals
from coterie.kernel.records import EntriesAccepted
from coterie.pipeline.history import gathering
from coterie.pipeline.lake.findings import findings_of, unlinked_segments
from coterie.pipeline.lake.lake import Lake, LakeError
from coterie.pipeline.lake.sealing import seal_segment, sweep
from coterie.pipeline.read.places import NoJournals
from coterie.pipeline.read.planning import plan
from coterie.pipeline.read.reading import read_segment
from coterie.pipeline.read.tables import make_maker

Row = dict[str, Any]


def rows_of(folder: Path, table: str, *, growing: bool = False) -> list[Row]:
    return [
        row
        for task in plan([folder], growing=growing)
        for _, batch in read_segment(task, (table,), batch_rows=7)
        for row in batch.to_pylist()
    ]


def test_entries_are_those_of_the_journals(optimistic_journals: Path) -> None:
    disk = FileDisk(optimistic_journals)
    expected = [
        (replica, record.run.position + index, record.run.number + index, payload)
        for group, replica in list_journals(disk)
        for record in JournalReader(disk, group, replica).records()
        if isinstance(record, EntriesAccepted)
        for index, payload in enumerate(record.run.payloads)
    ]
    found = [
        (row["replica"], row["position"], row["number"], row["payload"])
        for row in rows_of(optimistic_journals, "entries")
    ]
    assert found == expected


def test_fingerprints_tell_entries_apart() -> None:
    maker = make_maker("entries", "g", "a", 1)
    same = entries("g", "a", 1, [b"x", b"y"])
    for record in (same, entries("g", "a", 1, [b"x", b"z"]), entries("g", "a", 2, [b"x"])):
        maker.add(record, 1)
    first, second, third, fourth, fifth = maker.take()["fingerprint"].to_pylist()
    assert first == third
    assert len({first, second, fourth, fifth}) == 4


def test_damage_is_a_finding_and_the_rest_is_read(
    optimistic_journals: Path, tmp_path: Path
) -> None:
    folder = copytree(optimistic_journals, tmp_path / "journals")
    whole = rows_of(folder, "entries")
    mine = [row for row in whole if row["replica"] == "a"]
    lost = mine[len(mine) // 2]["payload"]
    segment = next(path for path in folder.rglob("a/*/*.segment") if lost in path.read_bytes())
    segment.write_bytes(segment.read_bytes().replace(lost, b"?" + lost[1:], 1))
    [finding] = rows_of(folder, "findings")
    assert finding["kind"] == "damaged"
    assert finding["replica"] == "a"
    assert finding["path"] in str(segment)
    assert 0 < len(whole) - len(rows_of(folder, "entries")) < 100
    lake = seal_here(folder, tmp_path / "lake")
    testimony = gathering.testimony_of(lake, "group")
    assert testimony.names_of(testimony.missing) == ["a"]


def test_a_strict_reading_stops_at_damage(optimistic_journals: Path, tmp_path: Path) -> None:
    folder = copytree(optimistic_journals, tmp_path / "journals")
    segment = max(folder.rglob("*.segment"), key=lambda path: path.stat().st_size)
    segment.write_bytes(segment.read_bytes()[:-3] + b"???")
    task = next(task for task in plan([folder]) if task.path in str(segment))
    with pytest.raises(JournalDamaged, match=segment.name):
        list(read_segment(task, strict=True))


def test_a_torn_tail_is_no_damage_while_it_grows(tmp_path: Path) -> None:
    write(tmp_path, "g", {"a": [*begin("g", "a"), entries("g", "a", 1, [b"x", b"y"])]})
    [segment] = tmp_path.rglob("*.segment")
    segment.write_bytes(segment.read_bytes()[:-3])
    assert [row["kind"] for row in rows_of(tmp_path, "findings")] == ["torn tail"]
    assert rows_of(tmp_path, "findings", growing=True) == []
    assert rows_of(tmp_path, "entries") == []


def test_a_missing_segment_is_a_finding(optimistic_journals: Path, tmp_path: Path) -> None:
    folder = copytree(optimistic_journals, tmp_path / "journals")
    lives: dict[Path, list[Path]] = {}
    for path in sorted(folder.rglob("*.segment")):
        lives.setdefault(path.parent, []).append(path)
    segments = max(lives.values(), key=len)
    assert len(segments) > 2
    segments[1].unlink()
    [finding] = rows_of(folder, "findings")
    assert (finding["kind"], finding["first"], finding["last"]) == (
        "missing",
        int(segments[1].stem),
        int(segments[2].stem) - 1,
    )


def test_a_missing_life_is_a_finding(optimistic_journals: Path, tmp_path: Path) -> None:
    folder = copytree(optimistic_journals, tmp_path / "journals")
    later = next(path for path in sorted(folder.rglob("000002")) if list(path.iterdir()))
    rmtree(later.parent / "000001")
    found = [row for row in rows_of(folder, "findings") if row["replica"] == later.parent.name]
    assert [(row["kind"], row["incarnation"], row["first"]) for row in found] == [("missing", 1, 1)]
    assert found[0]["reason"] == "life 1, from which this one went on, is not there"


def test_a_segment_of_another_group_is_a_finding(tmp_path: Path) -> None:
    for group in ("one", "two"):
        write(tmp_path, group, {"a": [*begin(group, "a"), entries(group, "a", 1, [b"x"])]})
    place = "a/000001/000000000000001.segment"
    (tmp_path / "one" / place).write_bytes((tmp_path / "two" / place).read_bytes())
    [finding] = rows_of(tmp_path, "findings")
    assert (finding["group_name"], finding["kind"]) == ("one", "misplaced")
    assert "group two" in finding["reason"]


def test_a_segment_from_another_copy_of_the_disk_is_a_finding(
    optimistic_journals: Path, tmp_path: Path
) -> None:
    lake = seal_here(optimistic_journals, tmp_path / "lake")
    assert findings_of(lake, "group").num_rows == 0
    rows = lake.table("segments", "group").to_pylist()
    for row in rows:
        if row["first"] > 1:
            row["follows_digest"] = b"another one"
            break
    [finding] = unlinked_segments(rows)
    assert finding["reason"] == "it does not continue the segment before it"


def test_contradictions_are_findings(tmp_path: Path) -> None:
    """An entry where another one comes next cannot have been accepted."""
    told = [*begin("g", "a"), entries("g", "a", 1, [b"x"]), entries("g", "a", 5, [b"y"])]
    write(tmp_path, "g", {"a": told})
    [finding] = rows_of(tmp_path, "findings")
    assert finding["kind"] == "contradiction"
    assert finding["reason"] == "entry 5 was accepted where 2 comes next"
    assert finding["first"] == finding["last"] == len(told)


def test_a_segment_of_another_version_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "g", {"a": [*begin("g", "a"), entries("g", "a", 1, [b"x"])]})
    monkeypatch.setattr("coterie.journal.format.JOURNAL_VERSION", 99)
    write(tmp_path, "g", {"b": [*begin("g", "b"), entries("g", "b", 1, [b"x"])]})
    monkeypatch.undo()
    [finding] = rows_of(tmp_path, "findings")
    assert (finding["replica"], finding["kind"]) == ("b", "unreadable")
    assert "version 99, and this release knows version 1" in finding["reason"]
    assert {row["replica"] for row in rows_of(tmp_path, "entries")} == {"a"}


def test_where_there_is_no_journal_a_sentence_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoJournals, match="is no folder"):
        plan([tmp_path / "nowhere"])
    with pytest.raises(NoJournals, match="there is no journal in"):
        plan([tmp_path])
    for root in ("one", "two"):
        write(tmp_path / root, "g", {"a": begin("g", "a")})
    with pytest.raises(NoJournals, match=r"has a journal in .*one and another in .*two"):
        plan([tmp_path / "one", tmp_path / "two"])


def test_what_is_void_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, "g", {"a": [*begin("g", "a"), entries("g", "a", 1, [b"x"])]})
    [task] = plan([tmp_path])
    passed_over = replace(task, last_valid=3)
    found = list(read_segment(passed_over, ("entries", "findings")))
    assert [table for table, _ in found] == ["findings"]
    assert found[0][1]["kind"].to_pylist() == ["void"]


# ---- sealing


def test_sealing_again_changes_nothing(counter_journals: Path, tmp_path: Path) -> None:
    lake = seal_here(counter_journals, tmp_path / "lake")
    before = {path: path.read_bytes() for path in lake.files()}
    seal_here(counter_journals, tmp_path / "lake")
    assert {path: path.read_bytes() for path in lake.files()} == before


def test_what_a_killed_run_left_is_swept(counter_journals: Path, tmp_path: Path) -> None:
    lake = seal_here(counter_journals, tmp_path / "lake")
    before = sorted(lake.files())
    place = lake.path("entries/group_name=group/range_number=000000000")
    for name in ("_draft-a.parquet.part", "nobody-000001-000000000000001.parquet"):
        (place / name).write_bytes(b"half")
    lake.path("segments/group_name=group/_draft-x.parquet.part").write_bytes(b"half")
    assert sweep(lake, lake.segments().to_pylist()) == 3
    assert sorted(lake.files()) == before


def test_a_segment_that_lost_its_end_is_sealed_again(tmp_path: Path) -> None:
    """Its rows in a range that it no longer reaches go."""
    many = [entries("g", "a", 1 + index, [b"x"]) for index in range(30)]
    write(tmp_path / "journals", "g", {"a": [*begin("g", "a"), *many]})
    lake = seal_here(tmp_path / "journals", tmp_path / "lake", width=10)
    assert list(lake.ranges("g")) == [0, 1, 2, 3]
    [task] = plan([tmp_path / "journals"])
    seal_segment(replace(task, last_valid=len(begin("g", "a")) + 12), lake)
    sweep(lake, lake.segments().to_pylist())
    assert list(lake.ranges("g")) == [0, 1]


def test_what_retention_removes_stays_in_the_lake(counter_journals: Path, tmp_path: Path) -> None:
    folder = copytree(counter_journals, tmp_path / "journals")
    lake = seal_here(folder, tmp_path / "lake")
    before = lake.segments().num_rows
    rmtree(folder / "group" / "a")
    seal_here(folder, tmp_path / "lake")
    assert lake.segments().num_rows == before


def test_a_folder_that_is_no_lake_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    with pytest.raises(LakeError, match="neither empty nor a lake"):
        Lake.make(tmp_path)
    with pytest.raises(LakeError, match="is no lake: seal journals into it first"):
        Lake.open(tmp_path)
    for damaged in ("", "{", '{"format": 1}', '{"format": 1, "width": 0}', "[" * 100_000):
        (tmp_path / "lake.json").write_text(damaged, encoding="utf-8")
        with pytest.raises(LakeError, match=r"lake\.json is damaged .*: remove .*, and run again"):
            Lake.open(tmp_path)
    (tmp_path / "lake.json").write_text('{"format": 99, "width": 1}', encoding="utf-8")
    with pytest.raises(LakeError, match="format 99, and this release knows 2"):
        Lake.open(tmp_path)
