"""Random runs with all faults: a few in every check, many in the long one."""

import pytest

from coterie.journal.format import Sync
from coterie.kernel.clock import Duration, seconds
from coterie.simulation import RunOptions
from coterie.simulation.engines.stack import StackFamily
from coterie.simulation.faults import ALL_FAULTS
from coterie.simulation.parallel import run_many
from coterie.stacks import ENGINE_STACKS, STACKS

ORDERED_ENGINES = ("DYNSEQ:PVSYNC", "TOKEN:PVSYNC", "SAFE:DYNSEQ:PVSYNC", "SAFE:TOKEN:PVSYNC")


SYNCS = pytest.mark.parametrize("sync", [Sync.TURN, Sync.NONE], ids=lambda sync: sync.value)


def failures(  # noqa: PLR0913 -- all by name
    stack: str,
    seeds: range,
    *,
    duration: Duration,
    jobs: int,
    sync: Sync = Sync.TURN,
    more_faults: tuple[str, ...] = (),
) -> str:
    faults = ALL_FAULTS + more_faults
    options = RunOptions(stack=stack, duration=duration, sync=sync, faults=faults)
    return "\n".join(
        f"{run.violations[0]}\n  coterie sim --stack {stack} --seed {run.seed} "
        f"--duration {duration / 1e6:g} --sync {sync.value} "
        f"--faults {','.join(('all', *more_faults))} --trace"
        for run in run_many(seeds, options, jobs=jobs)
        if run.violations
    )


@pytest.mark.slow  # minutes of simulated time
@pytest.mark.parametrize("stack", STACKS)
def test_group_communication(stack: str) -> None:
    assert not failures(stack, range(8), duration=seconds(15), jobs=1)


@pytest.mark.slow  # the same
@SYNCS
@pytest.mark.parametrize("stack", ENGINE_STACKS)
def test_engine(stack: str, sync: Sync) -> None:
    assert not failures(stack, range(3), duration=seconds(15), sync=sync, jobs=1)


@pytest.mark.slow  # the same
@SYNCS
@pytest.mark.parametrize("stack", ["DYNSEQ:PVSYNC", "SAFE:TOKEN:PVSYNC"])
def test_a_group_whose_majority_forgets(stack: str, sync: Sync) -> None:
    seeds = range(3, 5)  # in which it does
    assert not failures(
        stack, seeds, duration=seconds(15), sync=sync, jobs=1, more_faults=("amnesia",)
    )


@pytest.mark.slow  # the same
@pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "COLOURS:DYNSEQ:VSYNC"])
def test_faults_leave_clients_something_to_be_told(stack: str) -> None:
    """A campaign in which hardly anything is answered shows nothing, however many seeds it has."""
    options = RunOptions(stack=stack, object="dictionary", duration=seconds(10))
    runs = list(run_many(range(6), options, jobs=1))
    assert all(not run.violations for run in runs)
    answered = sum(run.figures["answered"] for run in runs)
    assert answered > 6 * 30
    assert any(f"{answered:,} of " in line for line in StackFamily().lines(runs))


@pytest.mark.slow  # the same
@pytest.mark.parametrize("stack", ["DYNSEQ:PVSYNC", "SAFE:TOKEN:PVSYNC"])
def test_members_change(stack: str) -> None:
    assert not failures(
        stack, range(2), duration=seconds(15), jobs=1, more_faults=("join", "remove", "replace")
    )


@pytest.mark.long
@pytest.mark.parametrize("stack", ["TOKEN:PVSYNC", "SAFE:DYNSEQ:PVSYNC"])
def test_members_change_for_long(stack: str) -> None:
    seeds = range(1000, 1006)
    changes = ("join", "remove", "replace")
    assert not failures(stack, seeds, duration=seconds(30), jobs=2, more_faults=changes)


@pytest.mark.long
@pytest.mark.parametrize("stack", STACKS)
def test_group_communication_for_long(stack: str) -> None:
    assert not failures(stack, range(1000, 1020), duration=seconds(30), jobs=2)


@pytest.mark.long
@SYNCS
@pytest.mark.parametrize("stack", ENGINE_STACKS)
def test_engine_for_long(stack: str, sync: Sync) -> None:
    assert not failures(stack, range(1000, 1010), duration=seconds(30), sync=sync, jobs=2)


OBJECTS = pytest.mark.parametrize("kind", ["counter", "dictionary"])


def failures_of_objects(stack: str, kind: str, sync: Sync, seeds: range) -> str:
    options = RunOptions(stack=stack, duration=seconds(15), object=kind, sync=sync)
    return "\n".join(
        f"{run.violations[0]}\n  coterie sim --stack {stack} --object {kind} --seed {run.seed} "
        f"--duration 15 --sync {sync.value} --trace"
        for run in run_many(seeds, options, jobs=1)
        if run.violations
    )


@pytest.mark.slow  # minutes of simulated time
@OBJECTS
@pytest.mark.parametrize("stack", ORDERED_ENGINES)
def test_clients_of_an_object_see_one_object(stack: str, kind: str) -> None:
    assert not failures_of_objects(stack, kind, Sync.TURN, range(1))


@pytest.mark.long
@SYNCS
@OBJECTS
@pytest.mark.parametrize("stack", ORDERED_ENGINES)
def test_clients_of_an_object_see_one_object_for_long(stack: str, kind: str, sync: Sync) -> None:
    assert not failures_of_objects(stack, kind, sync, range(1, 5))


@pytest.mark.slow  # minutes of simulated time
@SYNCS
def test_without_order_every_acknowledged_request_counts_once(sync: Sync) -> None:
    options = RunOptions(stack="PVSYNC", duration=seconds(15), object="counter", sync=sync)
    runs = run_many(range(4), options, jobs=1)
    assert [run.violations for run in runs] == [[]] * 4


@pytest.mark.slow  # minutes of simulated time
def test_sets_after_accepted_losses() -> None:
    faults = ("amnesia", "partition", "crash", "power")
    options = RunOptions(stack="PVSYNC", duration=seconds(15), faults=faults)
    runs = run_many(range(600, 602), options, jobs=1)
    assert [run.violations for run in runs] == [[]] * 2
