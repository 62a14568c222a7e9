"""Engine families in the pipeline: one more is added by registering it, and in no other way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.pipeline import tally_family
from tests.pipeline.by_hand import NAMES, write
from tests.pipeline.here import broken, seal_here, tables_here
from tests.pipeline.tally_family import STACK, Counted

from coterie.kernel.records import Record, Started
from coterie.kernel.records.base import forget, register
from coterie.kernel.views import Configuration, Member
from coterie.pipeline import engines
from coterie.pipeline.jobs import run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _tally() -> Iterator[None]:
    register(Counted)
    engines.register({"tally": f"{tally_family.__name__}:FAMILY"})
    yield
    del engines.FAMILIES["tally"]
    forget(Counted)


def journals(folder: Path, totals: dict[str, list[int]], group: str = "shop") -> Path:
    told: dict[str, list[Record]] = {}
    for name in NAMES:
        me = Member(name, 1)
        start = Started(group, me, 1, stack=STACK, configuration=Configuration(1, NAMES))
        told[name] = [
            start,
            *(Counted(group, me, at, total=n) for at, n in enumerate(totals[name])),
        ]
    write(folder, group, told)
    return folder


GOOD = {"a": [1, 2, 5], "b": [1, 5], "c": []}


def test_its_records_are_rows_and_its_check_fires(tmp_path: Path) -> None:
    lake = seal_here(journals(tmp_path / "good", GOOD), tmp_path / "lake")
    assert {group: each.name for group, each in engines.families_of(lake).items()} == {
        "shop": "tally"
    }
    assert [row["total"] for row in lake.table("tallies", "shop").to_pylist()] == [1, 2, 5, 1, 5]
    assert len(tables_here(lake, "tallies")) == 5
    assert broken(lake) == set()
    bad = seal_here(journals(tmp_path / "bad", GOOD | {"b": [5, 1]}), tmp_path / "other lake")
    assert broken(bad) == {"tallies rise"}


def test_it_runs_beside_the_others(
    spark: SparkSession, counter_journals: Path, tmp_path: Path
) -> None:
    """Also in tasks, which are other processes: they learn of it with the job."""
    mine = journals(tmp_path / "journals", GOOD | {"c": [4, 3]})
    outcome = run_pipeline(spark, [mine, counter_journals], tmp_path / "out")
    assert outcome.groups == ["group", "shop"]
    assert {(row["group_name"], row["check_name"]) for row in outcome.violations} == {
        ("shop", "tallies rise")
    }
    assert "c counted 4 and then 3" in outcome.violations[0]["evidence"]
    assert pq.read_table(tmp_path / "out" / "tables" / "tallies").num_rows == 7
    assert outcome.standings["authoritative"] > 0
    assert outcome.report is not None
    assert "Group shop" in outcome.report.read_text("utf-8")


@pytest.mark.parametrize(
    ("stack", "family"),
    [
        ("SAFE:DYNSEQ:PVSYNC", "stack"),
        ("TOKEN:VSYNC", "stack"),
        ("VSR", "vsr"),
        (STACK, "tally"),
        ("", "stack"),
    ],
)
def test_the_family_of_a_stack(stack: str, family: str) -> None:
    assert engines.family_of(stack).name == family
