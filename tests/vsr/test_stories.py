"""What happens to a group when machines and links fail, told as stories in simulated time."""

from __future__ import annotations

import pytest
from tests.vsr.chain import ChainWorld, run_chain

from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.records import Catastrophe, MembersChanged, StateTaken
from coterie.vsr import VsrSettings


def whole(names: str = "abc", **options: object) -> ChainWorld:
    world = ChainWorld(names, **options)  # type: ignore[arg-type]
    world.run_until_whole()
    return world


def test_a_group_founds_itself_with_its_first_cohort_as_primary() -> None:
    world = whole()
    assert world["a"].is_serving
    world.tell(b"one", b"two")
    world.run(milliseconds(5))
    assert len(world.forced) == 1
    assert all(world[name].log.last.number == 2 for name in "abc")
    world.check()


def test_the_primary_crashes_and_comes_back_as_a_backup() -> None:
    world = whole()
    world.tell(b"one")
    world.run(milliseconds(5))
    world.machines["a"].crash()
    world.run(seconds(2))
    assert world["b"].is_serving
    world.tell(b"two")
    world.machines["a"].start()
    world.run_until_whole()
    # It came back without a view change: it was never active in the new view.
    assert world["b"].is_serving
    assert world.tracker.views == 2
    assert world["a"].up_to_date
    world.check()


def test_a_backup_that_crashed_comes_back_by_a_view_change_that_loses_nothing() -> None:
    world = whole()
    world.tell(b"one")
    world.machines["c"].restart()
    world.run_until_whole()
    assert world["a"].is_serving
    assert world.tracker.views == 2
    world.check()


def test_a_primary_leaves_out_a_backup_and_takes_it_back_without_a_view_change() -> None:
    """4.1: the primary can unilaterally exclude the inaccessible backup from the view."""
    world = whole()
    view = world["a"].cur_viewid
    world.partition("ab", "c")
    world.run(seconds(2))
    for name in "ab":  # the backups are told
        assert [member.id for member in world[name].cur_view.members] == ["a", "b"]
    world.tell(b"one", b"two")
    world.run(milliseconds(10))
    assert len(world.forced) == 1
    world.heal()
    world.run_until_whole()
    assert {world[name].cur_viewid for name in "abc"} == {view}
    assert sum(isinstance(record, MembersChanged) for record in world.records) >= 2
    assert not any(isinstance(record, StateTaken) for record in world.records)
    world.check()


def test_a_primary_without_its_majority_stops_serving_until_it_is_back() -> None:
    world = whole()
    view = world["a"].cur_viewid
    world.partition("a", "b", "c")
    world.run(seconds(2))
    assert world.primary("chain") is None
    world.heal()
    world.run_until_whole()
    assert world["a"].is_serving
    assert world["a"].cur_viewid == view
    world.check()


def test_a_preferred_cohort_that_is_back_is_handed_the_lead() -> None:
    """Section 6: always choose a particular cohort to be the primary if possible."""
    world = whole(settings=VsrSettings(hand_over_after=seconds(2)))
    world.machines["a"].crash()
    world.run(seconds(1))
    assert world["b"].is_serving
    world.tell(b"one")
    world.run(seconds(5))
    assert world["b"].is_serving  # there is nobody to hand over to
    world.machines["a"].start()
    world.run_until_whole()
    world.tell(b"two")
    world.run(seconds(4))
    assert world["a"].is_serving
    assert world["a"].log.knows(world.forced[-1])
    views = world.tracker.views
    world.run(seconds(10))
    assert world.tracker.views == views
    world.check()


def test_a_cohort_that_is_behind_is_not_handed_the_lead() -> None:
    world = whole(settings=VsrSettings(hand_over_after=seconds(2)))
    world.machines["a"].crash()
    world.run(seconds(1))
    # Whoever comes back cannot be told of the latest events for now.
    world.simulation.network.cut([("b", "a")])
    world.machines["a"].start()
    views = world.tracker.views
    for _ in range(6):
        world.tell(b"more")
        world.run(seconds(1))
    assert world["b"].is_serving
    assert world.tracker.views == views
    world.heal()
    world.run_until_whole()
    world.run(seconds(4))
    assert world["a"].is_serving
    world.check()


def test_a_cut_between_a_backup_and_the_primary_that_others_hear_changes_nothing() -> None:
    world = whole()
    world.simulation.network.cut([("a", "c"), ("c", "a")])
    world.run(seconds(3))
    assert world["a"].is_serving
    assert world.tracker.views == 1
    world.heal()
    world.run_until_whole()
    assert world.tracker.views == 1


def test_the_old_primary_in_a_minority_forces_nothing() -> None:
    world = whole()
    world.partition("a", "bc")
    world.tell(b"in vain", at="a")
    world.run(seconds(2))
    assert world["b"].is_serving
    assert world.forced == []
    world.tell(b"counts", at="b")
    world.run(milliseconds(10))
    assert len(world.forced) >= 1
    world.heal()
    world.run_until_whole()
    assert world["a"].log.last == world["b"].log.last
    world.check()


def test_what_a_cohort_missed_is_sent_and_not_the_whole_state() -> None:
    world = whole()
    world.partition("ab", "c")
    world.run(seconds(1))
    for number in range(20):
        world.tell(b"%d" % number)
        world.run(milliseconds(10))
    world.heal()
    world.run_until_whole()
    assert world.tracker.states_taken == 0
    world.check()


def test_the_whole_state_comes_in_chunks_when_the_events_are_gone() -> None:
    world = whole(settings=VsrSettings(log_bytes=10))
    world.partition("ab", "c")
    world.run(seconds(1))
    for number in range(20):
        world.tell(b"%d" % number)
        world.run(milliseconds(10))
    world.heal()
    world.run_until_whole()
    assert world.tracker.states_taken >= 1
    world.check()


def test_the_papers_example_waits_for_the_partition_to_end() -> None:
    """Forced to b and not c; a crashed; b cut off: a and c must not go on without it."""
    world = whole()
    world.partition("ab", "c")
    world.tell(b"forced", at="a")
    world.run(milliseconds(5))
    assert world.forced
    world.heal()
    world.partition("b", "ac")
    world.machines["a"].restart()
    world.run(seconds(5))
    assert world.primary("chain") is None
    world.heal()
    world.run_until_whole()
    assert world[world.primary("chain").me.id].log.knows(world.forced[-1])  # type: ignore[union-attr]
    world.check()


def test_a_catastrophe_is_said_and_loses_nothing() -> None:
    """4.2: it causes the algorithm to never again form a new view."""
    world = whole(may_lose_majority=True)
    world.tell(b"one")
    world.run(milliseconds(5))
    world.machines["a"].restart()
    world.machines["b"].restart()
    world.run(seconds(10))
    assert world.primary("chain") is None
    told = [record for record in world.records if isinstance(record, Catastrophe)]
    assert told
    assert {member.id for member in told[0].crashed} == {"a", "b"}
    world.check()


def test_with_events_on_disk_there_is_no_catastrophe() -> None:
    world = whole(is_durable=True)
    world.tell(b"one")
    world.run(milliseconds(5))
    for host in world.machines.values():
        host.restart()
    world.run_until_whole()
    assert all(world[name].log.knows(world.forced[0]) for name in "abc")
    world.check()


def test_founders_that_crash_before_the_first_view_have_lost_nothing() -> None:
    world = ChainWorld("abc", may_lose_majority=True)
    for host in world.machines.values():
        host.restart()
    world.run_until_whole()
    assert world["a"].is_serving


def test_a_group_of_one_serves_alone() -> None:
    world = whole("a")
    world.tell(b"one")
    world.run(milliseconds(5))
    assert world.forced
    world.check()


def test_the_same_seed_gives_the_same_run() -> None:
    digests = [run_chain(3, duration=seconds(3)).simulation.digest for _ in range(2)]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(("names", "is_durable"), [("abc", False), ("abcde", False), ("abc", True)])
def test_random_runs_keep_all_promises(names: str, *, is_durable: bool) -> None:
    for seed in range(3):
        run_chain(seed, names=names, is_durable=is_durable, duration=seconds(6)).check()


@pytest.mark.slow  # a small campaign
@pytest.mark.parametrize(
    ("names", "is_durable"), [("abc", False), ("abcd", False), ("abcde", False), ("abc", True)]
)
def test_more_random_runs_keep_all_promises(names: str, *, is_durable: bool) -> None:
    for seed in range(1000, 1008):
        run_chain(seed, names=names, is_durable=is_durable).check()
