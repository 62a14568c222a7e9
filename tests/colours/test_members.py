"""Replicas join and leave a group over a partitioned network."""

from __future__ import annotations

from functools import partial

import pytest
from tests.colours.stories import STACKS, cut, greens, is_primary, make_group, merge, reds, until

from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.errors import Refused
from coterie.kernel.records import ComponentInstalled, Record, ViewInstalled
from coterie.kernel.views import ViewId
from coterie.simulation.engines.colours.group import ColoursGroup


def installed(
    group: ColoursGroup, views: dict[ViewId, set[str]] | None = None
) -> list[ComponentInstalled]:
    """Gather what is installed from now on, and who is in the *views*."""
    found: list[ComponentInstalled] = []
    record = group.record

    def note(each: Record) -> None:
        if isinstance(each, ComponentInstalled):
            found.append(each)
        if isinstance(each, ViewInstalled) and views is not None:
            views[each.view] = {member.id for member in each.members}
        record(each)

    group.record = note  # type: ignore[method-assign,assignment]
    return found


def is_gone(group: ColoursGroup, id: str) -> bool:
    """Say whether a replica is no member any more, and that is settled."""
    return id in group.engine("a").configuration.gone


def join(group: ColoursGroup) -> str:
    """Have a new machine join, and wait until it is a member."""
    id = group.operator.join()
    until(group, lambda: id in group.engine("a").configuration.members, f"{id} is a member")
    until(group, lambda: group.is_one, "all are one primary component")
    return id


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("history_bytes", [20, 1 << 20])
def test_who_joins_is_a_member_with_the_next_component(stack: str, history_bytes: int) -> None:
    """By the green actions, and by the state where these are gone."""
    group = make_group("abc", stack=stack, history_bytes=history_bytes)
    for number in range(20):
        group["a"].propose(b"%d" % number)
    group.run(seconds(1))
    new = join(group)
    assert group.engine(new).prim.members == ("a", "b", "c", new)
    group[new].restart()
    assert not group.engine(new).is_zombie
    until(group, lambda: group.is_one, "all are one primary component")
    group[new].propose(b"from the new one")
    group.run(seconds(1))
    assert greens(group)[-1] == f"{new}#2:1"
    assert group.engine(new).green_end == group.engine("a").green_end
    group.check()


def test_a_learner_has_no_part_in_attempts_before_it_holds_everything() -> None:
    """In the first component with it in touch it is none of those whom the others wait for."""
    group = make_group("abc")
    views: dict[ViewId, set[str]] = {}
    found = installed(group, views)
    new = join(group)
    first = next(each for each in found if new in views[each.view])
    assert first.promises.vulnerable is not None
    assert first.promises.vulnerable.members == first.promises.prim.members == ("a", "b", "c")
    assert found[-1].promises.prim.members == ("a", "b", "c", new)
    group.check()


def test_the_first_of_two_leaves_and_the_other_goes_on() -> None:
    """Its vote counts in the attempt that takes it out, where it is on record, and no more."""
    group = make_group("ab", primary_min=1)
    group["b"].propose(b"x")
    group.run(milliseconds(200))
    found = installed(group)
    engine = group.engine("b")
    group["b"].call(lambda: engine.dismiss("a"))
    until(group, lambda: group["a"].is_retired, "a is gone")
    until(group, lambda: is_primary(group, "b"), "b is the primary component")
    assert group.engine("b").prim.members == ("b",)
    assert group.engine("b").configuration.everyone == ("b",)
    of_b = next(each.promises for each in found if each.promises.prim.members == ("b",))
    assert of_b.vulnerable is not None
    assert of_b.vulnerable.members == ("b", "a")
    group["b"].propose(b"y")
    group.run(milliseconds(200))
    assert greens(group)[-1].startswith("b:")
    group.check()


def test_two_of_five_remove_three_that_never_come_back() -> None:
    """No majority of the configuration is asked for: only the last component counts."""
    group = make_group("abcde", history_bytes=20)
    cut(group, "abc", "d", "e")
    cut(group, "ab", "c", "d", "e")
    assert is_primary(group, "a")
    for id in "cde":
        group[id].retire()
    for number in range(20):
        group["a"].propose(b"%d" % number)
    group.run(seconds(1))
    engine = group.engine("a")
    assert engine.white_end < engine.green_end
    for id in "cde":
        until(group, lambda: is_primary(group, "a"), "a is primary")
        until(group, lambda: not engine.configuration.before, "the members are settled")
        group["a"].call(partial(engine.dismiss, id))
        until(group, partial(is_gone, group, id), f"{id} is removed")
    until(group, lambda: is_primary(group, "b"), "b is primary")
    assert engine.configuration.everyone == ("a", "b")
    for number in range(70):
        group["a"].propose(b"%d" % number)
    until(group, lambda: engine.white_end > 20, "what is green at both is white")
    group.check()


def test_where_a_vanished_member_blocks_a_word_goes_on_and_it_is_removed() -> None:
    group = make_group("abc")
    group["a"].propose(b"x")
    group.run(milliseconds(200))
    for id in "abc":
        group[id].crash()
    group["c"].retire()
    group["a"].start()
    group["b"].start()
    until(group, lambda: group.engine("a").is_with("ab"), "they are in touch")
    group.run(seconds(2))
    assert not is_primary(group, "a")
    group.speak()
    until(group, lambda: is_primary(group, "a"), "the word counts")
    engine = group.engine("a")
    group["a"].call(lambda: engine.dismiss("c"))
    until(group, lambda: "c" in engine.configuration.gone, "c is removed")
    until(group, lambda: is_primary(group, "b"), "they go on")
    assert greens(group)[0] == "a:1"


def test_members_change_in_the_primary_component_only() -> None:
    group = make_group("abc")
    cut(group, "ab", "c")
    with pytest.raises(Refused, match="is not in the primary component"):
        group.engine("c").admit("d")
    with pytest.raises(Refused, match="does not belong to the group"):
        group.engine("a").dismiss("z")
    with pytest.raises(Refused, match="fewer than 2 members would be in touch"):
        group.engine("a").dismiss("b")
    merge(group)
    group.check()


def test_what_is_red_is_ordered_by_the_members_that_there_are_then() -> None:
    """One side of a cut goes on with a new member; the other side's actions come in later."""
    group = make_group("abc")
    cut(group, "ab", "c")
    group["c"].propose(b"red")
    group.run(milliseconds(200))
    new = group.operator.join()
    until(group, lambda: new in group.engine("a").configuration.members, f"{new} is a member")
    assert reds(group, "c") == ["c:1"]
    merge(group)
    assert "c:1" in greens(group)
    assert group.engine("c").configuration.members == ("a", "b", "c", new)
    group.check()
