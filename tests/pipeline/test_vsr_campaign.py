"""Campaigns of transactions: each seed is checked from inside and by its journals."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING

import pytest

from coterie.campaign import run_and_check
from coterie.cli.commands import campaign, sim
from coterie.cli.main import main
from coterie.kernel.clock import seconds
from coterie.simulation.campaign import run_seed
from coterie.simulation.engines.vsr.trial import TransactionOptions

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.simulation.campaign import SeedRun

OPTIONS = TransactionOptions(groups=2, duration=seconds(2), faults=("crash", "partition"))


def test_a_run_is_checked_by_its_journals_too(tmp_path: Path) -> None:
    row = run_and_check(1, OPTIONS, tmp_path / "failed", run_seed)
    assert row["violations"] == []
    assert row["checked"] > 20
    assert row["digest"] == run_seed(1, OPTIONS).digest, "as the simulator alone runs it"
    assert not (tmp_path / "failed").exists()


def failing(seed: int, options: TransactionOptions) -> SeedRun:
    """Run a seed, and say that it failed."""
    came = run_seed(seed, options)
    came.violations.append("something: is wrong")
    return came


def test_the_journals_of_a_run_that_failed_are_kept(tmp_path: Path) -> None:
    row = run_and_check(1, OPTIONS, tmp_path / "failed", failing)
    assert row["violations"] == ["something: is wrong"]
    assert (tmp_path / "failed" / "1" / "bank0").is_dir()


def test_the_command_line_chooses_the_engine(tmp_path: Path) -> None:
    parser = campaign.add_parser(ArgumentParser().add_subparsers())  # type: ignore[arg-type]
    words = ["--engine", "vsr", "--object", "airline", "--groups", "2", "--out", str(tmp_path)]
    args = parser.parse_args(words)
    options = sim.options_of(args, wants_journals=True)
    assert isinstance(options, TransactionOptions)
    assert (options.object, options.groups, options.replicas) == ("airline", 2, 3)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--object bank", "choose --engine vsr"),
        ("--engine vsr --object counter", "--object is bank or airline"),
        ("--sync primary", "--sync primary is for --engine vsr"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    words: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["campaign", *words.split(), "--out", str(tmp_path)]) == 2
    assert complaint in capsys.readouterr().err
