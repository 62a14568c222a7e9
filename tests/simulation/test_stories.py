"""Scripted scenarios: what one can do to a simulated group, told as stories."""

from __future__ import annotations

import inspect
import textwrap

import pytest

import coterie.simulation
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.errors import StackError
from coterie.kernel.views import Member
from coterie.simulation import Group, Host, RunOptions, Simulation, run_seed
from coterie.stacks import STACKS


def group_of(names: str = "abc", *, stack: str = "DYNSEQ:VSYNC", seed: int = 7) -> Group:
    group = Simulation(seed=seed, stack=stack).group(*names)
    group.run_until_whole()
    return group


def test_the_example_in_the_docstring_runs() -> None:
    """And does what it says: one hand-copied version would not notice when it rots."""
    documentation = inspect.getdoc(coterie.simulation)
    assert documentation is not None
    example = "\n".join(line for line in documentation.splitlines() if line.startswith("    "))
    names: dict[str, object] = {"Simulation": Simulation, "seconds": seconds}
    exec(textwrap.dedent(example), names)  # noqa: S102 -- our own docstring
    group = names["group"]
    assert isinstance(group, Group)
    assert group.is_whole()
    assert [id for id in "abcde" if b"one" in group[id].delivered] == ["a", "b"]


@pytest.mark.parametrize("stack", STACKS)
def test_a_group_forms_and_talks(stack: str) -> None:
    group = group_of("abcde", stack=stack)
    group["c"].cast(b"hello", b"world")
    group.run(milliseconds(50))
    assert {host.view for host in group} == {"abcde"}
    assert all(host.delivered == [b"hello", b"world"] for host in group)
    group.check()


def test_a_wrong_stack_is_refused_before_anything_starts() -> None:
    with pytest.raises(StackError, match="names no layer 'TOCKEN'"):
        Simulation(seed=1, stack="TOCKEN:VSYNC")


# ---- what can be done to the network


def test_a_partition_and_its_end() -> None:
    group = group_of("abcde")
    group.partition("ab", "cde")
    group.run(seconds(2))
    assert [group[id].view for id in "abcde"] == ["ab", "ab", "cde", "cde", "cde"]
    group.heal()
    group.run_until_whole()
    group.check()


def test_a_cut_link_is_as_good_as_none() -> None:
    group = group_of("ab")
    group.cut("a", "b")
    group.run(seconds(2))
    assert [group[id].view for id in "ab"] == ["a", "b"]


def test_a_group_that_never_comes_together_is_told_by_its_views() -> None:
    group = group_of("ab")
    group.partition("a", "b")
    group.run(seconds(2))
    with pytest.raises(AssertionError, match=r"no common view within 1.0 s: a: .*{a}  b: .*{b}"):
        group.run_until_whole(within=seconds(1))


# ---- what can be done to a host


def test_a_crashed_replica_is_gone_until_it_starts_a_new_life() -> None:
    group = group_of()
    group["c"].cast(b"before")
    group.run(milliseconds(50))
    group["c"].crash()
    group["c"].crash()
    group["c"].cast(b"in vain")
    group.run(seconds(2))
    assert (group["a"].view, group["c"].view) == ("ab", "")
    assert group.is_whole(), "of those who are up"
    group["c"].start()
    group["c"].start()
    group.run_until_whole()
    assert group["c"].incarnation == 2
    assert group["c"].delivered == [], "it knows nothing of its earlier life"
    assert group.history.lives[Member("c", 1)].has_ended
    group.check()


def test_all_can_restart_at_once() -> None:
    group = group_of("abcde")
    for host in group:
        host.restart()
    group.run_until_whole()
    assert {host.incarnation for host in group} == {2}
    group.check()


def test_a_paused_replica_does_nothing_and_loses_nothing() -> None:
    group = group_of()
    group["c"].pause()
    group["a"].cast(b"while c sleeps")
    group.run(milliseconds(100))
    assert group["c"].delivered == []
    group["c"].resume()
    group.run(milliseconds(100))
    assert group["c"].delivered == [b"while c sleeps"]
    group.check()


def test_one_that_sleeps_long_finds_itself_alone_and_comes_back() -> None:
    group = group_of()
    group["c"].pause()
    group.run(seconds(5))
    assert group["a"].view == "ab"
    assert group["c"].view == "abc", "it has not noticed yet"
    group["c"].resume()
    group.run_until_whole()
    group.check()


@pytest.mark.parametrize("stack", STACKS)
def test_one_that_leaves_is_missed_at_once(stack: str) -> None:
    group = group_of(stack=stack)
    group["c"].cast(b"goodbye")
    group.run(milliseconds(20))
    group["c"].leave()
    group.run(milliseconds(250))
    assert [group[id].view for id in "ab"] == ["ab", "ab"]
    assert group["a"].delivered == group["b"].delivered == [b"goodbye"]
    group["c"].restart()
    group.run_until_whole()
    group.check()


@pytest.mark.parametrize("stack", STACKS)
def test_what_was_cast_just_before_leaving_is_not_lost(stack: str) -> None:
    group = group_of(stack=stack)
    group["c"].cast(b"goodbye")
    group["c"].leave()
    group.run(seconds(2))
    assert group["a"].delivered == group["b"].delivered == [b"goodbye"]


def run_and_see(host: Host, true_time: int) -> int:
    """How much a host's own clock goes on meanwhile."""
    before = host.clock()
    host.group.run(milliseconds(true_time / 1000))
    return host.clock() - before


def test_clocks_drift() -> None:
    group = group_of()
    assert run_and_see(group["a"], 1_000_000) == 1_000_000
    group["a"].set_drift(1.25)
    assert run_and_see(group["a"], 1_000_000) == 1_250_000
    group["a"].set_drift(1.0)
    assert run_and_see(group["a"], 1_000_000) == 1_000_000
    assert {host.view for host in group} == {"abc"}


@pytest.mark.parametrize("jump", [-3600, -1, 1, 3600])
def test_a_clock_that_jumps_breaks_no_view_and_stops_nothing(jump: int) -> None:
    group = group_of()
    view = group["a"].inbox.current
    before = group["a"].clock()
    group["a"].jump_clock(seconds(jump))
    assert group["a"].clock() - before == seconds(jump)
    group.run(seconds(2))
    assert {host.inbox.current for host in group} == {view}
    group["a"].cast(b"what time is it?")
    group.run(milliseconds(100))
    assert all(host.delivered == [b"what time is it?"] for host in group)
    group.check()


def test_a_slow_replica_is_late_but_stays() -> None:
    group = group_of()
    group["c"].slowness = milliseconds(20)
    group["a"].cast(b"slowly")
    group.run(milliseconds(5))
    assert [b"slowly" in host.delivered for host in group] == [True, True, False]
    group.run(milliseconds(100))
    assert group["c"].delivered == [b"slowly"]
    assert group["a"].view == "abc"


# ---- time and chance


def test_virtual_time_costs_nothing_and_things_happen_in_order() -> None:
    simulation = Simulation(seed=1, stack="VSYNC")
    seen: list[str] = []
    simulation.at(seconds(3600), seen.append, "an hour")
    simulation.at(5, seen.append, "soon")
    simulation.at(5, seen.append, "soon too")
    simulation.at(-5, seen.append, "at once")
    simulation.run(seconds(10))
    assert seen == ["at once", "soon", "soon too"]
    assert simulation.now == seconds(10)
    simulation.run(seconds(3600))
    assert seen[-1] == "an hour"


def test_run_until_says_whether_it_came_about() -> None:
    simulation = Simulation(seed=1, stack="VSYNC")
    assert simulation.run_until(lambda: simulation.now >= 30_000, within=seconds(1))
    assert simulation.now == 30_000
    assert not simulation.run_until(lambda: False, within=milliseconds(25))
    assert simulation.now == 55_000


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("seed", range(3))
def test_a_random_run_keeps_every_promise(stack: str, seed: int) -> None:
    run = run_seed(seed, RunOptions(stack=stack, duration=seconds(4)))
    assert run.violations == []
    assert run.deliveries > 20
    assert sum(run.faults.values()) > 0


def test_a_run_without_faults_is_quiet() -> None:
    run = run_seed(1, RunOptions(faults=(), duration=seconds(3)))
    assert run.faults == {}
    assert run.violations == []
    assert run.converged_after == 0
