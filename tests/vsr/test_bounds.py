"""What a primary remembers is bounded by what is in progress."""

from __future__ import annotations

from functools import partial

from tests.vsr.bank_world import EU, US, BankWorld, is_committed

from coterie.kernel.clock import milliseconds, seconds
from coterie.vsr.commit.client import Fate, TransactionOutcome
from coterie.vsr.settings import VsrSettings


def test_nothing_is_left_of_transactions_that_ended() -> None:
    world = BankWorld()
    for number in range(10):
        story = world.story()
        story.call(EU, "withdraw", "alice", 1)
        story.call(US, "deposit", "bob", 1)
        if number % 2:
            story.abort()
        else:
            assert is_committed(story.commit())
    one, other = world.story(EU), world.story(US, client="y")
    one.call(EU, "deposit", "alice", 1)
    other.call(US, "deposit", "bob", 1)
    one.ask(US, "deposit", "bob", 1)
    other.ask(EU, "deposit", "alice", 1)
    world.wait(lambda: len(one.answers) == 2 and len(other.answers) == 2)
    one.commit()
    other.commit()
    world.settle()
    world.run(seconds(1))
    for group in (EU, US):
        server = world.server(world.leads(group), group)
        assert server is not None
        assert not server.calls.are_any
        assert not server.calls.locks._holders
        assert not server.calls.locks._waits
        assert not server.coordinator._active
        assert not server.coordinator._votes
        assert not server.coordinator._told
        assert not server.deadlocks._waits
        assert not server._touched
        assert not server.requests._requests
    for machine in world.clients:
        client = world.client(machine)
        assert client is not None
        assert not client.requests._requests
        assert not client._transactions


def test_outcomes_are_remembered_up_to_a_number() -> None:
    world = BankWorld(settings=VsrSettings(ended_max=3))
    for _ in range(6):
        story = world.story()
        story.call(EU, "deposit", "alice", 1)
        assert is_committed(story.commit())
    world.settle()
    server = world.server(world.leads(EU), EU)
    assert server is not None
    assert len(server.state.ended) == 3


def test_what_is_not_remembered_is_not_called_aborted() -> None:
    world = BankWorld(settings=VsrSettings(ended_max=3))
    outcomes = []
    for _ in range(6):
        story = world.story()
        story.call(EU, "deposit", "alice", 1)
        outcome = story.commit()
        assert is_committed(outcome)
        assert outcome is not None
        outcomes.append(outcome)
    world.settle()
    found: list[TransactionOutcome] = []
    client = world.client("x")
    assert client is not None
    for outcome in (outcomes[0], outcomes[-1]):
        assert outcome.aid is not None
        world.machines["x"].call(partial(client.find_out, outcome.aid, found.append))
    world.wait(lambda: len(found) == 2)
    assert {outcome.aid: outcome.fate for outcome in found} == {
        outcomes[0].aid: Fate.UNKNOWN,
        outcomes[-1].aid: Fate.COMMITTED,
    }
    assert "does not remember" in next(each.reason for each in found if each.reason)
    assert world.violations() == []


def test_too_many_calls_and_transactions_are_refused() -> None:
    world = BankWorld(settings=VsrSettings(transactions_max=1, lock_patience=milliseconds(300)))
    story = world.story(EU)
    story.call(US, "deposit", "bob", 1)
    other = world.story(US, client="y")
    answer = other.call(US, "deposit", "carol", 1)
    assert answer == "too many transactions are in progress here (transactions_max)"
    assert not is_committed(other.commit())
    assert is_committed(story.commit())
    world.settle()
