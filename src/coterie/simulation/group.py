"""Simulated groups: what can be done to all replicas at once, and what they promised."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from coterie.checking.group_communication import check_group_communication, check_views
from coterie.checking.history import History, Violation
from coterie.checking.replication import EngineTracker
from coterie.checking.sets import SetTracker
from coterie.kernel.clock import Duration, seconds
from coterie.kernel.views import Configuration, Member
from coterie.simulation.describe import describe
from coterie.simulation.host import Host
from coterie.simulation.kinds import make_kind
from coterie.simulation.ledger import replay, weigh
from coterie.simulation.objects import Clients
from coterie.stacks import is_ordered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coterie.kernel.records import Record
    from coterie.simulation.network import Link
    from coterie.simulation.simulation import Simulation


class Group:
    """The replicas of one group, and what can be done to all of them."""

    def __init__(self, simulation: Simulation, name: str, names: Sequence[str]) -> None:
        self.simulation = simulation
        self.name = name
        self.configuration = Configuration(1, tuple(names))
        self.history = History()
        self.tracker: EngineTracker | SetTracker = (
            EngineTracker(self.configuration)
            if is_ordered(simulation.stack)
            else SetTracker(self.configuration, weigh)
        )
        kind = make_kind(simulation.object_kind, is_ordered=is_ordered(simulation.stack))
        self.clients = Clients(self, Random(f"{simulation.seed}/clients"), kind)  # noqa: S311
        self.hosts = {id: Host(self, id) for id in names}
        for host in self.hosts.values():
            host.start()

    def __getitem__(self, id: str) -> Host:
        return self.hosts[id]

    def __iter__(self) -> Iterator[Host]:
        return iter(self.hosts.values())

    # ---- faults

    def partition(self, *sides: Iterable[str]) -> None:
        """Cut every link between different sides; "ab", "cde" names replicas by letters."""
        self.simulation.network.cut(self.links_between(*sides))
        self.simulation.note("partition " + " | ".join("".join(side) for side in sides))

    def cut(self, source: str, destination: str) -> None:
        """Cut one link in one direction."""
        self.simulation.network.cut([(source, destination)])
        self.simulation.note(f"cut {source} to {destination}")

    def heal(self) -> None:
        """End all faults of the network; hosts stay as they are."""
        self.simulation.network.heal(self.arrive)
        self.simulation.note("heal")

    @property
    def has_journals(self) -> bool:
        """Whether replicas keep journals."""
        return self.simulation.has_engine

    def may_forget(self, host: Host) -> bool:
        """Say whether a majority would keep its memory if this host lost its own.

        A group in which none does stops, and says so, until its operator accepts the loss.
        """
        forgetful = sum(other is host or other.lacks_memory for other in self.hosts.values())
        return forgetful <= len(self.hosts) - self.configuration.majority

    def is_vital(self, path: str) -> bool:
        """Say whether a replica could not come back without a file: it can without any."""
        del path
        return False

    def recover_by_hand(self, random: Random | None = None) -> None:
        """Have an operator look at who is there and let the most advanced history count.

        That is for a group whose majority has lost its memory; see `recover --from` in the
        operator's tools. Where it has not, nothing is done. With *random*, the operator lets
        anybody's history count, which loses more.
        """
        running = [host for host in self.hosts.values() if host.is_up]
        remembering = sum(not host.lacks_memory for host in self.hosts.values())
        if not running or remembering >= self.configuration.majority:
            return
        best = max(running, key=lambda host: host.version)
        (best if random is None else random.choice(running)).accept_loss()

    def links_between(self, *sides: Iterable[str]) -> list[Link]:
        """Give all links, both ways, between replicas of different sides."""
        groups = [list(side) for side in sides]
        return [
            (one, other)
            for mine in groups
            for others in groups
            if mine is not others
            for one in mine
            for other in others
        ]

    # ---- time

    def run(self, duration: Duration) -> None:
        """Let time pass."""
        self.simulation.run(duration)

    def run_until_whole(self, *, within: Duration = seconds(20)) -> None:
        """Let time pass until all running replicas are in one view; fail if they never are."""
        whole = self.simulation.run_until(self.is_whole, within=within)
        assert whole, f"no common view within {within / 1e6} s: {self.describe_views()}"

    def is_whole(self) -> bool:
        """Say whether all running replicas are in the same view, of exactly them."""
        running = [host for host in self.hosts.values() if host.is_up]
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

    def arrive(self, source: str, destination: str, frame: bytes, delay: int) -> None:
        """Have a frame arrive at its destination."""
        del source
        self.simulation.at(delay, self.hosts[destination].take, frame)

    def violations(self) -> list[Violation]:
        """Check every promise of the stack against what happened so far."""
        if self.simulation.has_engine:
            self.tracker.finish(None if self.simulation.has_object else replay)
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
    standing = host.ledger.standing
    if standing is None:
        return "starting"
    names = ",".join(str(member) for member in standing.members)
    zombie = " zombie" if standing.is_zombie else ""
    return f"{standing.role.value}{zombie} {standing.view}{{{names}}} at {standing.settled}"
