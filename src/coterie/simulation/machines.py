"""Simulated machines, each with cohorts of several groups, and clients on machines of their own.

Like `coterie.simulation.group`, for engines that stand straight on the kernel: one machine hosts
whatever *actors* are put on it, and the faults of `coterie.simulation.faults` can be done to it.
What is on stable storage is kept from life to life; the state only if the world is durable.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from coterie.kernel.clock import Duration, milliseconds
from coterie.kernel.errors import FrameError
from coterie.kernel.layers import Context
from coterie.kernel.process import Process
from coterie.kernel.views import Configuration, Member
from coterie.kernel.wire import decode_frame
from coterie.membership.detector import HeartbeatDetector
from coterie.simulation.simulation import SIMULATED_SETTINGS, Simulation
from coterie.vsr.cohort import Cohort
from coterie.vsr.module import Memory, remember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from coterie.kernel.records import Record, VsrRecord
    from coterie.kernel.replica import Replica
    from coterie.kernel.settings import Settings
    from coterie.kernel.wire import Frame
    from coterie.simulation.network import Link

MACHINE_FAULTS = (
    *("loss", "duplication", "damage", "delay", "reordering", "clogging"),
    *("partition", "one-way", "non-transitive", "isolation", "flapping"),
    *("crash", "restart", "restart-all", "pause", "slow", "suspicion"),
    *("clock-jump", "clock-drift"),
)
"""Faults of `coterie.simulation.faults` that can be done to machines; their disks do not fail."""

TURN_TIME = 10
TURN_DELAY = 100


class Builder(Protocol):
    """How an actor is made for each life of its machine."""

    def __call__(self, context: Context, memory: Memory) -> Replica:
        """Build the replica, knowing what *memory* holds."""


class Machine:
    """One machine with one process: what can fail in it."""

    def __init__(self, world: World, id: str) -> None:
        self.world = world
        self.simulation = world.simulation
        self.id = id
        self.incarnation = 0
        self.is_up = False
        self.is_paused = False
        self.is_leaving = False
        self.slowness = 0
        """Extra microseconds before each turn."""
        self.drift = 1.0
        """How fast the local clock runs."""
        self.memories: dict[str, Memory] = {}
        """What each group's cohort here has on disk."""
        self.process: Process | None = None
        self._clock_base = (0, 0)
        self._frames: list[Frame] = []
        self._calls: list[Callable[[], None]] = []
        self._turn_at: int | None = None
        self._events: set[int] = set()

    # ---- life and death

    def start(self) -> None:
        """Begin a new life with what is on disk."""
        if self.is_up:
            return
        world, simulation = self.world, self.simulation
        self.incarnation += 1
        self.is_up = True
        self.is_paused = False
        self._clock_base = (simulation.now, 1000 + simulation.random.randrange(10**9))
        self._frames, self._calls = [], []
        everyone = tuple(world.hosts)
        self.process = process = Process(
            id=self.id,
            incarnation=self.incarnation,
            peers=everyone,
            detector=HeartbeatDetector(self.id, self.incarnation, everyone, world.settings),
            settings=world.settings,
        )
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
            memory = self.memories.setdefault(group, Memory())
            world.revived(group, context.me, memory)
            process.host(build(context, memory))
        simulation.note(f"{self.id} starts its life {self.incarnation}")
        self._schedule(0)

    def crash(self) -> None:
        """Stop at once, unless a group could not survive that and the world forbids it."""
        process = self.process
        if not self.is_up or process is None or not self.world.may_crash(self):
            return
        self.simulation.note(f"{self.id} crashes")
        for group in process.replicas:
            self._keep_on_disk(group)
        self.is_up = False
        self.process = None
        self._turn_at = None

    def _keep_on_disk(self, group: str) -> None:
        cohort = self.cohort(group)
        memory = self.memories[group]
        if not self.world.is_durable or cohort is None or not cohort.up_to_date:
            self.memories[group] = replace(memory, history=(), chunks=())
            return
        self.memories[group] = replace(
            memory,
            history=tuple(cohort.log.history),
            chunks=tuple(cohort.module.snapshot()),
        )

    def restart(self) -> None:
        """Crash, if up, and begin a new life."""
        self.crash()
        self.start()

    def leave(self) -> None:
        """Cohorts do not leave."""

    def pause(self) -> None:
        """Stand still; nothing is lost, but nothing is done."""
        if self.is_up:
            self.simulation.note(f"{self.id} pauses")
            self.is_paused = True
            self._turn_at = None

    def resume(self) -> None:
        """Go on after a pause."""
        if self.is_paused:
            self.simulation.note(f"{self.id} resumes")
            self.is_paused = False
            self._schedule(0)

    def suspect(self, other: str) -> None:
        """Have the failure detector here be wrong about *other*."""
        process = self.process
        if process is not None:
            self.simulation.note(f"{self.id} suspects {other}")
            self.call(lambda: process.detector.refused(other))

    def jump_clock(self, ahead: Duration) -> None:
        """Make the local clock jump, forwards or backwards."""
        self.simulation.note(f"{self.id}'s clock jumps by {ahead}")
        self._clock_base = (self.simulation.now, self.clock() + ahead)
        self._schedule(0)

    def set_drift(self, drift: float) -> None:
        """Make the local clock run faster or slower."""
        self._clock_base = (self.simulation.now, self.clock())
        self.drift = drift

    def clock(self) -> int:
        """Give the local time."""
        since, base = self._clock_base
        elapsed = self.simulation.now - since
        return base + (elapsed if self.drift == 1.0 else int(elapsed * self.drift))

    # ---- use

    def cohort(self, group: str) -> Cohort | None:
        """Give the cohort of a group that lives here, if it does."""
        replica = None if self.process is None else self.process.replicas.get(group)
        return None if replica is None else self.world.cohort_of(replica)

    def call(self, call: Callable[[], None]) -> None:
        """Have something done in the next turn, if the machine is up by then."""
        if self.is_up:
            self._calls.append(call)
            self._schedule(TURN_DELAY)

    def take(self, frame: bytes) -> None:
        """Take bytes from the network."""
        if not self.is_up or self.process is None:
            return
        try:
            decoded = decode_frame(frame, frame_bytes_max=self.world.settings.frame_bytes_max)
        except FrameError as error:
            self.process.count(f"process.frames_dropped_{error.kind}")
            return
        self._frames.append(decoded)
        self._schedule(TURN_DELAY)

    def _schedule(self, wait: int) -> None:
        if not self.is_up or self.is_paused:
            return
        at = self.simulation.now + max(wait, 0) + self.slowness
        if self._turn_at is None or at < self._turn_at:
            self._turn_at = at
            if at not in self._events:
                self._events.add(at)
                self.simulation.at(at - self.simulation.now, self._turn, at)

    def _turn(self, at: int) -> None:
        self._events.discard(at)
        process = self.process
        if at != self._turn_at or process is None:
            return
        self._turn_at = None
        frames, self._frames = self._frames, []
        calls, self._calls = self._calls, []
        effects = process.turn(self.clock(), frames, calls)
        for record in effects.records:
            if record.group in self.memories:
                self.memories[record.group] = self.world.remember(
                    self.memories[record.group], record
                )
            self.world.record(record)
        simulation = self.simulation
        for destination, frame in effects.frames:
            simulation.note_frame(self.id, destination, frame)
            simulation.network.carry(self.id, destination, frame, self.world.arrive)
        deadline = process.next_deadline()
        if deadline is not None:
            wait = max(deadline - self.clock(), TURN_TIME)
            self._schedule(wait if self.drift == 1.0 else int(wait / self.drift) + 1)


class World:
    """Machines, groups spread over them, and clients."""

    def __init__(
        self,
        *,
        seed: int,
        groups: Mapping[str, tuple[str, ...]],
        settings: Settings = SIMULATED_SETTINGS,
        is_durable: bool = False,
        may_lose_majority: bool = False,
    ) -> None:
        self.simulation = Simulation(seed=seed, stack="VSYNC")
        self.settings = settings
        self.is_durable = is_durable
        self.may_lose_majority = may_lose_majority
        """Whether machines may crash although a group would lose its memory for ever."""
        self.remember = remember
        self.groups = {name: Configuration(1, members) for name, members in groups.items()}
        self.configuration = next(iter(self.groups.values()))
        self._actors: dict[str, dict[str, tuple[Configuration, Builder]]] = {}
        self.hosts: dict[str, Machine] = {}

    def put(self, machine: str, group: str, configuration: Configuration, build: Builder) -> None:
        """Have an actor live on a machine."""
        if machine not in self.hosts:
            self.hosts[machine] = Machine(self, machine)
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

    def may_crash(self, machine: Machine) -> bool:
        """Say whether every group keeps a majority with a memory if this machine loses its own."""
        if self.is_durable or self.may_lose_majority:
            return True
        for group, configuration in self.groups.items():
            if machine.id not in configuration.members:
                continue
            cohorts = [
                self.hosts[id].cohort(group) for id in configuration.members if id != machine.id
            ]
            forgetful = sum(1 for each in cohorts if each is None or not each.up_to_date)
            if forgetful + 1 > len(configuration.members) - configuration.majority:
                return False
        return True

    # ---- what subclasses watch

    def record(self, record: Record | VsrRecord) -> None:
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
            host.start()
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
