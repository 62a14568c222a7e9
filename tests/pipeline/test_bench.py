"""`coterie bench pipeline` measures what it says, on journals that are in order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from tests.pipeline.here import history_here, seal_here, tables_here, verify_here

from coterie.bench.harness.figures import Figure
from coterie.bench.suites import pipeline
from coterie.bench.suites.pipeline import (
    PipelinePlan,
    PipelineReport,
    _growth,
    _in_duckdb,
    _measure_groups,
    _measure_size,
    _measure_transactions,
    setting,
    tables,
    write_files,
)
from coterie.bench.workloads.journals import GROUP, write_journals
from coterie.bench.workloads.transactions import write_transactions
from coterie.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def report_here(duckdb: str = "") -> PipelineReport:
    machine: dict[str, str | int] = {
        "cores": 2,
        "processor": "p",
        "system": "s",
        "python": "3",
        "loop": "l",
        "coterie": "0",
        "load_average": "0.1",
        "loop_ns": 20,
    }
    return PipelineReport(
        machine=machine,
        plan=PipelinePlan(sizes=(5_000,), groups=2, transactions=50),
        spark="4",
        duckdb=duckdb,
    )


def test_the_journals_keep_every_promise(tmp_path: Path) -> None:
    written = write_journals(tmp_path / "journals", 9_000)
    assert written == (7_500, 1_500)
    lake = seal_here(tmp_path / "journals", tmp_path / "lake", width=1_000)
    history = history_here(lake)
    assert [row["position"] for row in history] == list(range(1, 1_501))
    assert {row["standing"] for row in history} == {"authoritative"}
    assert len({row["payload"] for row in history}) == 1_500
    results = verify_here(lake)[GROUP]
    assert results.violations == []
    for check in ("exactly once", "linearizability", "acknowledged means authoritative"):
        assert results.counts[check].checked == 1_500, "the answers are checked, too"


def test_the_transactions_keep_every_promise(tmp_path: Path) -> None:
    assert write_transactions(tmp_path / "journals", 300) == 300 * 6
    lake = seal_here(tmp_path / "journals", tmp_path / "lake", width=500)
    rows = tables_here(lake, "transactions")
    assert [row["outcome"] for row in rows] == ["committed"] * 300
    for results in verify_here(lake).values():
        assert results.violations == []
        assert results.counts["serializable"].checked == 300


def test_groups_and_transactions_are_measured(spark: SparkSession, tmp_path: Path) -> None:
    report = report_here()
    _measure_groups(spark, tmp_path / "groups", report, lambda _: None)
    _measure_transactions(spark, tmp_path / "transactions", report, lambda _: None)
    assert report.troubles == []
    assert [figure.section for figure in report.figures] == ["groups", "transactions"]


def test_every_part_is_measured(spark: SparkSession, tmp_path: Path) -> None:
    report = report_here()
    said: list[str] = []
    _measure_size(spark, 5_000, tmp_path, report, said.append)
    assert report.troubles == []
    sections = [figure.section for figure in report.figures]
    assert sections == [
        *("ingest", "rebuild", "verify", "judge"),
        *("follow", "follow", "follow", "majority", "answers", "answers"),
    ]
    assert all(figure.value > 0 for figure in report.figures)
    assert len(said) == len(sections)
    files = write_files(report, tmp_path / "out", plot=False)
    assert [file.name for file in files] == ["pipeline.json", "pipeline.csv", "pipeline.md"]
    assert json.loads(files[0].read_text("utf-8"))["figures"][0]["section"] == "ingest"
    assert "DuckDB is not installed" in setting(report)
    assert "journals into a lake, 5,000 rows" in tables(report)


def test_a_part_that_fails_costs_nothing_of_the_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PySparkException("too busy\nat x.y")

    for part in ("_judge", "_stream", "_follow"):
        monkeypatch.setattr(pipeline, part, fail)
    report = report_here()
    _measure_size(spark, 5_000, tmp_path, report, lambda _: None)
    assert [figure.section for figure in report.figures] == [
        *("ingest", "verify", "majority", "answers", "answers")
    ]
    assert report.troubles[0] == "rebuild, the whole history, 5,000 rows: too busy"


def test_duckdb_counts_the_same(tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="DuckDB is an extra: coterie[bench-rivals]")
    write_journals(tmp_path / "journals", 6_000)
    lake = seal_here(tmp_path / "journals", tmp_path / "lake", width=300)
    assert _in_duckdb(lake) == 1_000


def test_cost_when_rows_double() -> None:
    def figure(rows: int, rate: float) -> Figure:
        return Figure(section="verify", what=f"all checks, {rows:,} rows", value=rate, unit="/s")

    [steady] = _growth([figure(1_000, 500), figure(4_000, 500)])
    assert steady.value == pytest.approx(2)
    [worse] = _growth([figure(1_000, 1_000), figure(4_000, 250)])
    assert worse.value == pytest.approx(4), "sixteen times the time for four times the rows"
    assert worse.what == "all checks, cost when rows double"
    assert _growth([figure(1_000, 500)]) == []


def test_sizes_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rows in ("many", "10", "1000,x"):
        words = ["bench", "pipeline", "--rows", rows, "--no-plot", "--out", str(tmp_path)]
        assert main(words) == 2
        assert "should be numbers from 1000 on" in capsys.readouterr().err
