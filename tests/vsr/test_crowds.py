"""Thousands of transactions at a time, over three groups of three, while primaries are lost."""

from __future__ import annotations

from random import Random

import pytest

from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.simulation.engines.vsr.transactions import TransactionWorld
from coterie.simulation.engines.vsr.trial import OBJECTS, TransactionOptions, spread
from coterie.simulation.engines.vsr.workloads import Tellers
from coterie.vsr.commit.client import Fate

CLIENTS = ("x", "y", "z")


def in_flight(world: TransactionWorld) -> int:
    """How many transactions clients have begun that have not ended."""
    clients = (world.client(name) for name in CLIENTS)
    return sum(len(client._transactions) for client in clients if client is not None)


@pytest.mark.long  # some two thousand transactions each
@pytest.mark.parametrize(("name", "objects"), [("bank", 200), ("airline", 300)])
def test_a_crowd_keeps_its_money_and_its_seats(name: str, objects: int) -> None:
    executor, make_workload = OBJECTS[name]
    world = TransactionWorld(seed=5, groups=spread(name, 3, 3), clients=CLIENTS, executor=executor)
    world.run_until_whole()
    options = TransactionOptions(object=name, objects=objects)
    workload = make_workload(world, Random(5), options)  # noqa: S311 -- reproducible on purpose
    workload._interval = 1200
    if isinstance(workload, Tellers):
        # Audits lock everything; there is one at the end.
        workload.draw = lambda: workload._in_turn  # type: ignore[method-assign]
    workload.start()
    world.run(milliseconds(100))
    first, second, _ = world.groups
    primary = world.primary(first)
    assert primary is not None
    world.machines[primary.me.id].crash()
    world.run(milliseconds(300))
    other = world.primary(second)
    assert other is not None
    world.partition([other.me.id], [id for id in world.machines if id != other.me.id])
    world.run(milliseconds(400))
    most = in_flight(world)
    workload.stop()
    world.heal()
    assert world.run_until(lambda: world.is_quiet, within=seconds(60)), world.describe()
    before = workload.checks
    workload.look_last()
    assert world.run_until(lambda: workload.checks > before, within=Duration(seconds(20)))
    assert world.run_until(lambda: world.is_quiet, within=seconds(60))
    assert [*world.violations(), *workload.wrong] == []
    assert sum(workload.fates.values()) > 1500
    assert most > 300, workload.fates
    assert workload.fates[Fate.COMMITTED] > 300, workload.reasons
