"""The pipeline as a whole: from folders of journals to tables and a page."""

from __future__ import annotations

import json
from shutil import rmtree
from typing import TYPE_CHECKING

import pytest

from coterie.cli.main import main
from coterie.objects import HostSettings
from coterie.pipeline.events import read_events, write_events
from coterie.pipeline.figures import BUCKETS, quantile
from coterie.pipeline.jobs import JOBS, find_journals, run_pipeline
from coterie.pipeline.lake import Lake
from coterie.pipeline.planning import NoJournals
from coterie.pipeline.replay import Program

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COUNTER = Program(
    name="coterie.ready.counter:Counter",
    settings=HostSettings(digest_interval=5, dump_interval=50),
)


def group_of(folder: Path) -> str:
    return next(each.name for each in sorted(folder.iterdir()) if each.is_dir())


def test_everything_in_one_run_and_again(
    spark: SparkSession, counter_journals: Path, tmp_path: Path
) -> None:
    group = group_of(counter_journals)
    done: list[str] = []
    programs = {group: COUNTER}
    run_pipeline(spark, [counter_journals], tmp_path, programs=programs, progress=done.append)
    outcome = run_pipeline(spark, [counter_journals], tmp_path, programs=programs)
    assert done == list(JOBS)
    assert outcome.segments == 0, "sealed in the first run"
    assert outcome.is_kept
    assert outcome.standings["authoritative"] > 0
    assert outcome.report is not None
    page = outcome.report.read_text("utf-8")
    assert "Every promise that could be checked was kept." in page
    assert page.count("<svg") == 2
    for word in ("http://", "https://", "<script", "src="):
        assert word not in page, "the page must be complete in itself"
    (figures,) = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    assert figures["group"] == group
    assert 0 < figures["availability"] <= 1
    assert sum(each["count"] for each in figures["slices"]) == figures["answers"] > 0
    events = read_events(spark, tmp_path / "events")
    assert events.count() == outcome.events > 0
    assert events.select("session", "request").distinct().count() == outcome.events
    last = events.where("method = 'add' and error is null").orderBy("position").collect()
    total = 0
    for row in last:
        total += json.loads(row["arguments"])[0]
        assert json.loads(row["result"]) == total, "events tell the whole story, in order"


def test_events_of_a_killed_run_are_swept_and_written_once(
    spark: SparkSession, counter_journals: Path, tmp_path: Path
) -> None:
    group = group_of(counter_journals)
    run_pipeline(spark, [counter_journals], tmp_path, jobs=["seal"])
    lake = Lake.open(tmp_path / "lake")
    count = write_events(spark, lake, tmp_path / "events", {group: COUNTER}).events
    (first, *_) = sorted((tmp_path / "events").glob("group=*/range=*"))
    (first / "_draft-events.parquet").write_bytes(b"half a file")
    before = (first / "events.parquet").read_bytes()
    assert write_events(spark, lake, tmp_path / "events", {group: COUNTER}) == (count, [])
    assert not list((tmp_path / "events").rglob("_draft-*"))
    assert (first / "events.parquet").read_bytes() == before
    assert read_events(spark, tmp_path / "events").count() == count
    rmtree(tmp_path / "events")
    assert read_events(spark, tmp_path / "events").count() == 0


def test_a_later_report_remembers_the_verdicts(
    spark: SparkSession, counter_journals: Path, tmp_path: Path
) -> None:
    run_pipeline(spark, [counter_journals], tmp_path, jobs=["seal", "history", "verify"])
    outcome = run_pipeline(spark, [counter_journals], tmp_path, jobs=["report"])
    assert outcome.report is not None
    assert "Every promise that could be checked was kept." in outcome.report.read_text("utf-8")


def test_journals_are_found_below_a_folder(counter_journals: Path, tmp_path: Path) -> None:
    assert find_journals([counter_journals]) == [str(counter_journals)]
    assert str(counter_journals) in find_journals([counter_journals.parent])
    with pytest.raises(NoJournals, match="no journal in"):
        find_journals([tmp_path])
    with pytest.raises(NoJournals, match="is no folder"):
        find_journals([tmp_path / "nothing"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{folder}"], "no journal in"),
        (["{folder}/nothing"], "is no folder"),
        (["{folder}", "--only", "seal,dance"], "there is no job 'dance'"),
        (["{folder}", "--class", "nonsense"], "should say GROUP=MODULE:CLASS"),
        (["{folder}", "--class", "g=nowhere:Class"], "there is no class 'nowhere:Class'"),
        (["{folder}", "--class", "g=pathlib:Path"], "Path"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(folder=tmp_path) for word in words]
    assert main(["pipeline", "run", *given, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_quantiles_of_a_histogram() -> None:
    histogram = [0] * BUCKETS
    assert quantile(histogram, 0.5) == 0
    histogram[40], histogram[80] = 99, 1
    assert 1000 < quantile(histogram, 0.5) < 1300
    assert quantile(histogram, 0.995) > 1_000_000
