"""The actions queue: the red cut, the colours, and what the object is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.colours.messages import decode_action, encode_actions
from coterie.colours.queue import ActionsQueue, in_lamport_order
from coterie.kernel.components import Action, ActionId
from coterie.kernel.engine import Run
from coterie.kernel.views import Member, ViewId

A, B = Member("a", 1), Member("b", 1)
VIEW = ViewId(2, "a", 1)


def action(creator: Member, index: int, time: int = 0) -> Action:
    return Action(creator, index, time or index, b"%s%d" % (creator.id.encode(), index))


def queue(*actions: Action) -> ActionsQueue:
    made = ActionsQueue(bytes_max=1 << 20)
    for each in actions:
        assert made.learn(each)
    return made


def test_an_action_is_taken_only_if_it_is_the_next_one_of_its_creator() -> None:
    made = queue(action(A, 1))
    assert not made.learn(action(A, 1))
    assert not made.learn(action(A, 3))
    assert made.learn(action(A, 2))
    assert made.red_cut == {A: 2}


def test_time_is_learned_from_what_is_not_taken_as_well() -> None:
    made = queue()
    made.learn(action(A, 3, time=7))
    assert made.time == 7


def test_green_actions_have_dense_positions_and_viewstamps() -> None:
    made = queue(action(A, 1), action(B, 1), action(A, 2))
    runs = made.mark_green([ActionId(A, 1), ActionId(A, 2), ActionId(B, 1)], VIEW, 5)
    assert runs == [Run(VIEW, 5, 1, A, 1, [b"a1", b"a2"]), Run(VIEW, 7, 3, B, 1, [b"b1"])]
    assert made.log.end == 3
    assert len(made) == made.bytes == 0


def test_what_is_green_is_so_first_in_first_out() -> None:
    made = queue(action(A, 1), action(A, 2))
    with pytest.raises(AssertionError, match="first in, first out"):
        made.mark_green([ActionId(A, 2)], VIEW, 1)


def test_yellow_actions_are_shown_before_red_ones() -> None:
    made = queue(action(B, 1), action(A, 1), action(A, 2))
    made.mark_yellow(ActionId(A, 1))
    assert [each.command for each in made.shown()] == [b"a1", b"b1", b"a2"]
    before = made.epoch
    made.learn(action(B, 2))
    assert made.epoch == before  # it just grew
    assert made.shown()[-1].command == b"b2"


def test_greens_from_another_server_take_the_place_of_our_reds() -> None:
    made = queue(action(A, 1), action(B, 1))
    made.mark_yellow(ActionId(A, 1))
    made.take_green(Run(VIEW, 1, 1, A, 1, [b"a1", b"a2"]))
    assert made.red_cut == {A: 2, B: 1}
    assert made.yellow == []
    assert [each.command for each in made.shown()] == [b"b1"]


def test_a_state_taken_over_leaves_what_is_not_in_it_red() -> None:
    made = queue(action(A, 1), action(A, 2), action(B, 1))
    made.reset(10, {A: 1})
    assert made.log.end == 10
    assert [each.command for each in made.shown()] == [b"a2", b"b1"]
    assert made.red_cut == {A: 2, B: 1}


def test_white_actions_are_discarded() -> None:
    made = queue(action(A, 1), action(B, 1), action(A, 2))
    made.mark_green([ActionId(A, 1), ActionId(B, 1), ActionId(A, 2)], VIEW, 1)
    assert made.log.discard(2) == 2
    assert made.log.start == 2
    assert list(made.log.above(0)) == [Run(VIEW, 3, 3, A, 2, [b"a2"])]
    assert made.log.mark(3) == made.log.mark(3)
    assert made.log.discard(2) == 0


def test_actions_travel_with_their_index_and_their_time() -> None:
    made = Action(A, 3, 8, b"command")
    [payload] = encode_actions([made])
    assert decode_action(A, payload) == made
    assert decode_action(A, b"short") is None


@given(st.lists(st.sampled_from("ab"), max_size=12), st.randoms(use_true_random=False))
def test_everybody_orders_the_same_reds_alike_and_in_the_order_of_causes(
    creators: list[str], random: object
) -> None:
    """Each action knows all before it, so its time is higher."""
    counts = {"a": 0, "b": 0}
    made: list[Action] = []
    for time, id in enumerate(creators, start=1):
        counts[id] += 1
        made.append(action(Member(id, 1), counts[id], time))
    shuffled = list(made)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert in_lamport_order(shuffled) == made


def test_beyond_a_cut_is_what_can_be_learned_above_it() -> None:
    made = queue(action(B, 1), action(A, 1), action(A, 2))
    found = made.beyond({A: 1}, bytes_max=1 << 20)
    assert [each.command for each in found] == [b"a2", b"b1"]
    assert len(made.beyond({}, bytes_max=0)) == 1


def test_what_was_green_and_is_not_in_a_state_taken_over_is_learned_again() -> None:
    """It was held to be here, red, and was not: the next component ended in a missing key."""
    made = queue(action(A, 1), action(B, 1), action(B, 2), action(B, 3))
    made.mark_green([ActionId(B, 1), ActionId(B, 2)], VIEW, 1)
    made.reset(2, {A: 1, B: 1})
    assert made.red_cut == {A: 1, B: 1}
    assert len(made) == made.bytes == 0
    assert made.learn(action(B, 2))
