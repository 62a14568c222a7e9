"""Simulated groups of a stack: a world with one replica on each machine, and what they promised."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, ClassVar

from coterie.checking.group_communication import check_group_communication, check_views
from coterie.checking.history import GroupHistory, Violation
from coterie.checking.replication import EngineTracker
from coterie.checking.sets import SetTracker
from coterie.kernel.clock import Duration, seconds
from coterie.kernel.views import ChangedConfiguration, Configuration, Member
from coterie.simulation.engines.stack.clients import Clients
from coterie.simulation.engines.stack.describe import describe
from coterie.simulation.engines.stack.host import Host
from coterie.simulation.engines.stack.kinds import make_kind
from coterie.simulation.engines.stack.ledger import replay, weigh
from coterie.simulation.engines.stack.replica import StackReplica
from coterie.simulation.world.operator import Operator
from coterie.simulation.world.world import World
from coterie.stacks import is_ordered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coterie.checking.colours import ColoursTracker
    from coterie.kernel.records import Record
    from coterie.simulation.engines.stack.simulation import Simulation
    from coterie.simulation.world.machine import Machine

    Tracker = EngineTracker | SetTracker | ColoursTracker


class Group(World):
    """The replicas of one group, and what can be done to all of them."""

    simulation: Simulation
    clients_kind: ClassVar[type[Clients]] = Clients

    def __init__(self, simulation: Simulation, name: str, names: Sequence[str]) -> None:
        super().__init__(simulation, settings=simulation.settings, journal=simulation.journal)
        self.name = name
        self.configuration = Configuration(1, tuple(names))
        self.history = GroupHistory()
        self.tracker: Tracker = self.make_tracker()
        kind = make_kind(simulation.object_kind, is_ordered=is_ordered(simulation.stack))
        self.clients = self.clients_kind(self, Random(f"{simulation.seed}/clients"), kind)  # noqa: S311
        self.hosts = {id: Host(self, id) for id in names}
        self.operator = Operator(self, Random(f"{simulation.seed}/operator"))  # noqa: S311
        self.machines.update(self.hosts)
        if simulation.age is not None:
            self.begin_old(simulation.age)
        self.start()

    def make_tracker(self) -> Tracker:
        """Make what follows the records of the engine, if there is one."""
        age = self.simulation.age
        beginning = 0 if age is None else age.position
        if is_ordered(self.simulation.stack):
            return EngineTracker(self.configuration, beginning=beginning)
        return SetTracker(self.configuration, weigh, beginning=beginning)

    def make_replica(self, host: Host) -> StackReplica:
        """Make the replica that lives on a machine."""
        return StackReplica(host, self)

    def __getitem__(self, id: str) -> Host:
        return self.hosts[id]

    def __iter__(self) -> Iterator[Host]:
        return (host for host in self.hosts.values() if not host.is_retired)

    # ---- who belongs to it

    @property
    def can_change_members(self) -> bool:
        return isinstance(self.tracker, EngineTracker) and self.simulation.has_engine

    def join(self, random: Random) -> str:
        del random  # the operator has a chance of its own
        return self.operator.join()

    def dismiss(self, random: Random, *, after: str = "") -> None:
        del random
        self.operator.dismiss(after=after)

    def put_up(self, id: str, seeds: Configuration) -> None:
        """Start a new machine, whose replica is to join the group."""
        host = self.hosts[id] = self.machines[id] = Host(self, id, seeds)
        host.start()

    def peers_of(self, machine: Machine) -> Sequence[str]:
        resident = machine.residents[self.name]
        return (machine.id, *resident.configuration.members)

    def may_forget(self, machine: Machine) -> bool:
        if self.may_lose_majority or not self.can_change_members:
            return super().may_forget(machine)
        return self._keeps_memory(without=machine.id)

    def may_dismiss(self, id: str) -> bool:
        """Say whether the members that stay remember enough when this one goes."""
        now = self.operator.configuration
        staying = tuple(other for other in now.members if other != id)
        to = ChangedConfiguration(now.number + 1, staying, now.learners, now.members)
        return self._keeps_memory(to, sound=True)

    def _keeps_memory(self, *more: Configuration, without: str = "", sound: bool = False) -> bool:
        """Say whether those with a memory are a quorum of all configurations that may count."""
        assert isinstance(self.tracker, EngineTracker)
        remembering = {
            host.id
            for host in self
            if host.id != without and not host.lacks_memory and not (sound and host.is_damaged)
        }
        return all(each.is_quorum(remembering) for each in (*self.tracker.configurations(), *more))

    # ---- time

    def run_until_whole(self, *, within: Duration = seconds(20)) -> None:
        """Let time pass until all running replicas are in one view; fail if they never are."""
        whole = self.simulation.run_until(self.is_whole, within=within)
        assert whole, f"no common view within {within / 1e6} s: {self.describe_views()}"

    def is_whole(self) -> bool:
        """Say whether all running replicas are in the same view, of exactly them."""
        running = [host for host in self if host.is_up]
        members = sorted(Member(host.id, host.incarnation) for host in running)
        places = [host.place for host in running]
        return all(
            place is not None and place == places[0] and sorted(place[1]) == members
            for place in places
        )

    def describe_views(self) -> str:
        """Say which view every replica is in."""
        return "  ".join(f"{host.id}: {_describe(host)}" for host in self.hosts.values())

    # ---- what happened

    def record(self, record: Record) -> None:
        """Take a record from a replica."""
        self.history.add(record, true_time=self.simulation.now)
        if self.simulation.has_engine:
            self.tracker.add(record)
        if self.simulation.trace is not None:
            self.simulation.note(f"{record.member} {describe(record)}")

    def violations(self) -> list[Violation]:
        """Check every promise of the stack against what happened so far."""
        if self.simulation.has_engine:
            age = self.simulation.age
            again = replay if age is None else partial(replay, beginning=age.position)
            self.tracker.finish(None if self.simulation.has_object else again)
            views = check_views(self.history)
            # What clients were told before a loss that an operator accepted does not hold.
            has_clients = self.simulation.has_object and not self.tracker.has_lost
            seen = self.clients.violations() if has_clients else []
            return [*views, *self.tracker.violations, *seen]
        return check_group_communication(self.history, self.simulation.stack)

    def check(self) -> None:
        """Fail if any promise was broken."""
        violations = self.violations()
        assert not violations, "\n".join(str(violation) for violation in violations[:10])


def _describe(host: Host) -> str:
    if not host.is_up:
        return "down"
    if host.ledger is None:
        return str(host.inbox.current)
    status = host.ledger.status
    if status is None:
        return "starting"
    names = ",".join(str(member) for member in status.members)
    zombie = " zombie" if status.is_zombie else ""
    return f"{status.role.value}{zombie} {status.view}{{{names}}} at {status.settled}"
