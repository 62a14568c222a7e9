"""UNION: histories that are sets, told as stories."""

from __future__ import annotations

import pytest
from tests.replication.stories import (
    ALL,
    GIVEN,
    HARDLY_ANY,
    come_together,
    direct,
    engine,
    everywhere,
    group_on_script,
    is_learning,
    settled,
    write,
)

from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.errors import StackError
from coterie.membership.messages import Data, Repair, VsyncMessage
from coterie.simulation import Group
from coterie.stacks import expand, parse_stack


def held(group: Group, id: str) -> int:
    return engine(group, id).log.end


def cut_off_with_something_of_its_own(group: Group, id: str) -> None:
    """Have a replica take an entry that nobody else will get before it comes back."""
    others = "".join(host.id for host in group if host.id != id)
    group.partition(id, others)
    group[id].propose(b"only mine")
    group.run(seconds(2))


def test_pvsync_alone_is_union_and_cannot_stand_on_an_order_or_carry_safe() -> None:
    assert expand("PVSYNC") == ["UNION", "VSYNC"]
    for stack, missing in (("SAFE:UNION:VSYNC", "total order"), ("SAFE:PVSYNC", "total order")):
        with pytest.raises(StackError, match=missing):
            parse_stack(stack)
    with pytest.raises(StackError, match="first in first out"):
        parse_stack("UNION:TOKEN:VSYNC")


def test_what_one_alone_took_is_not_rolled_back_but_brought_to_all() -> None:
    group, _ = group_on_script("PVSYNC")
    write(group, "a")
    cut_off_with_something_of_its_own(group, "c")
    assert held(group, "c") == 21
    assert settled(group, "c") == 20, "a minority settles nothing"
    write(group, "b", 5)
    come_together(group)
    assert everywhere(group) == {26}


def test_all_members_may_hold_something_that_nobody_else_does() -> None:
    group, _ = group_on_script("PVSYNC", "abcde")
    group.partition(*"abcde")
    for host in group:
        host.propose(b"only " + host.id.encode())
    group.run(seconds(2))
    assert {held(group, id) for id in "abcde"} == {1}
    come_together(group)
    assert everywhere(group) == {5}


def test_a_state_that_is_taken_over_has_what_only_the_learner_held() -> None:
    group, _ = group_on_script("PVSYNC", history_bytes=HARDLY_ANY)
    write(group, "a")
    cut_off_with_something_of_its_own(group, "c")
    write(group, "b", 40)
    come_together(group)
    assert everywhere(group) == {61}
    write(group, "c", 5)
    assert everywhere(group) == {66}
    group.check()


def test_what_is_settled_stays_settled_when_a_state_is_taken_over() -> None:
    group, network = group_on_script("PVSYNC", "abcde", history_bytes=HARDLY_ANY)
    write(group, "c")
    group.partition("c", "abde")
    write(group, "a", 40)
    network.lose(direct(*GIVEN, to="c"))
    group.heal()
    group.run(seconds(1))
    assert is_learning(group, "c")
    seen: list[int] = []
    adopt = engine(group, "c")._adopt

    def watch(transfer: object) -> None:
        adopt(transfer)
        seen.append(settled(group, "c"))

    engine(group, "c")._adopt = watch  # type: ignore[method-assign]
    network.lose_no_more()
    come_together(group)
    assert seen
    assert min(seen) >= 20
    assert everywhere(group) == {60}


def test_nothing_is_settled_that_a_member_of_the_view_lacks() -> None:
    """Stability is what settles; a member that is silent is left out of the next view."""
    group, _ = group_on_script("PVSYNC")
    group.cut("a", "c")
    group.cut("b", "c")
    group["a"].propose(b"one")
    group.run(milliseconds(150))
    assert [held(group, id) for id in "abc"] == [1, 1, 0]
    assert [settled(group, id) for id in "ab"] == [0, 0]
    group.run(seconds(2))
    assert [settled(group, id) for id in "ab"] == [1, 1]
    come_together(group)


@pytest.mark.parametrize("history_bytes", [ALL, HARDLY_ANY], ids=["entries", "state"])
def test_a_learner_that_cannot_keep_what_comes_meanwhile_fetches_it(history_bytes: int) -> None:
    group, network = group_on_script("PVSYNC", history_bytes=history_bytes, backlog_bytes=300)
    group.partition("c", "ab")
    group.run(seconds(2))
    write(group, "a", 10)
    network.lose(direct(*GIVEN, to="c"))
    group.heal()
    group.run(seconds(2))
    assert is_learning(group, "c")
    for _ in range(4):
        write(group, "b", 10)
    assert len(engine(group, "c")._tail) < 40  # type: ignore[attr-defined]
    network.lose_no_more()
    come_together(group)
    assert everywhere(group) == {50}


@pytest.mark.parametrize(
    ("history_bytes", "later", "left"),
    [(ALL, 7, 30), (HARDLY_ANY, 7, 30), (HARDLY_ANY, 40, 23)],
    ids=["entries are there", "what is forgotten is known", "nobody can give it any more"],
)
def test_what_an_operator_gave_up_comes_back_with_who_has_it_if_that_can_be(
    history_bytes: int, later: int, left: int
) -> None:
    """Sets can be united after a loss, too, unless a state has in it what nobody else knows."""
    group, _ = group_on_script("PVSYNC", "abcde", history_bytes=history_bytes)
    write(group, "b")
    group.partition("a", "bcde")
    group.run(seconds(1))
    write(group, "b", later)
    group["b"].crash()
    for id in "cde":
        group[id].replace_machine()
        group[id].start()
    group.heal()
    group.run(seconds(3))
    assert group["a"].place is None, "a majority has forgotten"
    group["a"].accept_loss()
    group.run_until_whole()
    write(group, "c", 3)
    assert everywhere(group) == {23}
    group["b"].start()
    come_together(group)
    assert everywhere(group) == {left}
    write(group, "b", 2)
    assert everywhere(group) == {left + 2}
    group.check()


def test_what_a_learner_had_to_drop_is_not_settled_by_fetching_it() -> None:
    """It must hold it to accept the view; that others do is another matter."""
    group, network = group_on_script("PVSYNC", "abcde", backlog_bytes=300)
    group.partition("c", "abde")
    group.run(seconds(2))
    write(group, "a", 10)
    network.lose(direct(*GIVEN, to="c"))
    group.heal()
    group.run(seconds(1))
    assert is_learning(group, "c")

    def to_the_others(source: str, destination: str, message: VsyncMessage) -> bool:
        return source in "ac" and destination in "bde" and isinstance(message, Data | Repair)

    network.lose(to_the_others)
    group["a"].propose(b"x" * 400)
    group.run(milliseconds(20))
    assert not engine(group, "c")._tail  # type: ignore[attr-defined]
    network.lose_no_more()
    network.lose(to_the_others)
    group.simulation.run_until(lambda: not is_learning(group, "c"), within=seconds(2))
    assert held(group, "c") == 11
    assert held(group, "b") == 10
    group.run(milliseconds(20))
    assert settled(group, "c") == 10
    network.lose_no_more()
    come_together(group)
    assert everywhere(group) == {11}
