"""A call whose method raised has changed nothing, also in groups that it had called (3.6).

Its failure stays a part of the transaction, which goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.vsr.bank_world import EU, US, BankWorld, is_committed

from coterie.checking.history import Violation
from coterie.kernel.clock import seconds
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.vsr import trial
from coterie.simulation.engines.vsr.modules import START, Bank, ModuleFailed, Steps, decode, encode
from coterie.simulation.engines.vsr.workloads import Tellers
from coterie.vsr.calls.calls import CallsInProgress
from coterie.vsr.calls.executor import Nested
from coterie.vsr.calls.remote import GIVEN_UP_MAX, NotRun
from coterie.vsr.commit.client import Fate, TransactionOutcome
from coterie.vsr.commit.psets import is_within
from coterie.vsr.commit.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.simulation.campaign import SeedRun
    from coterie.vsr.calls.executor import Completion, ObjectAccess
    from coterie.vsr.calls.running import RunningCall
    from coterie.vsr.commit.client import ClientTransaction
    from coterie.vsr.commit.psets import CallId, Pset


class FailingBank(Bank):
    """A bank some of whose transfers fail when half of them is done."""

    def do_send_in_vain(
        self, access: ObjectAccess, account: str, amount: int, group: str, to: str
    ) -> Steps:
        """Send money, and raise."""
        yield from self.do_send(access, account, amount, group, to)
        raise ModuleFailed("in vain")

    def do_try(self, access: ObjectAccess, group: str, arguments: list[object]) -> Steps:
        """Have another group send in vain, and go on."""
        del access
        answer = yield Nested(group, "send_in_vain", encode(arguments))
        assert answer.is_failure
        return "tried"


class _NotVoid(CallsInProgress):
    def in_vain(self, running: RunningCall) -> tuple[Pset, tuple[CallId, ...]]:
        del running
        return (), ()


class FailuresAreSeen(Server):
    """Installs nothing of what a call had called that failed, but lets later calls see it."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.calls = _NotVoid(self)


class _PsetStays(CallsInProgress):
    def in_vain(self, running: RunningCall) -> tuple[Pset, tuple[CallId, ...]]:
        return self.pset_of(running), ()


class FailuresCount(Server):
    """Installs what a call had called that failed, as if it had not."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.calls = _PsetStays(self)


class InVain(Tellers):
    """Tellers some of whose transfers fail on the way, who then look at what they had called."""

    def draw(self) -> Callable[[ClientTransaction], None]:
        return self._tried if self._random.random() < 0.3 else super().draw()

    def _tried(self, transaction: ClientTransaction) -> None:
        """Try one transfer or two at a time, look at everything, and make another one."""
        sums: list[int] = []
        total = START * len(self._names) * len(self._groups)
        left = self._random.choice([1, 1, 2])

        def ended(outcome: TransactionOutcome) -> None:
            self.ended(outcome)
            if outcome.fate is Fate.COMMITTED:
                self.checks += 1
                if sum(sums) != total:
                    text = f"{outcome.aid} saw {sums} of {total} after what was in vain"
                    self.wrong.append(Violation("money conserved", text))

        last = self.commits(transaction, 1, ended)

        def failed(outcome: Completion | NotRun) -> None:
            nonlocal left
            if transaction.is_over:
                return
            left -= 1
            if isinstance(outcome, NotRun):
                transaction.abort(outcome.reason, self.ended)
            elif not left:
                self._look_and(transaction, sums, lambda: self._pay(transaction, last))

        for _ in range(left):
            one, account, other, to, amount = self._transfer()
            by_way = self._random.choice(self._groups)
            arguments = [account, amount, other, to]
            if by_way not in {one, other} and self._random.random() < 0.5:
                transaction.call(by_way, "try", encode([one, arguments]), failed)
            else:
                transaction.call(one, "send_in_vain", encode(arguments), failed)

    def _look_and(
        self, transaction: ClientTransaction, sums: list[int], then: Callable[[], None]
    ) -> None:
        """Look at all accounts: what was in vain is not seen."""

        def summed(outcome: Completion | NotRun) -> None:
            if self.is_good(transaction, outcome):
                assert not isinstance(outcome, NotRun)
                sums.append(decode(outcome.result))
                if len(sums) == len(self._groups):
                    then()

        for group in self._groups:
            transaction.call(group, "balance", encode(self._names), summed)

    def _pay(
        self, transaction: ClientTransaction, then: Callable[[Completion | NotRun], None]
    ) -> None:
        one, account, other, to, amount = self._transfer()
        transaction.call(one, "send", encode([account, amount, other, to]), then)


# ---- stories


def balances(world: BankWorld) -> list[int]:
    world.settle()
    return [world.balance(EU, "alice"), world.balance(US, "bob"), world.balance(US, "dora")]


def test_what_it_had_called_is_neither_seen_nor_installed() -> None:
    world = BankWorld(executor=FailingBank)
    story = world.story(EU)
    assert story.call(EU, "send_in_vain", "alice", 10, US, "bob") == "in vain"
    assert story.call(US, "balance", "bob") == 100
    assert story.call(US, "deposit", "dora", 10) == 110
    assert story.call(EU, "withdraw", "alice", 10) == 90
    assert is_committed(story.commit())
    assert balances(world) == [90, 100, 110]


def test_whose_locks_are_left_they_are_free_at_the_end() -> None:
    world = BankWorld(executor=FailingBank)
    story = world.story(EU)
    assert story.call(EU, "send_in_vain", "alice", 10, US, "bob") == "in vain"
    assert is_committed(story.commit())
    before = world.simulation.now
    another = world.story(US, client="y")
    assert another.call(US, "deposit", "bob", 1) == 101
    assert world.simulation.now - before < seconds(1), "it waited for nobody"
    assert is_committed(another.commit())
    assert balances(world) == [100, 101, 100]


def test_the_failure_is_told_again_after_a_change_of_views() -> None:
    world = BankWorld(executor=FailingBank)
    story = world.story(EU)
    assert story.call(EU, "send_in_vain", "alice", 10, US, "bob") == "in vain"
    world.machines[world.leads(US)].crash()
    assert story.call(US, "balance", "bob") == 100
    assert is_committed(story.commit())
    assert balances(world) == [100, 100, 100]


def test_how_much_is_void_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.vsr.calls.remote.GIVEN_UP_MAX", 2)
    world = BankWorld(executor=FailingBank)
    story = world.story(EU)
    for _ in range(2):
        assert story.call(EU, "send_in_vain", "alice", 1, US, "bob") == "in vain"
    told = story.call(EU, "send_in_vain", "alice", 1, US, "bob")
    assert told == f"it has given up more than {GIVEN_UP_MAX} calls"
    outcome = story.commit()
    assert outcome is not None
    assert not is_committed(outcome)
    assert balances(world) == [100, 100, 100]


def test_what_a_call_has_called_has_a_name() -> None:
    assert is_within("1.1", "1.")
    assert is_within("1.1.2", "1.")
    assert not is_within("1", "1.")
    assert not is_within("11.1", "1.")


# ---- campaigns


def run(seed: int, server_kind: type[Server] = Server) -> SeedRun:
    """Run a bank of three groups in which calls fail half-way, under all faults."""
    options = trial.TransactionOptions(object="in vain", duration=seconds(12))
    return run_trial(trial.TransactionTrial(seed, options, server_kind=server_kind))


@pytest.fixture(autouse=True)
def _in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trial.OBJECTS, "in vain", (FailingBank, InVain))


@pytest.mark.slow  # a small campaign
def test_random_runs_keep_all_promises() -> None:
    for seed in range(3):
        assert run(seed).violations == []


@pytest.mark.slow  # a small campaign
@pytest.mark.parametrize("broken", [FailuresAreSeen, FailuresCount])
def test_broken_variants_are_caught(broken: type[Server]) -> None:
    assert any(run(seed, broken).violations for seed in range(4))
