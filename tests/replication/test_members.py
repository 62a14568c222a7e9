"""Members change while the group serves, as stories; `docs/internals/engine.md` says how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.broken.member_variants import HighestNumberWins
from tests.replication.stories import (
    ALL,
    HARDLY_ANY,
    come_together,
    engine,
    everywhere,
    group_on_script,
    settled,
    write,
)

from coterie.journal.engines.stack import recover
from coterie.journal.format import WrongJournal
from coterie.kernel.clock import seconds
from coterie.kernel.errors import BacklogFull, Refused
from coterie.kernel.views import Configuration
from coterie.replication.members import ChangingMembers
from coterie.simulation import Group, Simulation
from coterie.simulation.engines.stack.clients import SimulatedObject
from coterie.stacks import LAYERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.kernel.layers import Layer
    from coterie.kernel.views import ChangedConfiguration

EACH_STACK = pytest.mark.parametrize("stack", ["SAFE:DYNSEQ:PVSYNC", "TOKEN:PVSYNC"])
EACH_TRANSFER = pytest.mark.parametrize(
    "history_bytes", [ALL, HARDLY_ANY], ids=["entries", "state"]
)


def members(group: Group, id: str) -> tuple[str, ...]:
    """Who belongs to the group, as one replica has it; nobody may be on the way."""
    configuration = group[id].configuration
    assert not configuration.learners
    assert not configuration.before
    return configuration.members


def add(group: Group, id: str, at: str) -> None:
    """Have a replica join."""
    group.put_up(id, Configuration(0, group[at].configuration.members))
    change(group, lambda: engine(group, at).admit(id), at)


def remove(group: Group, id: str, at: str) -> None:
    """Have a replica removed."""
    change(group, lambda: engine(group, at).dismiss(id), at)


def change(group: Group, ask: object, at: str) -> None:
    refusals: list[str] = []

    def asked() -> None:
        assert callable(ask)
        try:
            ask()
        except Refused as error:
            refusals.append(str(error))

    group[at].call(asked)
    group.run(seconds(4))
    assert not refusals, refusals


def refused(group: Group, ask: object, at: str) -> str:
    with pytest.raises(AssertionError) as found:
        change(group, ask, at)
    return str(found.value)


@EACH_STACK
@EACH_TRANSFER
def test_from_one_to_three_to_five_to_three_to_one(stack: str, history_bytes: int) -> None:
    """Every replica that founded the group is replaced, and every entry stays."""
    group, _ = group_on_script(stack, "a", history_bytes=history_bytes)
    write(group, "a")
    for id in "bcde":
        add(group, id, "a")
        write(group, id)
    assert members(group, "e") == ("a", "b", "c", "d", "e")
    assert everywhere(group) == {settled(group, "e")}
    for id in "abcd":
        remove(group, id, "e")
        assert group[id].is_retired
        write(group, "e")
    assert members(group, "e") == ("e",)
    words = [
        payload
        for position in sorted(group.tracker.authoritative)  # type: ignore[union-attr]
        if (payload := group.tracker.payloads[group.tracker.authoritative[position]])[:1].isalpha()  # type: ignore[union-attr]
    ]
    assert len(words) == 20 * 9
    come_together(group)


@EACH_STACK
def test_all_come_back_with_what_the_history_says_of_the_members(stack: str) -> None:
    group, _ = group_on_script(stack, history_bytes=HARDLY_ANY)
    add(group, "d", "a")
    remove(group, "b", "a")
    for _ in range(8):
        write(group, "a", 200)  # so that snapshots hide the change
    for host in group:
        host.restart()
    group.run_until_whole()
    assert {members(group, host.id) for host in group} == {("a", "c", "d")}
    come_together(group)


def test_two_of_four_do_not_serve_although_they_were_two_of_three_once() -> None:
    group, _ = group_on_script("SAFE:DYNSEQ:PVSYNC")
    add(group, "d", "a")
    group.partition("ab", "cd")
    group.run(seconds(3))
    assert all(host.place is None for host in group)
    come_together(group)


def test_a_learner_does_not_help_a_minority() -> None:
    group, _ = group_on_script("SAFE:DYNSEQ:PVSYNC")
    group.put_up("d", Configuration(0, ("a", "b", "c")))
    group["d"].kill()
    change(group, lambda: engine(group, "a").admit("d"), "a")
    assert group["a"].configuration.learners == ("d",)
    group["b"].kill()
    group["c"].kill()
    group["d"].start()
    group.run(seconds(3))
    assert group["a"].place is None
    for id in "bc":
        group[id].start()
    come_together(group)
    group.run(seconds(3))
    assert members(group, "d") == ("a", "b", "c", "d")


def test_who_was_away_while_removed_finds_out() -> None:
    group, _ = group_on_script("SAFE:DYNSEQ:PVSYNC")
    group["c"].kill()
    group.run(seconds(2))
    remove(group, "c", "a")
    assert members(group, "a") == ("a", "b")
    group["c"].start()
    assert group["c"].is_up
    group.run(seconds(3))
    assert group["c"].is_retired
    with pytest.raises(WrongJournal, match="was removed from group group: add a replica with a"):
        recover(group["c"].disk, "group", "c")
    come_together(group)


def test_who_was_away_while_all_others_were_replaced_is_found() -> None:
    group, _ = group_on_script("SAFE:DYNSEQ:PVSYNC")
    group["c"].kill()
    for new, old in (("d", "a"), ("e", "b")):
        add(group, new, old)
        remove(group, old, new)
    write(group, "d")
    group["c"].start()
    group.run_until_whole()
    assert members(group, "c") == ("c", "d", "e")
    come_together(group)


def a_change_that_was_given_up(layers: Mapping[str, type[Layer]] = LAYERS) -> tuple[Group, str]:
    """Have the first entry of a change reach its proposer only, while the others go on.

    Gives the group, which is healed, and who was to be removed.
    """
    group, _ = group_on_script("SAFE:DYNSEQ:PVSYNC", layers=layers)
    add(group, "d", "a")
    place = group["a"].place
    assert place is not None
    first, *others = [member.id for member in place[1]]  # the first one orders, also alone
    group.partition(first, others)
    group[first].call(lambda: engine(group, first).dismiss(others[-1]))
    group.run(seconds(3))
    assert engine(group, first).log.configuration.before == ("a", "b", "c", "d")
    assert group[others[0]].view == "".join(sorted(others))
    write(group, others[0])
    group.heal()
    group.run(seconds(6))
    return group, others[-1]


def test_a_change_that_was_given_up_is_not_what_a_majority_goes_by() -> None:
    group, _ = a_change_that_was_given_up()
    come_together(group)
    assert {members(group, host.id) for host in group} == {("a", "b", "c", "d")}


def test_where_the_highest_number_wins_a_change_comes_back_that_was_given_up() -> None:
    group, id = a_change_that_was_given_up({**LAYERS, "PRIMARY": HighestNumberWins})
    assert any(id in host.configuration.gone for host in group) or group.violations()


def test_refusals_are_sentences() -> None:
    group, _ = group_on_script("SAFE:DYNSEQ:PVSYNC", "ab")
    at = engine(group, "a")
    assert "belongs to the group already" in refused(group, lambda: at.admit("b"), "a")

    def two_at_once() -> None:
        at.admit("c")
        at.admit("d")

    assert "wait until that is done" in refused(group, two_at_once, "a")
    group["b"].kill()
    group.run(seconds(2))
    assert "not in a primary view" in refused(group, lambda: at.admit("e"), "a")


def test_without_an_order_members_cannot_change() -> None:
    group, _ = group_on_script("PVSYNC")
    at = engine(group, "a")
    assert "without an order" in refused(group, lambda: at.admit("d"), "a")
    assert "without an order" in refused(group, lambda: at.dismiss("b"), "a")


def test_newcomers_count_clocks_as_the_first_members_did() -> None:
    """Group time rests on a majority of clocks; before the first change that is in no entry."""
    simulation = Simulation(seed=3, stack="SAFE:DYNSEQ:PVSYNC", has_object=True)
    group = simulation.group("a")
    group.run_until_whole()
    for id in "bcd":
        add(group, id, "a")

    def majorities() -> set[int]:
        found = [host.ledger for host in group]
        assert all(isinstance(each, SimulatedObject) for each in found)
        return {
            each.engine_host.copies.machine.majority
            for each in found
            if isinstance(each, SimulatedObject)
        }

    assert majorities() == {3}
    group["d"].restart()
    group.run_until_whole()
    assert majorities() == {3}
    history = engine(group, "d").log
    assert history.start > 0, "it began with a state, not with the first entry"


def test_a_step_that_has_no_room_is_taken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits to be sent was full when the learner had learnt: no turn may end in that."""
    group, _ = group_on_script("SAFE:DYNSEQ:PVSYNC", "abc")
    tried: list[int] = []
    reconfigure = ChangingMembers._reconfigure

    def has_no_room(layer: ChangingMembers, to: ChangedConfiguration) -> None:
        if to.before and len(tried) < 3:
            tried.append(to.number)
            raise BacklogFull("full")
        reconfigure(layer, to)

    monkeypatch.setattr(ChangingMembers, "_reconfigure", has_no_room)
    add(group, "d", "a")
    assert len(tried) == 3
    assert members(group, "d") == ("a", "b", "c", "d")
