"""Following live groups: what is killed and started again leaves what one whole run leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from random import Random
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.pipeline.here import seal_here, verify_here
from tests.pipeline.test_growth import grow_in_order
from tests.pipeline.test_jobs import COUNTER

from coterie.cli import exits
from coterie.cli.main import main
from coterie.cli.pipeline import _reason
from coterie.pipeline.events import read_events
from coterie.pipeline.follow import _look, follow
from coterie.pipeline.jobs import Outcome, ResultsTaken, claimed, run_pipeline

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

JOBS = ("seal", "history", "verify", "events")


def rows_below(folder: Path) -> list[dict[str, Any]]:
    """All rows of a partitioned table, in the order of positions."""
    rows = [
        row
        for path in sorted(folder.rglob("*.parquet"))
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    return sorted(
        rows, key=lambda row: (row["position"], row.get("index", 0), row["view"]["number"])
    )


def test_following_brings_up_to_date_what_has_grown(
    spark: SparkSession, counter_journals: Path, tmp_path: Path
) -> None:
    journals, out = tmp_path / "journals", tmp_path / "out"
    told: list[Outcome] = []
    random = Random(3)  # noqa: S311 -- reproducible on purpose

    def catch_up() -> None:
        programs = {"group": COUNTER}
        follow(spark, [journals], out, jobs=JOBS, programs=programs, once=True, tell=told.append)

    grow_in_order(counter_journals, journals, random)
    grow_in_order(counter_journals, journals, random)
    catch_up()
    early = read_events(spark, out / "events").count()
    while grow_in_order(counter_journals, journals, random):
        pass
    catch_up()
    catch_up()
    assert len(told) == 2, "nothing has grown since"
    assert all(outcome.is_kept for outcome in told)
    assert early < read_events(spark, out / "events").count()
    alone = run_pipeline(
        spark, [journals], tmp_path / "alone", jobs=JOBS, programs={"group": COUNTER}
    )
    assert alone.events == told[-1].events > 0
    assert rows_below(out / "events") == rows_below(tmp_path / "alone" / "events")


class Enough(Exception):
    """The test has seen what it wanted."""


def test_following_without_a_stream(counter_journals: Path, tmp_path: Path) -> None:
    """Over Connect: at once, and then again whenever the journals have grown."""
    random = Random(3)  # noqa: S311 -- reproducible on purpose
    grow_in_order(counter_journals, tmp_path, random)
    seen: list[int] = []

    def bring_up_to_date() -> None:
        seen.append(sum(path.stat().st_size for path in tmp_path.rglob("*.segment")))
        if len(seen) == 3:
            raise Enough
        grow_in_order(counter_journals, tmp_path, random)

    with pytest.raises(Enough):
        _look([str(tmp_path)], bring_up_to_date, 0.001)
    assert seen == sorted(set(seen)), "each time there was more"


def test_following_once_without_a_stream(counter_journals: Path) -> None:
    called: list[int] = []
    _look([str(counter_journals)], lambda: called.append(1), None)
    assert called == [1]


@pytest.mark.slow  # the checks run several times over a history
@pytest.mark.parametrize("seed", range(2))
def test_no_promise_seems_broken_while_journals_grow_apart(
    seed: int, optimistic_journals: Path, tmp_path: Path
) -> None:
    """Journals are read one after the other, so what one answers to others may not show yet."""
    random = Random(seed)  # noqa: S311 -- reproducible on purpose
    while grow_in_order(optimistic_journals, tmp_path / "journals", random):
        grow_in_order(optimistic_journals, tmp_path / "journals", random)
        lake = seal_here(tmp_path / "journals", tmp_path / "lake", growing=True)
        for results in verify_here(lake).values():
            assert results.violations == []


def test_one_run_at_a_time(
    counter_journals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with claimed(tmp_path / "out"):
        with pytest.raises(ResultsTaken), claimed(tmp_path / "out"):
            pass
        words = ["pipeline", "follow", str(counter_journals), "--out", str(tmp_path / "out")]
        assert main(words) == exits.TAKEN
    assert "another run works on" in capsys.readouterr().err
    with claimed(tmp_path / "out"):
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--interval", "0"], "--interval goes up to 86400 seconds, not 0"),
    ],
)
def test_options_that_cannot_be(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "follow", str(tmp_path), "--out", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err


def test_our_sentence_is_found_in_a_long_story() -> None:
    story = "[STREAM_FAILED] at x\n  coterie.journal.JournalDamaged: a/b: torn\nJVM stack"
    assert _reason(RuntimeError(story)) == "coterie.journal.JournalDamaged: a/b: torn"
    assert _reason(RuntimeError("first\nsecond")) == "first"


@pytest.mark.long
def test_killed_at_any_moment(counter_journals: Path, tmp_path: Path) -> None:
    """`kill -9` during each of the jobs, while journals grow; then once in peace."""
    journals, out = tmp_path / "journals", tmp_path / "out"
    random = Random(1)  # noqa: S311 -- reproducible on purpose
    for moment in JOBS:
        grow_in_order(counter_journals, journals, random)
        process = start(journals, out)
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip() == f"{moment} ...":
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    while grow_in_order(counter_journals, journals, random):
        pass
    in_peace = start(journals, out, "--once")
    _, said = in_peace.communicate(timeout=300)
    assert in_peace.returncode == exits.DONE, said
    alone = start(copytree(journals, tmp_path / "copy"), tmp_path / "alone", "--once")
    alone.communicate(timeout=300)
    assert rows_below(out / "events") == rows_below(tmp_path / "alone" / "events") != []
    assert rows_below(out / "history") == rows_below(tmp_path / "alone" / "history") != []
    left = [path for path in out.rglob("_*") if path.name.startswith(("_draft", "_old"))]
    assert not left, "orphans are swept"


def start(journals: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    words = [
        *("pipeline", "follow", str(journals), "--out", str(out), "--interval", "1"),
        *("--only", ",".join(JOBS), "--class", "group=coterie.ready.counter:Counter", *more),
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "coterie.cli", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
