"""Simulated machines, each with cohorts of several groups, and clients on machines of their own.

Like `coterie.simulation.group`, for engines that stand straight on the kernel: one machine hosts
whatever *actors* are put on it, and the faults of `coterie.simulation.faults` can be done to it.

Cohorts keep journals on the machine's disk, as real ones do. Here `crash` is the death of the
machine, which loses what was not synced: with the default `sync = "none"` the state of every cohort
that was active. `kill` is the death of the process, which loses nothing that was written.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from coterie.journal.cohort_keeper import CohortKeeper
from coterie.journal.cohorts import recover_cohort
from coterie.journal.format import Sync
from coterie.journal.stable import found_group
from coterie.journal.writer import StorageFailed
from coterie.kernel.clock import Duration, milliseconds
from coterie.kernel.layers import Context
from coterie.kernel.process import Process
from coterie.kernel.views import Configuration, Member
from coterie.membership.detector import HeartbeatDetector
from coterie.simulation.computer import Computer
from coterie.simulation.disk import Died
from coterie.simulation.simulation import SIMULATED_JOURNAL, SIMULATED_SETTINGS, Simulation
from coterie.vsr.cohort import Cohort
from coterie.vsr.module import Memory
from coterie.vsr.recovery import memory_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from coterie.journal.keeper import KeeperSettings
    from coterie.kernel.records import Record
    from coterie.kernel.replica import Replica
    from coterie.kernel.settings import Settings
    from coterie.simulation.network import Link

MACHINE_FAULTS = (
    *("loss", "duplication", "damage", "delay", "reordering", "clogging"),
    *("partition", "one-way", "non-transitive", "isolation", "flapping"),
    *("crash", "restart", "restart-all", "pause", "slow", "suspicion"),
    *("clock-jump", "clock-drift"),
)
"""Faults of `coterie.simulation.faults` that can be done to machines whose disks do not fail."""

COHORT_FAULTS = (
    *MACHINE_FAULTS,
    *("kill", "power-all", "torn-write", "full-disk", "failing-sync", "bit-flip"),
)
"""All of them. A machine is never replaced: a cohort does not come back without its disk."""


def keeping(sync: Sync) -> KeeperSettings:
    """Give how journals are kept in a simulation, with these events on disk (4.2)."""
    journal = replace(SIMULATED_JOURNAL.journal, sync=sync)
    return replace(SIMULATED_JOURNAL, journal=journal)


class Builder(Protocol):
    """How an actor is made for each life of its machine."""

    def __call__(self, context: Context, memory: Memory) -> Replica:
        """Build the replica, knowing what *memory* holds."""


class Machine(Computer):
    """One machine with one process: what can fail in it."""

    def __init__(self, world: World, id: str) -> None:
        super().__init__(world.simulation, id)
        self.world = world
        self.keepers: dict[str, CohortKeeper] = {}
        """The journals of the cohorts that live here now."""

    # ---- life and death

    def start(self) -> None:
        """Begin a new life with what is on disk."""
        if self.is_up:
            return
        world, simulation = self.world, self.simulation
        self.incarnation += 1
        self.set_clock()
        everyone = tuple(world.hosts)
        process = Process(
            id=self.id,
            incarnation=self.incarnation,
            peers=everyone,
            detector=HeartbeatDetector(self.id, self.incarnation, everyone, world.settings),
            settings=world.settings,
        )
        try:
            for group, (configuration, build) in world.actors_on(self.id).items():
                seed = f"{simulation.seed}/{self.id}/{group}/{self.incarnation}"
                context = Context(
                    group=group,
                    me=Member(self.id, self.incarnation),
                    configuration=configuration,
                    settings=world.settings,
                    random=Random(seed),  # noqa: S311 -- reproducible on purpose
                    surroundings=process,
                )
                process.host(self._build(context, build))
        except (StorageFailed, Died) as error:
            simulation.note(f"{self.id} cannot start: {error}")
            self.keepers = {}
            return
        self.begin(process)

    def _build(self, context: Context, build: Builder) -> Replica:
        """Build an actor; a cohort with what its journal knows of earlier lives."""
        world, group = self.world, context.group
        if group not in world.groups:
            return build(context, Memory())
        keeper = world.keeper(
            self.disk,
            group,
            self.id,
            context.configuration,
            self.simulation.journal,
            incarnation_min=self.incarnation,
        )
        assert keeper.incarnation == self.incarnation, "all journals of a machine count alike"
        memory = memory_of(keeper.recovery)
        world.revived(group, context.me, memory)
        replica = build(context, memory)
        cohort = world.cohort_of(replica)
        assert cohort is not None, "groups consist of cohorts"
        keeper.checkpoint = cohort.checkpoint
        self.keepers[group] = keeper
        return replica

    def crash(self) -> None:
        """Die with the machine, unless a group could not survive that and the world forbids it."""
        if self.is_up and self.world.may_crash(self):
            self.simulation.note(f"{self.id} crashes")
            self._die()
            self.disk.lose_power()

    def lose_power(self) -> None:
        """Do the same."""
        self.crash()

    def kill(self) -> None:
        """Have the process die; what it wrote stays."""
        if self.is_up:
            self.simulation.note(f"{self.id} is killed")
            self._die()

    def _die(self) -> None:
        self.keepers = {}
        self.end()

    def leave(self) -> None:
        """Cohorts do not leave."""

    # ---- use

    def cohort(self, group: str) -> Cohort | None:
        """Give the cohort of a group that lives here, if it does."""
        replica = None if self.process is None else self.process.replicas.get(group)
        return None if replica is None else self.world.cohort_of(replica)

    def lacks_memory(self, group: str) -> bool:
        """Say whether a cohort has lost its state, or would have if it began anew now."""
        cohort = self.cohort(group)
        if cohort is not None and not self.is_damaged:
            return not cohort.up_to_date
        found = recover_cohort(self.disk, group, self.id, self.world.groups[group])
        return not found.has_state or (cohort is not None and not cohort.up_to_date)

    # ---- turns

    def arrive(self, source: str, destination: str, frame: bytes, delay: int) -> None:
        """Have a frame arrive at its destination."""
        self.world.arrive(source, destination, frame, delay)

    def store(self, records: Sequence[Record], now: int) -> bool:
        """Write a turn down before anything of it leaves; say whether we are still alive."""
        by_group: dict[str, list[Record]] = {}
        for record in records:
            by_group.setdefault(record.group, []).append(record)

        def write() -> None:
            for group, keeper in self.keepers.items():
                self.write_down(group, keeper, by_group.get(group, ()), now)

        if not self.survives(write):
            return False
        for record in records:
            self.world.record(record)
        return True

    def end_turn(self) -> bool:
        """Take snapshots and make room when it is time; say whether we are still alive."""
        return all(self.keep_house(keeper) for keeper in self.keepers.values())


class World:
    """Machines, groups spread over them, and clients."""

    def __init__(
        self,
        *,
        seed: int,
        groups: Mapping[str, tuple[str, ...]],
        settings: Settings = SIMULATED_SETTINGS,
        journal: KeeperSettings | None = None,
        may_lose_majority: bool = False,
    ) -> None:
        self.simulation = Simulation(
            seed=seed, stack="VSYNC", settings=settings, journal=journal or keeping(Sync.NONE)
        )
        self.settings = settings
        self.may_lose_majority = may_lose_majority
        """Whether machines may crash although a group would lose its memory for ever."""
        self.keeper: type[CohortKeeper] = CohortKeeper
        """How journals are kept; tests put in broken ones."""
        self.groups = {name: Configuration(1, members) for name, members in groups.items()}
        self.configuration = next(iter(self.groups.values()))
        self._actors: dict[str, dict[str, tuple[Configuration, Builder]]] = {}
        self.hosts: dict[str, Machine] = {}

    def put(self, machine: str, group: str, configuration: Configuration, build: Builder) -> None:
        """Have an actor live on a machine."""
        host = self.hosts.get(machine)
        if host is None:
            host = self.hosts[machine] = Machine(self, machine)
        if group in self.groups:
            found_group(host.disk, group, machine, configuration)
        self._actors.setdefault(machine, {})[group] = (configuration, build)

    def start(self) -> None:
        """Start all machines."""
        for host in self.hosts.values():
            host.start()

    def actors_on(self, machine: str) -> dict[str, tuple[Configuration, Builder]]:
        """Give what lives on a machine."""
        return self._actors[machine]

    def cohort_of(self, replica: Replica) -> Cohort | None:
        """Give the cohort in a replica, if it is one."""
        bottom = replica.bottom
        return bottom if isinstance(bottom, Cohort) else None

    has_journals = True

    def may_crash(self, machine: Machine) -> bool:
        """Say whether every group survives that this machine loses what it had not synced."""
        is_durable = self.simulation.syncs_every_turn and not machine.is_damaged
        return is_durable or self.may_forget(machine)

    def may_forget(self, machine: Machine) -> bool:
        """Say whether every group keeps a majority with a memory if this machine loses its own."""
        if self.may_lose_majority:
            return True
        for group, configuration in self.groups.items():
            if machine.id not in configuration.members:
                continue
            others = [self.hosts[id] for id in configuration.members if id != machine.id]
            forgetful = sum(1 for each in others if self._may_lack_memory(each, group))
            if forgetful + 1 > len(configuration.members) - configuration.majority:
                return False
        return True

    def _may_lack_memory(self, machine: Machine, group: str) -> bool:
        # What is down now may lose its machine before it comes back.
        is_lost = not machine.is_up and not self.simulation.syncs_every_turn
        return is_lost or machine.lacks_memory(group)

    def is_vital(self, path: str) -> bool:
        """Say whether a machine could not come back without a file: a cohort's stable values."""
        return path.endswith("/stable")

    # ---- what subclasses watch

    def record(self, record: Record) -> None:
        """Take a record of any actor."""

    def revived(self, group: str, member: Member, memory: Memory) -> None:
        """Learn that an actor begins a life with this memory."""

    # ---- the network

    def arrive(self, source: str, destination: str, frame: bytes, delay: int) -> None:
        """Have a frame arrive at its destination."""
        del source
        self.simulation.at(delay, self.hosts[destination].take, frame)

    def links_between(self, *sides: Iterable[str]) -> list[Link]:
        """Give all links, both ways, between machines of different sides."""
        groups = [list(side) for side in sides]
        return [
            (one, other)
            for mine in groups
            for others in groups
            if mine is not others
            for one in mine
            for other in others
        ]

    def partition(self, *sides: Iterable[str]) -> None:
        """Cut every link between different sides."""
        self.simulation.network.cut(self.links_between(*sides))
        self.simulation.note("partition")

    def heal(self) -> None:
        """End all faults of the network, and have every machine run."""
        self.simulation.network.heal(self.arrive)
        for host in self.hosts.values():
            host.slowness = 0
            host.set_drift(1.0)
            host.resume()
            host.repair()
        self.simulation.note("heal")

    # ---- time

    def run(self, duration: Duration) -> None:
        """Let time pass."""
        self.simulation.run(duration)

    def run_until(self, condition: Callable[[], bool], *, within: Duration) -> bool:
        """Let time pass until *condition* holds; say whether it did within the time."""
        return self.simulation.run_until(condition, within=within)

    # ---- looking at groups

    def primary(self, group: str) -> Cohort | None:
        """Give the serving primary with the highest view, if there is one."""
        primaries = [
            cohort
            for id in self.groups[group].members
            if (cohort := self.hosts[id].cohort(group)) is not None and cohort.is_serving
        ]
        return max(primaries, key=lambda cohort: cohort.cur_viewid, default=None)

    def is_whole(self, group: str) -> bool:
        """Say whether all cohorts of a group are active in one view of all of them, and equal."""
        primary = self.primary(group)
        members = self.groups[group].members
        if primary is None or {each.id for each in primary.cur_view.members} != set(members):
            return False
        cohorts = [self.hosts[id].cohort(group) for id in members]
        return all(
            cohort is not None
            and cohort.is_active
            and cohort.cur_viewid == primary.cur_viewid
            and cohort.log.last == primary.log.last
            for cohort in cohorts
        )

    def are_whole(self) -> bool:
        """Say whether all groups are."""
        return all(self.is_whole(group) for group in self.groups)

    def run_until_whole(self, *, within: Duration = milliseconds(20_000)) -> None:
        """Let time pass until all groups are whole; fail if they never are."""
        assert self.run_until(self.are_whole, within=within), self.describe()

    def describe(self) -> str:
        """Say where every cohort stands."""
        lines = []
        for group, configuration in self.groups.items():
            for id in configuration.members:
                cohort = self.hosts[id].cohort(group)
                lines.append(f"{group}/{id}: {cohort.describe() if cohort else 'down'}")
        return "; ".join(lines)
