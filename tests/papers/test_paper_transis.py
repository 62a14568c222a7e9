"""**transis** slides 20 to 23, sentence by sentence, on the simulator.

Amir, "Replication over a Partitioned Network", 1994. The slides say *configuration* where we say
view, and *process* where we say member.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.papers.scenes import (
    ORDERED,
    era_of_view,
    part_of,
    until,
    until_delivered,
    until_views,
    whole_group,
)
from tests.seeded import seeded
from tests.simulation.scripted import ScriptedNetwork, carries, scripted_group

from coterie.checking.history import message_of
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.records import Delivery
from coterie.membership.messages import Ack, Propose, VsyncMessage

if TYPE_CHECKING:
    from tests.simulation.scripted import Rule

    from coterie.simulation import Group

REGULAR, TRANSITIONAL = Delivery.REGULAR, Delivery.TRANSITIONAL
CASES = {REGULAR: "1", TRANSITIONAL: "?", Delivery.AFTER_HOLE: "?", None: "0"}
"""What slide 22 calls the three things that may happen to a safe message at a process."""


# ---- slide 20


@pytest.mark.parametrize("stack", ORDERED)
def test_agreed_delivery_is_one_total_order_without_holes(stack: str) -> None:
    """Slide 20: processes deliver messages in the same total order; there are no holes.

    The first message is lost on its way to c, so c holds back what comes after it.
    """
    group, network = scripted_group(stack, "abc")
    network.lose(lambda _, destination, message: destination == "c" and carries(message, b"first"))
    group["a"].cast(b"first")
    group.run(milliseconds(1))
    group["b"].cast(b"second")
    until_delivered(group, b"second", at="ab")
    assert group["c"].delivered == []
    network.lose_no_more()
    until_delivered(group, b"second", at="c")
    assert [host.delivered for host in group] == [[b"first", b"second"]] * 3
    group.check()


@pytest.mark.parametrize("stack", ORDERED)
def test_a_safe_message_waits_until_all_have_it_and_an_agreed_one_does_not(stack: str) -> None:
    """Slide 20: a safe one is delivered once it is known that every process will deliver it."""
    for safe in (False, True):
        group, network = scripted_group(stack, "abc")
        network.lose(lambda _, destination, message: destination == "c" and carries(message, b"m"))
        group["a"].cast(b"m", safe=safe)
        group.run(milliseconds(250))
        assert group["a"].view == "abc", "or this test shows nothing"
        expected = [] if safe else [b"m"]
        assert group["a"].delivered == group["b"].delivered == expected
        network.lose_no_more()
        until_delivered(group, b"m", at="abc")
        group.check()


@pytest.mark.parametrize("stack", ORDERED)
def test_what_is_behind_a_safe_message_waits_with_it(stack: str) -> None:
    """Slide 20: safe delivery is in addition to the one order, so nothing overtakes."""
    group, network = scripted_group(stack, "abc")
    network.lose(lambda _, destination, message: destination == "c" and carries(message, b"safe"))
    group["a"].cast(b"safe", safe=True)
    group["a"].cast(b"agreed")
    group.run(milliseconds(250))
    assert group["a"].delivered == []
    network.lose_no_more()
    until_delivered(group, b"agreed", at="abc")
    assert group["c"].delivered == [b"safe", b"agreed"]


@pytest.mark.parametrize("stack", ORDERED)
def test_a_safe_message_delivered_by_one_is_delivered_by_all_though_the_network_parts(
    stack: str,
) -> None:
    """Slide 20: all have it already and will deliver it, even if at this point all are cut off."""
    group = whole_group(stack)
    group["a"].cast(b"m", safe=True)
    first: list[str] = []

    def someone_has_it() -> bool:
        first[:] = [host.id for host in group if b"m" in host.delivered]
        return bool(first)

    while not someone_has_it():
        group.run(milliseconds(0.1))
    group.partition(*"abcde")
    assert len(first) < 5, "or the partition came too late to show anything"
    until_views(group, *"abcde")
    for host in group:
        assert host.delivered == [b"m"]
        assert part_of(era_of_view(group, host.id, "abcde"), "a", 1) in (REGULAR, TRANSITIONAL)
    group.check()


@pytest.mark.parametrize("stack", ORDERED)
def test_a_process_that_crashes_is_excused(stack: str) -> None:
    """Slide 20: every process will deliver the message unless it crashes."""
    group, network = scripted_group(stack, "abcd")
    group["a"].cast(b"m", safe=True)
    until(group, lambda: b"m" in group["a"].delivered, "a has it")
    group["d"].crash()
    until_views(group, "abc")
    assert all(group[id].delivered == [b"m"] for id in "abc")
    assert network.lost == []
    group.check()


@pytest.mark.parametrize("stack", ORDERED)
@pytest.mark.parametrize("seed", range(3))
def test_consecutive_configurations_mean_the_same_set_of_messages(stack: str, seed: int) -> None:
    """Slide 20, failure atomicity: who belongs to two consecutive ones delivers the same set."""
    group = whole_group(stack, seed=seed)
    random = seeded("atomicity", stack, seed)
    for sides in (("abc", "de"), ("ab", "cd", "e"), ("abcde",)):
        for host in group:
            host.cast(*(f"{host.id}{n}".encode() for n in range(5)), safe=random.random() < 0.5)
        group.run(milliseconds(random.choice([0.2, 0.6, 1.5])))
        group.heal()
        group.partition(*sides)
        group.run(seconds(1))
    compared = 0
    for went in group.history.together().values():
        sets = [{message_of(record) for record in era.delivered} for _, era in went]
        assert all(one == sets[0] for one in sets)
        compared += len(sets) - 1
    assert compared >= 5
    group.check()


# ---- slides 21 and 23: the example


def play_the_example(group: Group, network: ScriptedNetwork) -> None:
    """The messages of slide 21 in the configuration of p, q, r and s, up to the partition.

    m1: all know that all have it. m2, sent by r: p and q know so; r and s have it, but get no sign
    that p and q do. m3: sent by p, and lost on its way to r and s.
    """
    group["p"].cast(b"m1", safe=True)
    until_delivered(group, b"m1", at="pqrs")

    def is_known_at_q() -> bool:
        return b"m2" in group["q"].delivered

    def is_lost(source: str, destination: str, message: VsyncMessage) -> bool:
        if source not in "pq" or destination not in "rs":
            return False
        return isinstance(message, Ack) or carries(message, b"m3") or is_known_at_q()

    network.lose(is_lost)
    if group.simulation.stack == "TOKEN:VSYNC":
        # The token must come by p once more after r has sent m2, and will not come back from r.
        network.lose(_casts_m3_when_m2_leaves(group))
    group["r"].cast(b"m2", safe=True)
    until(group, is_known_at_q, "q knows that all have m2")
    if group.simulation.stack == "DYNSEQ:VSYNC":
        group["p"].cast(b"m3", safe=True)
        group.run(milliseconds(1))
    assert {to for _, to, message in network.lost if carries(message, b"m3")} == {"r", "s"}


def _casts_m3_when_m2_leaves(group: Group) -> Rule:
    """A rule that loses nothing, but has p cast m3 at the right moment."""
    is_cast = False

    def watch(source: str, _: str, message: VsyncMessage) -> bool:
        nonlocal is_cast
        if not is_cast and source == "r" and carries(message, b"m2"):
            is_cast = True
            group["p"].cast(b"m3", safe=True)
        return False

    return watch


def check_the_example(group: Group) -> None:
    """Who delivered what in which part of the configuration of four."""
    messages = (("p", 1), ("r", 1), ("p", 2))
    cases = {
        id: "".join(CASES[part_of(era_of_view(group, id, "pqrs"), *each)] for each in messages)
        for id in "pqrs"
    }
    assert cases == {"p": "11?", "q": "11?", "r": "1?0", "s": "1?0"}


def transitional_of(group: Group, id: str, view: str) -> str:
    """The transitional configuration in which a process left its last view of these members."""
    [(_, record)] = era_of_view(group, id, view).transitional
    return "".join(sorted(member.id for member in record.members))


@pytest.mark.parametrize("stack", ORDERED)
def test_a_message_is_delivered_in_the_configuration_for_which_it_is_safe(stack: str) -> None:
    """Slide 21: the example.

    All deliver m1 in the regular configuration, and p and q also m2; r and s, who cannot tell
    whether p and q have m2, deliver it in their transitional configuration; m3 is lost to them.
    """
    group, network = scripted_group(stack, "pqrs")
    play_the_example(group, network)
    group.partition("pq", "rs")
    until_views(group, "pq", "rs")
    check_the_example(group)
    group.check()


@pytest.mark.parametrize("stack", ORDERED)
def test_each_regular_configuration_is_preceded_by_a_transitional_one(stack: str) -> None:
    """Slide 21: perhaps a smaller one, of those who belong to the one before and the one after."""
    group, network = scripted_group(stack, "pqrs")
    play_the_example(group, network)
    group.partition("pq", "rs")
    until_views(group, "pq", "rs")
    assert [transitional_of(group, id, "pqrs") for id in "pqrs"] == ["pq", "pq", "rs", "rs"]
    for life in group.history.lives.values():
        for era in life.eras:
            if era.successor is not None:
                [(_, record)] = era.transitional
                both = set(era.installed.members) & set(era.successor.members)
                assert set(record.members) <= both


@pytest.mark.parametrize("stack", ORDERED)
def test_case_0_and_case_1_never_exist_together(stack: str) -> None:
    """Slide 22: if one process delivers a message in the regular configuration, none goes without.

    Case 1 delivers it in the regular configuration, case ? in the transitional one, case 0 not at
    all. The network parts at every moment of the message's way once.
    """
    seen: set[str] = set()
    for moment in range(0, 2000, 100):
        group = whole_group(stack, "abcd")
        group["b"].cast(b"m", safe=True)
        group.run(milliseconds(moment / 1000))
        group.partition("ab", "cd")
        until_views(group, "ab", "cd")
        eras = [era_of_view(group, id, "abcd") for id in "abcd"]
        cases = {CASES[part_of(era, "b", 1)] for era in eras}
        assert not {"0", "1"} <= cases
        seen.add("".join(sorted(cases)))
        group.check()
    assert seen >= {"1", "1?", "0?"}, "or the moments are not the interesting ones"


@pytest.mark.parametrize("stack", ORDERED)
def test_r_and_s_split_from_the_others_and_merge_with_t_at_once(stack: str) -> None:
    """Slide 23: the example of slide 21, but r and s go straight into a configuration with t.

    t has just asked to join when p and q are cut off, so the next configuration is of r, s and t.
    """
    group = split_and_merge(stack)
    check_the_example(group)
    for id in "rs":
        successor = era_of_view(group, id, "pqrs").successor
        assert successor is not None
        assert sorted(member.id for member in successor.members) == ["r", "s", "t"]
    group.check()


@pytest.mark.parametrize("stack", ORDERED)
def test_in_a_merge_the_transitional_configuration_is_the_former_regular_one(stack: str) -> None:
    """Slide 23: so it is at t, and no message is left for it; at r and s it is of r and s."""
    group = split_and_merge(stack)
    assert transitional_of(group, "t", "t") == "t"
    assert part_of(era_of_view(group, "t", "t"), "t", 1) is REGULAR
    assert [transitional_of(group, id, "pqrs") for id in "rs"] == ["rs", "rs"]


@pytest.mark.parametrize("stack", ORDERED)
def test_messages_of_one_configuration_keep_their_order_wherever_they_are_delivered(
    stack: str,
) -> None:
    """Slide 23: their relative order is similar at all the processes that deliver them."""
    group = split_and_merge(stack)
    delivered = {id: group[id].delivered for id in "pqrs"}
    assert delivered == {
        "p": [b"m1", b"m2", b"m3"],
        "q": [b"m1", b"m2", b"m3"],
        "r": [b"m1", b"m2"],
        "s": [b"m1", b"m2"],
    }


@pytest.mark.parametrize("stack", ORDERED)
def test_who_goes_on_together_delivers_the_same_in_between(stack: str) -> None:
    """Slide 23: the same set of messages in the transitional configuration in between."""
    group = split_and_merge(stack)
    for pair, expected in (("rs", {("r", 1)}), ("pq", {("p", 2)})):
        for id in pair:
            era = era_of_view(group, id, "pqrs")
            assert expected == {
                (record.sender.id, record.first)
                for record in era.delivered
                if record.delivery is not REGULAR
            }


@cache  # several tests look at the same group, and none changes it
def split_and_merge(stack: str) -> Group:
    """Slide 23: r and s split from p and q, and immediately merge with t."""
    group, network = scripted_group(stack, "rspq", alone="t")
    group["t"].cast(b"alone", safe=True)
    play_the_example(group, network)
    is_parted = False

    def parts_when_t_joins(source: str, _: str, message: VsyncMessage) -> bool:
        nonlocal is_parted
        if not is_parted and source == "r" and isinstance(message, Propose):
            assert {member.id for member in message.members} == set("pqrst")
            is_parted = True
            group.partition("pq", "rst")
        return False

    network.lose(parts_when_t_joins)
    group.heal()
    until_views(group, "pq", "rst")
    return group
