"""Calls of one transaction at the same time: subactions that do not see each other's work (3.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.vsr.bank_world import EU, US, BankWorld, is_committed

from coterie.kernel.errors import BadMessage
from coterie.kernel.views import NO_VIEW
from coterie.simulation.engines.vsr.modules import Bank, decode, encode
from coterie.vsr.calls.executor import Nested
from coterie.vsr.calls.remote import NotRun
from coterie.vsr.commit.psets import Aid, CallsProgress, number_of
from coterie.vsr.objects.locks import LockOwner, LockTable, Mode

if TYPE_CHECKING:
    from coterie.simulation.engines.vsr.modules import Steps
    from coterie.vsr.calls.executor import ObjectAccess

ONE, TWO = (Aid("eu", NO_VIEW, number) for number in (1, 2))
BOTH = CallsProgress(2, (1, 2))


def test_calls_that_call_the_same_account_go_one_after_the_other() -> None:
    world = BankWorld()
    story = world.story(EU)
    story.ask(EU, "send", "alice", 10, US, "bob")
    story.ask(EU, "send", "carol", 5, US, "bob")
    world.wait(lambda: len(story.answers) == 2)
    assert not any(isinstance(answer, NotRun) for answer in story.answers)
    assert is_committed(story.commit())
    world.settle()
    assert world.balance(US, "bob") == 115


def test_calls_to_one_group_that_call_nobody_do_not_wait_for_news() -> None:
    """The group itself knows that the first one is over."""
    world = BankWorld()
    story = world.story(EU)
    story.ask(EU, "deposit", "alice", 10)
    story.ask(EU, "deposit", "alice", 5)
    world.run(world.vsr_settings.request_resend // 2)  # type: ignore[arg-type]
    assert [decode(answer.result) for answer in story.answers] == [110, 115]  # type: ignore[union-attr]
    assert is_committed(story.commit())
    world.settle()


class Copier(Bank):
    """Has calls that read here and write elsewhere."""

    def do_copy(self, access: ObjectAccess, account: str, group: str, to: str) -> Steps:
        """Put as much more into an account of another group as is in one here."""
        balance = self._get(access, account)
        yield Nested(group, "deposit", encode([to, balance]))
        return balance


def test_calls_over_several_groups_are_isolated_from_each_other() -> None:
    """Each reads what the other one writes: at most one of them may have seen the old values."""
    world = BankWorld(executor=Copier)
    story = world.story(EU)
    story.ask(EU, "copy", "alice", US, "bob")
    story.ask(US, "copy", "bob", EU, "alice")
    world.wait(lambda: len(story.answers) == 2)
    outcome = story.commit()
    world.settle()
    after = (world.balance(EU, "alice"), world.balance(US, "bob"))
    if is_committed(outcome):
        assert after in {(300, 200), (200, 300)}
    else:
        assert outcome is not None
        assert "another call of the transaction" in outcome.reason
        assert after == (100, 100)


def test_a_lock_is_in_the_way_of_siblings_until_its_call_is_over() -> None:
    locks = LockTable()
    assert locks.acquire(LockOwner(ONE, "1.1"), "x", Mode.WRITE, BOTH)
    assert not locks.acquire(LockOwner(ONE, "2.1"), "x", Mode.READ, BOTH)
    assert locks.in_the_way(ONE, "x", Mode.READ) == []
    assert locks.acquire(LockOwner(ONE, "1.2"), "x", Mode.WRITE, BOTH)  # a part of the same call
    assert locks.acquire(LockOwner(ONE, "2.1"), "x", Mode.READ, CallsProgress(2, (2,)))
    assert not locks.acquire(LockOwner(TWO, "1"), "x", Mode.READ, BOTH)
    # A call that was sent before the other one began does not know of it.
    assert not locks.is_free(LockOwner(ONE, "3.1"), "x", Mode.WRITE, CallsProgress(1, (1,)))


def test_a_transaction_inherits_the_locks_of_a_call_that_is_over() -> None:
    locks = LockTable()
    locks.acquire(LockOwner(ONE, "1"), "x", Mode.WRITE, BOTH)
    locks.inherit(LockOwner(ONE, "1"))
    assert locks.acquire(LockOwner(ONE, "2"), "x", Mode.WRITE, BOTH)
    assert locks.in_the_way(TWO, "x", Mode.READ) == [ONE]
    locks.release_call(LockOwner(ONE, "2"))
    assert locks.in_the_way(TWO, "x", Mode.READ) == [ONE]
    locks.release(ONE)
    assert locks.acquire(LockOwner(TWO, "1"), "x", Mode.WRITE, BOTH)


@pytest.mark.parametrize("call", ["", "x", ".1", "-1", "9" * 5000])
def test_a_call_without_a_number_is_a_bad_message(call: str) -> None:
    with pytest.raises(BadMessage):
        number_of(call)
