"""Runs that begin old: what only age brings, without the years."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tests.broken.old_variants import OLD_BROKEN, OldBroken

from coterie.campaign import run_and_check
from coterie.cli.main import main
from coterie.journal.life import NUMBER_MAX
from coterie.kernel.clock import seconds
from coterie.simulation import RunOptions, Simulation, run_seed
from coterie.simulation.engines.stack.clients import SimulatedObject
from coterie.simulation.engines.vsr.trial import ENDED_OLD, TransactionOptions, TransactionTrial
from coterie.simulation.parallel import run_many
from coterie.simulation.world.age import LIMITS, VIEWS, draw_age
from coterie.stacks import ENGINE_STACKS
from coterie.vsr.commit.server import Server

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.simulation.campaign import Options

STACK = "SAFE:DYNSEQ:PVSYNC"
SEED = 3


def test_ages_are_drawn_from_all_limits() -> None:
    ages = [draw_age(seed) for seed in range(200)]
    for limit in LIMITS:
        assert any(limit - 8 <= age.lives < limit for age in ages)
        assert any(limit - 200 <= age.position < limit for age in ages)
    assert all(0 < number < NUMBER_MAX for age in ages for number in age)


def test_a_group_begins_with_what_years_have_left() -> None:
    age = draw_age(SEED)
    group = Simulation(
        seed=SEED, stack=STACK, has_object=True, object_kind="counter", age=age
    ).group("a", "b", "c")
    group.run_until_whole()
    host = group["a"]
    assert host.incarnation == age.lives + 1
    place = host.place
    assert place is not None
    assert place[0].number > age.view
    ledger = host.ledger
    assert isinstance(ledger, SimulatedObject)
    machine = ledger.engine_host.copies.machine
    assert machine.position >= age.position
    assert len(machine.sessions) == machine.settings.sessions_max, "all are taken"
    group.clients.start()
    group.run(seconds(5))
    assert machine.sessions.evicted > age.number, "new ones take their places"
    group.check()


def test_cohorts_begin_with_what_years_have_left() -> None:
    age = draw_age(SEED)
    options = TransactionOptions(groups=1, old=True)
    world = TransactionTrial(SEED, options).world
    world.run_until_whole()
    primary = world.primary("bank0")
    assert primary is not None
    assert primary.cur_viewid.number > age.view
    assert len(primary.log.history) == min(VIEWS, age.view + 1)
    module = primary.module
    assert isinstance(module, Server)
    assert len(module.state.ended) == ENDED_OLD
    assert module.state.forgotten


OLD: tuple[Options, ...] = (
    *(RunOptions(stack=stack, old=True, duration=seconds(4)) for stack in ENGINE_STACKS),
    RunOptions(stack=STACK, object="queue", old=True, duration=seconds(4)),
    TransactionOptions(old=True, duration=seconds(4)),
)


def named(options: Options) -> str:
    return f"{getattr(options, 'stack', 'VSR')} {options.object}".strip()


@pytest.mark.long
@pytest.mark.parametrize("options", OLD, ids=named)
def test_old_runs_keep_every_promise(options: Options) -> None:
    assert not run_seed(SEED, options).violations


@pytest.mark.long
@pytest.mark.parametrize("options", OLD, ids=named)
def test_many_old_runs_keep_every_promise(options: Options) -> None:
    runs = run_many(range(100, 103), replace(options, duration=seconds(10)))
    assert not [violation for run in runs for violation in run.violations]


def test_an_old_run_can_be_repeated() -> None:
    options = RunOptions(stack=STACK, object="dictionary", old=True, duration=seconds(2))
    traces: list[list[str]] = []
    for _ in range(2):
        lines: list[str] = []
        run_seed(SEED, options, trace=lines.append)
        traces.append(lines)
    assert traces[0] == traces[1]
    assert traces[0] != [], "something happened"


@pytest.mark.slow  # every run is one of many simulated seconds
@pytest.mark.parametrize("variant", OLD_BROKEN, ids=lambda variant: variant.name)
def test_only_age_reveals_a_broken_variant(variant: OldBroken) -> None:
    seed = variant.first_seed
    assert not variant.fires(seed, old=False), "young groups do not come there"
    assert any(variant.fires(seed + more) & set(variant.caught_by) for more in range(20))


@pytest.mark.slow  # the pipeline reads all journals of a run
def test_the_pipeline_judges_journals_of_any_age(tmp_path: Path) -> None:
    """Positions were counted one by one from the first: no run over such journals ever ended."""
    options = RunOptions(stack=STACK, replicas=3, old=True, duration=seconds(2))
    row = run_and_check(0, options, tmp_path / "failed")
    assert row["violations"] == []
    assert row["checked"] > 100


def test_the_command_line_says_who_can_be_old(capsys: pytest.CaptureFixture[str]) -> None:
    words = "sim --old --stack DYNSEQ:VSYNC --seed 1 --duration 0.5 --replicas 3 --jobs 1"
    assert main(words.split()) == 0
    assert main(["sim", "--old", "--stack", "COLOURS:DYNSEQ:VSYNC", "--seed", "1"]) == 2
    assert "--old is not for COLOURS yet" in capsys.readouterr().err
