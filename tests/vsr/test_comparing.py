"""Cohorts compare the digests of their states while they run; who differs from most stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tests.vsr.bank_world import EU, US, BankWorld, is_committed

from coterie.kernel.clock import seconds
from coterie.kernel.errors import ReplicaBroken
from coterie.kernel.views import Member, Viewstamp
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.vsr.trial import TransactionOptions, TransactionTrial
from coterie.vsr import VsrSettings
from coterie.vsr.calls.messages import CohortDigest
from coterie.vsr.commit.server import Server
from coterie.vsr.objects.group_state import BaseVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.kernel.layers import Context
    from coterie.kernel.views import Configuration
    from coterie.vsr.calls.executor import Executor

SETTINGS = VsrSettings(digest_interval=5, compare_digests=True)


class ComparingServer(Server):
    """Compares digests in a world that would not."""

    def __init__(
        self,
        context: Context,
        executor: Executor,
        directory: Mapping[str, Configuration],
        settings: VsrSettings,
    ) -> None:
        settings = replace(settings, compare_digests=True)
        super().__init__(context, executor, directory, settings)


def server_of(world: BankWorld, group: str, name: str) -> Server:
    server = world.server(name, group)
    assert server is not None
    return server


def servers(world: BankWorld, group: str) -> dict[str, Server]:
    return {name: server_of(world, group, name) for name in world.groups[group].members}


def deposit(world: BankWorld, times: int) -> None:
    for _ in range(times):
        story = world.story(EU)
        story.call(US, "deposit", "alice", 1)
        assert is_committed(story.commit())
    world.run(seconds(1))


def test_cohorts_of_one_state_go_on() -> None:
    world = BankWorld(settings=SETTINGS)
    deposit(world, 10)
    for server in servers(world, US).values():
        assert server.strayed == ""
        assert len(server._comparison._own) > 1
        for at, digest in server._comparison._own.items():
            assert set(server._comparison._said[at].values()) == {digest}
    world.settle()


def test_a_backup_whose_state_is_not_that_of_most_stops() -> None:
    """Only the pipeline found it out, hours later; meanwhile it could become the primary."""
    world = BankWorld(settings=SETTINGS)
    primary = world.leads(US)
    deposit(world, 1)
    strayed = next(name for name in world.groups[US].members if name != primary)
    state = server_of(world, US, strayed).state
    state.objects["bob"] = BaseVersion(b"\x00", state.objects["alice"].by)
    with pytest.raises(ReplicaBroken, match=f"the state of {strayed} at event .* is not that of"):
        deposit(world, 10)


def test_a_primary_whose_state_is_not_that_of_most_stops() -> None:
    world = BankWorld(settings=SETTINGS)
    primary = world.leads(US)
    deposit(world, 1)
    state = server_of(world, US, primary).state
    state.objects["bob"] = BaseVersion(b"\x00", state.objects["alice"].by)
    with pytest.raises(ReplicaBroken, match=f"the state of {primary} at event .* is not that of"):
        deposit(world, 10)


def test_what_strangers_say_of_a_state_does_not_count() -> None:
    world = BankWorld(settings=SETTINGS)
    deposit(world, 10)
    server = server_of(world, US, world.leads(US))
    at = max(server._comparison._own)
    for name in ("x", "@y", "z"):
        server.receive(Member(name, 1), CohortDigest(US, at, b"another"))
    assert server.strayed == ""


def test_digests_that_nobody_made_are_forgotten() -> None:
    world = BankWorld(settings=SETTINGS)
    server = server_of(world, US, world.leads(US))
    other = next(name for name in world.groups[US].members if name != server.context.me.id)
    view = server.cohort.cur_viewid
    for number in range(1, 1000):
        server.receive(Member(other, 1), CohortDigest(US, Viewstamp(view, number), b"one"))
    assert len(server._comparison._said) <= 8
    assert server.strayed == ""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(17300000, 17300004))
def test_with_all_faults_nobody_is_held_to_have_strayed(seed: int) -> None:
    options = TransactionOptions(groups=3, duration=seconds(20))
    trial = TransactionTrial(seed, options, server_kind=ComparingServer)
    assert run_trial(trial).violations == []
