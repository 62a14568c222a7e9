"""Rolling upgrades in the simulator: clients notice nothing, whatever fails meanwhile."""

from __future__ import annotations

import pytest

from coterie.kernel.clock import seconds
from coterie.simulation import RunOptions, Simulation
from coterie.simulation.engines.stack.clients import SimulatedObject
from coterie.simulation.parallel import run_many

STACKS = pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "TOKEN:PVSYNC"])


def version(ledger: object) -> int:
    assert isinstance(ledger, SimulatedObject)
    return ledger.engine_host.definition.version


@STACKS
def test_replicas_that_are_restarted_one_by_one_change_over_together(stack: str) -> None:
    simulation = Simulation(seed=7, stack=stack, has_object=True, object_kind="upgrade")
    group = simulation.group("a", "b", "c")
    group.clients.start(4)
    simulation.run(seconds(2))
    for id in "abc":
        assert [version(host.ledger) for host in group] == [1, 1, 1]
        group[id].restart()
        group.run_until_whole()
        simulation.run(seconds(3))
    assert [version(host.ledger) for host in group] == [2, 2, 2]
    # From now on it is replayed: once as version 1, from the change-over on as version 2.
    for host in group:
        host.restart()
    group.run_until_whole()
    simulation.run(seconds(3))
    assert [version(host.ledger) for host in group] == [2, 2, 2]
    group.clients.stop()
    assert simulation.run_until(lambda: group.clients.are_done, within=seconds(10))
    assert len(group.clients.operations) > 20
    group.check()


@pytest.mark.slow  # minutes of simulated time
@STACKS
def test_clients_see_one_object_while_replicas_are_upgraded_by_accident(stack: str) -> None:
    options = RunOptions(stack=stack, duration=seconds(12), object="upgrade")
    runs = run_many(range(60, 62), options, jobs=1)
    assert [run.violations for run in runs] == [[]] * 2
