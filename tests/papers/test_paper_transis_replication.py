"""**transis** slides 12 and 24 to 33, sentence by sentence, on the simulator.

Amir, "Replication over a Partitioned Network", 1994. The slides say *server* where we say replica,
and *database* where we say object.
"""

from __future__ import annotations

import pytest
from tests.colours.stories import (
    STACKS,
    cut,
    greens,
    is_primary,
    make_group,
    merge,
    reds,
    until,
)

from coterie.colours.layer import Colours
from coterie.colours.states import GREEN, RED, WHITE, YELLOW
from coterie.kernel.clock import milliseconds, seconds
from coterie.simulation.engines.colours.group import ColoursGroup


@pytest.fixture(params=STACKS)
def group(request: pytest.FixtureRequest) -> ColoursGroup:
    return make_group(stack=request.param)


def holds(engine: Colours, creator: str) -> int:
    """How many actions of a replica are known at another one, in any colour."""
    return sum(index for member, index in engine.queue.red_cut.items() if member.id == creator)


# ---- slide 12


def test_a_server_that_recovers_exchanges_information_and_goes_on(group: ColoursGroup) -> None:
    """When the server recovers, it exchanges information with other connected servers."""
    group["a"].crash()
    group.run(seconds(1))
    group["b"].propose(b"meanwhile")
    group.run(seconds(1))
    group["a"].start()
    until(group, lambda: group.is_one, "all are one primary component")
    assert group.engine("a").green_end == 1
    group.check()


# ---- slides 24 and 29


def test_actions_are_initiated_anytime_and_ordered_when_they_reach_a_primary_component(
    group: ColoursGroup,
) -> None:
    cut(group, "a", "bcde")
    group["a"].propose(b"x")
    group.run(milliseconds(500))
    assert reds(group, "a") == ["a:1"]
    assert greens(group) == []
    merge(group)
    assert greens(group) == ["a:1"]
    group.check()


def test_in_the_primary_component_an_action_is_green_on_delivery(group: ColoursGroup) -> None:
    group["a"].propose(b"x")
    group.run(seconds(1))
    assert [group.engine(id).green_end for id in "abcde"] == [1] * 5
    assert not any(len(group.engine(id).queue) for id in "abcde")


def test_at_most_one_component_is_primary(group: ColoursGroup) -> None:
    cut(group, "ab", "cd", "e")
    assert not any(is_primary(group, id) for id in "abcde")
    cut(group, "abc", "de")
    assert [id for id in "abcde" if is_primary(group, id)] == ["a", "b", "c"]
    group.check()


def test_dynamic_voting_follows_the_last_primary_component(group: ColoursGroup) -> None:
    """Two of five go on where they were primary last, with the third of them away."""
    cut(group, "abc", "de")
    cut(group, "ab", "c", "de")
    assert is_primary(group, "a")
    cut(group, "ab", "cde")
    assert not is_primary(group, "d")
    group.check()


def test_linear_voting_decides_a_tie() -> None:
    group = make_group("abcd")
    cut(group, "ab", "cd")
    assert is_primary(group, "a")
    assert not is_primary(group, "c")
    group.check()


# ---- slides 25 to 28


def test_propagation_by_eventual_path(group: ColoursGroup) -> None:
    """Mx and my reach servers through others, although their creators never meet them.

    Slide 25: two components, and in each one server initiates an action. Slide 26: four components.
    Slide 27: two of them merge, and all three servers have both actions. Slide 28: the last one
    merges with them, and has mx from servers that were never connected to its creator.
    """
    cut(group, "abc", "de")
    group["a"].propose(b"mx")
    group["d"].propose(b"my")
    group.run(seconds(1))
    cut(group, "a", "bc", "d", "e")
    cut(group, "a", "bcd", "e")
    assert all(holds(group.engine(id), "a") == holds(group.engine(id), "d") == 1 for id in "bcd")
    cut(group, "a", "bcde")
    assert holds(group.engine("e"), "a") == 1
    assert holds(group.engine("a"), "d") == 0
    merge(group)
    assert sorted(greens(group)) == ["a:1", "d:1"]
    group.check()


def test_the_fact_that_others_know_an_action_is_shared_as_well(group: ColoursGroup) -> None:
    """Moreover, the fact that the two lower component processors know mx is also shared."""
    group["a"].propose(b"mx")
    group.run(seconds(1))
    cut(group, "abc", "de")
    assert group.engine("a").white_end == 0
    cut(group, "abcd", "e")
    assert group.engine("a").lines == dict.fromkeys("abcde", 1)  # d told what e knew
    assert group.engine("a").white_end == 1


# ---- slides 29 and 31: the colours


def test_a_white_action_is_discarded(group: ColoursGroup) -> None:
    group["a"].propose(b"x")
    group.run(seconds(1))
    cut(group, "abcd", "e")
    merge(group)
    assert group.engine("a").queue.log.start == 1


def test_only_green_and_white_are_final() -> None:
    assert [colour.is_final for colour in (RED, YELLOW, GREEN, WHITE)] == [False, False, True, True]


def test_yellow_actions_are_the_first_to_be_marked_green(group: ColoursGroup) -> None:
    """A's action reaches c, and not whoever c is cut off from: c marks it yellow or green."""
    group["c"].propose(b"red before")
    group.run(seconds(1))
    group["a"].propose(b"x")
    group.run(milliseconds(1))
    cut(group, "ab", "cde")
    merge(group)
    assert greens(group) == ["c:1", "a:1"]
    group.check()


# ---- slides 30 and 32


def test_if_a_configuration_change_occurs_before_all_are_ready_nobody_installs(
    group: ColoursGroup,
) -> None:
    """Cascading partitions while components form; the checks say what must not happen."""
    for parts in (("ab", "cde"), ("abc", "de"), ("a", "bcd", "e"), ("abcd", "e")):
        group.heal()
        group.partition(*parts)
        group.run(milliseconds(480))
    merge(group)
    group.check()


# ---- slide 33


def test_every_component_answers_from_what_it_knows(group: ColoursGroup) -> None:
    """Dirty queries are answered with red actions, weak ones without."""
    cut(group, "ab", "cde")
    group["a"].propose(b"x")
    group.run(milliseconds(500))
    ledger = group["b"].ledger
    assert ledger is not None
    assert ledger.state.position == 1  # type: ignore[union-attr]
    assert ledger.settled.position == 0
