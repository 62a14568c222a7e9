"""Simulated replicas: hosts that crash, restart, pause, slow down and have clocks of their own."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from coterie.assembly import make_context, make_process
from coterie.checking.group_communication import check_group_communication, check_views
from coterie.checking.history import History, Violation
from coterie.checking.replication import EngineTracker
from coterie.kernel.clock import Duration, seconds
from coterie.kernel.engine import Past
from coterie.kernel.errors import FrameError, Refused
from coterie.kernel.records import PrimaryAccepted
from coterie.kernel.views import Configuration, Member
from coterie.kernel.wire import decode_frame
from coterie.replication.layer import EngineLayer
from coterie.replication.primary import PrimaryViews
from coterie.simulation.describe import describe
from coterie.simulation.ledger import Ledger, replay
from coterie.simulation.objects import Clients, SimulatedObject
from coterie.stacks import build, build_engine, has_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from coterie.kernel.layers import Batch
    from coterie.kernel.process import Process
    from coterie.kernel.records import Record
    from coterie.kernel.replica import Replica
    from coterie.kernel.views import View, ViewId
    from coterie.kernel.wire import Frame
    from coterie.objects import ObjectHost
    from coterie.simulation.network import Link
    from coterie.simulation.simulation import Simulation

TURN_TIME = 10
"""The least time between two turns of one process, in microseconds."""

Place = tuple["ViewId", tuple[Member, ...]]

TURN_DELAY = 100
"""How long after the first arrival a turn begins, in microseconds: what came meanwhile joins it."""


class Inbox:
    """The application on a simulated replica: remembers what it was given."""

    def __init__(self) -> None:
        self.delivered: list[bytes] = []
        self.current: View | None = None

    @property
    def place(self) -> Place | None:
        """The view this replica works in, and its members."""
        return None if self.current is None else (self.current.id, self.current.members)

    def deliver(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.delivered.extend(batch.payloads)

    def transitional(self, view: ViewId, members: tuple[Member, ...]) -> None:
        pass

    def view(self, view: View) -> None:
        self.current = view


class Host:
    """One machine with one replica: what can fail in a process."""

    def __init__(self, group: Group, id: str) -> None:
        self.group = group
        self.simulation = group.simulation
        self.id = id
        self.incarnation = 0
        self.is_up = False
        self.is_paused = False
        self.is_leaving = False
        self.slowness = 0
        """Extra microseconds before each turn."""
        self.drift = 1.0
        """How fast the local clock runs."""
        self.inbox = Inbox()
        self.ledger: Ledger | SimulatedObject | None = None
        """The object, where the stack has an engine."""
        self.has_been_primary = False
        """The recovery bit: it is on stable storage and outlives the process."""
        self.disk: Past | None = None
        """What the next life will know, where the group is durable."""
        self.process: Process | None = None
        self.replica: Replica | None = None
        self._clock_base = (0, 0)
        self._frames: list[Frame] = []
        self._calls: list[Callable[[], None]] = []
        self._turn_at: int | None = None
        self._events: set[int] = set()

    # ---- life and death

    def start(self) -> None:
        """Begin a new life, knowing nothing of earlier ones."""
        if self.is_up:
            return
        simulation = self.simulation
        self.incarnation += 1
        self.is_up = True
        self.is_paused = self.is_leaving = False
        self._clock_base = (simulation.now, 1000 + simulation.random.randrange(10**9))
        self._frames, self._calls = [], []
        settings = simulation.settings
        configuration = self.group.configuration
        self.process = make_process(self.id, self.incarnation, configuration.members, settings)
        context = make_context(
            self.process,
            self.group.name,
            configuration,
            random=Random(f"{simulation.seed}/{self.id}/{self.incarnation}"),  # noqa: S311
            past=self._past(),
        )
        self.inbox = Inbox()
        if has_engine(simulation.stack):
            if simulation.has_object:
                self.ledger = SimulatedObject(self.group, context)
                self.replica = self.ledger.replica
            else:
                self.ledger = Ledger(context)
                self.replica = build_engine(
                    simulation.stack, context, self.ledger, simulation.layers
                )
        else:
            self.replica = build(simulation.stack, context, self.inbox, simulation.layers)
        self.process.host(self.replica)
        simulation.note(f"{self.id} starts its life {self.incarnation}")
        self._schedule(0)

    def _past(self) -> Past | None:
        """What a new life knows of the earlier ones."""
        if self.disk is not None:
            self.group.tracker.inherit(
                Member(self.id, self.incarnation),
                Member(self.id, self.incarnation - 1),
                settled=self.disk.settled,
                end=self.disk.settled + sum(len(run.payloads) for run in self.disk.runs),
            )
            return self.disk
        return Past(is_zombie=True) if self.has_been_primary else None

    def _keep_on_disk(self) -> None:
        """A perfect disk: all that completed turns wrote."""
        replica, ledger = self.replica, self.ledger
        if replica is None or ledger is None or not self.simulation.is_durable:
            return
        primary = next(layer for layer in replica.layers if isinstance(layer, PrimaryViews))
        log = primary.log
        if not self.has_been_primary:
            return
        self.disk = Past(
            highest_view=replica.bottom.highest,
            version=log.version,
            settled=log.settled,
            position=log.settled,
            chunks=tuple(ledger.snapshot()),
            origins=tuple(log.origins(log.settled).items()),
            runs=tuple(log.after(log.settled, up_to=log.end, bytes_max=1 << 62)),
            is_zombie=primary.is_zombie,
        )

    @property
    def lacks_memory(self) -> bool:
        """Whether this replica is down, or knows nothing of a history it once was part of."""
        if self.simulation.is_durable:
            return False
        if not self.is_up or self.replica is None:
            return self.has_been_primary
        if self.is_leaving:
            return self.has_been_primary
        primary = [layer for layer in self.replica.layers if isinstance(layer, PrimaryViews)]
        return bool(primary) and primary[0].is_zombie

    def crash(self) -> None:
        """Stop at once; memory is gone, except what a durable group has on disk."""
        if self.is_up:
            self.simulation.note(f"{self.id} crashes")
            self._keep_on_disk()
            self.group.history.crashed(Member(self.id, self.incarnation))
            self.is_up = False
            self.process = self.replica = None
            self._turn_at = None

    def restart(self) -> None:
        """Crash, if up, and begin a new life."""
        self.crash()
        self.start()

    def leave(self) -> None:
        """Leave the group in good order; the process stays."""
        replica = self.replica
        if replica is not None:
            self.simulation.note(f"{self.id} leaves")
            self.is_leaving = True
            self._call(replica.leave)

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
            self._call(lambda: process.detector.refused(other))

    def jump_clock(self, ahead: Duration) -> None:
        """Make the local clock jump, forwards or backwards."""
        self.simulation.note(f"{self.id}'s clock jumps by {ahead}")
        now = self.clock()
        self._clock_base = (self.simulation.now, now + ahead)
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

    def cast(self, *payloads: bytes, safe: bool = False) -> None:
        """Multicast messages from this replica, if it is up; a full backlog refuses them."""
        replica = self.replica
        if replica is not None:
            self._call(lambda: _cast(replica, payloads, safe=safe))

    def ask(self, request: Callable[[ObjectHost], None]) -> None:
        """Have a client's request made of the object here, if the replica is up."""
        found = self.ledger
        if self.is_up and isinstance(found, SimulatedObject):
            host = found.engine_host
            self._call(lambda: request(host))

    def propose(self, *payloads: bytes) -> None:
        """Propose commands to the engine at this replica, if it is up."""
        replica = self.replica
        if replica is not None:
            self._call(lambda: _propose(replica, payloads))

    @property
    def place(self) -> Place | None:
        """The view this replica is in, with its members; with an engine, once it is primary."""
        if not self.is_up:
            return None
        if self.ledger is None:
            return self.inbox.place
        standing = self.ledger.standing
        if standing is None or not self.ledger.is_primary:
            return None
        return (standing.view, standing.members)

    @property
    def view(self) -> str:
        """The names in the current view, in alphabetical order: "abc"."""
        place = self.place
        return "" if place is None else "".join(sorted(member.id for member in place[1]))

    @property
    def delivered(self) -> list[bytes]:
        """All messages delivered in this life."""
        return self.inbox.delivered

    # ---- turns

    def _call(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        self._schedule(TURN_DELAY)

    def take(self, frame: bytes) -> None:
        """Take bytes from the network."""
        if not self.is_up or self.process is None:
            return
        try:
            decoded = decode_frame(frame, frame_bytes_max=self.simulation.settings.frame_bytes_max)
        except FrameError as error:
            self.process.count(f"process.frames_dropped_{error.kind}")
            return
        self._frames.append(decoded)
        self._schedule(TURN_DELAY)

    def _schedule(self, wait: int) -> None:
        """Have a turn at the latest *wait* from now."""
        if not self.is_up or self.is_paused:
            return
        at = self.simulation.now + max(wait, 0) + self.slowness
        if self._turn_at is None or at < self._turn_at:
            self._turn_at = at
            # Deadlines rarely change from turn to turn, so the event is often there already.
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
        simulation = self.simulation
        for record in effects.records:
            self.group.record(record)
        network = simulation.network
        for destination, frame in effects.frames:
            simulation.note_frame(self.id, destination, frame)
            network.carry(self.id, destination, frame, self.group.arrive)
        deadline = process.next_deadline()
        if deadline is not None:
            # A turn takes its time, however soon the next one is due.
            wait = max(deadline - self.clock(), TURN_TIME)
            self._schedule(wait if self.drift == 1.0 else int(wait / self.drift) + 1)


def _cast(replica: Replica, payloads: Sequence[bytes], *, safe: bool) -> None:
    try:
        replica.cast(payloads, safe=safe)
    except Refused:
        replica.context.count("casts_refused")


def _propose(replica: Replica, payloads: Sequence[bytes]) -> None:
    engine = replica.layers[0]
    assert isinstance(engine, EngineLayer)
    try:
        engine.propose(payloads)
    except Refused:
        replica.context.count("proposals_refused")


class Group:
    """The replicas of one group, and what can be done to all of them."""

    def __init__(self, simulation: Simulation, name: str, names: Sequence[str]) -> None:
        self.simulation = simulation
        self.name = name
        self.configuration = Configuration(1, tuple(names))
        self.history = History()
        self.tracker = EngineTracker(self.configuration)
        self.clients = Clients(self, Random(f"{simulation.seed}/clients"))  # noqa: S311
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
            if isinstance(record, PrimaryAccepted):
                self.hosts[record.member.id].has_been_primary = True
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
            seen = self.clients.violations() if self.simulation.has_object else []
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
