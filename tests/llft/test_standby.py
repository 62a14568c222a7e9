"""Edges with standbys: the quorum of all lives, and what happens when it cannot be had."""

from __future__ import annotations

import pytest
from tests.broken.standby_variants import (
    BeginsAllTheSame,
    LeadsWithoutARosterLine,
    NamesVote,
    ShrinksBelowQuorum,
)

from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.kernel.views import Member
from coterie.llft.messages import ActivateEdge, AskRefusal
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

    def __init__(
        self,
        seed: int = 1,
        replica_kind: type[MovingReplica] = MovingReplica,
        edge_kind: type[StandbyEdge] = StandbyEdge,
    ) -> None:
        self.world = ProgramWorld(
            seed=seed,
            program="counter",
            replicas=3,
            guard=Guard.QUORUM,
            has_standby=True,
            replica_kind=replica_kind,
            edge_kind=edge_kind,
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

    def cut(self, *links: str) -> None:
        """Cut links one way: "ay" is what a says to y."""
        self.world.simulation.network.cut([(link[0], link[1]) for link in links])

    @property
    def leader(self) -> MovingReplica:
        [found] = [each for each in self.world.replicas_of("counter") if each.leading is not None]
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


@pytest.mark.parametrize(("kind", "is_broken"), [(MovingReplica, False), (NamesVote, True)])
def test_lives_vote_and_not_names(kind: type[MovingReplica], *, is_broken: bool) -> None:
    """The edge let output go that only its leader knew of, and that life has ended."""
    group = Group(7, replica_kind=kind)
    world, leader = group.world, group.leader.me.id
    group.cut("ya", "yb", "yc")
    end = group.replica(leader).stored
    world.run(milliseconds(390))
    assert group.edge("y").log.end > end
    world.machines["y"].crash()
    world.machines[leader].restart()
    world.heal()
    world.run(seconds(6))
    assert group.edge("u").is_active == is_broken
    assert bool(group.violations) == is_broken


@pytest.mark.parametrize(
    ("kind", "is_broken"), [(StandbyEdge, False), (LeadsWithoutARosterLine, True)]
)
def test_what_somebody_releases_is_known_to_those_who_vote(
    kind: type[StandbyEdge], *, is_broken: bool
) -> None:
    """A removed replica leads beside the edge; those on the roster then install another."""
    group = Group(8, edge_kind=kind)
    world, leader = group.world, group.leader.me.id
    group.clients.stop()  # so that nobody who was away needs a state
    others = [id for id in "abc" if id != leader]
    for id in others:  # they hear the edge, and nobody hears them
        group.cut(*(f"{id}{to}" for to in "abcyu" if to != id), f"{leader}{id}")
    assert world.run_until(lambda: len(group.edge("y").roster.lives) == 1, within=seconds(5))
    world.heal()
    group.cut(f"{leader}y", f"y{leader}")
    for id in others:
        group.cut(f"{leader}{id}", f"{id}{leader}")
    group.cut(*(f"{id}u" for id in others), *(f"u{id}" for id in others))
    world.run(seconds(2))
    world.machines["y"].crash()
    assert world.run_until(lambda: group.edge("u").is_active, within=seconds(8))
    assert bool(group.violations) == is_broken


@pytest.mark.parametrize(
    ("kind", "is_broken"), [(MovingReplica, False), (ShrinksBelowQuorum, True)]
)
def test_who_was_not_left_out_at_a_takeover_leads_when_the_new_leader_is_gone(
    kind: type[MovingReplica], *, is_broken: bool
) -> None:
    group = Group(10, replica_kind=kind)
    world, first = group.world, group.leader.me.id
    world.machines[first].crash()
    edge, ended = group.edge("y"), Member(first, 1)

    def has_taken_over() -> bool:
        lives = [life.member for life in edge.roster.lives]
        is_led = edge.log.last_claim.life != ended
        return is_led and (lives == [edge.fence.life] or not is_broken)

    assert world.run_until(has_taken_over, within=seconds(5))
    world.machines[edge.fence.life.id].crash()
    assert group.answers(1, within=seconds(8)) != is_broken
    world.machines[edge.fence.life.id].start()
    assert group.answers(5)


@pytest.mark.parametrize(("kind", "is_broken"), [(StandbyEdge, False), (BeginsAllTheSame, True)])
def test_an_edge_that_has_refused_never_begins(kind: type[StandbyEdge], *, is_broken: bool) -> None:
    """What the proposer says comes late, and the others have gone back to the old edge."""
    group = Group(9, edge_kind=kind)
    world = group.world
    installs: list[ActivateEdge] = []

    def has_install() -> bool:
        for each in world.replicas_of("counter"):
            assert isinstance(each, MovingReplica)
            if each._install is not None and each._install.message is not None:
                installs.append(each._install.message)
                group.cut(*(f"{id}u" for id in "abc"))
                return True
        return False

    group.cut(*(f"{id}u" for id in "abc"))
    world.machines["y"].crash()
    assert world.run_until(has_install, within=seconds(5))
    world.machines["y"].start()
    world.heal()
    edge, [message, *_] = group.edge("u"), installs
    proposer = message.claim.life
    refused = AskRefusal(message.claim)
    world.machines["u"].call(lambda: edge.receive(proposer, refused))
    assert group.answers(20)
    group.world.machines["u"].call(lambda: edge.receive(proposer, message))
    world.run(seconds(3))
    assert bool(group.violations) == is_broken


@pytest.mark.parametrize(
    ("program", "seed"),
    [
        pytest.param("counter", 12, id="votes again and again, and asks whether they are void"),
        pytest.param("counter", 13, id="the old edge is back, and lives have ended"),
        pytest.param("relay", 4, id="connections between programs end with an edge"),
        pytest.param("relay", 30700000, id="what was sent is not followed, and not forgotten"),
        pytest.param("relay", 30700002, id="what a state takes the place of is given up"),
    ],
)
def test_seeds(program: str, seed: int) -> None:
    options = ProgramOptions(
        program=program, standby="yes", duration=seconds(20), faults=(*FAULTS, *OUTAGES)
    )
    assert not run_seed(seed, options).violations
