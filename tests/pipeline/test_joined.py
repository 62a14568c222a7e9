"""What joins over tables find is what the checks of a run find, in the same places."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.here import edit, tables_here

from coterie.bench.workloads.journals import write_journals
from coterie.pipeline.history.joined import answered_apart, asked_too_late, not_authoritative
from coterie.pipeline.history.verify import CLOCK_BOUND, verify_alone
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.lake.sealing import seal_alone
from coterie.pipeline.read.tables import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
SECOND = 1_000_000


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("joined")
    write_journals(folder / "journals", 600)
    lake = Lake.make(folder / "lake", width=40)
    seal_alone([folder / "journals"], lake)
    return lake


def answers(lake: Lake) -> dict[int, Row]:
    return {row["position"]: row for row in lake.table("replies", "bench").to_pylist()}


def found_by_a_run(lake: Lake, check: str) -> set[int]:
    rows = verify_alone(lake)["bench"].violations
    return {row["position"] for row in rows if row["check_name"] == check}


def test_joins_find_what_a_run_finds(spark: SparkSession, sound: Lake, tmp_path: Path) -> None:
    copytree(sound.root, tmp_path / "lake")
    lake = Lake.open(tmp_path / "lake")
    known = answers(lake)
    one, other = known[7], known[93]

    def change(row: Row) -> Row:
        if row["position"] == 7:  # of another place than its entry
            return {**row, "stamp": row["stamp"] + 1}
        if row["position"] == 50:  # asked for long after all others were answered
            return {**row, "asked_at": row["recorded_at"] + 3600 * SECOND}
        if row["position"] == 93:  # another answer to the request at 7
            names = ("session", "request", "count", "standing")
            return {**row, **{name: one[name] for name in names}}
        return row

    assert edit(lake, "replies", change)
    replies = lake.read(spark, "replies")
    history = spark.createDataFrame(
        [
            (row["group_name"], row["position"], row["stamp"], row["standing"])
            for row in tables_here(lake, "history")
        ],
        "group_name string, position long, stamp long, standing string",
    )
    apart = answered_apart(replies).collect()
    assert [row["positions"] for row in apart] == [[7, 93]]
    assert found_by_a_run(lake, "exactly once") & {7, 93}
    assert {row["position"] for row in not_authoritative(replies, history).collect()} == {7}
    assert found_by_a_run(lake, "acknowledged means authoritative") == {7}
    late = asked_too_late(replies, int(CLOCK_BOUND)).collect()
    assert {row["position"] for row in late} == {50}
    assert other["session"] != one["session"] or other["request"] != one["request"]


def test_joins_find_nothing_in_sound_tables(spark: SparkSession, sound: Lake) -> None:
    replies = sound.read(spark, "replies")
    stamps = schema_of("replies").field("stamp").type
    assert str(stamps) == "int64"
    history = spark.createDataFrame(
        [
            ("bench", row["position"], row["stamp"], "authoritative")
            for row in answers(sound).values()
        ],
        "group_name string, position long, stamp long, standing string",
    )
    assert answered_apart(replies).count() == 0
    assert not_authoritative(replies, history).count() == 0
    assert asked_too_late(replies, int(CLOCK_BOUND)).count() == 0
