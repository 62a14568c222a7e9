"""Random runs of the bank and the airline over several groups."""

from __future__ import annotations

import json

import pytest

from coterie.cli.main import main
from coterie.journal.format import Sync
from coterie.kernel.clock import seconds
from coterie.simulation.campaign import run_seed
from coterie.simulation.engines.vsr.trial import TransactionOptions, spread


def test_groups_share_machines_and_their_first_cohorts_differ() -> None:
    groups = spread("bank", 3, 3)
    assert groups == {"bank0": tuple("abc"), "bank1": tuple("cde"), "bank2": tuple("eab")}


def test_a_calm_bank_loses_nothing_and_ends_everything() -> None:
    run = run_seed(1, TransactionOptions(duration=seconds(3), faults=()))
    assert run.violations == []
    assert run.figures["committed"] > 10
    assert run.figures["unknown"] == 0


def test_the_same_seed_gives_the_same_run() -> None:
    options = TransactionOptions(duration=seconds(1), faults=("crash", "loss"))
    assert run_seed(5, options) == run_seed(5, options)


def test_a_calm_airline_sells_every_seat_once() -> None:
    run = run_seed(1, TransactionOptions(object="airline", duration=seconds(3), faults=()))
    assert run.violations == []
    assert run.figures["committed"] > 10
    assert run.figures["checks"] > 1


def test_a_last_look_may_be_the_victim_of_what_clients_still_do() -> None:
    run = run_seed(245, TransactionOptions(duration=seconds(6)))
    assert run.violations == []
    assert any("deadlock" in reason for reason in run.reasons)


@pytest.mark.slow  # a small campaign
@pytest.mark.parametrize(
    ("name", "sync"),
    [("bank", Sync.NONE), ("bank", Sync.PRIMARY), ("bank", Sync.TURN), ("airline", None)],
)
def test_random_runs_keep_all_promises(name: str, sync: Sync | None) -> None:
    for seed in range(2):
        options = TransactionOptions(object=name, duration=seconds(8), sync=sync)
        assert run_seed(seed, options).violations == []


def test_the_command_line_runs_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = "sim --engine vsr --object bank --groups 2 --seed 3 --duration 1 --jobs 1"
    assert main(words.split()) == 0
    printed = capsys.readouterr().out
    assert "VSR bank, 2 groups of 3: 1 seeds, no violation" in printed
    assert main([*words.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["failed"] == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--engine vsr --object counter", "--object is bank or airline for --engine vsr"),
        ("--object bank", "choose --engine vsr"),
        ("--object airline", "choose --engine vsr"),
        ("--engine vsr --groups 0", "--groups must be at least 1"),
        ("--engine vsr --replicas 9", "--replicas goes from 1 to 5"),
        ("--engine vsr --faults frogs", "there is no fault 'frogs' for --engine vsr"),
    ],
)
def test_a_wrong_command_line_is_refused(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", *words.split()]) == 2
    assert complaint in capsys.readouterr().err
