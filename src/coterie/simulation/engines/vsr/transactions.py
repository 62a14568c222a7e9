"""Groups with transactions over them, in simulated time, and clients that begin transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.viewstamped import ViewstampedTracker
from coterie.kernel.configuration import is_change
from coterie.kernel.layers import Layer
from coterie.kernel.records import EventsKnown
from coterie.kernel.replica import Replica
from coterie.kernel.views import NO_VIEW, Configuration, Viewstamp
from coterie.simulation.engines.vsr.audit import Audit
from coterie.simulation.engines.vsr.describe import describe
from coterie.simulation.engines.vsr.old import old_history, old_state
from coterie.simulation.engines.vsr.world import CohortWorld
from coterie.vsr.commit.client import TransactionClient, TransactionOutcome
from coterie.vsr.commit.events import decode_event
from coterie.vsr.commit.server import Server
from coterie.vsr.settings import DEFAULT_VSR_SETTINGS
from coterie.vsr.views.cohort import Cohort
from coterie.vsr.views.replica import build_cohort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coterie.checking.history import Violation
    from coterie.journal.keeper import KeeperSettings
    from coterie.kernel.layers import Context
    from coterie.kernel.records import Record
    from coterie.kernel.views import Member, ViewId
    from coterie.simulation.world.age import Age
    from coterie.vsr.calls.executor import Executor
    from coterie.vsr.commit.client import ClientTransaction
    from coterie.vsr.commit.events import Event
    from coterie.vsr.commit.psets import Aid
    from coterie.vsr.settings import VsrSettings
    from coterie.vsr.views.module import CohortPast


class TransactionWorld(CohortWorld):
    """Groups that take part in transactions, and clients on machines of their own."""

    def __init__(  # noqa: PLR0913 -- what a world is made of
        self,
        *,
        seed: int,
        groups: Mapping[str, tuple[str, ...]],
        clients: tuple[str, ...],
        executor: Callable[[], Executor],
        settings: VsrSettings = DEFAULT_VSR_SETTINGS,
        journal: KeeperSettings | None = None,
        cohort_kind: type[Cohort] = Cohort,
        server_kind: type[Server] = Server,
        age: Age | None = None,
        objects: Mapping[str, bytes] | None = None,
    ) -> None:
        super().__init__(seed=seed, groups=groups, journal=journal, age=age)
        self.vsr_settings = settings
        self._objects = objects or {}
        self._executor = executor
        self._cohort_kind = cohort_kind
        self._server_kind = server_kind
        self.trackers = {
            name: ViewstampedTracker(configuration) for name, configuration in self.groups.items()
        }
        self.events: dict[tuple[str, ViewId, int], bytes] = {}
        self.told: dict[Aid, TransactionOutcome] = {}
        for name in self.groups:
            self.put_cohorts(name, self._build_cohort)
        for machine in clients:
            self.put_client(machine, f"client {machine}", self._build_client)
        self.clients = clients
        self.start()

    def _build_cohort(self, context: Context, memory: CohortPast) -> Replica:
        directory = self._directory(context.group)
        server = self._server_kind(context, self._executor(), directory, self.vsr_settings)
        return build_cohort(
            context, server, memory=memory, settings=self.vsr_settings, kind=self._cohort_kind
        )

    def _directory(self, group: str) -> dict[str, Configuration]:
        """Say where other groups are, for a life that begins: files name those who are there now.

        What is learned of them later is kept in memory. So with files that name nobody who is left,
        groups that all start again after all their members were replaced find each other no more.
        """
        directory = dict(self.groups)
        for name in self.changing.keys() - {group}:
            now = self.changing[name].configuration
            if now.number > 1:
                directory[name] = Configuration(1, now.members)
        return directory

    def old_state(self, group: str, age: Age) -> list[bytes]:
        """Give the state with which the cohorts of a group begin that are old."""
        return old_state(age, self.groups, group, self._objects, self.vsr_settings)

    def beginning(self, group: str) -> ViewId:
        """Give the last view of which nothing but the state is known."""
        if self.age is None:
            return NO_VIEW
        return old_history(self.age, self.groups[group])[-1].view

    def _build_client(self, context: Context) -> Replica:
        directory = self._directory("")
        client = TransactionClient(context, directory, self.vsr_settings)
        return Replica(context, Layer(context), [client], client)

    # ---- use

    def client(self, machine: str) -> TransactionClient | None:
        """Give the client on a machine, if the machine is up."""
        process = self.machines[machine].process
        if process is None:
            return None
        bottom = process.replicas[f"client {machine}"].bottom
        assert isinstance(bottom, TransactionClient), "only clients live there"
        return bottom

    def server(self, machine: str, group: str) -> Server | None:
        """Give the module of a cohort, if its machine is up."""
        cohort = self.cohort(machine, group)
        if cohort is None:
            return None
        assert isinstance(cohort.module, Server), "all groups have transactions"
        return cohort.module

    def ended(self, outcome: TransactionOutcome) -> None:
        """Learn what a client was told."""
        if outcome.aid is not None:
            self.told[outcome.aid] = outcome

    def begin(
        self, machine: str, coordinator: str, script: Callable[[ClientTransaction], None]
    ) -> None:
        """Have the client on a machine begin a transaction, and do what *script* does with it."""

        def begin() -> None:
            client = self.client(machine)
            if client is not None:
                script(client.begin(coordinator))

        self.machines[machine].call(begin)

    # ---- watching

    def record(self, record: Record) -> None:
        """Take a record of any actor."""
        tracker = self.trackers.get(record.group)
        if tracker is None:
            return
        tracker.add(record)
        if isinstance(record, EventsKnown):
            for number, event in enumerate(record.events, record.first):
                self.events[record.group, record.view, number] = event
        if self.simulation.trace is not None:
            self.simulation.note(f"{record.group} {record.member} {describe(record)}")

    def revived(self, group: str, member: Member, memory: CohortPast) -> None:
        """Learn that an actor begins a life with this memory."""
        if group in self.trackers and memory.history:
            self.trackers[group].inherit(member, memory.history)
        # A process may die when it has written a turn and before anybody hears of it.
        for span in memory.spans:
            self.trackers[group].look_at(span.view, span.first, span.events)
            for number, event in enumerate(span.events, span.first):
                self.events[group, span.view, number] = event

    def configurations(self, group: str) -> list[Configuration]:
        return self.trackers[group].configurations()

    @property
    def is_quiet(self) -> bool:
        """Whether all groups are whole and no transaction is in progress anywhere."""
        if not self.are_whole():
            return False
        for group in self.groups:
            primary = self.primary(group)
            module = None if primary is None else primary.module
            if not isinstance(module, Server):
                return False
            if module.state.transactions or module.state.committing or module.calls.are_any:
                return False
        return True

    def value(self, group: str, name: str) -> bytes | None:
        """Give the base version of an object at the primary."""
        primary = self.primary(group)
        assert primary is not None, "the group has a primary"
        assert isinstance(primary.module, Server), "all groups have transactions"
        version = primary.module.state.objects.get(name)
        return None if version is None else version.value

    # ---- checking

    def surviving(self, group: str) -> Iterator[tuple[Viewstamp, Event]]:
        """Give the events of a group that survived all view changes, in order."""
        primary = self.primary(group)
        assert primary is not None, "the group has a primary"
        beginning = self.beginning(group)
        for known in primary.log.history:
            if known.view > beginning:
                for number in range(1, known.number + 1):
                    data = self.events[group, known.view, number]
                    if is_change(data):
                        continue
                    yield Viewstamp(known.view, number), decode_event(data)

    def violations(self) -> list[Violation]:
        """Check every promise; all groups must be quiet."""
        return [*self.group_violations(), *Audit(self).violations]

    def group_violations(self) -> list[Violation]:
        """Check what each group promises by itself, whatever is going on."""
        return [violation for each in self.trackers.values() for violation in each.violations]
