"""Parts of transactions that are aborted alone (3.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.vsr.bank_world import EU, US, BankWorld, Story, is_committed

from coterie.kernel.clock import milliseconds
from coterie.kernel.errors import Refused
from coterie.simulation.engines.vsr.modules import encode
from coterie.vsr.calls.remote import GIVEN_UP_MAX, NotRun, RemoteCalls
from coterie.vsr.commit.client import PARTS_MAX

if TYPE_CHECKING:
    from coterie.vsr.commit.client import ClientTransaction, Subaction


def transaction_of(story: Story) -> ClientTransaction:
    assert story.transaction is not None
    return story.transaction


def abort(world: BankWorld, story: Story, part: Subaction) -> None:
    world.machines["x"].call(lambda: transaction_of(story).abort_part(part, "no more"))
    world.run(milliseconds(1))


def tried_in_vain(world: BankWorld) -> Story:
    """A transfer from alice to bob, and in a part of its own one from carol to dora."""
    story = world.story(EU)
    story.call(EU, "withdraw", "alice", 10)
    part = transaction_of(story).begin_part()
    story.call(EU, "withdraw", "carol", 5)
    story.call(US, "deposit", "dora", 5)
    story.call(EU, "withdraw", "alice", 7)
    abort(world, story, part)
    return story


def balances(world: BankWorld) -> list[int]:
    world.settle()
    found = [world.balance(EU, name) for name in ("alice", "carol")]
    return [*found, *(world.balance(US, name) for name in ("bob", "dora"))]


def test_what_a_part_did_is_void_and_the_rest_is_committed() -> None:
    world = BankWorld()
    story = tried_in_vain(world)
    assert story.call(EU, "balance", "alice") == 90
    assert story.call(US, "deposit", "bob", 10) == 110
    assert is_committed(story.commit())
    assert balances(world) == [90, 100, 110, 100]


def test_a_group_that_hears_nothing_more_of_it_installs_nothing() -> None:
    """Nor does it keep its locks until it asks what became of the transaction."""
    world = BankWorld()
    assert is_committed(tried_in_vain(world).commit())
    another = world.story(US)
    world.run(milliseconds(50))
    assert another.call(US, "deposit", "dora", 1) == 101
    assert is_committed(another.commit())
    assert balances(world) == [90, 100, 100, 101]


def test_a_part_that_ends_well_is_one_with_the_rest() -> None:
    world = BankWorld()
    story = world.story(EU)
    outer = transaction_of(story).begin_part()
    story.call(EU, "withdraw", "alice", 10)
    inner = transaction_of(story).begin_part()
    story.call(US, "deposit", "bob", 10)
    assert transaction_of(story).end_part(inner) is None
    assert transaction_of(story).end_part(outer) is None
    assert is_committed(story.commit())
    assert balances(world) == [90, 100, 110, 100]


def test_a_part_takes_with_it_what_was_begun_within_it() -> None:
    world = BankWorld()
    story = world.story(EU)
    outer = transaction_of(story).begin_part()
    story.call(EU, "withdraw", "alice", 10)
    inner = transaction_of(story).begin_part()
    story.call(US, "deposit", "bob", 10)
    assert transaction_of(story).end_part(inner) is None
    abort(world, story, outer)
    assert is_committed(story.commit())
    assert balances(world) == [100, 100, 100, 100]


def test_a_call_without_an_answer_is_given_up_and_told() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(EU, "withdraw", "alice", 10)
    part = transaction_of(story).begin_part()
    primary = world.leads(US)
    world.simulation.network.cut([(primary, "x")])
    story.ask(US, "deposit", "bob", 10)
    world.run(milliseconds(20))
    abort(world, story, part)
    assert story.answers[-1] == NotRun("no more")
    world.simulation.network.heal(world.arrive)
    assert is_committed(story.commit())
    assert balances(world) == [90, 100, 100, 100]


def test_a_call_that_did_not_run_aborts_its_part_alone() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(EU, "withdraw", "alice", 10)
    part = transaction_of(story).begin_part()
    assert story.call("asia", "deposit", "bob", 10) == "there is no group 'asia'"
    failed: list[NotRun | None] = []
    world.machines["x"].call(lambda: failed.append(transaction_of(story).end_part(part)))
    world.run(milliseconds(1))
    assert failed == [NotRun("there is no group 'asia'")]
    story.call(US, "deposit", "bob", 10)
    assert is_committed(story.commit())
    assert balances(world) == [90, 100, 110, 100]


def test_a_part_survives_a_change_of_views_or_all_of_it_is_aborted() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(EU, "withdraw", "alice", 10)
    part = transaction_of(story).begin_part()
    story.call(US, "deposit", "dora", 5)
    world.machines[world.leads(US)].crash()
    story.call(US, "deposit", "dora", 6)
    abort(world, story, part)
    story.call(US, "deposit", "bob", 10)
    outcome = story.commit()
    expected = [90, 100, 110, 100] if is_committed(outcome) else [100, 100, 100, 100]
    assert balances(world) == expected


def test_nothing_runs_beside_a_part() -> None:
    world = BankWorld()
    story = world.story(EU)
    refused: list[bool] = []

    def ask() -> None:
        transaction_of(story).call(EU, "withdraw", encode(["alice", 10]), story.answers.append)
        with pytest.raises(Refused, match="await them, then begin a part"):
            transaction_of(story).begin_part()
        refused.append(True)

    world.machines["x"].call(ask)
    world.wait(lambda: bool(story.answers))
    assert refused


def test_parts_end_in_the_opposite_order() -> None:
    world = BankWorld()
    story = world.story(EU)
    outer = transaction_of(story).begin_part()
    transaction_of(story).begin_part()
    with pytest.raises(Refused, match="can only be aborted"):
        transaction_of(story).end_part(outer)
    outcome = story.commit()
    assert outcome is not None
    assert "before one that was begun within it" in outcome.reason


def test_parts_are_bounded() -> None:
    world = BankWorld()
    story = world.story(EU)
    for _ in range(PARTS_MAX):
        transaction_of(story).begin_part()
    with pytest.raises(Refused, match="go 16 deep at most"):
        transaction_of(story).begin_part()


def test_what_is_given_up_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.vsr.commit.client.GIVEN_UP_MAX", 3)
    world = BankWorld()
    story = world.story(EU)
    for _ in range(4):
        part = transaction_of(story).begin_part()
        story.call(EU, "withdraw", "alice", 1)
        abort(world, story, part)
    outcome = story.commit()
    assert outcome is not None
    assert f"given up more than {GIVEN_UP_MAX} calls" in outcome.reason
    assert balances(world) == [100, 100, 100, 100]


def test_what_stays_in_the_pset_would_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that the checks must see: money appears."""

    def forget_nothing(calls: RemoteCalls, begun: int, reason: str) -> None:
        del calls, begun, reason

    monkeypatch.setattr(RemoteCalls, "give_up_since", forget_nothing)
    world = BankWorld()
    assert is_committed(tried_in_vain(world).commit())
    assert balances(world) != [90, 100, 100, 100]
