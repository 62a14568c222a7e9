"""Clients of transactions: tellers of a bank, customers of an airline.

Money is moved between accounts of different groups in four ways: by two calls one after the other,
by two calls at the same time, by one call that makes the other, and by two of those at the same
time, which must not see each other's work. Now and then a part of a transaction is tried, and
aborted alone. Audits read all accounts of all
groups in one transaction. Customers book two seats in two groups, or none. Some clients forget
their transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.history import Violation
from coterie.simulation.engines.vsr.modules import START, decode, encode
from coterie.vsr.calls.remote import NotRun
from coterie.vsr.commit.client import Fate, TransactionOutcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from coterie.simulation.engines.vsr.transactions import TransactionWorld
    from coterie.simulation.engines.vsr.trial import TransactionOptions
    from coterie.vsr.calls.executor import Completion
    from coterie.vsr.commit.client import ClientTransaction

REASONS = (
    *("failed", "deadlock", "waited too long", "did not answer", "does not know it", "lost"),
    *("silent", "forgotten", "has ended"),
)
"""By these words transactions that were aborted are counted."""


class Workload:
    """Clients that begin transactions now and then, and what they were told."""

    def __init__(
        self, world: TransactionWorld, random: Random, options: TransactionOptions
    ) -> None:
        self._world = world
        self._random = random
        self._interval = options.interval * random.choice([0.3, 1.0, 3.0])
        self._groups = list(world.groups)
        self._names = [f"object{number}" for number in range(options.objects)]
        self._is_active = True
        self.fates: dict[Fate, int] = dict.fromkeys(Fate, 0)
        self.reasons: dict[str, int] = {}
        self.checks = 0
        """How many committed transactions looked at everything, and found it right."""
        self.wrong: list[Violation] = []
        self.last: TransactionOutcome | None = None

    def start(self) -> None:
        """Have all clients begin with transactions."""
        for machine in self._world.clients:
            self._later(machine)

    def stop(self) -> None:
        """Begin nothing more."""
        self._is_active = False

    def _later(self, machine: str) -> None:
        self._world.simulation.at(
            int(self._random.expovariate(1 / self._interval)), self._next, machine
        )

    def _next(self, machine: str) -> None:
        if self._is_active:
            self._later(machine)
            self._world.begin(machine, self._random.choice(self._groups), self.draw())

    def draw(self) -> Callable[[ClientTransaction], None]:
        """Choose what the next transaction does."""
        raise NotImplementedError

    def look(self, transaction: ClientTransaction) -> None:
        """Look at everything in one transaction; when it commits, `checks` rises."""
        raise NotImplementedError

    def look_last(self) -> None:
        """Have everything looked at once more."""
        self._world.begin(self._world.clients[0], self._groups[0], self.look)

    # ---- what transactions have in common

    def ended(self, outcome: TransactionOutcome) -> None:
        """Learn how a transaction ended."""
        self.last = outcome
        self._world.ended(outcome)
        self.fates[outcome.fate] += 1
        if outcome.fate is Fate.ABORTED:
            kind = next((each for each in REASONS if each in outcome.reason), outcome.reason)
            self.reasons[kind] = self.reasons.get(kind, 0) + 1

    def commits(
        self,
        transaction: ClientTransaction,
        calls: int,
        ended: Callable[[TransactionOutcome], None] | None = None,
    ) -> Callable[[Completion | NotRun], None]:
        """Give what commits after so many good answers, and aborts at the first bad one."""
        left = calls

        def then(outcome: Completion | NotRun) -> None:
            nonlocal left
            if self.is_good(transaction, outcome):
                left -= 1
                if not left:
                    transaction.commit(ended or self.ended)

        return then

    def is_good(self, transaction: ClientTransaction, outcome: Completion | NotRun) -> bool:
        """Say whether a call succeeded; if not, the transaction is aborted."""
        if transaction.is_over:
            return False
        if isinstance(outcome, NotRun):
            transaction.abort(outcome.reason, self.ended)
            return False
        if outcome.is_failure:
            transaction.abort(f"failed: {decode(outcome.result)}", self.ended)
            return False
        return True

    def two_groups(self) -> tuple[str, str]:
        """Draw two groups, different ones if there are."""
        if len(self._groups) == 1:
            return self._groups[0], self._groups[0]
        one, other = self._random.sample(self._groups, 2)
        return one, other


class Tellers(Workload):
    """The clients of the bank."""

    def draw(self) -> Callable[[ClientTransaction], None]:
        """Choose among transfers, audits, and being forgotten."""
        kinds = (self._in_turn, self._at_once, self._nested, self._nested_at_once, self.look)
        rare = (self._in_parts, self._forgotten)
        return self._random.choices((*kinds, *rare), (4, 3, 2, 1, 2, 1, 0.1))[0]

    def _transfer(self) -> tuple[str, str, str, str, int]:
        one, other = self.two_groups()
        account, to = self._random.choices(self._names, k=2)
        return one, account, other, to, self._random.randrange(1, 40)

    def _in_turn(self, transaction: ClientTransaction) -> None:
        one, account, other, to, amount = self._transfer()

        def withdrawn(outcome: Completion | NotRun) -> None:
            if self.is_good(transaction, outcome):
                then = self.commits(transaction, 1)
                transaction.call(other, "deposit", encode([to, amount]), then)

        transaction.call(one, "withdraw", encode([account, amount]), withdrawn)

    def _at_once(self, transaction: ClientTransaction) -> None:
        one, account, other, to, amount = self._transfer()
        then = self.commits(transaction, 2)
        transaction.call(one, "withdraw", encode([account, amount]), then)
        transaction.call(other, "deposit", encode([to, amount]), then)

    def _nested(self, transaction: ClientTransaction) -> None:
        one, account, other, to, amount = self._transfer()
        arguments = encode([account, amount, other, to])
        transaction.call(one, "send", arguments, self.commits(transaction, 1))

    def _nested_at_once(self, transaction: ClientTransaction) -> None:
        then = self.commits(transaction, 2)
        for _ in range(2):
            one, account, other, to, amount = self._transfer()
            transaction.call(one, "send", encode([account, amount, other, to]), then)

    def _in_parts(self, transaction: ClientTransaction) -> None:
        """Withdraw, try another transfer, think better of it, and deposit after all.

        What was tried is given up when some of it is answered, or none yet.
        """
        one, account, other, to, amount = self._transfer()
        tried, from_there, nested, to_there, more = self._transfer()
        patience = self._random.choice([1, 2, 3])

        def withdrawn(outcome: Completion | NotRun) -> None:
            if not self.is_good(transaction, outcome):
                return
            part = transaction.begin_part()
            answers: list[Completion | NotRun] = []

            def answered(outcome: Completion | NotRun) -> None:
                answers.append(outcome)
                if len(answers) == patience and not transaction.is_over:
                    transaction.abort_part(part, "thought better of it")
                    then = self.commits(transaction, 1)
                    transaction.call(other, "deposit", encode([to, amount]), then)

            transaction.call(tried, "send", encode([from_there, more, nested, to_there]), answered)
            transaction.call(other, "deposit", encode([to, more]), answered)
            transaction.call(one, "withdraw", encode([account, 1]), answered)

        transaction.call(one, "withdraw", encode([account, amount]), withdrawn)

    def _forgotten(self, transaction: ClientTransaction) -> None:
        """Withdraw, and be forgotten by the program that did it."""
        one, account, _, _, amount = self._transfer()
        client = transaction.client
        transaction.call(
            one, "withdraw", encode([account, amount]), lambda _: client.over(transaction)
        )

    def look(self, transaction: ClientTransaction) -> None:
        """Audit: the sum over all accounts of all groups is always the same."""
        sums: list[int] = []
        total = START * len(self._names) * len(self._groups)

        def audited(outcome: TransactionOutcome) -> None:
            self.ended(outcome)
            if outcome.fate is Fate.COMMITTED:
                self.checks += 1
                if sum(sums) != total:
                    self.wrong.append(
                        Violation("money conserved", f"{outcome.aid} saw {sums} of {total}")
                    )

        then = self.commits(transaction, len(self._groups), audited)

        def summed(outcome: Completion | NotRun) -> None:
            if not isinstance(outcome, NotRun) and not outcome.is_failure:
                sums.append(decode(outcome.result))
            then(outcome)

        for group in self._groups:
            transaction.call(group, "balance", encode(self._names), summed)


class Customers(Workload):
    """The clients of the airline: each wants two seats, in two groups, or none."""

    def __init__(
        self, world: TransactionWorld, random: Random, options: TransactionOptions
    ) -> None:
        super().__init__(world, random, options)
        self._count = 0
        self.sold: dict[tuple[str, str], str] = {}
        """Who was told that a seat is his."""

    def draw(self) -> Callable[[ClientTransaction], None]:
        """Choose between booking and looking."""
        return self._random.choices((self._book, self.look), (8, 1))[0]

    def _book(self, transaction: ClientTransaction) -> None:
        self._count += 1
        customer = f"customer{self._count}"
        # Seats are drawn from many, so that they last; the first ones are wanted most.
        seats = [
            (group, f"seat{int(self._random.expovariate(0.02))}") for group in self.two_groups()
        ]

        def booked(outcome: TransactionOutcome) -> None:
            self.ended(outcome)
            if outcome.fate is Fate.COMMITTED:
                for seat in seats:
                    holder = self.sold.setdefault(seat, customer)
                    if holder != customer:
                        self.wrong.append(
                            Violation("sold once", f"{seat} to {holder} and to {customer}")
                        )

        then = self.commits(transaction, len(seats), booked)
        for group, seat in seats:
            transaction.call(group, "book", encode([seat, customer]), then)

    def look(self, transaction: ClientTransaction) -> None:
        """Look at some seats that were sold: each has the holder who was told so."""
        sold = self._random.sample(sorted(self.sold), k=min(3, len(self.sold)))
        wanted = [self.sold[seat] for seat in sold]
        found: list[str | None] = []

        def looked(outcome: TransactionOutcome) -> None:
            self.ended(outcome)
            if outcome.fate is Fate.COMMITTED:
                self.checks += 1
                if sorted(map(str, found)) != sorted(wanted):
                    self.wrong.append(Violation("sold once", f"{sold} to {wanted}, not {found}"))

        then = self.commits(transaction, len(sold), looked)

        def holds(outcome: Completion | NotRun) -> None:
            if not isinstance(outcome, NotRun):
                found.append(decode(outcome.result))
            then(outcome)

        for group, seat in sold:
            transaction.call(group, "holder", encode([seat]), holds)
        if not sold:
            transaction.commit(looked)
