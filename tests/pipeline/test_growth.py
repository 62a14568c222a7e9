"""Following journals: every row once, in batches that can be repeated exactly."""

from __future__ import annotations

from random import Random
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.by_hand import begin, entries, settled, write
from tests.pipeline.test_reading import rows_of

from coterie.journal import FileDisk, JournalDamaged, begin_life, recover
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.read.growth import Place, place_now, read_slice, slices_between, streamed
from coterie.pipeline.read.places import NoJournals

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

Row = dict[str, Any]


def between(start: Place, end: Place, table: str, *, strict: bool = False) -> list[Row]:
    return [
        row
        for piece in slices_between(start, end)
        for batch in read_slice(piece, table, strict=strict)
        for row in batch.to_pylist()
    ]


def grow_in_order(source: Path, target: Path, random: Random) -> bool:
    """Let every journal grow by some bytes, over the ends of its segments and lives."""
    is_behind = False
    for journal in sorted(path for path in source.glob("*/*") if path.is_dir()):
        more = random.randrange(1, 12_000)
        for path in sorted(journal.rglob("*.segment")):
            copied = target / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes()
            have = copied.stat().st_size if copied.exists() else 0
            copied.write_bytes(data[: have + more])
            more -= min(len(data) - have, more)
            if not more:
                is_behind |= copied.stat().st_size < len(data) or path != last_of(journal)
                break
    return is_behind


def last_of(journal: Path) -> Path:
    return max(journal.rglob("*.segment"))


@pytest.mark.parametrize("seed", range(3))
def test_all_rows_come_once_whatever_the_moments(
    seed: int, optimistic_journals: Path, tmp_path: Path
) -> None:
    random = Random(seed)  # noqa: S311 -- reproducible on purpose
    place: Place = {}
    got: dict[str, list[Row]] = {table: [] for table in streamed()}
    batches: list[tuple[Place, Place, list[Row]]] = []
    is_behind = True
    while is_behind:
        is_behind = grow_in_order(optimistic_journals, tmp_path, random)
        latest = place_now([str(tmp_path)], place)
        for table in streamed():
            found = between(place, latest, table)
            got[table] += found
            if table == "entries":
                batches.append((place, latest, found))
        place = latest
    for table, rows in got.items():
        expected = rows_of(tmp_path, table)
        key = ("replica", "incarnation", "sequence")
        assert sorted(rows, key=lambda row: [row[name] for name in key]) == sorted(
            expected, key=lambda row: [row[name] for name in key]
        )
    assert len(batches) > 5
    for start, end, found in batches:
        assert between(start, end, "entries") == found, "a batch can be repeated at any time"


def test_what_is_on_its_way_is_given_when_it_is_whole(tmp_path: Path) -> None:
    write(tmp_path, "g", {"a": [*begin("g", "a"), entries("g", "a", 1, [b"x"])]})
    [path] = tmp_path.rglob("*.segment")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    early = place_now([str(tmp_path)], {})
    assert between({}, early, "entries") == []
    assert place_now([str(tmp_path)], early) == early
    path.write_bytes(whole)
    late = place_now([str(tmp_path)], early)
    assert [row["payload"] for row in between(early, late, "entries")] == [b"x"]
    assert between(late, place_now([str(tmp_path)], late), "entries") == []


def test_a_batch_stays_what_it_was_when_the_next_life_forgets_its_end(tmp_path: Path) -> None:
    """A machine lost what was not synced: the next life goes on before it."""
    records = [*begin("g", "a"), entries("g", "a", 1, [b"x"]), entries("g", "a", 2, [b"y"])]
    write(tmp_path, "g", {"a": records})
    root = [str(tmp_path)]
    [path] = tmp_path.rglob("*.segment")
    whole = path.read_bytes()
    early = place_now(root, {})
    path.write_bytes(whole[:-10])
    disk = FileDisk(tmp_path)
    writer = begin_life(disk, recover(disk, "g", "a"))
    writer.append([settled("g", "a", 1)])
    writer.close()
    path.write_bytes(whole)  # what was lost is seen again, say by another reader's cache
    late = place_now(root, early)
    assert [row["payload"] for row in between({}, early, "entries")] == [b"x", b"y"]
    assert between(early, late, "entries") == []
    assert [row["event"] for row in between(early, late, "standings")] == ["settled"]
    assert [row["payload"] for row in between({}, late, "entries")] == [b"x"]


def test_damage_is_left_out_or_stops(tmp_path: Path) -> None:
    told = [entries("g", "a", number, [b"payload %d" % number]) for number in range(1, 4)]
    write(tmp_path, "g", {"a": [*begin("g", "a"), *told]})
    disk = FileDisk(tmp_path)
    begin_life(disk, recover(disk, "g", "a")).close()
    [path, _] = sorted(tmp_path.rglob("*.segment"))
    data = bytearray(path.read_bytes())
    data[data.index(b"payload 2")] ^= 1
    path.write_bytes(data)
    place = place_now([str(tmp_path)], {})
    assert [row["position"] for row in between({}, place, "entries")] == [1, 3]
    with pytest.raises(JournalDamaged):
        between({}, place, "entries", strict=True)


def test_segments_that_are_gone_are_passed_over(counter_journals: Path, tmp_path: Path) -> None:
    folder = copytree(counter_journals, tmp_path / "journals")
    place = place_now([str(folder)], {})
    for path in sorted((folder / "group" / "a").rglob("*.segment")):
        path.unlink()
    assert place_now([str(folder)], place) == place
    assert {row["replica"] for row in between({}, place, "entries")} == {"b", "c"}


def test_a_folder_may_be_empty_at_first_but_must_be_there(tmp_path: Path) -> None:
    assert place_now([str(tmp_path)], {}) == {}
    with pytest.raises(NoJournals, match="is no folder"):
        place_now([str(tmp_path / "nothing")], {})


def test_following_on_spark(spark: SparkSession, counter_journals: Path, tmp_path: Path) -> None:
    """A stream into a table of Parquet, stopped and started while the journals grow."""
    journals, out = tmp_path / "journals", str(tmp_path / "table")
    random = Random(5)  # noqa: S311 -- reproducible on purpose
    batches = 0

    def follow() -> int:
        stream = spark.readStream.format("coterie").option("table", "entries").load(str(journals))
        writer = stream.writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(out)
        query.awaitTermination()
        return len(query.recentProgress)

    grow_in_order(counter_journals, journals, random)
    batches += follow()
    while grow_in_order(counter_journals, journals, random):
        pass
    batches += follow()
    assert batches >= 2
    found = spark.read.parquet(out).toArrow().to_pylist()
    key = ("replica", "incarnation", "sequence", "position")
    assert sorted(found, key=lambda row: [row[name] for name in key]) == sorted(
        rows_of(journals, "entries"), key=lambda row: [row[name] for name in key]
    )


@pytest.mark.parametrize(
    ("table", "folder", "said"),
    [
        ("findings", "", "findings is about whole journals and cannot be followed"),
        ("lives", "lake", "a lake cannot be followed: name the folder of the journals"),
    ],
)
def test_what_cannot_be_followed(
    spark: SparkSession, table: str, folder: str, said: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 -- slow to import

    Lake.make(tmp_path / "lake")
    stream = spark.readStream.format("coterie").option("table", table)
    with pytest.raises(PySparkException, match=said):
        stream.load(str(tmp_path / folder)).writeStream.format("noop").start().awaitTermination()
