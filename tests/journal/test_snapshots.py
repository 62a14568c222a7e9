from __future__ import annotations

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.journal import by_hand
from tests.journal.writing import GROUP, ID, ME, VIEW, accepted, begin, confirmed, taken

from coterie.journal.engines.stack import recover
from coterie.journal.format import JournalDamaged, Kind, Mark
from coterie.journal.reader import JournalReader
from coterie.journal.retention import Retention, retain
from coterie.journal.snapshots import DUMPS, SnapshotStore
from coterie.journal.writer import JournalWriter
from coterie.kernel.engine import Version
from coterie.kernel.records import HistoryAdopted, Settled
from coterie.simulation.world.disk import SimulatedDisk

CHUNKS = [b"one", b"two" * 100, b"three"]


def store(disk: SimulatedDisk, position: int = 5, *, sequence: int = 9, adopts: int = 0) -> str:
    return (
        SnapshotStore(disk, GROUP, ID)
        .begin(
            position,
            Version(VIEW, position + 2),
            after=Mark(1, sequence),
            origins=[(ME, 4)],
            adopts=adopts,
        )
        .write(CHUNKS)
    )


def test_a_snapshot_gives_back_its_chunks() -> None:
    disk = SimulatedDisk()
    path = store(disk)
    [snapshot], findings = SnapshotStore(disk, GROUP, ID).all()
    assert findings == []
    assert snapshot.path == path == "g/a/snapshots/000001-000000000000009-000000000000005"
    assert list(snapshot.chunks()) == CHUNKS
    assert snapshot.check() is None
    assert (snapshot.position, snapshot.head.version) == (5, Version(VIEW, 7))
    assert snapshot.head.origins == ((ME, 4),)
    assert snapshot.size == disk.size(path)


def test_the_bytes_are_those_of_the_document() -> None:
    disk = SimulatedDisk()
    path = store(disk, adopts=3)
    view = [3, "b", 1]
    head = ["g", "a", 1, 9, 5, [view, 7], [[["a", 1], 4]], 3, []]
    expected = by_hand.file_head(b"COTSNAP\n", head)
    check = 0
    for chunk in [*CHUNKS, b""]:
        length = struct.pack(">I", len(chunk))
        check = crc32(length + chunk, check)
        expected += length + struct.pack(">I", check) + chunk
    assert disk.read(path, 0, 9999) == expected


def test_the_newest_comes_first() -> None:
    disk = SimulatedDisk()
    for sequence, position in ((9, 5), (12, 8), (30, 7)):
        store(disk, position, sequence=sequence)
    assert [s.position for s in SnapshotStore(disk, GROUP, ID).all()[0]] == [7, 8, 5]


@given(data=st.data())
def test_no_damage_goes_unseen(data: st.DataObject) -> None:
    disk = SimulatedDisk()
    path = store(disk)
    if data.draw(st.booleans()):
        disk.flip_bit(path, data.draw(st.integers(0, disk.size(path) - 1)))
    else:
        disk.cut_off(path, data.draw(st.integers(0, disk.size(path) - 1)))
    snapshots, findings = SnapshotStore(disk, GROUP, ID).all()
    findings += [finding for snapshot in snapshots if (finding := snapshot.check())]
    [finding] = findings
    assert (finding.kind, finding.path) == (Kind.DAMAGED, path)
    for snapshot in snapshots:
        with pytest.raises(JournalDamaged):
            list(snapshot.chunks())


def test_what_is_not_finished_is_no_snapshot() -> None:
    disk = SimulatedDisk()
    draft = SnapshotStore(disk, GROUP, ID).begin(5, Version(VIEW, 5), after=Mark(1, 9))
    draft.add(b"half")
    assert SnapshotStore(disk, GROUP, ID).all() == ([], [])
    draft.abandon()
    assert disk.paths == []

    def fails() -> list[bytes]:
        raise RuntimeError("the object cannot be read")

    with pytest.raises(RuntimeError):
        SnapshotStore(disk, GROUP, ID).begin(5, Version(VIEW, 5), after=Mark(1, 9)).write(
            chunk for _ in range(1) for chunk in fails()
        )
    assert disk.paths == []


def test_whatever_has_a_snapshots_name_is_whole_after_the_loss_of_the_machine() -> None:
    survivors = 0
    for seed in range(30):
        disk = SimulatedDisk(seed=seed)
        store(disk, 5)
        draft = SnapshotStore(disk, GROUP, ID).begin(6, Version(VIEW, 6), after=Mark(1, 10))
        for chunk in CHUNKS:
            draft.add(chunk)
        if seed % 2:
            draft.finish()
        disk.lose_power()
        snapshots, findings = SnapshotStore(disk, GROUP, ID).all()
        assert findings == []
        assert [list(snapshot.chunks()) for snapshot in snapshots] == [CHUNKS] * (1 + seed % 2)
        survivors += len(snapshots)
    assert survivors == 45


def test_dumps_are_kept_apart() -> None:
    disk = SimulatedDisk()
    dumps = SnapshotStore(disk, GROUP, ID, name=DUMPS)
    dumps.begin(1000, Version(VIEW, 1000), after=Mark(1, 9)).write(CHUNKS)
    assert SnapshotStore(disk, GROUP, ID).all() == ([], [])
    assert [dump.position for dump in dumps.all()[0]] == [1000]
    assert disk.names("g/a") == ["dumps"]


# ---- retention


def lived(disk: SimulatedDisk, *, entries: int, snapshots: int = 4) -> JournalWriter:
    """A life with entries, of which some were settled and snapshotted now and then."""
    writer = begin(disk, segment_bytes=600)
    start = writer.facts().version.position
    writer.append([accepted(start), confirmed(start)])
    for position in range(start + 1, start + entries + 1):
        writer.append([taken(position, b"x" * 50)])
        if (position - start) % (entries // snapshots) == 0:
            writer.append([Settled(group=GROUP, member=ME, at=1, position=position - 2)])
            writer.sync()
            SnapshotStore(disk, GROUP, ID).begin(
                position - 2, writer.facts().version, after=writer.end
            ).write([b"state"])
    writer.sync()
    return writer


def segments(disk: SimulatedDisk) -> list[str]:
    return [path for path in disk.paths if path.endswith(".segment")]


def test_what_snapshots_make_unnecessary_goes() -> None:
    disk = SimulatedDisk()
    lived(disk, entries=80)
    lived(disk, entries=80)
    before, count = recover(disk, GROUP, ID), len(segments(disk))
    gone = retain(disk, GROUP, ID, Retention(snapshots=2, lives=1, journal_bytes_max=0))
    assert len(SnapshotStore(disk, GROUP, ID).names()) == 2
    assert count - len(segments(disk)) == len([p for p in gone if p.endswith(".segment")]) > 10
    after = recover(disk, GROUP, ID)
    assert (after.version, after.runs, after.facts) == (before.version, before.runs, before.facts)
    # The older snapshot is enough as well.
    newest = SnapshotStore(disk, GROUP, ID).all()[0][0]
    disk.flip_bit(newest.path)
    fallback = recover(disk, GROUP, ID)
    assert (fallback.version, fallback.is_zombie) == (before.version, False)
    assert [finding.path for finding in fallback.findings] == [newest.path]


def test_the_first_segments_of_the_newest_lives_stay() -> None:
    disk = SimulatedDisk()
    for _ in range(4):
        lived(disk, entries=40)
    retain(disk, GROUP, ID, Retention(snapshots=1, lives=2, journal_bytes_max=0))
    firsts = {
        path.split("/")[2] for path in segments(disk) if path.endswith("/000000000000001.segment")
    }
    assert firsts == {"000003", "000004"}


def test_what_was_removed_on_purpose_is_told_from_what_was_lost() -> None:
    disk = SimulatedDisk()
    lived(disk, entries=80)
    retain(disk, GROUP, ID, Retention(snapshots=1, lives=1, journal_bytes_max=0))
    reader = JournalReader(disk, GROUP, ID, strict=True)
    list(reader.turns())
    assert [finding.kind for finding in reader.findings] == [Kind.REMOVED]
    lived(disk, entries=80)
    retain(disk, GROUP, ID, Retention(snapshots=1, lives=2, journal_bytes_max=0))
    list(JournalReader(disk, GROUP, ID, strict=True).turns())
    disk.remove(segments(disk)[-2])
    reader = JournalReader(disk, GROUP, ID)
    list(reader.turns())
    assert {finding.kind for finding in reader.findings} == {Kind.REMOVED, Kind.MISSING}


def test_nothing_goes_while_there_is_room() -> None:
    disk = SimulatedDisk()
    lived(disk, entries=80)
    count = len(segments(disk))
    retain(disk, GROUP, ID, Retention(snapshots=2))
    assert len(segments(disk)) == count
    size = sum(disk.size(path) for path in segments(disk))
    retain(disk, GROUP, ID, Retention(snapshots=2, journal_bytes_max=size - 1))
    assert len(segments(disk)) == count - 1


def test_without_a_snapshot_everything_stays() -> None:
    disk = SimulatedDisk()
    lived(disk, entries=40, snapshots=1)
    for path in disk.paths:
        if "snapshots" in path:
            disk.remove(path)
    before = disk.paths
    assert retain(disk, GROUP, ID, Retention(journal_bytes_max=0)) == []
    assert disk.paths == before
    with pytest.raises(ValueError, match="at least one snapshot"):
        Retention(snapshots=0)


def test_an_adopted_state_does_not_push_out_our_own() -> None:
    """It may belong to an adoption that a crash prevented."""
    disk = SimulatedDisk()
    writer = lived(disk, entries=40)
    for n in range(3):
        SnapshotStore(disk, GROUP, ID).begin(
            100 + n, Version(VIEW, 200), after=writer.end, adopts=100 + n
        ).write([b"foreign"])
    before = recover(disk, GROUP, ID)
    retain(disk, GROUP, ID, Retention(snapshots=1, lives=0, journal_bytes_max=0))
    after = recover(disk, GROUP, ID)
    assert after.snapshot is not None
    assert after.snapshot.position == 38
    assert (after.version, after.is_zombie) == (before.version, False)
    # Once the record is there, it counts.
    adopted = HistoryAdopted(
        group=GROUP,
        member=ME,
        at=1,
        view=VIEW,
        source=ME,
        version=Version(VIEW, 102),
        kept=0,
        restored=102,
    )
    writer.append([adopted])
    after = recover(disk, GROUP, ID)
    assert after.snapshot is not None
    assert (after.snapshot.position, after.version) == (102, Version(VIEW, 102))
