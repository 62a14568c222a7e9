"""**objects** sections 3.3 and 3.4, sentence by sentence, on the simulator.

Friedman and Vaysburd, "High-Performance Replicated Distributed Objects in Partitionable
Environments", 1997.
"""

from __future__ import annotations

from functools import cache
from zlib import crc32

import pytest
from tests.papers.scenes import (
    ORDERED,
    era_of_view,
    is_prefix,
    life_of,
    until,
    until_delivered,
    until_views,
    whole_group,
)
from tests.seeded import seeded
from tests.simulation.scripted import carries, scripted_group

from coterie.checking.history import in_order, message_of
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.views import ViewId
from coterie.membership.messages import Install, VsyncMessage
from coterie.simulation import Group
from coterie.stacks import STACKS


@cache  # several tests look at the same life, and none changes it
def a_restless_life(stack: str, seed: int) -> Group:
    """Talk, partitions, a crash and merges, at times that the seed decides."""
    group = whole_group(stack, seed=seed)
    random = seeded("restless", stack, seed)
    splits = [("ab", "cde"), ("a", "bcd", "e"), ("ace", "bd")]
    random.shuffle(splits)
    for number, sides in enumerate(splits):
        for _ in range(6):
            for host in group:
                host.cast(f"{number}{host.id}".encode(), safe=random.random() < 0.3)
            group.run(milliseconds(random.choice([0.2, 0.5, 1, 3])))
        group.partition(*sides)
        for _ in range(3):
            for host in group:
                host.cast(f"{number}{host.id}'".encode(), safe=random.random() < 0.3)
            group.run(milliseconds(random.choice([1, 200, 600])))
        if number == 1:
            group[random.choice("abcde")].restart()
        group.heal()
        group.run(milliseconds(random.choice([5, 400])))
    group.run_until_whole()
    return group


# ---- 3.3: views


@pytest.mark.parametrize("stack", STACKS)
def test_views_may_exist_side_by_side(stack: str) -> None:
    """3.3: each process has a view at any time, and different ones may be installed at once."""
    group = whole_group(stack)
    group.partition("ab", "cde")
    until_views(group, "ab", "cde")
    group["a"].cast(b"on one side")
    group["c"].cast(b"on the other")
    until_delivered(group, b"on one side", at="ab")
    until_delivered(group, b"on the other", at="cde")
    assert b"on the other" not in group["a"].delivered
    assert b"on one side" not in group["e"].delivered
    group.check()


@pytest.mark.parametrize("stack", STACKS)
def test_a_new_view_is_presented_in_the_end_whoever_is_gone(stack: str) -> None:
    """3.3: the implementation does not block; a new view comes eventually, if only of oneself."""
    group = whole_group(stack)
    group.partition(*"abcde")
    until_views(group, *"abcde")
    for host in group:
        host.cast(b"alone")
        until_delivered(group, b"alone", at=host.id)
    group.check()


@pytest.mark.parametrize("stack", STACKS)
def test_a_process_that_is_not_heard_does_not_block_the_others(stack: str) -> None:
    """3.3: not even one whose frames arrive nowhere, while it hears everyone."""
    group = whole_group(stack)
    for other in "bcde":
        group.cut("a", other)
    until_views(group, "a", "bcde")
    group.check()


@pytest.mark.parametrize("stack", STACKS)
def test_a_view_is_proposed_by_one_and_accepted_by_each_for_itself(stack: str) -> None:
    """3.3: a view is installed in two phases, and receiving its message is not accepting it yet."""
    group, network = scripted_group(stack, "abc")

    def tells_c_to_go_on(_: str, destination: str, message: VsyncMessage) -> bool:
        return destination == "c" and isinstance(message, Install)

    network.lose(tells_c_to_go_on)
    group["b"].crash()
    group.run(seconds(2))
    stopped_for = network.lost[0][2]
    assert isinstance(stopped_for, Install)
    assert stopped_for.view in [proposal.view for proposal in life_of(group, "a").proposals]
    assert life_of(group, "a").era_of(stopped_for.view) is not None
    assert life_of(group, "c").era_of(stopped_for.view) is None
    group.check()


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("seed", [1, 2])
def test_an_accepted_view_was_proposed(stack: str, seed: int) -> None:
    """3.3.1, validity: an accepted view was proposed by some process (the one in its name)."""
    group = a_restless_life(stack, seed)
    proposals = {
        proposal.view: (life.member, proposal)
        for life in group.history.lives.values()
        for proposal in life.proposals
    }
    for _, era in group.history.eras():
        proposer, proposal = proposals[era.view]
        assert (proposer.id, proposer.incarnation) == (era.view.proposer, era.view.incarnation)
        assert proposal.members == era.installed.members
    group.check()


@pytest.mark.parametrize("stack", STACKS)
def test_who_proposes_or_accepts_a_view_is_in_it(stack: str) -> None:
    """3.3.2, self-inclusion."""
    group = a_restless_life(stack, 1)
    for life in group.history.lives.values():
        assert all(life.member in proposal.members for proposal in life.proposals)
        assert all(life.member in era.installed.members for era in life.eras)


@pytest.mark.parametrize("stack", STACKS)
def test_a_view_message_that_comes_too_late_is_not_accepted(stack: str) -> None:
    """3.3.3, view causality: a view is not delivered after one whose proposal depended on it."""
    group, network = scripted_group(stack, "abcd")
    late: list[tuple[str, str, Install]] = []

    def holds_back_for_c(source: str, destination: str, message: VsyncMessage) -> bool:
        if destination == "c" and isinstance(message, Install):
            late.append((source, destination, message))
            return True
        return False

    network.lose(holds_back_for_c)
    group["d"].crash()
    until_views(group, "ab", "c")
    network.lose_no_more()
    until_views(group, "abc")
    before = [era.view for era in life_of(group, "c").eras]
    replica = group["c"].replica
    assert replica is not None
    for source, _, message in late:
        [sender] = [member for member in message.members if member.id == source]
        group["c"].call(lambda m=message, s=sender: replica.bottom.receive(s, m))  # type: ignore[misc]
    group.run(milliseconds(50))
    assert [era.view for era in life_of(group, "c").eras] == before
    assert before == sorted(before)
    group.check()


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("seed", [1, 2])
def test_two_views_are_accepted_in_the_same_order_by_all_who_accept_both(
    stack: str, seed: int
) -> None:
    """3.3.4, agreement on view ordering."""
    lives = list(a_restless_life(stack, seed).history.lives.values())
    for one in lives:
        for other in lives:
            shared = {era.view for era in one.eras} & {era.view for era in other.eras}
            orders = [
                [era.view for era in life.eras if era.view in shared] for life in (one, other)
            ]
            assert orders[0] == orders[1]


@pytest.mark.parametrize("stack", STACKS)
def test_who_missed_a_view_does_not_go_straight_to_the_next(stack: str) -> None:
    """3.3.5, agreement on successors: consecutive views are consecutive wherever both are accepted.

    c stops for the view that comes after d's crash, but never learns that it was installed; a and b
    go on in it. So c may not come from the old view into one that they come to from the new.
    """
    group, network = scripted_group(stack, "abcd")
    old = era_of_view(group, "c", "abcd").view

    missed: list[ViewId] = []

    def is_that_install_for_c(_: str, destination: str, message: VsyncMessage) -> bool:
        if destination != "c" or not isinstance(message, Install):
            return False
        missed.append(message.view)
        return message.view == missed[0]

    network.lose(is_that_install_for_c)
    group["d"].crash()
    until(group, lambda: len(missed) > 1 and group.is_whole(), "c is back")
    views = {id: [era.view for era in life_of(group, id).eras] for id in "abc"}
    for id in "ab":
        assert views[id][views[id].index(old) + 1] == missed[0]
    own = views["c"][views["c"].index(old) + 1]
    assert own not in views["a"]
    assert own not in views["b"]
    assert views["a"][-1] == views["b"][-1] == views["c"][-1]
    group.check()


# ---- 3.3: messages


@pytest.mark.parametrize("stack", STACKS)
def test_a_message_goes_to_the_whole_view_of_its_sender_and_to_no_one_else(stack: str) -> None:
    """3.3: all messages are multicast to the entire current view of the sender."""
    group = whole_group(stack)
    group["b"].cast(b"to five")
    until_delivered(group, b"to five", at="abcde")
    group.partition("ab", "cde")
    until_views(group, "ab", "cde")
    group["b"].cast(b"to two")
    until_delivered(group, b"to two", at="ab")
    group.heal()
    group.run_until_whole()
    group.run(seconds(1))
    assert [id for id in "abcde" if b"to two" in group[id].delivered] == ["a", "b"]
    group.check()


@pytest.mark.parametrize("stack", STACKS)
def test_who_goes_on_together_has_delivered_the_same_even_if_one_alone_received_it(
    stack: str,
) -> None:
    """3.3.6, view atomicity: a's last message reached b alone, so c and d get it from b."""
    group, network = scripted_group(stack, "abcd")
    if stack == "TOKEN:VSYNC":
        group.run(seconds(1))  # so that the token rests at a, which can send at once
    network.lose(
        lambda source, to, message: source == "a" and to in "cd" and carries(message, b"m")
    )
    network.lose(
        lambda source, to, message: source == "b" and to in "cd" and carries(message, b"m")
    )
    group["a"].cast(b"m")
    until_delivered(group, b"m", at="b")
    group["a"].crash()
    network.lose_no_more()
    until_views(group, "bcd")
    for id in "bcd":
        assert [message[:3] for message in era_of_view(group, id, "abcd").messages()] == [
            ("a", 1, 1)
        ]
    group.check()


@pytest.mark.parametrize("stack", STACKS)
def test_who_goes_on_together_has_delivered_the_same_even_if_that_is_nothing(stack: str) -> None:
    """3.3.6, view atomicity: a's last message is lost to all who go on, so none delivers it."""
    group, network = scripted_group(stack, "abcd")
    network.lose(lambda source, _, message: source == "a" and carries(message, b"m"))
    group["a"].cast(b"m")
    until_delivered(group, b"m", at="a")
    group["a"].crash()
    until_views(group, "bcd")
    assert all(b"m" not in group[id].delivered for id in "bcd")
    group.check()


# ---- 3.4: order


@pytest.mark.parametrize("stack", ORDERED)
def test_all_in_a_view_deliver_in_the_same_order(stack: str) -> None:
    """3.4: total order, though everybody speaks at once and frames overtake each other."""
    group = whole_group(stack)
    group.simulation.network.delay_spread = 5_000
    for number in range(20):
        for host in group:
            host.cast(f"{host.id}{number}".encode())
        group.run(milliseconds(1))
    until(group, lambda: all(len(host.delivered) == 100 for host in group), "all is delivered")
    assert len({tuple(host.delivered) for host in group}) == 1
    assert group["a"].delivered != sorted(group["a"].delivered)
    group.check()


@pytest.mark.parametrize("stack", ORDERED)
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_of_two_sequences_delivered_in_a_view_one_is_a_prefix_of_the_other(
    stack: str, seed: int
) -> None:
    """3.4.1, strong prefix, also between processes that a partition tore apart meanwhile."""
    group = a_restless_life(stack, seed)
    for eras in group.history.by_view().values():
        sequences = [
            [str(message_of(record)).encode() for record in in_order(era)] for _, era in eras
        ]
        assert all(is_prefix(one, other) for one in sequences for other in sequences)
    group.check()


@pytest.mark.parametrize("stack", ORDERED)
def test_a_message_is_dropped_where_it_could_not_take_its_place(stack: str) -> None:
    """3.4: to keep the strong prefix property a message may have to be dropped.

    b and c have d's message but not a's, which comes before it. When a and d are cut off, nobody
    is left who has a's: to deliver d's would be to deliver it where a's belongs.
    """
    group, network = scripted_group(stack, "abcd")
    network.lose(lambda _, destination, message: destination in "bc" and carries(message, b"first"))
    group["a"].cast(b"first")
    until_delivered(group, b"first", at="ad")
    arrived: set[str] = set()

    def sees_second(source: str, destination: str, message: VsyncMessage) -> bool:
        if source == "d" and carries(message, b"second"):
            arrived.add(destination)
        return False

    network.lose(sees_second)
    group["d"].cast(b"second")
    until_delivered(group, b"second", at="ad")
    assert arrived == set("abc")
    group.partition("ad", "bc")
    until_views(group, "ad", "bc")
    assert group["a"].delivered == group["d"].delivered == [b"first", b"second"]
    assert group["b"].delivered == group["c"].delivered == []
    group.heal()
    network.lose_no_more()
    group.run_until_whole()
    group.run(seconds(1))
    assert group["b"].delivered == [], "nor is it delivered later, in another view"
    group.check()


def states(group: Group) -> dict[tuple[object, object], int]:
    """The state of every process at every view that it accepted: a digest of all it delivered."""
    found: dict[tuple[object, object], int] = {}
    for life in group.history.lives.values():
        state = 0
        for era in life.eras:
            found[life.member, era.view] = state
            for record in era.delivered:
                state = crc32(str(message_of(record)).encode(), state)
    return found


@pytest.mark.parametrize("stack", ORDERED)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_who_is_in_the_same_state_at_one_view_is_at_the_next(stack: str, seed: int) -> None:
    """3.4.2, active replication, first part: same state, same view and next view, so same state."""
    group = a_restless_life(stack, seed)
    state = states(group)
    compared = 0
    for (first, second), went in group.history.together().items():
        for one, _ in went:
            for other, _ in went:
                if one is not other and state[one.member, first] == state[other.member, first]:
                    compared += 1
                    assert state[one.member, second] == state[other.member, second]
    assert compared > 10
    group.check()


@pytest.mark.parametrize("stack", ORDERED)
def test_what_two_processes_put_out_in_a_view_differs_at_most_in_length(stack: str) -> None:
    """3.4.2, active replication, second part: outputs in a view are prefixes of one another."""
    group = whole_group(stack)
    for host in group:
        for number in range(10):
            host.cast(f"{host.id}{number}".encode())
    group.run(milliseconds(1))
    group.partition("ab", "cde")
    outputs = [list(host.delivered) for host in group]
    assert all(is_prefix(one, other) for one in outputs for other in outputs)
    until_views(group, "ab", "cde")
    group.check()


@pytest.mark.parametrize("stack", ORDERED)
def test_views_that_do_not_communicate_may_contradict_each_other(stack: str) -> None:
    """3.4: each view is coherent in itself, and there is no one state among all of them.

    That is what primary views are for; these stacks do not promise it.
    """
    group = whole_group(stack)
    group.partition("ab", "cde")
    until_views(group, "ab", "cde")
    group["a"].cast(b"seat 7 is Ann's")
    group["c"].cast(b"seat 7 is Carl's")
    group.run(seconds(1))
    assert group["a"].delivered == group["b"].delivered == [b"seat 7 is Ann's"]
    assert group["c"].delivered == group["d"].delivered == [b"seat 7 is Carl's"]
    group.heal()
    group.run_until_whole()
    group.run(seconds(1))
    assert not is_prefix(group["a"].delivered, group["c"].delivered)
    group.check()


def test_the_story_used_here_is_restless_enough() -> None:
    """Or the tests above would show little."""
    group = a_restless_life("DYNSEQ:VSYNC", 1)
    assert len(group.history.by_view()) > 12
    deliveries = [record for _, era in group.history.eras() for record in era.delivered]
    assert len({record.delivery for record in deliveries}) > 1
