"""Where **objects** is silent or wrong: what happens instead, as stories.

`docs/internals/papers.md` lists all departures.
"""

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
from coterie.kernel.engine import Role
from coterie.kernel.records import HistoryAdopted
from coterie.replication.log import NO_VERSION
from coterie.simulation import Group, Simulation

EACH_STACK = pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "TOKEN:PVSYNC", "PVSYNC"])
EACH_TRANSFER = pytest.mark.parametrize(
    "history_bytes", [ALL, HARDLY_ANY], ids=["entries", "state"]
)


def a_learner(group: Group, id: str = "c") -> None:
    """Cut a replica off, let the others go on, and let it come back."""
    others = "".join(host.id for host in group if host.id != id)
    group.partition(id, others)
    group.run(seconds(2))
    write(group, others[0])
    group.heal()
    group.run(seconds(2))


@EACH_STACK
def test_replicas_that_know_equally_much_come_together(stack: str) -> None:
    """(a) At the first start all versions are equal, and after a quiet partition, too."""
    group, _ = group_on_script(stack, "abcd")
    write(group, "a")
    group.partition("ab", "cd")
    group.run(seconds(2))
    assert all(host.place is None for host in group), "neither half is a majority"
    come_together(group)
    assert everywhere(group) == {20}


@EACH_STACK
def test_a_view_that_only_shrinks_is_primary_while_it_has_a_majority(stack: str) -> None:
    """(c) It gets its history from its members, like any other."""
    group, _ = group_on_script(stack, "abcde")
    for gone, left in (("e", "abcd"), ("d", "abc")):
        group[gone].crash()
        group.run(seconds(2))
        assert group["a"].view == left
        write(group, "b", 5)
    assert everywhere(group) == {10}
    group["c"].crash()
    group.run(seconds(2))
    assert group["a"].place is None
    for host in group:
        host.start()
    come_together(group)


@EACH_STACK
@EACH_TRANSFER
def test_service_goes_on_while_a_member_learns(stack: str, history_bytes: int) -> None:
    """(g) The joined view is primary at once; (k) a learner's version rises at the end."""
    group, network = group_on_script(stack, history_bytes=history_bytes)
    network.lose(direct(*GIVEN, to="c"))
    a_learner(group)
    assert is_learning(group, "c")
    before = engine(group, "c").log.version
    write(group, "b", 7)
    assert settled(group, "a") == settled(group, "b") == 27
    assert settled(group, "c") == 0
    assert engine(group, "c").role is Role.LEARNER
    assert engine(group, "c").log.version == before
    network.lose_no_more()
    come_together(group)
    assert everywhere(group) == {27}


@EACH_STACK
@EACH_TRANSFER
@pytest.mark.parametrize("dies", ["learner", "donor"])
def test_a_crash_in_the_middle_of_a_transfer(stack: str, history_bytes: int, dies: str) -> None:
    """(e) What was fetched is staged: nobody has half a history."""
    group, network = group_on_script(stack, "abcde", history_bytes=history_bytes)
    network.lose(direct(*GIVEN[-1:], to="c") if history_bytes == HARDLY_ANY else direct(*GIVEN))
    a_learner(group)
    assert is_learning(group, "c")
    transfer = engine(group, "c")._transfer
    assert transfer is not None
    victim = "c" if dies == "learner" else transfer.donor.id
    group[victim].crash()
    network.lose_no_more()
    group.run(seconds(2))
    group[victim].start()
    come_together(group)
    assert everywhere(group) == {20}


@EACH_STACK
@EACH_TRANSFER
def test_a_view_change_in_the_middle_of_a_transfer(stack: str, history_bytes: int) -> None:
    """(e) The transfer is begun again in the next view, from whoever is there."""
    group, network = group_on_script(stack, "abcde", history_bytes=history_bytes)
    network.lose(direct(*GIVEN, to="c"))
    a_learner(group)
    for away in "ab":
        group.partition(away, "".join(id for id in "abcde" if id != away))
        group.run(seconds(1))
        assert is_learning(group, "c")
        group.heal()
        group.run(seconds(1))
    network.lose_no_more()
    come_together(group)
    assert everywhere(group) == {20}


@EACH_STACK
@EACH_TRANSFER
def test_a_donor_that_leaves(stack: str, history_bytes: int) -> None:
    group, network = group_on_script(stack, "abcde", history_bytes=history_bytes)
    network.lose(direct(*GIVEN, to="c"))
    a_learner(group)
    transfer = engine(group, "c")._transfer
    assert transfer is not None
    donor = group[transfer.donor.id]
    donor.leave()
    network.lose_no_more()
    group.run(seconds(3))
    assert settled(group, "c") == 20
    donor.restart()
    come_together(group)


@EACH_STACK
@EACH_TRANSFER
def test_who_has_learnt_can_teach(stack: str, history_bytes: int) -> None:
    """One learns, and then only it can bring those up to date who come back."""
    group, _ = group_on_script(stack, history_bytes=history_bytes)
    group["b"].crash()
    a_learner(group)
    assert settled(group, "c") == 20
    group["a"].crash()
    group["b"].start()
    group.run(seconds(3))
    write(group, "c", 5)
    assert everywhere(group) == {25}
    group["a"].start()
    come_together(group)
    assert everywhere(group) == {25}


@EACH_STACK
def test_crashes_before_the_first_primary_view_make_no_zombies(stack: str) -> None:
    """(j) The recovery bit is set by the first primary view."""
    group = Simulation(seed=3, stack=stack).group("a", "b", "c")
    group.partition("a", "b", "c")
    group.run(seconds(1))
    for host in group:
        assert engine(group, host.id).log.version == NO_VERSION
        host.restart()
    come_together(group)
    write(group, "a", 3)
    assert everywhere(group) == {3}


@EACH_STACK
def test_a_zombie_majority_stops_and_says_so(stack: str) -> None:
    """(f) One replica that remembers is no majority, however many others are there."""
    group, _ = group_on_script(stack)
    write(group, "a")
    for id in "bc":
        group[id].replace_machine()
        group[id].start()
    group.run(seconds(3))
    assert [engine(group, id).role for id in "abc"] == [Role.MINORITY] * 3
    assert [engine(group, id).is_zombie for id in "abc"] == [False, True, True]
    write(group, "a", 2)
    assert everywhere(group) == {0, 20}


@EACH_STACK
def test_a_word_for_a_zombie_does_not_harm_a_group_at_work(stack: str) -> None:
    """An operator accepts a loss at a replica that is cut off, while the others are a majority."""
    group, _ = group_on_script(stack)
    write(group, "a")
    group["c"].replace_machine()
    group.partition("c", "ab")
    group["c"].start()
    group.run(seconds(1))
    group["c"].accept_loss()
    write(group, "b", 5)
    come_together(group)
    assert everywhere(group) == {25}


@EACH_STACK
def test_a_proposal_is_ordered_once_however_often_its_view_ends(stack: str) -> None:
    """What did not make it is proposed again; what did is not. The checks look at every payload."""
    group, _ = group_on_script(stack, "abcde")
    for round_ in range(12):
        for host in group:
            host.propose(b"%d/%s" % (round_, host.id.encode()))
        group.run(milliseconds(1 + round_ % 3))
        group.partition("abcde"[round_ % 5], "abcde".replace("abcde"[round_ % 5], ""))
        group.run(milliseconds(700))
        group.heal()
        group.run(milliseconds(200 + 300 * (round_ % 2)))
    come_together(group)
    assert everywhere(group) == {60}


@EACH_STACK
def test_the_least_history_still_brings_back_one_that_was_away(stack: str) -> None:
    """7.4: the state, where the entries are gone; the record says which it was."""
    group, _ = group_on_script(stack, history_bytes=HARDLY_ANY)
    adopted: list[HistoryAdopted] = []
    add = group.tracker.add

    def watch(record: object) -> None:
        if isinstance(record, HistoryAdopted):
            adopted.append(record)
        add(record)  # type: ignore[arg-type]

    group.tracker.add = watch  # type: ignore[method-assign]
    a_learner(group)
    come_together(group)
    assert [record.restored > 0 for record in adopted] == [True]
