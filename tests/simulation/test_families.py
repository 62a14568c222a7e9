"""Families of engines: one that nobody knows of is simulated like those that are built in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.simulation.gossip import Forgetful, GossipFamily, GossipOptions, GossipReplica
from tests.vsr.chain import ChainWorld

from coterie.cli.main import main
from coterie.kernel.clock import seconds
from coterie.simulation import SeedRun, Simulation, run_seed
from coterie.simulation.engines import FAMILIES, NotOffered, family_named, register
from coterie.simulation.faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.simulation.world.world import World

SIM = ("sim", "--engine", "gossip", "--jobs", "1", "--duration", "4")


@pytest.fixture
def gossip() -> Iterator[GossipFamily]:
    """The toy, known while a test runs."""
    family = GossipFamily()
    register(family)
    yield family
    del FAMILIES[family.name]


@pytest.mark.usefixtures("gossip")
def test_a_family_is_added_by_registering_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SIM, "--seeds", "5"]) == 0
    assert "gossip, 3 replicas: 5 seeds, no violation" in capsys.readouterr().out
    assert main([*SIM, "--seed", "2", "--pace", "50", "--replicas", "7", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["engine"], summary["pace"]) == ("gossip", 50)
    assert summary["rumours"] > 50
    assert sum(summary["faults"].values()) > 0


@pytest.mark.usefixtures("gossip")
def test_its_runs_are_traced_and_repeat_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    traces = []
    for _ in range(2):
        assert main([*SIM, "--seed", "3", "--trace"]) == 0
        traces.append(capsys.readouterr().out)
    assert traces[0] == traces[1]
    assert "a starts its life 1" in traces[0]
    assert "fault: " in traces[0]


def test_its_checks_fire(gossip: GossipFamily, capsys: pytest.CaptureFixture[str]) -> None:
    gossip.kind = Forgetful
    assert main([*SIM, "--seed", "1", "--pace", "40"]) == 1
    said = capsys.readouterr()
    assert "gossip, 3 replicas: 1 seeds, 1 FAILED" in said.out
    assert "seed 1: nobody forgets" in said.err
    command = "coterie sim --engine gossip --pace 40 --replicas 3 --seed 1 --duration 4 --trace"
    assert command in said.err
    assert main([*command.split()[1:]]) == 1
    assert "VIOLATION nobody forgets" in capsys.readouterr().out


@pytest.mark.usefixtures("gossip")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--engine gossip --faults bit-flip", "no fault 'bit-flip' for --engine gossip"),
        ("--engine gossip --object bank", "--object is nothing for --engine gossip"),
        ("--engine gossip --sync none", "--sync is turn for --engine gossip"),
        ("--engine gossip --stack VSYNC", "--stack is for --engine stack"),
        ("--engine gossip --replicas 8", "from 1 to 7 for --engine gossip, not 8"),
        ("--engine vsr --pace 3", "--pace is for --engine gossip"),
        ("--groups 3", "--groups is for --engine vsr"),
        ("--engine rumour", "has no --engine 'rumour'"),
    ],
)
def test_what_a_family_does_not_offer_is_refused(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sim", *words.split()]) == 2
    assert sentence in capsys.readouterr().err


def test_a_family_that_is_not_there_is_named() -> None:
    with pytest.raises(NotOffered, match="no engine 'gossip'; there are stack, vsr"):
        family_named("gossip")


@pytest.mark.usefixtures("gossip")
def test_a_family_runs_without_the_command_line() -> None:
    run = run_seed(1, GossipOptions(duration=seconds(3)))
    assert isinstance(run, SeedRun)
    assert run.violations == []


@pytest.mark.parametrize("name", FAMILIES)
def test_families_offer_faults_that_there_are(name: str) -> None:
    family = family_named(name)
    assert family.faults
    assert {*family.faults, *family.more_faults} <= FAULTS.keys()
    assert not {*family.faults} & {*family.more_faults}


# ---- several families on one machine


def spread_rumours(world: World) -> list[GossipReplica]:
    """Have somebody who spreads rumours live on every machine, beside whoever lives there."""
    [configuration] = {
        resident.configuration
        for machine in world.machines.values()
        for resident in machine.residents.values()
    }
    replicas = []
    for machine in world.machines.values():
        replicas.append(GossipReplica(machine, configuration))
        machine.put(replicas[-1])
        machine.restart()
    return replicas


def heard(replicas: list[GossipReplica]) -> list[set[str]]:
    return [each.gossip.heard for each in replicas if each.gossip is not None]


def begin(replica: GossipReplica, rumour: str) -> None:
    gossip = replica.gossip
    assert gossip is not None
    replica.machine.call(lambda: gossip.begin(rumour))


def test_a_replica_of_a_stack_shares_its_machine() -> None:
    group = Simulation(seed=7, stack="SAFE:DYNSEQ:PVSYNC").group("a", "b", "c")
    group.run_until_whole()
    replicas = spread_rumours(group)
    group.run_until_whole()
    group["a"].propose(b"one", b"two")
    begin(replicas[0], "three")
    group.run(seconds(1))
    assert heard(replicas) == [{"three"}] * 3
    group["b"].crash()
    group.run(seconds(1))
    assert heard(replicas) == [{"three"}] * 2
    group["b"].start()
    group.run_until_whole()
    group.run(seconds(1))
    assert heard(replicas) == [{"three"}] * 3
    assert {host.ledger.settled.position for host in group if host.ledger is not None} == {2}
    group.check()


def test_a_cohort_shares_its_machine() -> None:
    world = ChainWorld(is_durable=True)
    world.run_until_whole()
    replicas = spread_rumours(world)
    world.run_until_whole()
    world.tell(b"one")
    begin(replicas[0], "two")
    world.run(seconds(1))
    world.machines["c"].restart()
    world.run_until_whole()
    world.run(seconds(1))
    assert heard(replicas) == [{"two"}] * 3
    assert {world[id].log.last for id in "abc"} == {world["a"].log.last}
    world.check()
