"""Groups with transactions over them, in simulated time: worlds, what is checked, campaigns.

The promises that are checked, beside those of `coterie.checking.viewstamped` for each group:

- *atomic*: what a coordinator committed is committed by every group that had to install something,
  with the same calls, and aborted by none;
- *lost calls abort*: a committed transaction has no call that was lost in a view change;
- *told right*: what a client was told is what happened;
- *locks kept*: no two transactions in progress have written the same object, through view changes;
- *serializable*: committed transactions could have run one after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.history import Violation
from coterie.checking.serializability import CommittedTransaction, check_serializable
from coterie.checking.viewstamped import ViewstampedTracker
from coterie.kernel.layers import Layer
from coterie.kernel.records import EventsKnown
from coterie.kernel.replica import Replica
from coterie.kernel.views import NO_VIEW, Configuration, Viewstamp
from coterie.simulation.describe import describe
from coterie.simulation.machines import World
from coterie.vsr.client import Client, Fate, Outcome
from coterie.vsr.cohort import Cohort
from coterie.vsr.events import (
    Aborted,
    Committed,
    Committing,
    CompletedCall,
    decode_event,
)
from coterie.vsr.replica import build_cohort
from coterie.vsr.server import Server
from coterie.vsr.settings import DEFAULT_VSR_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coterie.journal.keeper import KeeperSettings
    from coterie.kernel.layers import Context
    from coterie.kernel.records import Record
    from coterie.kernel.views import Member, ViewId
    from coterie.vsr.client import ClientTransaction
    from coterie.vsr.events import Event
    from coterie.vsr.executor import Executor
    from coterie.vsr.module import Memory
    from coterie.vsr.psets import Aid, Pair
    from coterie.vsr.settings import VsrSettings


class TransactionWorld(World):
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
    ) -> None:
        super().__init__(seed=seed, groups=groups, journal=journal)
        self.vsr_settings = settings
        self._executor = executor
        self._cohort_kind = cohort_kind
        self._server_kind = server_kind
        self.trackers = {
            name: ViewstampedTracker(configuration) for name, configuration in self.groups.items()
        }
        self.events: dict[tuple[str, ViewId, int], bytes] = {}
        self.told: dict[Aid, Outcome] = {}
        for name, configuration in self.groups.items():
            for machine in configuration.members:
                self.put(machine, name, configuration, self._build_cohort)
        for machine in clients:
            self.put(machine, f"client {machine}", Configuration(1, (machine,)), self._build_client)
        self.clients = clients
        self.start()

    def _build_cohort(self, context: Context, memory: Memory) -> Replica:
        server = self._server_kind(context, self._executor(), self.groups, self.vsr_settings)
        return build_cohort(
            context, server, memory=memory, settings=self.vsr_settings, kind=self._cohort_kind
        )

    def _build_client(self, context: Context, memory: Memory) -> Replica:
        del memory
        client = Client(context, self.groups, self.vsr_settings)
        return Replica(context, Layer(context), [client], client)

    # ---- use

    def client(self, machine: str) -> Client | None:
        """Give the client on a machine, if the machine is up."""
        process = self.hosts[machine].process
        if process is None:
            return None
        bottom = process.replicas[f"client {machine}"].bottom
        assert isinstance(bottom, Client), "only clients live there"
        return bottom

    def server(self, machine: str, group: str) -> Server | None:
        """Give the module of a cohort, if its machine is up."""
        cohort = self.hosts[machine].cohort(group)
        if cohort is None:
            return None
        assert isinstance(cohort.module, Server), "all groups have transactions"
        return cohort.module

    def ended(self, outcome: Outcome) -> None:
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

        self.hosts[machine].call(begin)

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

    def revived(self, group: str, member: Member, memory: Memory) -> None:
        """Learn that an actor begins a life with this memory."""
        if group in self.trackers and memory.history:
            self.trackers[group].inherit(member, memory.history)

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
        for known in primary.log.history:
            if known.view != NO_VIEW:
                for number in range(1, known.number + 1):
                    data = self.events[group, known.view, number]
                    yield Viewstamp(known.view, number), decode_event(data)

    def violations(self) -> list[Violation]:
        """Check every promise; all groups must be quiet."""
        found = [violation for each in self.trackers.values() for violation in each.violations]
        return [*found, *Audit(self).violations]


class Audit:
    """What all groups did together, read from their surviving events."""

    def __init__(self, world: TransactionWorld) -> None:
        self._world = world
        self.violations: list[Violation] = []
        self.committed: dict[Aid, CommittedTransaction] = {}
        self._orders: dict[str, list[str]] = {}
        self._decided: dict[Aid, Committing] = {}
        self._installed: dict[tuple[Aid, str], tuple[Viewstamp, ...]] = {}
        self._aborted: dict[Aid, str] = {}
        self._survived: set[tuple[str, Viewstamp]] = set()
        for group in world.groups:
            self._read(group)
        self._check_atomic()
        self._check_told()
        self.violations += check_serializable(self.committed.values(), self._orders)

    def _fail(self, check: str, evidence: str) -> None:
        self.violations.append(Violation(check, evidence))

    def _read(self, group: str) -> None:
        calls: dict[Viewstamp, CompletedCall] = {}
        writing: dict[str, Aid] = {}
        for vs, event in self._world.surviving(group):
            match event:
                case CompletedCall(aid=aid):
                    calls[vs] = event
                    self._survived.add((group, vs))
                    for write in event.writes:
                        holder = writing.setdefault(write.name, aid)
                        if holder != aid:
                            self._fail(
                                "locks kept",
                                f"{aid} wrote {group}/{write.name}, which {holder} had locked",
                            )
                case Committed(aid=aid, calls=parts):
                    self._install(group, vs, event, [calls.get(part) for part in parts])
                    writing = {name: each for name, each in writing.items() if each != aid}
                case Aborted(aid=aid, reason=reason):
                    self._aborted[aid] = f"{group}: {reason}"
                    writing = {name: each for name, each in writing.items() if each != aid}
                case Committing(aid=aid):
                    self._decided[aid] = event
                case _:
                    pass

    def _install(
        self, group: str, vs: Viewstamp, event: Committed, calls: list[CompletedCall | None]
    ) -> None:
        aid = event.aid
        self._installed[aid, group] = event.calls
        transaction = self.committed.setdefault(aid, CommittedTransaction(str(aid)))
        for place, call in zip(event.calls, calls, strict=True):
            if call is None or call.aid != aid:
                self._fail("lost calls abort", f"{aid} committed without {group}:{place}")
                continue
            self._add_reads(transaction, group, call)
            for write in call.writes:
                name = f"{group}/{write.name}"
                transaction.writes.append((name, str(vs)))
                order = self._orders.setdefault(name, [])
                if not order or order[-1] != str(vs):
                    order.append(str(vs))

    def _check_atomic(self) -> None:
        for aid, decision in self._decided.items():
            if aid in self._aborted:
                self._fail("atomic", f"{aid} is committed, and aborted by {self._aborted[aid]}")
            for part in decision.parts:
                if self._installed.get((aid, part.group)) != part.calls:
                    self._fail("atomic", f"{aid} is committed, and not by {part.group}")
        for (aid, group), calls in self._installed.items():
            written = self.committed[aid].writes
            is_part = any(name.startswith(f"{group}/") for name, _ in written)
            if is_part and aid not in self._decided:
                self._fail("atomic", f"{group} committed {aid} with {calls}, without a decision")

    def _count_lost(self, aid: Aid, pair: Pair) -> None:
        """What a lost call had read still counts: its client was told that all is well."""
        self._fail("lost calls abort", f"{aid} committed; its call {pair.group}:{pair.vs} is lost")
        event = decode_event(self._world.events[pair.group, pair.vs.view, pair.vs.number])
        if isinstance(event, CompletedCall):
            transaction = self.committed.setdefault(aid, CommittedTransaction(str(aid)))
            self._add_reads(transaction, pair.group, event)

    def _add_reads(
        self, transaction: CommittedTransaction, group: str, call: CompletedCall
    ) -> None:
        for read in call.reads:
            version = None if read.version is None else str(read.version)
            transaction.reads.append((f"{group}/{read.name}", version))

    def _check_told(self) -> None:
        for aid, outcome in self._world.told.items():
            fate = outcome.fate
            for pair in outcome.pset:
                if (pair.group, pair.vs) not in self._survived:
                    self._count_lost(aid, pair)
            has_written = aid in self.committed and bool(self.committed[aid].writes)
            if fate is Fate.ABORTED and (aid in self._decided or has_written):
                self._fail("told right", f"{aid} is committed; its client was told it is aborted")
            has_trace = aid in self._decided or aid in self.committed or not outcome.pset
            if fate is Fate.COMMITTED and not has_trace:
                self._fail("told right", f"{aid} left no trace; its client was told committed")
