"""The jobs as Spark runs them: the same rows as the tasks give one by one."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.here import edit, history_here
from tests.pipeline.journals import COUNTER

from coterie.pipeline.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]


def rows_of(frame: DataFrame) -> list[Row]:
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows


def test_journals_are_a_data_source(
    spark: SparkSession, optimistic_journals: Path, optimistic_lake: Lake
) -> None:
    entries = spark.read.format("coterie").load(str(optimistic_journals))
    wanted = "replica in ('a', 'b') and position between 10 and 12 and group_name = 'group'"
    found = rows_of(entries.where(wanted))
    expected = rows_of(optimistic_lake.read(spark, "entries").where(wanted))
    order = ("replica", "incarnation", "sequence", "position")
    assert sorted(found, key=lambda row: [row[name] for name in order]) == sorted(
        expected, key=lambda row: [row[name] for name in order]
    )
    assert found
    sealed = spark.read.format("coterie").load(optimistic_lake.root)
    assert sealed.where(wanted).count() == len(found)
    lives = spark.read.format("coterie").option("table", "lives").load(str(optimistic_journals))
    assert {row["stack"] for row in rows_of(lives.where("event = 'started'"))} == {"DYNSEQ:PVSYNC"}


def test_a_table_that_journals_do_not_have_is_named(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 -- slow to import

    with pytest.raises(PySparkException, match="journals have no table 'entires'; there are"):
        spark.read.format("coterie").option("table", "entires").load(str(tmp_path))


def test_sealing_and_rebuilding_on_spark(
    spark: SparkSession, counter_journals: Path, tmp_path: Path
) -> None:
    from coterie.pipeline.engines.family import Wanted  # noqa: PLC0415 -- slow to import
    from coterie.pipeline.history.verify import judge  # noqa: PLC0415
    from coterie.pipeline.lake.sealing import seal  # noqa: PLC0415

    folder = copytree(counter_journals, tmp_path / "journals")
    lake = Lake.make(tmp_path / "lake", width=100)
    assert seal(spark, [folder], lake) == len(list(folder.rglob("*.segment")))
    assert seal(spark, [folder], lake) == 0
    tables = tmp_path / "tables"
    judge(spark, lake, Wanted(str(tmp_path / "scratch"), tables=str(tables), has_checks=False))
    history = spark.read.parquet(str(tables / "history"))
    assert rows_of(history.orderBy("position")) == history_here(lake)

    segment = max(folder.rglob("*.segment"), key=lambda path: path.stat().st_size)
    segment.write_bytes(segment.read_bytes()[:-3])
    assert seal(spark, [folder], lake) == 1
    [finding] = lake.table("findings", "group").to_pylist()
    assert finding["kind"] == "altered"


def test_verifying_on_spark(spark: SparkSession, counter_lake: Lake) -> None:
    from coterie.pipeline.history.verify import verify  # noqa: PLC0415 -- slow to import

    clean = verify(spark, counter_lake, programs={"group": COUNTER})
    assert clean.is_kept
    assert {row["verdict"] for row in clean.verdicts} == {"kept", "not checked"}
    verdicts, violations = clean.tables(spark)
    assert verdicts.where("check_name = 'exactly once' and verdict = 'kept'").count() == 1
    assert violations.count() == 0

    last: list[Row] = []

    def again(row: Row) -> Row:
        """Make of two answers two ways to answer one request."""
        if row["session"] and not last:
            last.append(row)
        elif row["session"] and len(last) == 1:
            last.append(row)
            return {**row, "session": last[0]["session"], "request": last[0]["request"]}
        return row

    assert edit(counter_lake, "replies", again) == 1
    found = verify(spark, counter_lake)
    assert not found.is_kept
    told = [row["evidence"] for row in found.violations if row["check_name"] == "exactly once"]
    assert any("was answered in 2 ways" in evidence for evidence in told)
    assert found.tables(spark)[1].count() == len(found.violations)


def test_workers_import_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    """From Spark's archive they would compile it anew each time; a stream has ten seconds."""
    asked = spark.sparkContext.parallelize([0], 1).map(
        lambda _: str(__import__("pyspark").__file__)
    )
    [place] = asked.collect()
    assert ".zip" not in place
