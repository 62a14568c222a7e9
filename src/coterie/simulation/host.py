"""A simulated machine with one replica: it crashes, restarts, pauses, slows down, loses power.

A replica of an engine keeps a journal on a simulated disk, as a real one does: each life begins
with what recovery finds there, and no frame of a turn leaves, and no client is answered, before
the turn is written. `crash` is the death of the process, which loses nothing that was written;
`lose_power` is the death of the machine, which loses what was not synced. A replica whose disk
fails crashes, and can come back when the disk has been put right.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from coterie.assembly import make_context, make_process
from coterie.journal.recovery import recover
from coterie.journal.stable import found_group
from coterie.journal.writer import StorageFailed
from coterie.kernel.errors import FrameError, Refused
from coterie.kernel.views import Member
from coterie.kernel.wire import decode_frame
from coterie.replication.forming import FormingViews
from coterie.replication.layer import EngineLayer
from coterie.simulation.disk import Died, SimulatedDisk
from coterie.simulation.ledger import Ledger
from coterie.simulation.objects import SimulatedObject
from coterie.stacks import build, build_engine, is_ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.journal.keeper import JournalKeeper
    from coterie.kernel.clock import Duration
    from coterie.kernel.engine import Past, Version
    from coterie.kernel.layers import Batch, Context
    from coterie.kernel.process import Process
    from coterie.kernel.records import Record
    from coterie.kernel.replica import Replica
    from coterie.kernel.views import View, ViewId
    from coterie.kernel.wire import Frame
    from coterie.objects import ObjectHost
    from coterie.simulation.group import Group

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
        self.lives = 0
        """The highest incarnation so far, which its operator knows whatever happens to the disk."""
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
        self.disk = SimulatedDisk(seed=f"{self.simulation.seed}/{id}")
        self.keeper: JournalKeeper | None = None
        """The journal of the present life, where the stack has an engine."""
        self.has_old_disk = False
        """Whether an old copy was ever put in the place of the disk."""
        self.written: list[tuple[int, int, int]] = []
        """For each turn in the journal: the life, its last record then, and the true time."""
        self._incarnation_min = 1
        self.process: Process | None = None
        self.replica: Replica | None = None
        self._clock_base = (0, 0)
        self._frames: list[Frame] = []
        self._calls: list[Callable[[], None]] = []
        self._turn_at: int | None = None
        self._events: set[int] = set()
        if self.simulation.has_engine:
            found_group(self.disk, group.name, id)

    # ---- life and death

    def start(self) -> None:
        """Begin a new life, with what the journal knows of earlier ones."""
        if self.is_up:
            return
        simulation = self.simulation
        self._clock_base = (simulation.now, 1000 + simulation.random.randrange(10**9))
        try:
            past = self._begin_life()
        except (StorageFailed, Died) as error:
            simulation.note(f"{self.id} cannot start: {error}")
            return
        self.lives = max(self.lives, self.incarnation)
        self.is_up = True
        self.is_paused = self.is_leaving = False
        self._frames, self._calls = [], []
        settings = simulation.settings
        configuration = self.group.configuration
        self.process = make_process(self.id, self.incarnation, configuration.members, settings)
        context = make_context(
            self.process,
            self.group.name,
            configuration,
            random=Random(f"{simulation.seed}/{self.id}/{self.incarnation}"),  # noqa: S311
            past=past,
        )
        self.inbox = Inbox()
        self.replica = self._build(context)
        self.process.host(self.replica)
        simulation.note(f"{self.id} starts its life {self.incarnation}")
        self._schedule(0)

    def _begin_life(self) -> Past | None:
        """Count this life and give what it knows of the earlier ones."""
        simulation, name = self.simulation, self.group.name
        if not simulation.has_engine:
            self.incarnation += 1
            return None
        self.keeper = simulation.keeper(
            self.disk,
            name,
            self.id,
            simulation.journal,
            incarnation_min=self._incarnation_min,
            at=self.clock(),
        )
        self.incarnation = self.keeper.incarnation
        past = self.keeper.past()
        self.group.tracker.inherit(Member(self.id, self.incarnation), past)
        return past

    def _build(self, context: Context) -> Replica:
        simulation, keeper = self.simulation, self.keeper
        if keeper is None:
            return build(simulation.stack, context, self.inbox, simulation.layers)
        if simulation.has_object:
            self.ledger = SimulatedObject(self.group, context)
            self.ledger.engine_host.dump = keeper.dump
            replica = self.ledger.replica
        else:
            self.ledger = Ledger(context, is_ordered=is_ordered(simulation.stack))
            replica = build_engine(simulation.stack, context, self.ledger, simulation.layers)
        keeper.checkpoint = _primary(replica).checkpoint
        return replica

    @property
    def lacks_memory(self) -> bool:
        """Whether this replica is a zombie, or would be one if its process began anew now."""
        if self.replica is not None and _primary(self.replica).is_zombie:
            return True
        return recover(self.disk, self.group.name, self.id).is_zombie

    @property
    def version(self) -> Version:
        """How advanced the history is that this running replica knows."""
        assert self.replica is not None, "it does not run"
        return _primary(self.replica).log.version

    def lose_power(self) -> None:
        """Stop at once, with the machine: what was not synced is gone."""
        self.simulation.note(f"{self.id} loses power")
        self.crash()
        self.disk.lose_power()

    def replace_machine(self) -> None:
        """Put a new machine in the place of this one: its disk is empty."""
        self.simulation.note(f"{self.id} is replaced")
        self.crash()
        self.disk.replace_by_empty()
        # The operator tells the new machine how many lives its replica has had.
        self._incarnation_min = self.lives + 1

    def put_back(self, old: SimulatedDisk) -> None:
        """Put an old copy in the place of the disk, which nobody notices: no promise covers it."""
        self.simulation.note(f"{self.id} gets an old disk")
        self.has_old_disk = True
        self.crash()
        self.disk.replace_by(old)
        self.group.tracker.disk_was_changed(self.id)

    def count_anew(self) -> None:
        """Start again with a number that nobody has seen yet: lower ones are refused."""
        self._incarnation_min = self.lives + 1
        self.restart()

    def accept_loss(self) -> None:
        """Have the operator say that the history known here is to count: `recover --from`."""
        replica = self.replica
        if replica is not None:
            self.simulation.note(f"{self.id}'s history is to count, whatever was lost")
            self._call(_primary(replica).recover)

    def crash(self) -> None:
        """Stop at once; memory is gone, and what was written stays."""
        if self.is_up:
            self.simulation.note(f"{self.id} crashes")
            self.group.history.crashed(Member(self.id, self.incarnation))
            self.is_up = False
            self.process = self.replica = self.keeper = None
            self._turn_at = None

    def repair(self) -> None:
        """Put the disk right, and start if this replica stopped because of it."""
        self.disk.heal()
        self.start()

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
        """Have a client's request made of the object here, unless the replica is down or gone."""
        found, replica = self.ledger, self.replica
        if replica is None or replica.bottom.has_left:
            return
        if isinstance(found, SimulatedObject):
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
        if not self._store(effects.records, process.now):
            return
        simulation = self.simulation
        for record in effects.records:
            self.group.record(record)
        network = simulation.network
        for destination, frame in effects.frames:
            simulation.note_frame(self.id, destination, frame)
            network.carry(self.id, destination, frame, self.group.arrive)
        if isinstance(self.ledger, SimulatedObject):
            self.ledger.release_answers()
        if not self._keep_house():
            return
        deadline = process.next_deadline()
        if deadline is not None:
            # A turn takes its time, however soon the next one is due.
            wait = max(deadline - self.clock(), TURN_TIME)
            self._schedule(wait if self.drift == 1.0 else int(wait / self.drift) + 1)

    def _store(self, records: Sequence[Record], now: int) -> bool:
        """Write a turn down before anything of it leaves; say whether we are still alive."""
        keeper = self.keeper
        if keeper is not None:
            try:
                keeper.write(records)
                if records:
                    self.written.append(
                        (self.incarnation, keeper.writer.sequence, self.simulation.now)
                    )
                if keeper.needs_sync(now):
                    keeper.sync()
            except (StorageFailed, Died) as error:
                self._die_of(error)
                return False
        return True

    def _keep_house(self) -> bool:
        """Take snapshots and make room when it is time; say whether we are still alive."""
        work = None if self.keeper is None else self.keeper.housekeeping()
        if work is not None:
            try:
                work()
            except (StorageFailed, Died) as error:
                self._die_of(error)
                return False
        return True

    def _die_of(self, error: Exception) -> None:
        self.simulation.note(f"{self.id}: {error}")
        self.crash()


def _primary(replica: Replica) -> FormingViews[Any]:
    return next(layer for layer in replica.layers if isinstance(layer, FormingViews))


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
