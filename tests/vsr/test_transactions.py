"""Transactions over two groups, told as stories in simulated time."""

from __future__ import annotations

import pytest
from tests.vsr.bank_world import EU, US, BankWorld, is_committed

from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.simulation.engines.vsr.modules import Airline
from coterie.vsr.calls.primary_requests import UnknownGroup
from coterie.vsr.commit.client import Fate, TransactionOver
from coterie.vsr.commit.events import Committing
from coterie.vsr.settings import VsrSettings


def test_a_transfer_commits_in_both_groups() -> None:
    world = BankWorld()
    story = world.story()
    assert story.call(EU, "withdraw", "alice", 10) == 90
    assert story.call(US, "deposit", "bob", 10) == 110
    assert world.balance(EU, "alice") == 100  # tentative until it commits
    assert is_committed(story.commit())
    world.settle()
    assert (world.balance(EU, "alice"), world.balance(US, "bob")) == (90, 110)


def test_an_abort_leaves_nothing() -> None:
    world = BankWorld()
    story = world.story()
    story.call(EU, "withdraw", "alice", 10)
    outcome = story.abort()
    assert outcome is not None
    assert (outcome.fate, outcome.reason) == (Fate.ABORTED, "changed my mind")
    world.settle()
    assert world.balance(EU, "alice") == 100


def test_a_failed_method_is_an_answer_and_writes_nothing() -> None:
    world = BankWorld()
    story = world.story()
    assert story.call(EU, "withdraw", "alice", 1000) == "alice is overdrawn"
    assert story.call(EU, "withdraw", "alice", 10) == 90
    assert is_committed(story.commit())
    world.settle()
    assert world.balance(EU, "alice") == 90


def test_a_call_that_calls_another_group_brings_back_both_viewstamps() -> None:
    world = BankWorld()
    story = world.story()
    assert story.call(EU, "send", "alice", 30, US, "bob") == 70
    assert story.transaction is not None
    assert story.transaction.remote is not None
    assert {pair.group for pair in story.transaction.remote.pset} == {EU, US}
    assert is_committed(story.commit())
    world.settle()
    assert (world.balance(EU, "alice"), world.balance(US, "bob")) == (70, 130)


def test_calls_at_the_same_time_are_one_transaction() -> None:
    world = BankWorld()
    story = world.story()
    story.ask(EU, "withdraw", "alice", 5).ask(US, "deposit", "bob", 5)
    world.wait(lambda: len(story.answers) == 2)
    assert is_committed(story.commit())
    world.settle()


def test_who_only_reads_leaves_no_decision_behind() -> None:
    world = BankWorld()
    story = world.story()
    assert story.call(EU, "balance", "alice") == 100
    assert story.call(US, "balance", "bob") == 100
    assert is_committed(story.commit())
    world.settle()
    assert not any(isinstance(event, Committing) for _, event in world.surviving(EU))


def test_a_transaction_sees_its_own_tentative_versions_and_no_others() -> None:
    world = BankWorld()
    story = world.story()
    story.call(EU, "withdraw", "alice", 10)
    assert story.call(EU, "balance", "alice") == 90
    other = world.story(client="y")
    other.ask(EU, "balance", "alice")
    world.run(milliseconds(300))
    assert other.answers == []  # it waits for the lock
    story.commit()
    world.wait(lambda: bool(other.answers))
    assert is_committed(other.commit())
    world.settle()


def test_readers_do_not_wait_for_each_other() -> None:
    world = BankWorld()
    one, other = world.story(), world.story(client="y")
    assert one.call(EU, "balance", "alice") == 100
    assert other.call(EU, "balance", "alice") == 100
    assert is_committed(one.commit())
    assert is_committed(other.commit())
    world.settle()


def test_a_deadlock_inside_a_group_is_told_with_its_reason() -> None:
    world = BankWorld()
    one, other = world.story(), world.story(client="y")
    one.call(EU, "deposit", "alice", 1)
    other.call(EU, "deposit", "bob", 1)
    one.ask(EU, "deposit", "bob", 1)
    world.run(milliseconds(20))
    reason = other.call(EU, "deposit", "alice", 1)
    assert isinstance(reason, str)
    assert reason.startswith("deadlock over 'alice' with eu/")
    assert not is_committed(other.commit())
    world.wait(lambda: len(one.answers) == 2)
    assert is_committed(one.commit())
    world.settle()
    assert world.balance(EU, "bob") == 101


def test_a_deadlock_over_two_groups_has_one_victim() -> None:
    world = BankWorld(settings=VsrSettings(lock_patience=seconds(30)))
    one, other = world.story(EU), world.story(US, client="y")
    one.call(EU, "deposit", "alice", 1)
    other.call(US, "deposit", "bob", 1)
    one.ask(US, "deposit", "bob", 1)
    other.ask(EU, "deposit", "alice", 1)
    world.wait(lambda: len(one.answers) == 2 and len(other.answers) == 2, within=seconds(2))
    outcomes = [one.commit(), other.commit()]
    assert [is_committed(outcome) for outcome in outcomes].count(True) == 1
    [victim] = [outcome for outcome in outcomes if outcome and not is_committed(outcome)]
    assert victim.reason.startswith("deadlock with ")
    world.settle()


def test_every_wait_for_a_lock_has_a_deadline() -> None:
    world = BankWorld(settings=VsrSettings(lock_patience=milliseconds(500)))
    holder, waiter = world.story(), world.story(client="y")
    holder.call(EU, "withdraw", "alice", 10)
    reason = waiter.call(EU, "balance", "alice")
    assert isinstance(reason, str)
    assert reason.startswith("waited too long for 'alice', held by eu/")
    assert not is_committed(waiter.commit())
    assert is_committed(holder.commit())
    world.settle()


# ---- failures


def test_calls_that_survive_a_view_change_can_be_committed() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "withdraw", "bob", 10)
    world.run(milliseconds(20))  # the backups hear of it
    story.call(EU, "deposit", "alice", 10)
    world.machines[world.leads(US)].crash()
    world.wait(lambda: world.primary(US) is not None)
    assert is_committed(story.commit())
    world.settle()
    assert world.balance(US, "bob") == 90


def test_a_transaction_whose_call_was_lost_aborts() -> None:
    world = BankWorld()
    story = world.story(EU)
    primary = world.leads(US)
    backups = [name for name in world.groups[US].members if name != primary]
    world.partition([primary], backups)
    story.call(US, "withdraw", "bob", 10)
    story.call(EU, "deposit", "alice", 10)
    world.machines[primary].crash()
    world.simulation.network.heal(world.arrive)
    world.wait(lambda: world.primary(US) is not None)
    outcome = story.commit()
    assert outcome is not None
    assert (outcome.fate, outcome.reason) == (
        Fate.ABORTED,
        "calls to us were lost in a view change",
    )
    world.settle()
    assert world.balance(EU, "alice") == 100


def test_with_forced_calls_what_was_answered_is_not_lost() -> None:
    """6: calls forced before the reply; what is not forced is not answered, and made again."""
    world = BankWorld(settings=VsrSettings(force_calls=True))
    story = world.story(EU)
    story.call(EU, "deposit", "alice", 10)
    primary = world.leads(US)
    backups = [name for name in world.groups[US].members if name != primary]
    answered = story.call(US, "withdraw", "bob", 10)
    assert answered == 90
    for name in backups:
        server = world.server(name, US)
        assert server is not None
        assert server.state.transactions, "the backups knew it before it was answered"
    world.machines[primary].crash()
    world.wait(lambda: world.primary(US) is not None)
    assert is_committed(story.commit())
    world.settle()
    assert (world.balance(EU, "alice"), world.balance(US, "bob")) == (110, 90)


def test_a_call_is_made_again_as_a_new_subaction_when_the_view_changes() -> None:
    """3.6: abort just the subaction, and then do the call again as a new subaction."""
    world = BankWorld()
    story = world.story(EU)
    story.call(EU, "withdraw", "alice", 10)
    world.machines[world.leads(US)].crash()
    assert story.call(US, "deposit", "bob", 10) == 110
    assert story.transaction is not None
    assert story.transaction.remote is not None
    assert story.transaction.remote.given_up == ["2"]
    assert is_committed(story.commit())
    world.settle()
    assert (world.balance(EU, "alice"), world.balance(US, "bob")) == (90, 110)


def test_a_call_in_a_call_is_made_again_too() -> None:
    world = BankWorld()
    story = world.story(EU)
    world.machines[world.leads(US)].crash()
    assert story.call(EU, "send", "alice", 10, US, "bob") == 90
    assert is_committed(story.commit())
    world.settle()
    assert (world.balance(EU, "alice"), world.balance(US, "bob")) == (90, 110)


def test_what_a_given_up_call_did_is_seen_by_nobody() -> None:
    """The first deposit ran and its answer was lost; the second must not add to it."""
    world = BankWorld()
    story = world.story(EU)
    primary = world.leads(US)
    story.call(US, "balance", "other")
    world.simulation.network.cut([(primary, "x")])
    story.ask(US, "deposit", "bob", 10)
    world.run(milliseconds(20))
    server = world.server(primary, US)
    assert server is not None
    assert len(server.state.transactions) == 1
    world.machines[primary].crash()
    world.simulation.network.heal(world.arrive)
    world.wait(lambda: len(story.answers) == 2)
    assert is_committed(story.commit())
    world.settle()
    assert world.balance(US, "bob") == 110


def test_the_coordinators_death_before_the_decision_aborts() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "withdraw", "bob", 10)
    world.machines[world.leads(EU)].crash()
    outcome = story.commit()
    assert outcome is not None
    assert (outcome.fate, outcome.reason) == (
        Fate.ABORTED,
        "its coordinator does not know it any more",
    )
    world.settle()
    assert world.balance(US, "bob") == 100


def test_a_decision_survives_the_coordinators_death() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "withdraw", "bob", 10)
    story.call(EU, "deposit", "alice", 10)
    primary = world.leads(EU)
    # The decision is known to the backups of eu, and the word of it does not leave.
    outside = [*world.groups[US].members, "x"]
    story.commit(wait=False)
    server = world.server(primary, EU)
    assert server is not None
    while not server.state.committing:
        world.run(Duration(100))
    world.simulation.network.cut([(primary, other) for other in outside])
    world.run(milliseconds(2))
    world.machines[primary].crash()
    world.wait(lambda: story.outcome is not None)
    assert is_committed(story.outcome)
    world.settle()
    assert (world.balance(EU, "alice"), world.balance(US, "bob")) == (110, 90)


def test_a_silent_clients_transaction_is_aborted_and_its_locks_are_free() -> None:
    """3.5: it would check with the client, but if no reply is forthcoming it can abort."""
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "withdraw", "bob", 10)
    world.machines["x"].crash()
    other = world.story(EU, client="y")
    reason = other.call(US, "balance", "bob")
    assert isinstance(reason, str)
    world.wait(lambda: world.is_quiet)
    third = world.story(EU, client="y")
    assert third.call(US, "balance", "bob") == 100
    assert is_committed(third.commit())
    world.settle()


def test_a_client_that_lives_may_take_its_time() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(EU, "withdraw", "alice", 10)
    world.run(seconds(20))
    assert is_committed(story.commit())
    world.settle()


def test_a_lost_abort_is_asked_for() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "withdraw", "bob", 10)
    primary = world.leads(EU)
    cut = [(primary, other) for other in world.groups[US].members]
    world.simulation.network.cut(cut)
    story.abort()
    server = world.server(world.leads(US), US)
    assert server is not None
    assert server.state.transactions
    world.simulation.network.mend(cut)
    world.wait(lambda: not server.state.transactions)
    world.settle()


def test_a_backup_answers_a_query_while_there_is_no_primary() -> None:
    """3.4: we allow any cohort to respond to a query whenever it knows the answer."""
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "withdraw", "bob", 10)
    primary = world.leads(EU)
    world.simulation.network.cut([(primary, other) for other in world.groups[US].members])
    story.abort()
    other = world.story(EU, client="y")
    other.call(EU, "deposit", "carol", 1)
    assert is_committed(other.commit())
    world.run(milliseconds(50))
    world.machines[primary].crash()
    server = world.server(world.leads(US), US)
    assert server is not None
    world.wait(lambda: not server.state.transactions, within=seconds(3))
    world.settle()


# ---- bad input


def test_an_unknown_coordinator_is_refused_at_once() -> None:
    world = BankWorld()
    client = world.client("x")
    assert client is not None
    with pytest.raises(UnknownGroup, match="there is no group 'mars'"):
        client.begin("mars")


def test_a_call_to_an_unknown_group_does_not_run() -> None:
    world = BankWorld()
    story = world.story()
    assert story.call("mars", "balance", "alice") == "there is no group 'mars'"
    outcome = story.commit()
    assert outcome is not None
    assert outcome.fate is Fate.ABORTED
    nested = world.story()
    answer = nested.call(EU, "send", "alice", 1, "mars", "bob")
    assert answer == "there is no group 'mars': the directory does not list it"
    assert not is_committed(nested.commit())
    world.settle()


def test_a_call_that_is_too_large_does_not_run() -> None:
    world = BankWorld(settings=VsrSettings(call_bytes_max=100, event_bytes_max=100))
    story = world.story()
    answer = story.call(EU, "balance", "a" * 200)
    assert answer == "arguments of 203 bytes are over the limit of 100"
    other = world.story()
    answer = other.call(EU, "balance", *"abcdefghijklmnopqrstuvwxyz")
    assert isinstance(answer, str)
    assert answer.endswith("bytes (event_bytes_max)")
    assert not is_committed(other.commit())
    world.settle()


def test_an_unknown_method_is_an_answer() -> None:
    world = BankWorld()
    assert world.story().call(EU, "rob") == "there is no method 'rob'"


def test_a_transaction_is_not_used_after_its_end() -> None:
    world = BankWorld()
    story = world.story()
    story.commit()
    assert story.transaction is not None
    with pytest.raises(TransactionOver, match="begin another one"):
        story.transaction.commit(lambda _: None)
    with pytest.raises(TransactionOver, match="begin another one"):
        story.transaction.call(EU, "balance", b"\x90", lambda _: None)


def test_a_participant_that_never_answers_has_a_clear_outcome_within_its_deadline() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "withdraw", "bob", 10)
    world.simulation.network.cut(
        [(a, b) for a in world.groups[EU].members for b in world.groups[US].members]
    )
    begun = world.simulation.now
    outcome = story.commit()
    assert outcome is not None
    assert (outcome.fate, outcome.reason) == (Fate.ABORTED, "us did not answer in time")
    assert world.simulation.now - begun < seconds(4)
    world.settle()
    assert world.balance(US, "bob") == 100


def test_who_asks_again_is_not_told_of_a_decision_that_is_not_taken() -> None:
    """The coordinator's own group has only read, and is done; the other one cannot be asked."""
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "withdraw", "bob", 10)
    story.call(EU, "balance", "alice")
    world.simulation.network.cut(
        [(a, b) for a in world.groups[EU].members for b in world.groups[US].members]
    )
    story.commit(wait=False)
    world.run(seconds(1))
    assert story.outcome is None
    world.wait(lambda: story.outcome is not None)
    assert not is_committed(story.outcome)
    world.settle()
    assert world.balance(US, "bob") == 100


def test_nobody_answers_and_the_outcome_is_unknown() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.call(US, "withdraw", "bob", 10)
    world.simulation.network.cut([(member, "x") for member in world.groups[EU].members])
    outcome = story.commit()
    assert outcome is not None
    assert outcome.fate is Fate.UNKNOWN
    assert outcome.aid is not None
    world.settle()


# ---- the airline


def test_no_seat_is_sold_twice() -> None:
    world = BankWorld(executor=Airline)
    one, other = world.story(), world.story(client="y")
    assert one.call(EU, "book", "12A", "alice") == "alice"
    other.ask(EU, "book", "12A", "bob")
    assert one.call(US, "book", "3C", "alice") == "alice"
    assert is_committed(one.commit())
    world.wait(lambda: bool(other.answers))
    assert other.call(EU, "holder", "12A") == "alice"
    world.machines[world.leads(EU)].crash()
    world.wait(lambda: world.primary(EU) is not None)
    third = world.story(US, client="y")
    assert third.call(EU, "book", "12A", "carol") == "12A is taken by alice"
    assert is_committed(third.commit())
    world.settle()
