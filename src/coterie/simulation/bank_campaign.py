"""Random runs of a bank over several groups: transfers, audits, faults, healing, checks.

Money is moved between accounts of different groups in three ways: by two calls one after the other,
by two calls at the same time, and by one call that makes the other. Audits read all accounts of all
groups in one transaction. Some clients forget their transactions, some crash in them.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, cast

import msgspec

from coterie.checking.history import Violation
from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.simulation.bank import START, Bank, decode, encode
from coterie.simulation.faults import Nemesis
from coterie.simulation.machines import MACHINE_FAULTS
from coterie.simulation.transactions import TransactionWorld
from coterie.vsr.client import Fate, Outcome
from coterie.vsr.cohort import Cohort
from coterie.vsr.remote import NotRun
from coterie.vsr.server import Server
from coterie.vsr.settings import VsrSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.simulation.group import Group
    from coterie.vsr.client import ClientTransaction
    from coterie.vsr.executor import Completion

_MACHINES = "abcde"
_CLIENTS = "xyz"


class BankOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a campaign have in common."""

    groups: int = 3
    replicas: int = 3
    accounts: int = 4
    """In each group; few, so that transactions get into each other's way."""
    duration: Duration = seconds(15)
    faults: tuple[str, ...] = MACHINE_FAULTS
    converge_within: Duration = seconds(40)
    transaction_interval: Duration = milliseconds(200)
    """The mean time between two transactions of one client; some runs are busier, some calmer."""
    durable: bool = False


class BankRun(msgspec.Struct, kw_only=True):
    """What came of one seed."""

    seed: int
    violations: list[str] = []
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    audits: int = 0
    reasons: dict[str, int] = {}
    views: int = 0
    states_taken: int = 0
    faults: dict[str, int] = {}
    simulated: int = 0
    converged_after: int = 0
    digest: int = 0


def spread(groups: int, replicas: int) -> dict[str, tuple[str, ...]]:
    """Put groups on machines so that they share some, and their first cohorts do not coincide."""
    return {
        f"bank{group}": tuple(
            _MACHINES[(2 * group + rank) % len(_MACHINES)] for rank in range(replicas)
        )
        for group in range(groups)
    }


class Tellers:
    """The clients of the bank."""

    def __init__(self, world: TransactionWorld, random: Random, options: BankOptions) -> None:
        self._world = world
        self._random = random
        self._interval = options.transaction_interval * random.choice([0.3, 1.0, 3.0])
        self._accounts = [f"account{number}" for number in range(options.accounts)]
        self._groups = list(world.groups)
        self.total = START * len(self._accounts) * len(self._groups)
        self._is_active = True
        self.fates: dict[Fate, int] = dict.fromkeys(Fate, 0)
        self.reasons: dict[str, int] = {}
        self.audits = 0
        self.wrong: list[Violation] = []
        self.last: Outcome | None = None

    def start(self) -> None:
        """Begin to use the bank."""
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
        if not self._is_active:
            return
        self._later(machine)
        kinds = (self._in_turn, self._at_once, self._nested, self._audit, self._forgotten)
        kind = self._random.choices(kinds, (4, 3, 3, 2, 0.1))[0]
        self._world.begin(machine, self._random.choice(self._groups), kind)

    def audit(self, machine: str) -> None:
        """Have one last audit made."""
        self._world.begin(machine, self._groups[0], self._audit)

    # ---- transactions

    def _ended(self, outcome: Outcome) -> None:
        self.last = outcome
        self._world.ended(outcome)
        self.fates[outcome.fate] += 1
        if outcome.fate is Fate.ABORTED:
            reason = outcome.reason.split(" ", maxsplit=2)
            words = " ".join(reason[:2])
            self.reasons[words] = self.reasons.get(words, 0) + 1

    def _draw(self) -> tuple[str, str, str, str, int]:
        one, other = (
            self._random.sample(self._groups, 2)
            if len(self._groups) > 1
            else (
                self._groups[0],
                self._groups[0],
            )
        )
        accounts = self._random.choices(self._accounts, k=2)
        return one, accounts[0], other, accounts[1], self._random.randrange(1, 40)

    def _in_turn(self, transaction: ClientTransaction) -> None:
        one, account, other, to, amount = self._draw()

        def withdrawn(outcome: Completion | NotRun) -> None:
            if self._is_good(transaction, outcome):
                arguments = encode([to, amount])
                transaction.call(other, "deposit", arguments, self._commits(transaction, 1))

        transaction.call(one, "withdraw", encode([account, amount]), withdrawn)

    def _at_once(self, transaction: ClientTransaction) -> None:
        one, account, other, to, amount = self._draw()
        then = self._commits(transaction, 2)
        transaction.call(one, "withdraw", encode([account, amount]), then)
        transaction.call(other, "deposit", encode([to, amount]), then)

    def _nested(self, transaction: ClientTransaction) -> None:
        one, account, other, to, amount = self._draw()
        arguments = encode([account, amount, other, to])
        transaction.call(one, "send", arguments, self._commits(transaction, 1))

    def _audit(self, transaction: ClientTransaction) -> None:
        sums: list[int] = []
        left = len(self._groups)

        def summed(outcome: Completion | NotRun) -> None:
            nonlocal left
            if not self._is_good(transaction, outcome):
                return
            sums.append(decode(cast("Completion", outcome).result))
            left -= 1
            if not left:
                transaction.commit(audited)

        def audited(outcome: Outcome) -> None:
            self._ended(outcome)
            if outcome.fate is Fate.COMMITTED:
                self.audits += 1
                if sum(sums) != self.total:
                    self.wrong.append(
                        Violation("money conserved", f"{outcome.aid} saw {sums} of {self.total}")
                    )

        for group in self._groups:
            transaction.call(group, "balance", encode(self._accounts), summed)

    def _forgotten(self, transaction: ClientTransaction) -> None:
        """Begin, withdraw, and be forgotten by the program that did it."""
        one, account, _, _, amount = self._draw()
        client = transaction.client
        transaction.call(
            one, "withdraw", encode([account, amount]), lambda _: client.over(transaction)
        )

    def _commits(
        self, transaction: ClientTransaction, calls: int
    ) -> Callable[[Completion | NotRun], None]:
        """Give what commits after so many good answers, and aborts at the first bad one."""
        left = calls

        def then(outcome: Completion | NotRun) -> None:
            nonlocal left
            if self._is_good(transaction, outcome):
                left -= 1
                if not left:
                    transaction.commit(self._ended)

        return then

    def _is_good(self, transaction: ClientTransaction, outcome: Completion | NotRun) -> bool:
        if transaction.is_over:
            return False
        if isinstance(outcome, NotRun):
            transaction.abort(outcome.reason, self._ended)
            return False
        if outcome.is_failure:
            transaction.abort(f"failed: {decode(outcome.result)}", self._ended)
            return False
        return True


def run_bank(
    seed: int,
    options: BankOptions,
    *,
    cohort_kind: type[Cohort] = Cohort,
    server_kind: type[Server] = Server,
    trace: Callable[[str], None] | None = None,
) -> BankRun:
    """Run one seed; *cohort_kind* and *server_kind* let tests put in broken variants."""
    random = Random(f"{seed}/bank")  # noqa: S311 -- reproducible on purpose
    world = TransactionWorld(
        seed=seed,
        groups=spread(options.groups, options.replicas),
        clients=tuple(_CLIENTS),
        executor=Bank,
        settings=VsrSettings(log_bytes=random.choice([2000, 1 << 20]), digest_interval=25),
        is_durable=options.durable,
        cohort_kind=cohort_kind,
        server_kind=server_kind,
    )
    world.simulation.trace = trace
    nemesis = Nemesis(cast("Group", world), random, options.faults)
    tellers = Tellers(world, random, options)
    run = BankRun(seed=seed)
    try:
        tellers.start()
        nemesis.start()
        world.run(options.duration)
        tellers.stop()
        nemesis.stop()
        world.heal()
        run.violations += _converge(world, tellers, options, run)
    except AssertionError as error:
        run.violations.append(f"assertion: {error}")
    run.violations += [str(violation) for violation in tellers.wrong]
    run.committed = tellers.fates[Fate.COMMITTED]
    run.aborted = tellers.fates[Fate.ABORTED]
    run.unknown = tellers.fates[Fate.UNKNOWN]
    run.reasons = tellers.reasons
    run.audits = tellers.audits
    run.views = sum(tracker.views for tracker in world.trackers.values())
    run.states_taken = sum(tracker.states_taken for tracker in world.trackers.values())
    run.faults = nemesis.counts
    run.simulated = world.simulation.now
    run.digest = world.simulation.digest
    return run


def _converge(
    world: TransactionWorld, tellers: Tellers, options: BankOptions, run: BankRun
) -> list[str]:
    """All groups must come together, every transaction must end, and an audit must succeed."""
    begun = world.simulation.now
    if not world.run_until(lambda: world.is_quiet, within=options.converge_within):
        return [str(Violation("convergence", f"not quiet in time: {world.describe()}"))]
    run.converged_after = world.simulation.now - begun
    before = tellers.audits
    tellers.audit(world.clients[0])
    if not world.run_until(lambda: tellers.audits > before, within=seconds(10)):
        return [str(Violation("liveness", f"the last audit failed: {tellers.last}"))]
    world.run_until(lambda: world.is_quiet, within=options.converge_within)
    return [str(violation) for violation in world.violations()]
