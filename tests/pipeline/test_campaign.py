"""Campaigns: seeds as tasks, and the journals of every run through the pipeline's checks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.pipeline.test_bad_input import Kept

from coterie.campaign import run_and_check, run_campaign
from coterie.cli import exits
from coterie.cli.main import main
from coterie.kernel.clock import seconds
from coterie.simulation import RunOptions, SeedRun, run_seed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

OPTIONS = RunOptions(
    stack="SAFE:DYNSEQ:PVSYNC",
    replicas=3,
    duration=seconds(3),
    faults=("partition", "crash"),
    object="counter",
)


def test_a_run_is_checked_by_its_journals_too(tmp_path: Path) -> None:
    row = run_and_check(1, OPTIONS, tmp_path / "failed", run_seed)
    assert row["violations"] == []
    assert row["checked"] > 100
    assert row["digest"] == run_seed(1, OPTIONS).digest, "as the simulator alone runs it"
    assert not (tmp_path / "failed").exists()


def forging(seed: int, options: RunOptions) -> SeedRun:
    """Run a seed, and exchange two payloads in the journal of one replica behind its back."""
    came = run_seed(seed, options)
    folder = f"{options.journals}/{seed}"
    forge(folder)
    return came


def forge(folder: str) -> None:
    """Write the journal of replica *a* anew, with one payload changed."""
    from shutil import rmtree  # noqa: PLC0415 -- this function travels to workers

    from msgspec.structs import replace  # noqa: PLC0415

    from coterie.journal import FileDisk, JournalReader, begin_life, recover  # noqa: PLC0415
    from coterie.journal.stable import found_group  # noqa: PLC0415
    from coterie.kernel.records import EntriesAccepted  # noqa: PLC0415

    disk = FileDisk(folder)
    records: list[Any] = list(JournalReader(disk, "group", "a").records())
    rmtree(f"{folder}/group/a")
    found_group(disk, "group", "a")
    writer = begin_life(disk, recover(disk, "group", "a"))
    is_forged = False
    for record in records:
        told = record
        if isinstance(record, EntriesAccepted) and not is_forged:
            payloads = [bytes(record.run.payloads[0]) + b"!", *record.run.payloads[1:]]
            told = replace(record, run=replace(record.run, payloads=payloads))
            is_forged = True
        writer.append([told])
    writer.close()
    assert is_forged


def test_what_only_the_journals_tell_fails_the_seed(tmp_path: Path) -> None:
    calm = RunOptions(stack="SAFE:DYNSEQ:PVSYNC", replicas=3, duration=seconds(2), faults=())
    row = run_and_check(2, calm, tmp_path / "failed", forging)
    assert row["violations"]
    assert all(said.startswith("journals: ") for said in row["violations"])
    assert list((tmp_path / "failed" / "2").rglob("*.segment")), "the evidence is kept"


def test_a_stack_without_a_journal_is_only_simulated(tmp_path: Path) -> None:
    options = RunOptions(stack="DYNSEQ:VSYNC", replicas=3, duration=seconds(2), faults=())
    row = run_and_check(1, options, tmp_path / "failed", run_seed)
    assert (row["violations"], row["checked"]) == ([], 0)


def test_a_campaign_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    def sometimes(seed: int, options: RunOptions) -> SeedRun:
        came = run_seed(seed, options)
        if seed == 4:
            came.violations.append("made up: for the test")
        return came

    campaign = run_campaign(spark, range(3, 6), OPTIONS, tmp_path, run=sometimes)
    assert campaign.seeds == 3
    assert campaign.failed == {4: ["made up: for the test"]}
    assert campaign.checked > 0
    assert [path.name for path in (tmp_path / "failed").iterdir()] == ["4"]
    coverage = pq.read_table(tmp_path / "coverage.parquet").to_pylist()
    assert coverage == campaign.coverage
    assert [row["fault"] for row in coverage] == ["crash", "partition"]
    assert sum(row["count"] for row in coverage) > 0
    runs = spark.read.parquet(str(tmp_path / "runs"))
    assert sorted(row["seed"] for row in runs.collect()) == [3, 4, 5]


def test_on_the_command_line(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("coterie.pipeline.spark.session.make_session", lambda **_: Kept(spark))
    words = ["campaign", "--seeds", "2", "--duration", "1", "--replicas", "3"]
    words += ["--faults", "crash", "--out", str(tmp_path)]
    assert main(words) == exits.DONE
    assert "SAFE:DYNSEQ:PVSYNC, 3 replicas: 2 seeds, no violation" in capsys.readouterr().out
    assert main([*words, "--json"]) == exits.DONE
    assert json.loads(capsys.readouterr().out)["failed"] == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--stack", "NONSENSE"], "NONSENSE"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--seeds", "10000001"], "--seeds goes up to 10,000,000"),
        (["--faults", "weather"], "there is no fault 'weather'"),
        (["--master", "spark://127.0.0.1:1"], "no Spark answers at spark://127.0.0.1:1"),
    ],
)
def test_what_cannot_be(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["campaign", "--out", str(tmp_path / "out"), *words]) == exits.MISUSE
    assert said in capsys.readouterr().err
