from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.journal import by_hand
from tests.journal.writing import GROUP, ID, begin, note, segment, taken
from tests.seeded import seeded

import coterie.journal.segments
from coterie.journal.disk import Disk
from coterie.journal.engines.stack import recover
from coterie.journal.format import Finding, JournalDamaged, Kind, Sync, folder_of, name_of
from coterie.journal.life import begin_life
from coterie.journal.reader import JournalReader, Offset
from coterie.journal.segments import (
    SegmentFile,
    SegmentReader,
    Turn,
    list_journals,
    list_lives,
)
from coterie.kernel.records import Record
from coterie.simulation.world.disk import SimulatedDisk


def read(disk: Disk, **options: Any) -> tuple[list[Record], list[Finding]]:  # noqa: ANN401
    reader = JournalReader(disk, GROUP, ID)
    records = list(reader.records(**options))
    return records, reader.findings


def written(turns: int = 30, *, segment_bytes: int = 500) -> tuple[SimulatedDisk, list[Turn]]:
    disk = SimulatedDisk()
    writer = begin(disk, segment_bytes=segment_bytes)
    for n in range(turns):
        writer.append([note(2 * n), note(2 * n + 1)])
        writer.sync()
    writer.close()
    found = list(JournalReader(disk, GROUP, ID, strict=True).turns())
    assert len(found) == turns
    return disk, found


def replace(disk: SimulatedDisk, path: str, data: bytes) -> None:
    if path in disk.paths:
        disk.remove(path)
    disk.create(path).write(data)


def content(disk: SimulatedDisk, path: str) -> bytes:
    return disk.read(path, 0, disk.size(path))


# ---- what is whole


def test_all_lives_are_read_in_order() -> None:
    disk = SimulatedDisk()
    for life in range(1, 12):
        writer = begin(disk, segment_bytes=300)
        assert writer.incarnation == life
        for n in range(10):
            writer.append([note(100 * life + n)])
        writer.close()
    records, findings = read(disk)
    assert [record.at for record in records] == [
        100 * k + n for k in range(1, 12) for n in range(10)
    ]
    assert findings == []
    assert [life.incarnation for life in list_lives(disk, GROUP, ID)] == list(range(1, 12))


def test_one_segment_can_be_read_alone() -> None:
    disk, turns = written()
    [life] = list_lives(disk, GROUP, ID)
    found: list[Turn | Finding] = []
    for file in life.segments:
        reader = SegmentReader(disk, file)
        assert reader.open() is None
        assert (reader.head.first, reader.head.group, reader.head.sync) == (file.first, "g", "turn")
        found += reader.turns()
    assert found == turns


def test_an_empty_disk_is_an_empty_journal() -> None:
    assert read(SimulatedDisk()) == ([], [])


def test_a_journal_can_be_read_while_it_grows() -> None:
    disk = SimulatedDisk()
    writer = begin(disk, segment_bytes=400, preallocate=True)
    reader = JournalReader(disk, GROUP, ID)
    random = seeded("growing")
    given: list[Record] = []
    expected: list[Record] = []
    for n in range(200):
        if random.random() < 0.1:
            writer.prepare()
        if random.random() < 0.02:
            writer = begin(disk, segment_bytes=400, preallocate=True)
        turn = [note(10 * n + k) for k in range(random.randint(1, 4))]
        writer.append(turn)
        expected += turn
        if random.random() < 0.5:
            given += reader.records(growing=True)
            assert given == expected
        if random.random() < 0.2:  # another reader, later, perhaps in another process
            offset = msgspec.json.decode(msgspec.json.encode(reader.offset), type=Offset)
            reader = JournalReader(disk, GROUP, ID, after=offset)
    assert reader.findings == []


def test_a_turn_that_is_half_there_may_be_on_its_way() -> None:
    disk, turns = written(3, segment_bytes=10_000)
    path = turns[-1].path
    whole = content(disk, path)
    for size in range(turns[-1].offset, len(whole)):
        replace(disk, path, whole[:size])
        reader = JournalReader(disk, GROUP, ID)
        assert len(list(reader.turns(growing=True))) == 2
        assert reader.findings == []
        replace(disk, path, whole)
        assert list(reader.turns(growing=True)) == turns[2:]


def test_what_has_been_given_is_not_given_again() -> None:
    disk, turns = written()
    reader = JournalReader(disk, GROUP, ID)
    iterator = reader.turns()
    found = [next(iterator) for _ in range(7)]
    found += JournalReader(disk, GROUP, ID, after=reader.offset).turns()
    assert found == turns
    assert list(reader.turns())[:1] == turns[7:8]


def test_memory_is_bounded_by_the_largest_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coterie.journal.segments, "_CHUNK_BYTES", 4096)
    disk = SimulatedDisk()
    writer = begin(disk, sync=Sync.NONE)
    for n in range(300):
        writer.append([taken(n + 1, b"x" * (200 if n % 50 else 9000))])
    lengths: list[int] = []
    reading = disk.read

    def observed(path: str, offset: int, length: int) -> bytes:
        lengths.append(length)
        return reading(path, offset, length)

    monkeypatch.setattr(disk, "read", observed)
    assert len(read(disk)[0]) == 300
    assert max(lengths) < 12_000


@given(sizes=st.lists(st.integers(0, 60), max_size=40), chunk=st.integers(44, 300))
def test_turns_of_any_size_are_read_in_chunks_of_any_size(sizes: list[int], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coterie.journal.segments, "_CHUNK_BYTES", chunk)
        disk = SimulatedDisk()
        writer = begin(disk, sync=Sync.NONE, segment_bytes=1000)
        records = [taken(n + 1, b"x" * size) for n, size in enumerate(sizes)]
        for record in records:
            writer.append([record])
        assert read(disk) == (records, [])


# ---- what is not


@given(data=st.data())
@settings(max_examples=60)
def test_a_torn_tail_is_named_and_everything_before_it_is_read(data: st.DataObject) -> None:
    disk, turns = written(8, segment_bytes=10_000)
    path = segment(1)
    whole = content(disk, path)
    size = data.draw(st.integers(turns[0].offset, len(whole) - 1))
    disk.cut_off(path, size)
    complete = [turn for turn in turns if turn.offset + turn.size <= size]
    reader = JournalReader(disk, GROUP, ID)
    assert list(reader.turns()) == complete
    end = complete[-1].offset + complete[-1].size if complete else turns[0].offset
    if size == end:
        assert reader.findings == []
        return
    [finding] = reader.findings
    assert (finding.kind, finding.path, finding.offset) == (Kind.TORN_TAIL, path, end)
    assert finding.first == 2 * len(complete) + 1
    assert "cut off" in finding.reason or "has only" in finding.reason
    with pytest.raises(JournalDamaged, match=f"{path} at byte {end}: torn tail: "):
        list(JournalReader(disk, GROUP, ID, strict=True).turns())


@pytest.mark.parametrize("place", ["mark", "head", "body"])
def test_damage_in_the_middle_costs_one_turn(place: str) -> None:
    disk, turns = written(8, segment_bytes=10_000)
    lost = turns[3]
    disk.flip_bit(lost.path, lost.offset + {"mark": 1, "head": 20, "body": 45}[place])
    reader = JournalReader(disk, GROUP, ID)
    assert list(reader.turns()) == turns[:3] + turns[4:]
    [finding] = reader.findings
    assert (finding.kind, finding.path, finding.offset) == (Kind.DAMAGED, lost.path, lost.offset)
    assert (finding.first, finding.last) == (7, 8)
    what = "a turn" if place == "body" else "the head of a turn"
    assert finding.reason == f"{what} does not fit its checksum"


def test_damage_at_the_end_of_a_segment_costs_no_other_segment() -> None:
    disk, turns = written(30, segment_bytes=400)
    last = next(a for a, b in pairwise(turns) if a.path != b.path)
    disk.flip_bit(last.path, last.offset + 3)
    reader = JournalReader(disk, GROUP, ID)
    assert list(reader.turns()) == [turn for turn in turns if turn != last]
    [finding] = reader.findings
    assert (finding.kind, finding.first, finding.last) == (Kind.DAMAGED, last.first, last.last)


def test_a_lost_segment_head_costs_the_segment() -> None:
    disk, turns = written(30, segment_bytes=400)
    path = turns[10].path
    disk.flip_bit(path, 30)
    reader = JournalReader(disk, GROUP, ID)
    assert list(reader.turns()) == [turn for turn in turns if turn.path != path]
    [finding] = reader.findings
    assert finding.kind is Kind.DAMAGED
    assert (finding.path, finding.offset) == (path, 0)
    lost = [turn for turn in turns if turn.path == path]
    assert (finding.first, finding.last) == (lost[0].first, lost[-1].last)


def test_a_missing_segment_is_named() -> None:
    disk, turns = written(30, segment_bytes=400)
    path = turns[10].path
    disk.remove(path)
    reader = JournalReader(disk, GROUP, ID)
    assert list(reader.turns()) == [turn for turn in turns if turn.path != path]
    [finding] = reader.findings
    lost = [turn for turn in turns if turn.path == path]
    assert (finding.kind, finding.first, finding.last) == (
        Kind.MISSING,
        lost[0].first,
        lost[-1].last,
    )


def test_a_segment_of_another_journal_is_not_taken_for_one_of_ours() -> None:
    disk, turns = written(30, segment_bytes=400)
    path = turns[10].path
    for other in (
        by_hand.segment_head(group="other", first=21),
        by_hand.segment_head(replica="b", first=21),
        by_hand.segment_head(incarnation=2, first=21),
        by_hand.segment_head(first=22),
    ):
        replace(disk, path, other)
        reader = JournalReader(disk, GROUP, ID)
        assert list(reader.turns()) == [turn for turn in turns if turn.path != path]
        assert [finding.kind for finding in reader.findings] == [Kind.MISPLACED]
        assert reader.findings[0].path == path
        assert "it says that it is record" in reader.findings[0].reason


def test_a_segment_of_an_earlier_try_is_told_by_the_chain() -> None:
    """As from a copy of the disk that went its own way: same names and numbers, other records."""
    disk, turns = written(30, segment_bytes=400)
    path = turns[10].path
    head = by_hand.segment_head(first=turns[10].first, follows=(1, turns[10].first - 1, b"x" * 16))
    body = by_hand.block([by_hand.stopped(1)], head=head, first=turns[10].first)
    replace(disk, path, head + body)
    reader = JournalReader(disk, GROUP, ID)
    list(reader.turns())
    assert Kind.MISPLACED in {finding.kind for finding in reader.findings}
    assert "it does not continue the segment before it" in {f.reason for f in reader.findings}


def test_bytes_that_look_like_a_turn_inside_a_payload_are_not_one() -> None:
    """A payload may hold a whole journal, of this very group and life."""
    disk = SimulatedDisk()
    head = by_hand.segment_head(first=2)
    fake = by_hand.block([by_hand.stopped(666)], head=head, first=2, synced=1)
    writer = begin(disk)
    writer.append([taken(1, fake * 20)])
    writer.append([note(1)])
    [first, _] = JournalReader(disk, GROUP, ID, strict=True).turns()
    disk.flip_bit(first.path, first.offset + 10)
    records, findings = read(disk)
    assert records == [note(1)]
    assert [finding.kind for finding in findings] == [Kind.DAMAGED]


def test_what_the_next_life_did_not_take_over_is_void() -> None:
    disk, turns = written(8, segment_bytes=10_000)
    disk.flip_bit(turns[7].path, turns[7].offset + 45)
    writer = begin(disk)
    writer.append([note(1000)])
    writer.close()
    records, findings = read(disk)
    assert [record.at for record in records] == [*range(14), 1000]
    assert [(finding.kind, finding.first) for finding in findings] == [(Kind.VOID, 15)]
    list(JournalReader(disk, GROUP, ID, strict=True).turns())  # nothing is wrong with that


def test_a_life_that_was_never_used_is_passed_over() -> None:
    disk, _ = written(3)
    replace(disk, segment(1, incarnation=2), b"COTJ")
    writer = begin(disk)
    assert writer.incarnation == 3
    writer.append([note(1000)])
    records, findings = read(disk)
    assert [record.at for record in records] == [*range(6), 1000]
    assert {finding.kind for finding in findings} == {Kind.VOID}


def test_a_later_version_of_the_format_is_named() -> None:
    disk, turns = written(30, segment_bytes=400)
    path = turns[10].path
    replace(disk, path, by_hand.segment_head(first=turns[10].first, version=2) + b"anything")
    reader = JournalReader(disk, GROUP, ID)
    assert list(reader.turns()) == [turn for turn in turns if turn.path != path]
    [finding] = reader.findings
    assert finding.kind is Kind.UNREADABLE
    assert "of version 2, and this release knows version 1" in finding.reason


# ---- what a later release wrote


def later(records: list[object]) -> SimulatedDisk:
    disk = SimulatedDisk()
    head = by_hand.segment_head(kinds=99, fields=999)
    data = head + by_hand.block(records, head=head, first=1)
    disk.create(segment(1)).write(data)
    return disk


def test_unknown_kinds_and_fields_are_skipped_and_counted() -> None:
    disk = later(
        [
            by_hand.stopped(1),
            [63, "something", {"new": 1}],
            [*by_hand.stopped(2), "a new field", 7],
            [200],
            [200, 1],
        ]
    )
    reader = JournalReader(disk, GROUP, ID, strict=True)
    [turn] = reader.turns()
    assert turn.records == [note(1), note(2)]
    assert (turn.first, turn.last) == (1, 5)
    assert reader.skipped.records == {63: 1, 200: 2}
    assert reader.skipped.fields == 2
    assert reader.skipped.essential == 1


@pytest.mark.parametrize(
    "records", [[["no kind"]], [[]], [7], [[2, "g"]], [[2, "g", ["a", 1], "no time"]]]
)
@pytest.mark.parametrize("is_newer", [True, False])
def test_what_makes_no_sense_is_a_finding(records: list[object], *, is_newer: bool) -> None:
    disk = SimulatedDisk()
    head = by_hand.segment_head(kinds=99 if is_newer else 1, fields=1)
    data = head + by_hand.block(records, head=head, first=1)
    data += by_hand.block([by_hand.stopped(5)], head=head, first=len(records) + 1)
    disk.create(segment(1)).write(data)
    found, findings = read(disk)
    assert found == [note(5)]
    assert [(finding.kind, finding.first) for finding in findings] == [(Kind.UNREADABLE, 1)]


# ---- fuzz


@given(data=st.data())
@settings(max_examples=150)
def test_whatever_the_bytes_a_reader_gives_only_what_was_written(data: st.DataObject) -> None:
    random = seeded("fuzz", data.draw(st.integers(0, 1 << 32)))
    disk = SimulatedDisk()
    expected: list[list[Record]] = []
    for _ in range(random.randint(1, 3)):
        writer = begin(disk, segment_bytes=random.choice((150, 400, 5000)), sync=Sync.NONE)
        for n in range(random.randint(0, 12)):
            payload = random.randbytes(random.randint(0, 50))
            turn: list[Record] = [note(n), taken(len(expected) + 1, payload)]
            writer.append(turn)
            expected.append(turn)
    segments = [path for path in disk.paths if path.endswith(".segment")]
    for _ in range(random.randint(1, 4)):
        mutate(disk, random.choice(segments), random)
    for growing in (False, True):
        reader = JournalReader(disk, GROUP, ID)
        rest = iter(expected)
        for turn_read in reader.turns(growing=growing):
            assert turn_read.records in rest, "out of order, or never written"
    for path in segments:
        reader_alone = SegmentReader(disk, SegmentFile(1, 1, path))
        if reader_alone.open() is None:
            list(reader_alone.turns())


def mutate(disk: SimulatedDisk, path: str, random: Any) -> None:  # noqa: ANN401
    data = bytearray(content(disk, path))
    place = random.randrange(len(data)) if data else 0
    match random.randrange(6):
        case 0:
            data[place : place + 1] = random.randbytes(random.randint(0, 3))
        case 1:
            del data[place : place + random.randint(1, 100)]
        case 2:
            data[place:place] = data[random.randrange(len(data) or 1) :][: random.randint(1, 200)]
        case 3:
            del data[place:]
        case 4:
            data[place : place + 60] = bytes(len(data[place : place + 60]))
        case _:
            data += random.randbytes(random.randint(1, 80))
    replace(disk, path, bytes(data))


# ---- names


@pytest.mark.parametrize("name", ["a", "seats/LH 400", "..", ".", "ä", "%41", "a.b", "-", "x" * 60])
def test_any_name_can_be_that_of_a_group(name: str) -> None:
    folder = folder_of(name, name)
    assert folder.count("/") == 1
    part, _, other = folder.partition("/")
    assert part == other
    assert name_of(part) == name
    assert not part.startswith(".")


def test_all_journals_of_a_disk_are_found() -> None:
    disk = SimulatedDisk()
    for group, replica in (("seats/LH 400", "b"), ("g", "a"), ("g", "..")):
        begin_life(disk, recover(disk, group, replica))
    disk.create("notes.txt").write(b"")
    disk.create("other/notes/readme").write(b"")
    assert list_journals(disk) == [("g", ".."), ("g", "a"), ("seats/LH 400", "b")]


def test_a_name_has_at_least_one_character() -> None:
    with pytest.raises(ValueError, match="at least one character"):
        folder_of("", "a")
