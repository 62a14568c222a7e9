"""The pipeline as a whole: from folders of journals to tables and a page."""

from __future__ import annotations

import json
import os
import shutil
from shutil import rmtree
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from tests.pipeline.by_hand import begin, write
from tests.pipeline.here import judge_here

from coterie.cli import exits
from coterie.cli.commands.pipeline import EXTRAS_LATER, WANTS_EXTRAS, _programs
from coterie.cli.main import main
from coterie.objects import HostSettings
from coterie.pipeline.again import recall, remember
from coterie.pipeline.history.replay import Program
from coterie.pipeline.jobs import JobOutcome, run_pipeline
from coterie.pipeline.publish.events import read_events
from coterie.pipeline.publish.figures import BUCKETS, quantile
from coterie.pipeline.read.places import NoJournals, find_journals

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
    assert done == ["seal", "history+verify+events", "report"]
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
    events = read_events(spark, tmp_path / "tables" / "events")
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

    def run(*jobs: str) -> JobOutcome:
        programs = {group: COUNTER}
        return run_pipeline(spark, [counter_journals], tmp_path, jobs=jobs, programs=programs)

    count = run("seal", "events").events
    assert count > 0
    assert not (tmp_path / "tables" / "history").exists(), "nobody asked for it"
    (first, *_) = sorted((tmp_path / "tables" / "events").glob("group_name=*/range_number=*"))
    before = (first / "part.parquet").read_bytes()
    (tmp_path / "_scratch").mkdir()
    (tmp_path / "versions" / "_draft-000002" / "events").mkdir(parents=True)
    assert run("events").events == count
    assert not list(tmp_path.rglob("_draft-*"))
    assert not (tmp_path / "_scratch").exists()
    assert (first / "part.parquet").read_bytes() == before
    assert read_events(spark, tmp_path / "tables" / "events").count() == count
    rmtree(tmp_path / "tables" / "events")
    assert read_events(spark, tmp_path / "tables" / "events").count() == 0


def test_a_later_report_remembers_the_verdicts(
    spark: SparkSession, counter_journals: Path, tmp_path: Path
) -> None:
    run_pipeline(spark, [counter_journals], tmp_path, jobs=["seal", "history", "verify"])
    outcome = run_pipeline(spark, [counter_journals], tmp_path, jobs=["report"])
    assert outcome.report is not None
    assert "Every promise that could be checked was kept." in outcome.report.read_text("utf-8")


def test_lives_without_a_segment_keep_no_promise(spark: SparkSession, tmp_path: Path) -> None:
    """It was said to be *kept*, of no group at all."""
    (tmp_path / "journals" / "g" / "a" / "000001").mkdir(parents=True)
    outcome = run_pipeline(
        spark, [tmp_path / "journals"], tmp_path / "out", jobs=("seal", "verify")
    )
    assert outcome.outcome == "damaged"
    (problem,) = outcome.problems
    assert "the journal of 'a' of group 'g' has lives, and no segment in them" in problem


def test_journals_are_found_below_a_folder(counter_journals: Path, tmp_path: Path) -> None:
    assert find_journals([counter_journals]) == [str(counter_journals)]
    copy = shutil.copytree(counter_journals, tmp_path / "all" / "counter")
    assert find_journals([tmp_path]) == [str(copy)]
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoJournals, match="no journal in"):
        find_journals([tmp_path / "empty"])
    with pytest.raises(NoJournals, match="is no folder"):
        find_journals([tmp_path / "nothing"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{folder}"], "no journal in"),
        (["{folder}/nothing"], "is no folder"),
        (["{folder}", "--only", "seal,dance"], "there is no job 'dance'"),
        (["{folder}", "--class", "nonsense"], "should say GROUP=MODULE:CLASS"),
        (["{folder}", "--class", "g=nowhere.py:Class"], "there is no file"),
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


def test_a_class_in_a_file(tmp_path: Path) -> None:
    """As `coterie serve` takes it."""
    (tmp_path / "tallies.py").write_text(
        "from coterie import update\n"
        "class Tally:\n"
        "    def __init__(self) -> None:\n"
        "        self.count: int = 0\n"
        "    @update\n"
        "    def add(self, number: int) -> int:\n"
        "        self.count += number\n"
        "        return self.count\n"
    )
    [(group, program)] = _programs([f"g={tmp_path}/tallies.py:Tally"])
    assert group == "g"
    assert program.name == "tallies:Tally"
    assert program.load().name == "Tally"


def test_what_is_wrong_is_said_before_spark_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    words = ["pipeline", "run", str(tmp_path), "--out", str(tmp_path / "out")]
    assert main([*words, "--only", "dance"]) == exits.MISUSE
    assert "there is no job 'dance'" in capsys.readouterr().err
    write(tmp_path / "journals", "g", {"a": begin("g", "a")})
    assert main(words) == exits.MISUSE
    assert "the pipeline needs Spark" in capsys.readouterr().err
    monkeypatch.setenv(EXTRAS_LATER, "1")
    assert main(words) == WANTS_EXTRAS


def test_an_error_of_our_own_is_no_broken_promise(
    counter_journals: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(**_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("coterie.pipeline.spark.session.make_session", fail)
    words = ["pipeline", "run", str(counter_journals), "--out", str(tmp_path / "out"), "--json"]
    assert main(words) == exits.BUG
    told = capsys.readouterr()
    assert "says nothing of the journals" in told.err
    assert "ZeroDivisionError: a bug" in told.err
    assert json.loads(told.out)["outcome"] == "failed"


def test_a_run_with_nothing_new(tmp_path: Path) -> None:
    """It says what the last one said; whatever changes, it does not."""
    journals, out = tmp_path / "journals", tmp_path / "out"
    write(journals, "g", {name: begin("g", name) for name in "abc"})
    roots = [str(journals)]
    told: dict[str, Any] = {"outcome": "kept", "report": None, "verdicts": []}
    judge_here(journals, out / "lake")
    for path in journals.rglob("*.segment"):
        os.utime(path, (1, 1))
    with patch("coterie.pipeline.read.planning.SETTLED_SECONDS", -1e9):
        remember(out, roots, ["seal"], told, growing=False)
        found = recall(out, roots, ["seal"], growing=False)
        assert found is not None
        assert found["outcome"] == "kept"
        assert recall(out, roots, ["seal", "report"], growing=False) is None
        sealed = min((out / "lake" / "views").rglob("*.parquet"))
        whole, times = sealed.read_bytes(), sealed.stat()
        sealed.write_bytes(whole[:-9])
        assert recall(out, roots, ["seal"], growing=False) is None, "the lake has lost something"
        sealed.write_bytes(whole)
        os.utime(sealed, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert recall(out, roots, ["seal"], growing=False) is not None
        path = min(journals.rglob("*.segment"))
        path.write_bytes(path.read_bytes() + b"x")
        assert recall(out, roots, ["seal"], growing=False) is None
    assert recall(out, roots, ["seal"], growing=False) is None, "it was just written"


def test_quantiles_of_a_histogram() -> None:
    histogram = [0] * BUCKETS
    assert quantile(histogram, 0.5) == 0
    histogram[40], histogram[80] = 99, 1
    assert 1000 < quantile(histogram, 0.5) < 1300
    assert quantile(histogram, 0.995) > 1_000_000
