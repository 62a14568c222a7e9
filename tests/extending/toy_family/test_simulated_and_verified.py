"""The toy family is simulated under its faults, and verified from the journals of such runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from tests.extending.toy_family.engine import NAME, Copy, Copying
from tests.extending.toy_family.registry import registered
from tests.extending.toy_family.simulation_side import ToyOptions, ToyTrial
from tests.extending.toy_family.test_served import SETTINGS, ToyDeployment, play_toy

import coterie
from coterie.cli.main import main
from coterie.kernel.clock import seconds
from coterie.pipeline.engines.family import Wanted
from coterie.pipeline.history.verify import judge_alone
from coterie.pipeline.lake.lake import Lake
from coterie.pipeline.lake.sealing import seal_segment
from coterie.pipeline.read.planning import plan
from coterie.ready import Counter
from coterie.simulation import run_seed
from coterie.simulation.campaign import run_trial

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coterie.pipeline.history.verify import Verification

OPTIONS = ToyOptions(replicas=3, duration=seconds(3))


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    with registered():
        yield


class CountsForItself(Copying):
    """A broken variant: who has missed an entry gives the next one its place."""

    def _on_copy(self, message: Copy) -> None:
        shifted = [
            structs.replace(run, position=self.position + 1)
            if run.position > self.position
            else run
            for run in message.runs
        ]
        super()._on_copy(Copy(shifted, message.settled))


def judged(folder: Path, seed: int, kind: type[Copying] = Copying) -> Verification:
    """Run a seed, and judge its journals."""
    options = structs.replace(OPTIONS, journals=str(folder / "runs"))
    run_trial(ToyTrial(seed, options, kind=kind))
    return judge_journals([folder / "runs" / str(seed)], folder / "lake")


def judge_journals(folders: list[Path], into: Path) -> Verification:
    """Do what `coterie pipeline run` does, but for Spark."""
    lake = Lake.make(into)
    for segment in plan(folders):
        seal_segment(segment, lake)
    return judge_alone(lake, Wanted(scratch=str(into.parent / "scratch")))


@pytest.mark.parametrize("seed", range(5))
def test_it_survives_its_faults(seed: int) -> None:
    run = run_seed(seed, OPTIONS)
    assert not run.violations
    assert run.figures["entries"]
    assert run_seed(seed, OPTIONS).digest == run.digest


def test_broken_toys_are_caught_in_the_simulator() -> None:
    run = run_trial(ToyTrial(1, OPTIONS, kind=CountsForItself))
    assert any(violation.startswith("one history") for violation in run.violations)


def test_the_command_line_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--engine", NAME, "--seed", "1", "--duration", "2"]) == 0
    assert "toy, 3 replicas" in capsys.readouterr().out


def test_its_journals_are_verified(tmp_path: Path) -> None:
    verification = judged(tmp_path, 3)
    assert verification.is_kept
    verdicts = {row["check_name"]: row["verdict"] for row in verification.verdicts}
    assert verdicts == {"one history": "kept", "settled by a majority": "kept"}


def test_what_was_served_is_verified(tmp_path: Path) -> None:
    async def story(deployment: ToyDeployment) -> None:
        async with coterie.connect(Counter, deployment.seeds, settings=SETTINGS) as counter:
            for amount in range(10):
                await counter.add(amount)
        await deployment.until(lambda: len(deployment.positions()) == 1)

    play_toy(tmp_path / "served", story)
    verification = judge_journals([tmp_path / "served" / id for id in "abc"], tmp_path / "lake")
    verdicts = {row["check_name"]: row["verdict"] for row in verification.verdicts}
    assert verdicts == {"one history": "kept", "settled by a majority": "kept"}
    assert all(row["checked"] >= 10 for row in verification.verdicts)


def test_broken_toys_are_caught_from_their_journals(tmp_path: Path) -> None:
    broken = judged(tmp_path, 1, CountsForItself)
    assert {row["check_name"] for row in broken.violations} == {"one history"}
