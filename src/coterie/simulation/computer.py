"""A simulated machine with one process: its clock, its turns, and how it stands still.

What lives in the process, what is stored of a turn, and how it dies and comes back is the business
of subclasses: `Host` has one replica of a group, `Machine` whatever actors are put on it.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from coterie.journal.writer import StorageFailed
from coterie.kernel.errors import FrameError
from coterie.kernel.wire import decode_frame
from coterie.simulation.disk import Died, SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.journal.keeper import Keeper
    from coterie.kernel.clock import Duration
    from coterie.kernel.process import Process
    from coterie.kernel.records import Record
    from coterie.kernel.wire import Frame
    from coterie.simulation.simulation import Simulation

TURN_TIME = 10
"""The least time between two turns of one process, in microseconds."""

TURN_DELAY = 100
"""How long after the first arrival a turn begins, in microseconds: what came meanwhile joins it."""


class Computer(abc.ABC):
    """One machine: what can fail in it, whatever runs there."""

    def __init__(self, simulation: Simulation, id: str) -> None:
        self.simulation = simulation
        self.id = id
        self.incarnation = 0
        self.is_up = False
        self.is_paused = False
        self.is_leaving = False
        self.slowness = 0
        """Extra microseconds before each turn."""
        self.drift = 1.0
        """How fast the local clock runs."""
        self.is_damaged = False
        """Whether a bit on the disk has gone bad since the process began: something may turn out to
        be forgotten when it comes back."""
        self.disk = SimulatedDisk(seed=f"{simulation.seed}/{id}")
        self.written: list[tuple[str, int, int, int]] = []
        """For each turn in a journal: group, life, the last record then, and the true time."""
        self.process: Process | None = None
        self._clock_base = (0, 0)
        self._frames: list[Frame] = []
        self._calls: list[Callable[[], None]] = []
        self._turn_at: int | None = None
        self._events: set[int] = set()

    # ---- life and death

    @abc.abstractmethod
    def start(self) -> None:
        """Begin a new life, with what is on disk, unless it is alive."""

    @abc.abstractmethod
    def crash(self) -> None:
        """Stop at once."""

    def kill(self) -> None:
        """Have the process die; what it wrote stays."""
        self.crash()

    @abc.abstractmethod
    def lose_power(self) -> None:
        """Stop at once, with the machine: what was not synced is gone."""

    def restart(self) -> None:
        """Crash, if up, and begin a new life."""
        self.crash()
        self.start()

    def repair(self) -> None:
        """Put the disk right, and start if it was that which stopped the process."""
        self.disk.heal()
        self.start()

    def set_clock(self) -> None:
        """Have the local clock show something new, as after a start."""
        simulation = self.simulation
        self._clock_base = (simulation.now, 1000 + simulation.random.randrange(10**9))

    def begin(self, process: Process) -> None:
        """Have a process live here from now on."""
        self.process = process
        self.is_up = True
        self.is_paused = self.is_leaving = self.is_damaged = False
        self._frames, self._calls = [], []
        self.simulation.note(f"{self.id} starts its life {self.incarnation}")
        self._schedule(0)

    def end(self) -> None:
        """Have the process be gone."""
        self.is_up = False
        self.process = None
        self._turn_at = None

    # ---- what is kept

    def write_down(self, group: str, keeper: Keeper, records: Sequence[Record], now: int) -> None:
        """Write the turn of one replica into its journal, as safely as that is kept."""
        if records:
            keeper.write(records)
            self.written.append(
                (group, self.incarnation, keeper.writer.sequence, self.simulation.now)
            )
        if keeper.needs_sync(now):
            keeper.sync()

    def keep_house(self, keeper: Keeper) -> bool:
        """Take a snapshot and make room when it is time; say whether we are still alive."""
        work = keeper.housekeeping()
        return work is None or self.survives(work)

    def survives(self, work: Callable[[], None]) -> bool:
        """Do something with the disk; say whether the process outlived it."""
        try:
            work()
        except (StorageFailed, Died) as error:
            self.simulation.note(f"{self.id}: {error}")
            self.kill()
            return False
        return True

    # ---- time

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

    # ---- turns

    def call(self, call: Callable[[], None]) -> None:
        """Have something done in the next turn, if the process is there by then."""
        if self.is_up:
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
        if not self.store(effects.records, process.now):
            return
        simulation = self.simulation
        network = simulation.network
        for destination, frame in effects.frames:
            simulation.note_frame(self.id, destination, frame)
            network.carry(self.id, destination, frame, self.arrive)
        if not self.end_turn():
            return
        deadline = process.next_deadline()
        if deadline is not None:
            # A turn takes its time, however soon the next one is due.
            wait = max(deadline - self.clock(), TURN_TIME)
            self._schedule(wait if self.drift == 1.0 else int(wait / self.drift) + 1)

    @abc.abstractmethod
    def store(self, records: Sequence[Record], now: int) -> bool:
        """Write a turn down before anything of it leaves; say whether we are still alive."""

    @abc.abstractmethod
    def end_turn(self) -> bool:
        """Do what comes after the frames of a turn; say whether we are still alive."""

    @abc.abstractmethod
    def arrive(self, source: str, destination: str, frame: bytes, delay: int) -> None:
        """Have a frame arrive at its destination."""
