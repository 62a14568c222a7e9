"""Following live groups: what is killed and started again leaves what one whole run leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from random import Random
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from tests.pipeline.here import seal_here, verify_here
from tests.pipeline.test_growth import grow_in_order
from tests.pipeline.test_jobs import COUNTER

from coterie.cli import exits
from coterie.cli.commands.pipeline import failed
from coterie.cli.main import main
from coterie.pipeline.follow import ATTEMPTS_MAX, _look, _stream, follow
from coterie.pipeline.jobs import JobOutcome, ResultsTaken, claimed, run_pipeline
from coterie.pipeline.publish.events import read_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = ("seal", "history", "verify", "events")


def rows_below(out: Path, table: str) -> list[dict[str, Any]]:
    """All rows of a partitioned table of results, in the order of positions."""
    rows = [
        row
        for path in sorted((out / "tables" / table).rglob("*.parquet"))
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    return sorted(
        rows, key=lambda row: (row["position"], row.get("index", 0), row["view"]["number"])
    )


def test_following_brings_up_to_date_what_has_grown(
    spark: SparkSession, counter_journals: Path, tmp_path: Path
) -> None:
    journals, out = tmp_path / "journals", tmp_path / "out"
    told: list[JobOutcome] = []
    random = Random(3)  # noqa: S311 -- reproducible on purpose

    def catch_up() -> None:
        programs = {"group": COUNTER}
        follow(spark, [journals], out, jobs=JOBS, programs=programs, once=True, tell=told.append)

    grow_in_order(counter_journals, journals, random)
    grow_in_order(counter_journals, journals, random)
    catch_up()
    early = read_events(spark, out / "tables" / "events").count()
    while grow_in_order(counter_journals, journals, random):
        pass
    catch_up()
    catch_up()
    assert len(told) == 2, "nothing has grown since"
    assert all(outcome.is_kept for outcome in told)
    assert early < read_events(spark, out / "tables" / "events").count()
    alone = run_pipeline(
        spark, [journals], tmp_path / "alone", jobs=JOBS, programs={"group": COUNTER}
    )
    assert alone.events == told[-1].events > 0
    assert rows_below(out, "events") == rows_below(tmp_path / "alone", "events")


class Busy:
    """Spark on a machine that is too busy to start Python, for some time; all in one."""

    def __init__(self, failures: int, reason: str) -> None:
        self.failures, self.reason = failures, reason
        self.started = self.stopped = 0

    def __getattr__(self, name: str) -> object:
        return self if name in {"readStream", "writeStream"} else lambda *_, **__: self

    def start(self) -> Busy:
        self.started += 1
        return self

    def awaitTermination(self) -> None:  # noqa: N802 -- Spark's name
        if self.started <= self.failures:
            raise StreamingQueryException(self.reason)

    def stop(self) -> None:
        self.stopped += 1


@pytest.mark.parametrize(
    ("failures", "reason", "starts"),
    [
        (2, "Python worker failed to connect back.", 3),
        (9, "Python worker failed to connect back.", ATTEMPTS_MAX),
        (1, "no room", 1),
    ],
)
def test_a_busy_machine_is_given_some_time(
    failures: int, reason: str, starts: int, tmp_path: Path
) -> None:
    busy = Busy(failures, reason)
    ends_well = failures < starts
    with nullcontext() if ends_well else pytest.raises(StreamingQueryException, match=reason):
        _stream(busy, [str(tmp_path)], tmp_path, lambda: None, None)  # type: ignore[arg-type]
    assert busy.started == busy.stopped == starts


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


def test_what_lies_elsewhere_is_brought_before_each_look(
    counter_journals: Path, tmp_path: Path
) -> None:
    """Once a journal is there, results are brought up to date."""
    copytree(counter_journals / "group" / "a", tmp_path / "group" / "a")
    done: list[str] = []

    def refresh() -> None:
        if "up to date" in done[1:]:
            raise Enough
        done.append("brought")
        copytree(counter_journals / "group" / "b", tmp_path / "group" / "b")

    with pytest.raises(Enough):
        _look([str(tmp_path)], lambda: done.append("up to date"), 0.001, refresh=refresh)
    assert done == ["up to date", "brought", "up to date"]


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


def test_our_sentence_is_found_in_a_long_story(capsys: pytest.CaptureFixture[str]) -> None:
    story = "[STREAM_FAILED] at x\n  coterie.journal.JournalDamaged: a/b: torn\nJVM stack"
    assert failed(RuntimeError(story)) == exits.UNKNOWN
    assert capsys.readouterr().err == "coterie: a/b: torn\n"


# What `coterie pipeline follow` does, on a Spark that starts sooner.
FOLLOW = """
import sys
from pathlib import Path
from coterie.pipeline.follow import follow
from coterie.pipeline.jobs import claimed
from coterie.pipeline.spark.session import SMALL, make_session
from tests.pipeline.test_follow import JOBS
from tests.pipeline.test_jobs import COUNTER

journals, out = map(Path, sys.argv[1:])
with claimed(out):
    follow(
        make_session(master="local[1]", settings=SMALL),
        [journals],
        out,
        jobs=JOBS,
        programs={"group": COUNTER},
        interval_seconds=1,
        progress=lambda job: print(job, flush=True),
    )
"""


@pytest.mark.long
def test_killed_at_any_moment(spark: SparkSession, counter_journals: Path, tmp_path: Path) -> None:
    """`kill -9` during each of the steps, while journals grow; then once in peace."""
    journals, out = tmp_path / "journals", tmp_path / "out"
    random = Random(1)  # noqa: S311 -- reproducible on purpose
    for moment in ("seal", "history+verify+events", "seal", "history+verify+events"):
        grow_in_order(counter_journals, journals, random)
        kill_during(moment, journals, out)
    while grow_in_order(counter_journals, journals, random):
        pass
    programs = {"group": COUNTER}
    with claimed(out):
        follow(spark, [journals], out, jobs=JOBS, programs=programs, once=True)
    alone = tmp_path / "alone"
    assert run_pipeline(spark, [journals], alone, jobs=JOBS, programs=programs).is_kept
    assert rows_below(out, "events") == rows_below(alone, "events") != []
    assert rows_below(out, "history") == rows_below(alone, "history") != []
    left = [path for path in out.rglob("_*") if path.name.startswith(("_draft", "_old"))]
    assert not left, "orphans are swept"


def kill_during(moment: str, journals: Path, out: Path) -> None:
    """Follow until a step begins, and kill everything then."""
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOW, journals, out],
        cwd=Path(__file__).parent.parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.strip() == moment:
                    break
                assert line.strip() in {"seal", "history+verify+events"}, "a step nobody waits for"
            else:
                pytest.fail("it ended before it came to that step")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
