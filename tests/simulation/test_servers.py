"""Server groups in the simulator: all faults, and clients that know nothing of replication."""

import pytest

from coterie.cli.main import main
from coterie.kernel.clock import seconds
from coterie.simulation import RunOptions
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.servers.trial import ServerTrial
from coterie.simulation.faults import ALL_FAULTS
from coterie.simulation.parallel import run_many
from coterie.stacks import SERVER_STACKS


def failures(stack: str, kind: str, seeds: range, duration: int, jobs: int = 1) -> str:
    options = RunOptions(stack=stack, duration=seconds(duration), faults=ALL_FAULTS, object=kind)
    return "\n".join(
        f"{run.violations[0]}\n  coterie sim --stack {stack} --object {kind} --seed {run.seed} "
        f"--duration {duration} --trace"
        for run in run_many(seeds, options, jobs=jobs)
        if run.violations
    )


@pytest.mark.slow  # half a minute of simulated time each
@pytest.mark.parametrize("stack", SERVER_STACKS)
def test_requests_are_executed_once_through_all_faults(stack: str) -> None:
    assert not failures(stack, "counter", range(2), 12)


@pytest.mark.long  # five simulated minutes
def test_requests_are_executed_once_for_long() -> None:
    assert not failures(SERVER_STACKS[0], "counter", range(40, 44), 60, jobs=2)
    assert not failures(SERVER_STACKS[1], "dictionary", range(40, 41), 60, jobs=2)


def test_a_seed_repeats_itself() -> None:
    options = RunOptions(
        stack=SERVER_STACKS[0], duration=seconds(3), faults=ALL_FAULTS, object="counter"
    )
    traces: list[list[str]] = [[], []]
    for trace in traces:
        run = run_trial(ServerTrial(3, options, trace=trace.append))
        assert not run.violations
        assert run.figures["requests"] > 0
    assert traces[0] == traces[1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--object", "queue"], "choose --object counter or"),
        ([], "choose --object counter or"),
        (["--object", "counter", "--old"], "--old is not for ONUS"),
    ],
)
def test_what_is_not_offered_is_refused(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", "--stack", SERVER_STACKS[0], "--seed", "1", *arguments]) != 0
    assert reason in capsys.readouterr().err
