"""Bad input: each kind has a sentence and an exit status, and nothing is lost silently."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from shutil import copytree, rmtree
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile
from zlib import crc32

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from tests.patience import PATIENCE
from tests.pipeline.by_hand import begin, write
from tests.pipeline.here import seal_here
from tests.pipeline.test_jobs import COUNTER

from coterie.cli import exits
from coterie.cli.commands.pipeline import STATUSES, failed, summary
from coterie.cli.main import main
from coterie.journal.format import _FIXED_CHECKED, _FIXED_HEAD
from coterie.pipeline.jobs import JobOutcome, run_pipeline
from coterie.pipeline.lake.problems import wrong_with
from coterie.pipeline.spark import cluster
from coterie.pipeline.spark.cluster import (
    ClusterUnreachable,
    check_reachable,
    check_workers,
    places_of,
)
from coterie.pipeline.spark.tasks import for_each

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


def problems_here(journals: Path, folder: Path) -> list[str]:
    return wrong_with(seal_here(journals, folder / "lake")).sentences


@pytest.fixture
def journals(counter_journals: Path, tmp_path: Path) -> Path:
    return copytree(counter_journals, tmp_path / "journals")


def test_whole_journals_are_no_problem(journals: Path, tmp_path: Path) -> None:
    assert problems_here(journals, tmp_path) == []


def test_a_missing_replica_is_named(journals: Path, tmp_path: Path) -> None:
    rmtree(journals / "group" / "c")
    [sentence] = problems_here(journals, tmp_path)
    assert sentence == (
        "group group: there is no journal of c: what only its journal could tell stays undecided; "
        "add the folder that has it"
    )


def test_journals_of_two_groups_in_one_folder(journals: Path, tmp_path: Path) -> None:
    """Someone copied a replica of another group among the replicas of this one."""
    write(tmp_path / "other", "other", {name: begin("other", name) for name in "abc"})
    copytree(tmp_path / "other" / "other" / "a", journals / "group" / "d")
    [sentence, _] = sorted(problems_here(journals, tmp_path))
    assert "group group: group/d/" in sentence
    assert "misplaced: it says that it is record 1 and following of life 1" in sentence
    assert "of replica a of group other" in sentence


def test_two_groups_of_one_name(tmp_path: Path) -> None:
    """Two groups that never knew of each other were given the same name."""
    folder = tmp_path / "journals"
    write(folder, "group", {name: begin("group", name) for name in "abc"})
    write(folder, "group", {name: begin("group", name, "xyz") for name in "xyz"})
    [sentence] = problems_here(folder, tmp_path)
    assert sentence == (
        "group group: these are journals of different groups of one name (a, b, c of a group of "
        "a, b, c; x, y, z of a group of x, y, z): read each group by itself"
    )


def test_two_versions_of_the_format(journals: Path, tmp_path: Path) -> None:
    """A later release wrote a part of the segments."""
    [_, *later] = sorted((journals / "group" / "a").rglob("*.segment"))
    assert later
    for path in later:
        data = path.read_bytes()
        magic, version, reserved, length, _ = _FIXED_HEAD.unpack_from(data)
        assert version == 1
        head = _FIXED_HEAD.pack(magic, 2, reserved, length, 0)
        body = data[_FIXED_HEAD.size : _FIXED_HEAD.size + length]
        check = crc32(body, crc32(head[_FIXED_CHECKED]))
        path.write_bytes(head[:-4] + check.to_bytes(4, "big") + data[_FIXED_HEAD.size :])
    [sentence] = problems_here(journals, tmp_path)
    assert "unreadable: a segment of version 2, and this release knows version 1" in sentence
    assert "use the release that wrote it" in sentence


def test_exit_statuses(tmp_path: Path) -> None:
    violation: dict[str, Any] = {"check_name": "one history", "evidence": "a and b differ"}
    well = JobOutcome(tmp_path)
    assert STATUSES[well.outcome] == exits.DONE
    incomplete = JobOutcome(tmp_path, problems=["group g: there is no journal of c"])
    assert STATUSES[incomplete.outcome] == exits.UNKNOWN
    assert "PROBLEM    group g: there is no journal of c" in list(summary(incomplete.told()))
    broken = JobOutcome(tmp_path, violations=[violation], problems=["group g: x"])
    assert STATUSES[broken.outcome] == exits.NOT_DONE


class Kept:
    """The tests' session, which a command must not end."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> object:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


def test_a_missing_replica_on_the_command_line(
    spark: SparkSession,
    journals: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("coterie.pipeline.spark.session.make_session", lambda **_: Kept(spark))
    rmtree(journals / "group" / "c")
    words = ["pipeline", "run", str(journals), "--out", str(tmp_path / "out"), "--json"]
    assert main(words) == exits.UNKNOWN
    told = json.loads(capsys.readouterr().out)
    assert told["problems"][0].startswith("group group: there is no journal of c")
    assert "there is no journal of c" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_strict_stops_at_damage(
    spark: SparkSession,
    journals: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("coterie.pipeline.spark.session.make_session", lambda **_: Kept(spark))
    first = min((journals / "group" / "b").rglob("*.segment"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 0xFF
    first.write_bytes(data)
    words = ["pipeline", "run", str(journals), "--out", str(tmp_path / "out"), "--only", "seal"]
    assert main([*words, "--strict"]) == exits.UNKNOWN
    said = capsys.readouterr().err
    assert f"coterie: {first.relative_to(journals)}" in said
    assert "Traceback" not in said
    assert main(words) == exits.UNKNOWN
    assert "PROBLEM    group group: " in capsys.readouterr().out


def test_what_spark_itself_fails_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(RuntimeError("[OUT_OF_SPACE] no room\nat x.y")) == exits.BUG
    assert capsys.readouterr().err == "coterie: Spark failed: [OUT_OF_SPACE] no room\n"
    assert failed(RuntimeError("Traceback\ncoterie.x.CannotReplay: no\n")) == exits.MISUSE
    assert capsys.readouterr().err == "coterie: no\n"


def test_the_exception_of_a_worker_is_told_whole(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was "Spark failed: An exception was thrown from the Python worker" and nothing more."""

    def work(item: int) -> Iterator[pa.RecordBatch]:
        if item:
            raise OverflowError(f"{item} is too large\nby far")
        yield from ()

    with pytest.raises(PySparkException) as raised:
        for_each(spark, [17], work, pa.schema([("a", pa.int64())])).toArrow()
    assert failed(raised.value) == exits.BUG
    said = capsys.readouterr().err
    assert "in work" in said
    assert said.endswith("OverflowError: 17 is too large\nby far\n")
    assert "java" not in said


def test_events_of_a_history_without_its_beginning(
    spark: SparkSession, journals: Path, tmp_path: Path
) -> None:
    """Nobody has the first segments any more, and the lake never had them."""
    for name in "abc":
        min((journals / "group" / name).rglob("*.segment")).unlink()
    outcome = run_pipeline(
        spark, [journals], tmp_path / "out", jobs=["seal", "events"], programs={"group": COUNTER}
    )
    assert outcome.events == 0
    [sentence] = [each for each in outcome.problems if "no events" in each]
    assert sentence == (
        "group group: no events are written: the history of group cannot be run: no authoritative "
        "entry is known at 1"
    )


# ---- clusters


def test_machines_that_a_url_names() -> None:
    assert list(places_of("spark://one:7000,two")) == [("one", 7000), ("two", 7077)]
    assert list(places_of("spark://[::1]:7000")) == [("::1", 7000)]
    assert list(places_of("sc://one/;token=x")) == [("one", 15002)]
    assert list(places_of("yarn")) == []
    with pytest.raises(ClusterUnreachable, match="names no machine: it should look like spark://"):
        list(places_of("spark://"))


@pytest.mark.parametrize("option", ["--master=spark", "--remote=sc"])
def test_an_unreachable_master(
    option: str, counter_journals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_reachable(f"spark://127.0.0.1:{port}")
    words = ["pipeline", "run", str(counter_journals), "--out", str(tmp_path / "out")]
    assert main([*words, f"{option}://127.0.0.1:{port}"]) == exits.MISUSE
    said = capsys.readouterr().err
    assert f"no Spark answers at {option.partition('=')[2]}://127.0.0.1:{port}" in said
    assert "start it, or name another" in said
    assert not (tmp_path / "out").exists()


SILENT = """
import sys, time
from importlib.machinery import PathFinder
from coterie.cli.main import main
from coterie.pipeline.spark import cluster

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "pyspark.sql.connect.session":
            time.sleep(3)
        return None

sys.meta_path.insert(0, Slow())
cluster.WORKER_SECONDS = 1
sys.exit(main(sys.argv[1:]))
"""
"""Importing Spark Connect takes longer here than the server may take to answer."""


@pytest.mark.slow  # a process of its own, because Spark keeps at it in the background
def test_a_server_that_says_nothing(counter_journals: Path, tmp_path: Path) -> None:
    """Spark Connect would ask it again for a quarter of an hour."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"sc://127.0.0.1:{server.getsockname()[1]}"
        words = ["pipeline", "run", str(counter_journals), "--out", str(tmp_path), "--remote", url]
        done = subprocess.run(
            [sys.executable, "-c", SILENT, *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == exits.MISUSE
    assert f"the Spark at {url} gave us no worker in 1 s: see whether it is one" in done.stderr
    assert "Traceback" not in done.stderr


class Busy:
    """A cluster that takes jobs and never does them, or fails at once."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def range(self, _: int) -> Busy:
        return self

    def count(self) -> int:
        if self._error is not None:
            raise self._error
        threading.Event().wait()
        return 0


def test_a_cluster_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WORKER_SECONDS", 0.01)
    with pytest.raises(ClusterUnreachable, match="gave us no worker in 0 s: see whether it is one"):
        check_workers(Busy(), "spark://one")  # type: ignore[arg-type]
    monkeypatch.setattr(cluster, "WORKER_SECONDS", 60)
    with pytest.raises(ClusterUnreachable, match=r"at spark://one does not work: no memory$"):
        check_workers(Busy(MemoryError("no memory\nat x")), "spark://one")  # type: ignore[arg-type]


def test_the_package_is_shipped_whole(tmp_path: Path) -> None:
    archive = cluster.pack(tmp_path)
    names = set(ZipFile(archive).namelist())
    assert {"coterie/__init__.py", "coterie/pipeline/lake/sealing.py"} <= names
    assert not any("__pycache__" in name for name in names)
    first = archive.read_bytes()
    assert cluster.pack(tmp_path).read_bytes() == first
