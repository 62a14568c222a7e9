"""Orders of events in which each broken variant is caught, and the real one is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.broken.server_variants import (
    AbortsWithoutForce,
    GivenUpCallsStay,
    LocksNotKept,
    LostCallsPass,
    NestedPsetLost,
    PreparesWithoutForce,
    ReadLocksNotForced,
    ReadsWithoutLocks,
)
from tests.vsr.bank_world import EU, US, BankWorld, is_committed
from tests.vsr.table import Table

from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.views import Member
from coterie.simulation.engines.vsr.modules import Bank
from coterie.vsr.calls.messages import OutcomeAnswer, OutcomeQuery
from coterie.vsr.commit.psets import Aid
from coterie.vsr.commit.server import Server


def checks(world: BankWorld) -> set[str]:
    """Let everything end, and give the checks that fail."""
    world.heal()
    if not world.run_until(lambda: world.is_quiet, within=seconds(30)):
        return {"convergence"}
    return {violation.check for violation in world.violations()}


def cut_off_primary(world: BankWorld, group: str) -> str:
    """Cut a primary off from its backups, and from nobody else; give its name."""
    primary = world.leads(group)
    world.partition([primary], [name for name in world.groups[group].members if name != primary])
    return primary


def vote_and_die(world: BankWorld) -> None:
    """A primary that cannot reach its backups votes, and is lost."""
    story = world.story(EU)
    primary = cut_off_primary(world, US)
    story.call(US, "withdraw", "bob", 10)
    story.call(EU, "deposit", "alice", 10)
    story.commit(wait=False)
    world.run(milliseconds(100))
    world.machines[primary].crash()
    world.simulation.network.heal(world.arrive)


def read_at_a_replaced_primary(world: BankWorld) -> None:
    """3.7: the prepare must not succeed at the old primary if the locks did not survive."""
    reader = world.story(EU)
    reader.call(EU, "balance", "carol")  # the coordinator knows where eu is
    old = cut_off_primary(world, US)
    assert reader.call(US, "balance", "bob") == 100
    world.wait(lambda: (new := world.primary(US)) is not None and new.me.id != old)
    writer = world.story(US, client="y")
    writer.call(US, "deposit", "bob", 5)
    writer.call(EU, "deposit", "alice", 5)
    assert is_committed(writer.commit())
    world.run(milliseconds(50))
    assert reader.call(EU, "balance", "alice") == 105
    # The coordinator hears only of the old primary.
    world.partition(world.groups[EU].members, sorted({*world.groups[US].members} - {old}))
    reader.commit()


def lose_one_call_of_two(world: BankWorld) -> None:
    """One call is known to the backups, the next one is lost with the primary."""
    story = world.story(EU)
    story.call(US, "deposit", "carol", 10)
    world.run(milliseconds(50))
    primary = cut_off_primary(world, US)
    story.call(US, "withdraw", "bob", 10)
    world.machines[primary].crash()
    world.simulation.network.heal(world.arrive)
    world.wait(lambda: world.primary(US) is not None)
    story.commit()


def change_views_under_a_lock(world: BankWorld) -> None:
    """One transaction has written; the view changes; another one writes the same object."""
    one = world.story(EU)
    one.call(US, "withdraw", "bob", 10)
    world.run(milliseconds(50))
    world.machines[world.leads(US)].crash()
    world.wait(lambda: world.primary(US) is not None)
    other = world.story(EU, client="y")
    other.ask(US, "deposit", "bob", 1)
    world.run(milliseconds(500))
    one.commit()
    world.wait(lambda: bool(other.answers))
    other.commit()


def skew(world: BankWorld) -> None:
    """Each reads what the other one writes."""
    one, other = world.story(EU), world.story(US, client="y")
    one.call(EU, "balance", "alice")
    other.call(US, "balance", "bob")
    one.ask(US, "deposit", "bob", 1)
    other.ask(EU, "deposit", "alice", 1)
    world.wait(lambda: len(one.answers) == 2 and len(other.answers) == 2)
    one.commit()
    other.commit()


@pytest.mark.parametrize(
    ("kind", "story", "caught_by"),
    [
        (PreparesWithoutForce, vote_and_die, "atomic"),
        (ReadLocksNotForced, read_at_a_replaced_primary, "serializable"),
        (LostCallsPass, lose_one_call_of_two, "lost calls abort"),
        (LocksNotKept, change_views_under_a_lock, "locks kept"),
        (ReadsWithoutLocks, skew, "serializable"),
    ],
)
def test_variant_is_caught(
    kind: type[Server], story: Callable[[BankWorld], None], caught_by: str
) -> None:
    right = BankWorld()
    story(right)
    assert checks(right) == set()
    broken = BankWorld(server_kind=kind)
    story(broken)
    assert caught_by in checks(broken)


@pytest.mark.parametrize(("kind", "balance"), [(Server, 110), (GivenUpCallsStay, 120)])
def test_what_was_given_up_shows_in_the_balance(kind: type[Server], balance: int) -> None:
    world = BankWorld(server_kind=kind)
    story = world.story(EU)
    primary = world.leads(US)
    story.call(US, "balance", "other")
    world.simulation.network.cut([(primary, "x")])
    story.ask(US, "deposit", "bob", 10)
    world.run(milliseconds(20))
    world.machines[primary].crash()
    world.simulation.network.heal(world.arrive)
    world.wait(lambda: len(story.answers) == 2)
    assert is_committed(story.commit())
    world.heal()
    world.wait(lambda: world.is_quiet)
    assert world.balance(US, "bob") == balance


@pytest.mark.parametrize(("kind", "total"), [(Server, 200), (NestedPsetLost, 190)])
def test_a_call_of_a_call_that_is_not_in_the_pset_is_lost(kind: type[Server], total: int) -> None:
    world = BankWorld(server_kind=kind)
    story = world.story(EU)
    story.call(EU, "send", "alice", 10, US, "bob")
    assert is_committed(story.commit())
    world.wait(lambda: world.is_quiet)
    assert world.balance(EU, "alice") + world.balance(US, "bob") == total


@pytest.mark.parametrize(("kind", "answers"), [(Server, 0), (AbortsWithoutForce, 1)])
def test_an_unknown_transaction_is_aborted_only_when_that_is_forced(
    kind: type[Server], answers: int
) -> None:
    """Whoever asks a primary that was replaced must not hear what its successor may not say."""

    def module(context: object) -> Server:
        return kind(context, Bank(), {}, table.settings)  # type: ignore[arg-type]

    table = Table(start=False)
    table.module = module
    table.start_all()
    table["a"].manage()
    table.deliver()
    aid = Aid("table", table["a"].cur_viewid, 77)
    table["a"].receive(Member("z", 1), OutcomeQuery("us", aid))
    table["a"].finish_turn()
    assert sum(isinstance(message, OutcomeAnswer) for _, _, message in table.mail) == answers
    told = [message for _, to, message in table.mail if to == "z"]
    assert len(told) == answers
    table.deliver(losing=False)
    told = [message for _, to, message in table.mail if to == "z"]
    assert [type(message) for message in told] == [OutcomeAnswer]
