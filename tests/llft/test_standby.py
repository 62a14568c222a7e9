"""Edges with standbys: the quorum of all lives, and what happens when it cannot be had."""

from __future__ import annotations

import pytest

from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.llft.moving import MovingReplica
from coterie.llft.settings import Guard
from coterie.llft.standby import StandbyEdge
from coterie.simulation import run_seed
from coterie.simulation.engines.llft import OUTAGES
from coterie.simulation.engines.llft.clients import ProgramClients
from coterie.simulation.engines.llft.trial import FAULTS, ProgramOptions
from coterie.simulation.engines.llft.world import ProgramWorld


class Group:
    """A counter with two edges, and its clients."""

    def __init__(self, seed: int = 1) -> None:
        self.world = ProgramWorld(
            seed=seed, program="counter", replicas=3, guard=Guard.QUORUM, has_standby=True
        )
        self.clients = ProgramClients(self.world, self.world.simulation.random)
        self.world.start()
        self.clients.start()
        assert self.world.run_until(self.is_whole, within=seconds(5))
        assert self.answers(5)

    def is_whole(self) -> bool:
        return self.world.is_whole("counter")

    def answers(self, count: int, within: Duration = seconds(10)) -> bool:
        goal = self.clients.answered + count
        return self.world.run_until(lambda: self.clients.answered >= goal, within=within)

    def edge(self, id: str) -> StandbyEdge:
        resident = self.world.machines[id].residents["counter@edge"]
        engine = resident.replica and resident.replica.bottom
        assert isinstance(engine, StandbyEdge)
        return engine

    def replica(self, id: str) -> MovingReplica:
        [found] = [each for each in self.world.replicas_of("counter") if each.me.id == id]
        assert isinstance(found, MovingReplica)
        return found

    @property
    def violations(self) -> list[object]:
        return [*self.world.trackers["counter"].finish(), *self.clients.violations]


def test_a_standby_takes_the_place_of_an_edge_that_is_lost() -> None:
    group = Group()
    end = group.world.trackers["counter"].end
    group.world.machines["y"].crash()
    assert group.answers(10)
    assert group.edge("u").is_active
    assert group.edge("u").beginning is not None
    assert group.world.trackers["counter"].end > end
    assert group.world.run_until(group.is_whole, within=seconds(5))
    assert {each.edge for each in group.world.replicas_of("counter")} == {"u"}
    # The old one comes back with all that it stored, and learns that it is the standby now.
    group.world.machines["y"].start()
    group.world.run(seconds(1))
    assert not group.edge("y").is_active
    # And takes its turn when the other is lost.
    group.world.machines["u"].crash()
    assert group.answers(10)
    assert group.edge("y").is_active
    assert group.world.run_until(group.is_whole, within=seconds(5))
    assert not group.violations


def test_everybody_restarts_beside_the_standby() -> None:
    group = Group(2)
    group.world.machines["y"].crash()
    assert group.answers(10)
    for id in "abcu":
        group.world.machines[id].restart()
    assert group.answers(10)
    assert {each.edge for each in group.world.replicas_of("counter")} == {"u"}
    assert group.world.run_until(group.is_whole, within=seconds(5))
    assert not group.violations


def test_a_life_that_ended_cannot_vote_and_the_group_waits_for_its_edge() -> None:
    """The price of the guard: an edge lost, and any life ended."""
    group = Group(3)
    group.world.machines["y"].crash()
    group.world.machines["b"].restart()
    assert not group.answers(1, within=seconds(12))
    assert not group.edge("u").is_active
    group.world.machines["y"].start()
    # Who voted asks the standby never to begin by that claim, and goes back to the old edge.
    assert group.answers(10)
    assert group.edge("u").refused.view > 0
    assert group.world.run_until(group.is_whole, within=seconds(10))
    assert {each.edge for each in group.world.replicas_of("counter")} == {"y"}
    assert not group.violations


def test_an_edge_that_is_heard_is_not_replaced() -> None:
    group = Group(4)
    network = group.world.simulation.network
    leader = next(each for each in group.world.replicas_of("counter") if each.leading is not None)
    network.cut([("y", leader.me.id), (leader.me.id, "y")])
    assert group.answers(10)
    group.world.run(seconds(3))
    assert not group.edge("u").is_active
    assert not group.violations


def test_who_was_removed_does_not_lead_beside_an_edge_with_a_standby() -> None:
    """Those on the roster would not be asked for what it had released."""
    group = Group(5)
    world = group.world
    leader = next(each for each in world.replicas_of("counter") if each.leading is not None)
    others = [id for id in "abc" if id != leader.me.id]
    for id in others:
        world.simulation.network.cut([(id, to) for to in "abcyu" if to != id])
        world.simulation.network.cut([(to, id) for to in "abcyu" if to != id])
    assert world.run_until(lambda: len(group.edge("y").roster.lives) == 1, within=seconds(5))
    world.machines[leader.me.id].crash()
    world.heal()
    world.run(seconds(3))
    assert all(each.leading is None for each in world.replicas_of("counter"))
    world.machines[leader.me.id].start()
    assert group.answers(10)
    assert world.run_until(group.is_whole, within=seconds(5))
    assert not group.violations


def test_an_edge_that_retires_late_lets_nothing_new_go() -> None:
    """It is only cut off, and its leader's last orders are still on their way to it."""
    group = Group(6)
    world = group.world
    world.machines["y"].pause()
    assert group.answers(10)
    assert group.edge("u").is_active
    world.machines["y"].resume()
    assert world.run_until(lambda: not group.edge("y").is_active, within=seconds(3))
    assert world.run_until(group.is_whole, within=seconds(5))
    world.run(milliseconds(500))
    assert not group.violations


@pytest.mark.parametrize(
    ("program", "seed"),
    [
        pytest.param("counter", 12, id="votes again and again, and asks whether they are void"),
        pytest.param("counter", 13, id="the old edge is back, and lives have ended"),
        pytest.param("relay", 4, id="connections between programs end with an edge"),
    ],
)
def test_seeds(program: str, seed: int) -> None:
    options = ProgramOptions(
        program=program, standby="yes", duration=seconds(20), faults=(*FAULTS, *OUTAGES)
    )
    assert not run_seed(seed, options).violations
