"""What replicas tell each other of their actions does not grow with every restart."""

from __future__ import annotations

import pytest
from tests.colours.stories import STACKS, cut, greens, make_group, merge, reds, until

from coterie.colours.queue import ActionsQueue
from coterie.kernel.clock import seconds
from coterie.kernel.components import Action, ActionId
from coterie.kernel.past_lives import ALL, encode_past_lives, number_of
from coterie.kernel.views import Member, ViewId
from coterie.simulation.engines.colours.group import ColoursGroup

LIVES_MAX = 2


def live(group: ColoursGroup, id: str, lives: int) -> None:
    """Have a replica be started again and again, and create an action in each life."""
    for _ in range(lives):
        group[id].restart()
        until(group, lambda: group.is_one, "all are one primary component")
        group[id].propose(b"of one life")
        group.run(seconds(1))


def cuts(group: ColoursGroup) -> list[dict[Member, int]]:
    return [group.engine(host.id).queue.red_cut for host in group]


@pytest.mark.parametrize("stack", STACKS)
def test_lives_that_are_over_are_named_no_longer(stack: str) -> None:
    group = make_group("abc", stack=stack, past_lives_max=LIVES_MAX)
    live(group, "a", 8)
    assert group.tracker.past_lives
    for id in "abc":
        queue = group.engine(id).queue
        assert len(queue.red_cut) <= LIVES_MAX + 2
        assert queue.red_cut == queue.log.contained == dict(group.engine(id).checkpoint().origins)
        assert number_of(queue.red_cut, Member("a", 1)) == ALL
    group.check()


def test_without_it_each_life_adds_one() -> None:
    group = make_group("abc")
    live(group, "a", 8)
    assert len(cuts(group)[0]) == 8


def test_who_was_away_meanwhile_holds_them_until_all_have_met() -> None:
    """What the one who is cut off has of them is green before they go."""
    group = make_group("abc", past_lives_max=0)
    group["a"].propose(b"first")
    group.run(seconds(1))
    cut(group, "a", "bc")
    group["a"].propose(b"red")
    group.run(seconds(1))
    group["a"].restart()  # and it is red in another life
    group.run(seconds(1))
    assert len(reds(group, "a")) == 1
    for id in "bc":
        group[id].propose(b"of the first life")
        group.run(seconds(1))
        group[id].restart()
    until(group, lambda: group.engine("b").is_with("bc"), "b and c are together")
    group["b"].propose(b"of the second life")
    group.run(seconds(1))
    assert not group.tracker.past_lives  # one is missing
    merge(group)
    until(group, lambda: bool(group.tracker.past_lives), "it is said that lives are over")
    assert len(greens(group)) >= 5
    for cut_ in cuts(group):
        assert number_of(cut_, Member("a", 1)) == ALL
    group.check()


def test_a_state_that_is_taken_over_and_a_journal_that_is_read_say_so_too() -> None:
    group = make_group("abc", past_lives_max=0, history_bytes=20)
    live(group, "a", 3)
    group["c"].replace_machine()
    group["c"].start()
    until(group, lambda: group.is_one, "all are one primary component")
    assert number_of(group.engine("c").queue.red_cut, Member("a", 1)) == ALL
    for host in group:
        host.crash()
    for host in group:
        host.start()
    until(group, lambda: group.is_one, "all are one primary component")
    for cut_ in cuts(group):
        assert number_of(cut_, Member("a", 1)) == ALL
    group.check()


def test_an_action_of_a_life_that_is_over_is_not_taken_again() -> None:
    """Somebody whose disk was put back may still have it red."""
    one, two = Member("a", 1), Member("a", 2)
    queue = ActionsQueue(bytes_max=1 << 20)
    old = Action(one, 1, 1, b"old")
    assert queue.learn(old)
    assert queue.learn(Action(two, 1, 2, encode_past_lives([one])))
    queue.mark_green([old.id, ActionId(two, 1)], ViewId(1, "a", 1), 1)
    assert queue.red_cut == queue.log.contained == {one: ALL, two: 1}
    assert queue.has_seen(old)
    assert queue.is_green(old.id)
    assert not queue.learn(old)
    assert not queue.learn(Action(one, 2, 9, b"made up"))
    assert queue.log.origins(1) == {one: 1}
    assert queue.log.origins(2) == {one: ALL, two: 1}
    assert queue.log.discard(2) == 2
    assert queue.log.forgotten == {one: ALL, two: 1}
    queue.reset(0, {})  # an operator gave up what was green
    assert queue.red_cut == {}
