"""Many small groups: judged in batches, each from its beginning to its verdicts, in one task."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.pipeline.here import edit, seal_here, tables_here

from coterie.bench.workloads.journals import write_journals
from coterie.pipeline.engines.family import Wanted
from coterie.pipeline.engines.stack import case
from coterie.pipeline.history.verify import CLOCK_BOUND, Verification, judge, judge_alone
from coterie.pipeline.lake import kept as kept_lake
from coterie.pipeline.lake import problems
from coterie.pipeline.lake.kept import kept
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.lake.problems import wrong_with
from coterie.pipeline.publish import figures
from coterie.pipeline.publish.figures import all_figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
GROUPS = 4


@pytest.fixture(scope="session")
def many_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("many")
    for number in range(GROUPS):
        write_journals(folder / "journals", 60, f"group-{number}")
    return seal_here(folder / "journals", folder / "lake")


@pytest.fixture(autouse=True)
def four_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "MANY_GROUPS", GROUPS)
    monkeypatch.setattr(case, "BATCH_GROUPS", 3)


def changed(lake: Lake, folder: Path) -> Lake:
    """A copy of a lake in which two groups have broken promises, and one lacks a journal."""
    copytree(lake.root, folder / "lake")
    other = Lake.open(folder / "lake")

    def change(row: Row) -> Row:
        if row["group_name"] == "group-2" and row["replica"] == "b" and row["position"] == 3:
            return {**row, "fingerprint": row["fingerprint"] + 1}
        return row

    def answer(row: Row) -> Row:
        if row["group_name"] == "group-1" and row["position"] == 4:
            return {**row, "stamp": row["stamp"] + 1}
        return row

    assert edit(other, "entries", change)
    assert edit(other, "replies", answer)
    for path in (folder / "lake").rglob("d-*.parquet"):
        if "group-3" in str(path):
            path.unlink()
    return other


def judged(lake: Lake) -> Verification:
    with TemporaryDirectory() as scratch:
        return judge_alone(lake, Wanted(scratch, clock_bound=CLOCK_BOUND))


def by_place(rows: list[Row]) -> list[str]:
    return sorted(map(str, rows))


@pytest.mark.parametrize("is_changed", [False, True])
def test_batches_of_groups_come_to_the_verdicts_that_each_group_comes_to(
    many_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_changed: bool
) -> None:
    lake = changed(many_lake, tmp_path) if is_changed else many_lake
    in_batches, rows = judged(lake), tables_here(lake, "history")
    assert all(results.verdicts for results in in_batches.found.values())
    monkeypatch.setattr(case, "MANY_GROUPS", GROUPS + 1)
    one_by_one = judged(lake)
    assert not any(results.verdicts for results in one_by_one.found.values())
    assert in_batches.verdicts == one_by_one.verdicts
    assert by_place(in_batches.violations) == by_place(one_by_one.violations)
    assert bool(in_batches.violations) == is_changed
    assert by_place(rows) == by_place(tables_here(lake, "history"))
    words = {row["verdict"] for row in in_batches.verdicts if row["group_name"] == "group-3"}
    assert ("kept in part" in words) == is_changed


def test_a_large_group_among_small_ones_is_judged_range_by_range(
    many_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [
        sum(path.stat().st_size for path, _ in many_lake.files_of("entries", group))
        for group in many_lake.groups()
    ]
    monkeypatch.setattr(case, "SMALL_BYTES", max(sizes) // 2)
    assert not any(results.verdicts for results in judged(many_lake).found.values())


def test_a_kept_lake_reads_files_once_and_forgets_the_oldest(
    many_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read = Lake.read_file

    def counting(self: Lake, path: Path, schema: pa.Schema) -> pa.Table:
        opened.append(str(path))
        return read(self, path, schema)

    monkeypatch.setattr(Lake, "read_file", counting)
    lake = kept(many_lake)
    first = lake.table("views", "group-0")
    assert lake.table("views", "group-0").equals(first)
    assert len(opened) == len(set(opened))
    monkeypatch.setattr(kept_lake, "KEPT_BYTES", 0)
    lake.table("views", "group-1")
    lake.table("views", "group-0")
    assert len(opened) > len(set(opened))


def test_on_spark_batches_come_to_the_same(
    spark: SparkSession, many_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = changed(many_lake, tmp_path)
    monkeypatch.setattr(problems, "MANY_GROUPS", 1)
    monkeypatch.setattr(problems, "BATCH_GROUPS", 3)
    found = judge(spark, lake, Wanted(str(tmp_path / "scratch"), clock_bound=CLOCK_BOUND))
    alone = judged(lake)
    assert found.verdicts == alone.verdicts
    assert by_place(found.violations) == by_place(alone.violations)
    assert wrong_with(lake, spark) == wrong_with(lake)
    one_by_one = list(all_figures(spark, lake))
    monkeypatch.setattr(figures, "MANY_GROUPS", 1)
    monkeypatch.setattr(figures, "BATCH_GROUPS", 3)
    assert list(all_figures(spark, lake)) == one_by_one
    assert sum(each.answers for each in one_by_one) > 0
