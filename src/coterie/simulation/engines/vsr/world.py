"""Simulated groups of cohorts that share machines, and clients on machines of their own.

Cohorts keep journals on their machines' disks, as real ones do. In this world `crash` is the death
of the machine, which loses what was not synced: with the default `sync = "none"` the state of every
cohort that was active. `kill` is the death of the process, which loses nothing that was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from msgspec.structs import replace

from coterie.journal.engines.vsr import recover_cohort
from coterie.journal.engines.vsr_keeper import CohortKeeper
from coterie.journal.format import Sync
from coterie.journal.stable import Stable, found_group, join_group
from coterie.kernel.clock import Duration, milliseconds
from coterie.kernel.views import Configuration, Member
from coterie.simulation.engines.vsr.changing import ChangingCohorts
from coterie.simulation.engines.vsr.old import write_old_cohort
from coterie.simulation.world.disk import Died
from coterie.simulation.world.resident import Resident
from coterie.simulation.world.settings import SIMULATED_JOURNAL, SIMULATED_SETTINGS
from coterie.simulation.world.virtual_time import VirtualTime
from coterie.simulation.world.world import World
from coterie.vsr.views.cohort import Cohort
from coterie.vsr.views.module import CohortPast
from coterie.vsr.views.recovery import memory_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from coterie.journal.keeper import KeeperSettings
    from coterie.kernel.layers import Context
    from coterie.kernel.process import Process
    from coterie.kernel.records import Record
    from coterie.kernel.replica import Replica
    from coterie.kernel.settings import Settings
    from coterie.simulation.world.age import Age
    from coterie.simulation.world.machine import Machine

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
"""All faults that cohorts outlive. No machine is replaced: a cohort needs its disk to come back."""


def keeping(sync: Sync) -> KeeperSettings:
    """Give how journals are kept in a simulation, with these events on disk (4.2)."""
    journal = replace(SIMULATED_JOURNAL.journal, sync=sync)
    return replace(SIMULATED_JOURNAL, journal=journal)


class Builder(Protocol):
    """How a cohort is made for each life of its machine."""

    def __call__(self, context: Context, memory: CohortPast) -> Replica:
        """Build the replica, knowing what *memory* holds."""


class CohortResident(Resident):
    """A cohort on a machine, with its journal."""

    keeper: CohortKeeper | None
    keeps_journal = True

    def __init__(
        self,
        machine: Machine,
        group: str,
        world: CohortWorld,
        build: Callable[..., Replica],
        seeds: Configuration | None = None,
    ) -> None:
        super().__init__(machine, group, seeds or world.groups[group])
        self._world = world
        self._build = build
        if seeds is not None:
            join_group(machine.disk, group, machine.id, seeds)
            return
        found_group(machine.disk, group, machine.id, self.configuration)
        if world.age is not None:
            write_old_cohort(
                machine.disk,
                group,
                machine.id,
                configuration=self.configuration,
                age=world.age,
                chunks=world.old_state(group, world.age),
                settings=world.journal,
            )

    @property
    def cohort(self) -> Cohort | None:
        """The cohort, while its process lives."""
        if self.replica is None:
            return None
        bottom = self.replica.bottom
        assert isinstance(bottom, Cohort), "groups consist of cohorts"
        return bottom

    def open(self, incarnation_min: int) -> int:
        """Begin a life with what the journal knows of earlier ones."""
        machine, world = self.machine, self._world
        self.keeper = world.keeper(
            machine.disk,
            self.group,
            machine.id,
            self.configuration,
            world.journal,
            incarnation_min=incarnation_min,
        )
        return self.keeper.incarnation

    def build(self, process: Process) -> Replica:
        """Build the cohort with its memory."""
        keeper = self.keeper
        assert keeper is not None, "a life is opened before anything is built"
        context = self.make_context(process)
        memory = memory_of(keeper.recovery)
        self._world.revived(self.group, context.me, memory)
        replica = self._build(context, memory)
        cohort = replica.bottom
        assert isinstance(cohort, Cohort), "groups consist of cohorts"
        keeper.checkpoint = cohort.checkpoint
        return replica

    def record(self, record: Record) -> None:
        """Have the world watch a record."""
        self._world.record(record)

    def end_turn(self) -> None:
        """Have the cohort end when it has found out that it was removed."""
        replica = self.replica
        if replica is not None and replica.context.is_removed and replica.bottom.has_left:
            self.machine.simulation.at(0, self.be_removed)

    def be_removed(self) -> None:
        """Mark the disk of a cohort that was removed, and end; others live on here."""
        machine = self.machine
        if machine.is_retired or machine.residents.get(self.group) is not self:
            return
        try:
            Stable(machine.disk, self.group, machine.id).set_removed()
        except (OSError, Died) as error:  # it finds out anew when its disk has been put right
            machine.simulation.note(f"{machine.id}: {error}")
            machine.kill()
            return
        if len(machine.residents) == 1:
            machine.retire()
            return
        machine.kill()
        del machine.residents[self.group]
        machine.start()

    @property
    def lacks_memory(self) -> bool:
        """Whether the cohort has lost its state, or would have if it began anew now."""
        machine, cohort = self.machine, self.cohort
        if not machine.is_up and not machine.world.syncs_every_turn:
            return True  # what is down now may lose its machine before it comes back
        if cohort is not None and not machine.is_damaged:
            return not cohort.up_to_date
        found = recover_cohort(machine.disk, self.group, machine.id, self.configuration)
        return not found.has_state or (cohort is not None and not cohort.up_to_date)

    def is_vital(self, path: str) -> bool:
        """Say whether a file is where the cohort keeps which views it has promised."""
        return path.endswith("/stable")


class ClientResident(Resident):
    """A client on a machine of its own; it keeps nothing."""

    def __init__(self, machine: Machine, group: str, build: Callable[[Context], Replica]) -> None:
        super().__init__(machine, group, Configuration(1, (machine.id,)))
        self._build = build

    def build(self, process: Process) -> Replica:
        """Build the client."""
        return self._build(self.make_context(process))


class CohortWorld(World):
    """Machines, groups of cohorts spread over them, and clients."""

    crash_takes_machine: ClassVar[bool] = True
    machines_count_lives: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 -- what a world is made of
        self,
        *,
        seed: int,
        groups: Mapping[str, tuple[str, ...]],
        settings: Settings = SIMULATED_SETTINGS,
        journal: KeeperSettings | None = None,
        may_lose_majority: bool = False,
        age: Age | None = None,
    ) -> None:
        super().__init__(
            VirtualTime(seed=seed),
            settings=settings,
            journal=journal or keeping(Sync.NONE),
            may_lose_majority=may_lose_majority,
        )
        self.keeper: type[CohortKeeper] = CohortKeeper
        """How journals are kept; tests put in broken ones."""
        self.groups = {name: Configuration(1, members) for name, members in groups.items()}
        self.age = age
        """With what cohorts begin that are old; None for new ones."""
        self.changing: dict[str, ChangingCohorts] = {}
        """The groups whose members have changed."""
        self._builders: dict[str, Builder] = {}
        self._first: tuple[str, ...] = ()
        """The machines that were there from the beginning."""

    def old_state(self, group: str, age: Age) -> list[bytes]:
        """Give the state with which the cohorts of a group begin that are old."""
        raise NotImplementedError

    def start(self) -> None:
        """Start all machines, which count their lives on from the age that they have."""
        if self.age is not None:
            self.begin_old(self.age)
        self._first = tuple(self.machines)
        super().start()

    def put_cohorts(self, group: str, build: Builder) -> None:
        """Have the cohorts of a group live on its machines."""
        self._builders[group] = build
        for id in self.groups[group].members:
            machine = self.machine(id)
            machine.put(CohortResident(machine, group, self, build))

    def put_newcomer(self, id: str, group: str, seeds: Configuration) -> None:
        """Start a new machine with a cohort that is to join a group."""
        self.changing_group(group)
        machine = self.machine(id)
        machine.put(CohortResident(machine, group, self, self._builders[group], seeds))
        machine.start()

    def put_client(self, id: str, group: str, build: Callable[[Context], Replica]) -> None:
        """Have a client live on a machine."""
        machine = self.machine(id)
        machine.put(ClientResident(machine, group, build))

    def heal(self) -> None:
        """End all faults of the network, and have every machine run."""
        self.simulation.network.heal(self.arrive)
        self.mend()
        self.simulation.note("heal")

    # ---- what subclasses watch

    def record(self, record: Record) -> None:
        """Take a record of a cohort."""

    def revived(self, group: str, member: Member, memory: CohortPast) -> None:
        """Learn that a cohort begins a life with this memory."""

    # ---- who belongs to a group

    @property
    def can_change_members(self) -> bool:
        return True

    def join(self, random: Random) -> str:
        return self.changing_group(random.choice(list(self.groups))).operator.join()

    def dismiss(self, random: Random, *, after: str = "") -> None:
        mine = [name for name in self.groups if after and name in self.machines[after].residents]
        group = mine[0] if mine else random.choice(list(self.groups))
        self.changing_group(group).operator.dismiss(after=after)

    def changing_group(self, group: str) -> ChangingCohorts:
        """Give a group as its operator sees it."""
        if group not in self.changing:
            self.changing[group] = ChangingCohorts(self, group)
        return self.changing[group]

    def peers_of(self, machine: Machine) -> Sequence[str]:
        """Give those who were there from the beginning; others are met."""
        known = dict.fromkeys((machine.id, *self._first))
        for resident in machine.residents.values():
            known.update(dict.fromkeys(resident.configuration.members))
        return tuple(known)

    def may_forget(self, machine: Machine) -> bool:
        if self.may_lose_majority:
            return True
        return all(
            self.keeps_memory(group, without=machine.id)
            for group, resident in machine.residents.items()
            if resident.keeps_journal
        )

    def keeps_memory(
        self, group: str, *more: Configuration, without: str = "", sound: bool = False
    ) -> bool:
        """Say whether those with a memory are a quorum of all configurations that may count."""
        remembering = {
            each.machine.id
            for each in self.residents_of(group)
            if each.machine.id != without
            and not each.lacks_memory
            and not (sound and each.machine.is_damaged)
        }
        return all(each.is_quorum(remembering) for each in (*self.configurations(group), *more))

    def configurations(self, group: str) -> list[Configuration]:
        """Give the configurations of a group that may count, now or later."""
        return [self.groups[group]]

    # ---- looking at groups

    def ids_of(self, group: str) -> tuple[str, ...]:
        """Name the machines of those who belong to a group, as far as is settled anywhere."""
        changing = self.changing.get(group)
        return (changing.operator.configuration if changing else self.groups[group]).everyone

    def cohort(self, id: str, group: str) -> Cohort | None:
        """Give the cohort of a group on a machine, if it is up."""
        machine = self.machines.get(id)
        resident = None if machine is None else machine.residents.get(group)
        return resident.cohort if isinstance(resident, CohortResident) else None

    def primary(self, group: str) -> Cohort | None:
        """Give the serving primary with the highest view, if there is one."""
        primaries = [
            cohort
            for id in self.ids_of(group)
            if (cohort := self.cohort(id, group)) is not None and cohort.is_serving
        ]
        return max(primaries, key=lambda cohort: cohort.cur_viewid, default=None)

    def is_whole(self, group: str) -> bool:
        """Say whether all cohorts of a group are active in one view of all of them, and equal."""
        changing = self.changing.get(group)
        if changing is not None and not changing.is_settled:
            return False
        primary = self.primary(group)
        members = self.ids_of(group)
        if primary is None or {each.id for each in primary.cur_view.members} != set(members):
            return False
        cohorts = [self.cohort(id, group) for id in members]
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
        for group in self.groups:
            for id in self.ids_of(group):
                cohort = self.cohort(id, group)
                lines.append(f"{group}/{id}: {cohort.describe() if cohort else 'down'}")
        return "; ".join(lines)
