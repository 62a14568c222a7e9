"""Consistent reads that take no place in the order, as stories (`replication/confirming.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.replication.stories import come_together, direct, engine, group_on_script, settled, write
from tests.replication.test_members import add

from coterie.kernel.clock import milliseconds, seconds
from coterie.membership.messages import Data, Repair
from coterie.replication.messages import AckEntries, Confirm, Confirmed, SettledUpTo
from coterie.replication.primary import PrimaryViews

if TYPE_CHECKING:
    from coterie.membership.messages import VsyncMessage
    from coterie.simulation import Group

EACH_STACK = pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "SAFE:TOKEN:PVSYNC"])


class Reader:
    """Has the end of the history confirmed at one replica, and notes how far that one was."""

    def __init__(self, group: Group, id: str) -> None:
        self.group = group
        self.id = id
        self.serial = 0
        self.seen: dict[int, int] = {}

    def ask(self) -> None:
        self.serial += 1
        serial = self.serial
        layer = engine(self.group, self.id)
        assert isinstance(layer, PrimaryViews)
        self.group[self.id].call(lambda: layer.confirm(serial, self._confirmed))

    def _confirmed(self, serial: int) -> None:
        self.seen[serial] = settled(self.group, self.id)


def count(group: Group, kind: type) -> list[str]:
    """Who sends messages of a kind from now on."""
    seen: list[str] = []
    rule = direct(kind)

    def note(source: str, destination: str, message: VsyncMessage) -> bool:
        if rule(source, destination, message):
            seen.append(source)
        return False

    group.simulation.network.lose(note)  # type: ignore[attr-defined]
    return seen


@EACH_STACK
def test_who_reads_waits_for_what_another_has_settled(stack: str) -> None:
    """What the page of the module says of b, a and c, with the view confirmed by c and a."""
    group, network = group_on_script(stack)
    write(group, "a", 3)
    first, *_, last = (member.id for member in engine(group, "a")._view.members)
    # The last one hears neither entries nor what is settled for a while, but it is asked.
    network.lose(
        lambda source, destination, message: (
            destination == last
            and source != last
            and (
                isinstance(message, Data | Repair)
                or direct(SettledUpTo, AckEntries)(source, destination, message)
            )
        )
    )
    group[first].propose(b"x")
    group.run(milliseconds(50))
    assert settled(group, first) == 4
    assert settled(group, last) == 3
    reader = Reader(group, last)
    reader.ask()
    group.run(milliseconds(50))
    assert reader.seen == {}, "a majority has answered, and one of them has more"
    network.lose_no_more()
    group.run(seconds(1))
    assert reader.seen == {1: 4}
    come_together(group)


def test_many_reads_share_one_question() -> None:
    group, _ = group_on_script("SAFE:DYNSEQ:PVSYNC")
    write(group, "a", 3)
    questions = count(group, Confirm)
    reader = Reader(group, "b")
    for _ in range(10):
        reader.ask()
    group.run(seconds(1))
    assert reader.seen == {10: 3}
    assert len(questions) <= 4, "one question to two others, or two"


def test_what_is_read_while_a_question_is_under_way_waits_for_the_next_one() -> None:
    group, network = group_on_script("SAFE:DYNSEQ:PVSYNC")
    network.lose(direct(Confirmed, to="b"))
    reader = Reader(group, "b")
    reader.ask()
    group.run(milliseconds(20))
    write(group, "a", 5)
    reader.ask()
    network.lose_no_more()
    group.run(seconds(1))
    assert reader.seen == {1: 5, 2: 5}


def test_a_place_that_the_history_never_gets_to_holds_reads_up_for_a_moment_only() -> None:
    """All reads of the view waited for it, behind one answer that was damaged."""
    group, network = group_on_script("SAFE:DYNSEQ:PVSYNC")
    write(group, "a", 3)
    network.lose(direct(Confirmed, to="b"))
    reader = Reader(group, "b")
    reader.ask()
    group.run(milliseconds(20))
    layer = engine(group, "b")
    assert isinstance(layer, PrimaryViews)
    damaged = next(member for member in layer._view.members if member.id == "c")
    group["b"].call(lambda: layer._on_confirmed(damaged, Confirmed(1, 2**62)))
    network.lose_no_more()
    group.run(milliseconds(500))
    reader.ask()
    assert reader.seen == {}
    write(group, "a", 1)
    group.run(seconds(2))
    assert reader.seen == {2: 4}
    come_together(group)


def test_without_a_majority_nothing_is_confirmed_until_it_is_whole_again() -> None:
    group, _ = group_on_script("SAFE:DYNSEQ:PVSYNC")
    write(group, "a", 5)
    group.partition("c", "ab")
    reader = Reader(group, "c")
    reader.ask()
    write(group, "a", 5)
    group.run(seconds(3))
    assert reader.seen == {}
    come_together(group)
    assert reader.seen == {1: 10}


def test_members_that_change_meanwhile_are_asked_as_well() -> None:
    """A majority of the members before is none of those after."""
    group, network = group_on_script("SAFE:DYNSEQ:PVSYNC", "a")
    network.lose(direct(Confirmed, to="a"))
    for id in "bc":
        add(group, id, "a")
    questions = count(group, Confirm)
    reader = Reader(group, "a")
    reader.ask()
    group.run(milliseconds(50))
    assert reader.seen == {}, "it was a majority by itself once"
    add(group, "d", "a")
    network.lose_no_more()
    group.run(seconds(1))
    assert set(reader.seen) == {1}
    assert len(questions) > 2, "it had to ask again"
    come_together(group)


def test_a_group_of_one_needs_nobody() -> None:
    group, _ = group_on_script("SAFE:DYNSEQ:PVSYNC", "a")
    write(group, "a", 2)
    reader = Reader(group, "a")
    reader.ask()
    group.run(milliseconds(1))
    assert reader.seen == {1: 2}
