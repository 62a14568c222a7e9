"""A bank of two groups and one client, for stories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.clock import Duration, seconds
from coterie.simulation.engines.vsr.modules import START, Bank, decode, encode
from coterie.simulation.engines.vsr.transactions import TransactionWorld
from coterie.vsr.calls.remote import NotRun
from coterie.vsr.commit.client import Fate, TransactionOutcome
from coterie.vsr.commit.server import Server
from coterie.vsr.settings import DEFAULT_VSR_SETTINGS, VsrSettings

if TYPE_CHECKING:
    from coterie.vsr.calls.executor import Completion, Executor
    from coterie.vsr.commit.client import ClientTransaction

EU, US = "eu", "us"


class Story:
    """One transaction, made step by step from outside of simulated time."""

    def __init__(self, world: BankWorld, coordinator: str, client: str) -> None:
        self._world = world
        self._client = client
        self.transaction: ClientTransaction | None = None
        self.answers: list[Completion | NotRun] = []
        self.outcome: TransactionOutcome | None = None
        world.begin(client, coordinator, self._begun)

    def _begun(self, transaction: ClientTransaction) -> None:
        self.transaction = transaction

    def _ended(self, outcome: TransactionOutcome) -> None:
        self.outcome = outcome
        self._world.ended(outcome)

    def ask(self, group: str, method: str, *arguments: object) -> Story:
        """Make a call without waiting for its answer."""

        def call() -> None:
            assert self.transaction is not None
            self.transaction.call(group, method, encode(list(arguments)), self.answers.append)

        self._world.machines[self._client].call(call)
        return self

    def call(self, group: str, method: str, *arguments: object) -> object:
        """Make a call and wait for its answer."""
        before = len(self.answers)
        self.ask(group, method, *arguments)
        self._world.wait(lambda: len(self.answers) > before)
        answer = self.answers[-1]
        return answer.reason if isinstance(answer, NotRun) else decode(answer.result)

    def commit(self, *, wait: bool = True) -> TransactionOutcome | None:
        """Ask for the commit."""

        def commit() -> None:
            assert self.transaction is not None
            self.transaction.commit(self._ended)

        self._world.machines[self._client].call(commit)
        if wait:
            self._world.wait(lambda: self.outcome is not None)
        return self.outcome

    def abort(self, reason: str = "changed my mind") -> TransactionOutcome | None:
        """Ask for the abort."""

        def abort() -> None:
            assert self.transaction is not None
            self.transaction.abort(reason, self._ended)

        self._world.machines[self._client].call(abort)
        self._world.wait(lambda: self.outcome is not None)
        return self.outcome


class BankWorld(TransactionWorld):
    """Two groups on machines of their own, and two clients."""

    def __init__(
        self,
        *,
        seed: int = 7,
        settings: VsrSettings = DEFAULT_VSR_SETTINGS,
        server_kind: type[Server] = Server,
        replicas: int = 3,
        executor: type[Executor] = Bank,
    ) -> None:
        super().__init__(
            seed=seed,
            groups={EU: tuple("abcde")[:replicas], US: tuple("fghij")[:replicas]},
            clients=("x", "y"),
            executor=executor,
            settings=settings,
            server_kind=server_kind,
        )
        self.run_until_whole()

    def wait(self, condition: object, *, within: Duration = seconds(20)) -> None:
        """Let time pass until something is so."""
        assert self.run_until(condition, within=within), self.describe()  # type: ignore[arg-type]

    def story(self, coordinator: str = EU, *, client: str = "x") -> Story:
        """Begin a transaction."""
        story = Story(self, coordinator, client)
        self.wait(lambda: story.transaction is not None and story.transaction.aid is not None)
        return story

    def balance(self, group: str, account: str) -> int:
        """What the primary has committed for an account."""
        value = self.value(group, account)
        return START if value is None else int(decode(value))

    def leads(self, group: str) -> str:
        """The machine of a group's primary."""
        primary = self.primary(group)
        assert primary is not None, self.describe()
        return primary.me.id

    def settle(self) -> None:
        """Wait until nothing is in progress, and check everything."""
        self.heal()
        self.wait(lambda: self.is_quiet)
        violations = self.violations()
        assert not violations, "\n".join(map(str, violations))


def is_committed(outcome: TransactionOutcome | None) -> bool:
    """Whether a client was told that its transaction is committed."""
    return outcome is not None and outcome.fate is Fate.COMMITTED
