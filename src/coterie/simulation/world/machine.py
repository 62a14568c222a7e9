"""A simulated machine with one process: its disk, its clock, its turns, and how it dies.

Any number of residents (`coterie.simulation.world.resident`) live in the process: replicas of
several groups, of one engine or of different ones, and clients. They share its turns: no frame of a
turn leaves, and no client is answered, before all of them have written it down. A process whose
disk fails is killed, and can come back when the disk has been put right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec

from coterie.assembly import make_process
from coterie.journal.writer import StorageFailed
from coterie.kernel.errors import FrameError
from coterie.simulation.world.disk import Died, SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.journal.keeper import Keeper
    from coterie.kernel.clock import Duration
    from coterie.kernel.process import Process
    from coterie.kernel.records import Record
    from coterie.kernel.wire import Frame
    from coterie.simulation.world.resident import Resident
    from coterie.simulation.world.world import World

P = ParamSpec("P")

TURN_TIME = 10
"""The least time between two turns of one process, in microseconds."""

TURN_DELAY = 100
"""How long after the first arrival a turn begins, in microseconds: what came meanwhile joins it."""


class Machine:
    """One machine: what can fail in it, whatever lives there."""

    def __init__(self, world: World, id: str) -> None:
        self.world = world
        self.simulation = world.simulation
        self.id = id
        self.residents: dict[str, Resident] = {}
        """Who lives here, by group."""
        self.incarnation = 0
        self.lives = 0
        """The highest incarnation so far, which its operator knows whatever happens to the disk."""
        self.is_up = False
        self.is_paused = False
        self.is_leaving = False
        self.is_retired = False
        """Whether it was taken out of service, for good."""
        self.slowness = 0
        """Extra microseconds before each turn."""
        self.drift = 1.0
        """How fast the local clock runs."""
        self.is_damaged = False
        """Whether a bit on the disk has gone bad since the process began: something may turn out to
        be forgotten when it comes back."""
        self.has_old_disk = False
        """Whether an old copy was ever put in the place of the disk."""
        self.disk = SimulatedDisk(seed=f"{self.simulation.seed}/{id}")
        self.written: list[tuple[str, int, int, int]] = []
        """For each turn in a journal: group, life, the last record then, and the true time."""
        self.process: Process | None = None
        self._incarnation_min = 1
        self._clock_base = (0, 0)
        self._frames: list[Frame] = []
        self._calls: list[Callable[[], None]] = []
        self._turn_at: int | None = None
        self._events: set[int] = set()
        self._keepers: list[tuple[str, Keeper]] = []
        """The journals of the present life, by group."""

    def put(self, resident: Resident) -> None:
        """Have somebody live here from the next start on."""
        assert resident.group not in self.residents, f"{resident.group} has a replica here"
        self.residents[resident.group] = resident

    # ---- life and death

    def start(self) -> None:
        """Begin a new life, with what is on disk, unless it is alive."""
        if self.is_up or self.is_retired:
            return
        self._set_clock()
        try:
            self._open_life()
        except (StorageFailed, Died) as error:
            self.simulation.note(f"{self.id} cannot start: {error}")
            self._forget_life()
            return
        self.lives = max(self.lives, self.incarnation)
        peers = self.world.peers_of(self)
        process = make_process(self.id, self.incarnation, peers, self.world.settings)
        for resident in self.residents.values():
            resident.replica = resident.build(process)
            process.host(resident.replica)
        self.process = process
        self._keepers = [
            (group, each.keeper)
            for group, each in self.residents.items()
            if each.keeper is not None
        ]
        self.is_up = True
        self.is_paused = self.is_leaving = self.is_damaged = False
        self._frames, self._calls = [], []
        self.simulation.note(f"{self.id} starts its life {self.incarnation}")
        self._schedule(0)

    def _open_life(self) -> None:
        """Number this life, and have all residents begin it in their journals."""
        keeping = [each for each in self.residents.values() if each.keeps_journal]
        if self.world.machines_count_lives or not keeping:
            self.incarnation += 1
            least = self.incarnation
        else:
            least = self._incarnation_min
        numbers = {each.open(least) for each in keeping} or {least}
        assert len(numbers) == 1, "all journals of a machine count alike"
        [self.incarnation] = numbers

    def _forget_life(self) -> None:
        for resident in self.residents.values():
            resident.end()

    def _set_clock(self) -> None:
        """Have the local clock show something new, as after a start."""
        simulation = self.simulation
        self._clock_base = (simulation.now, 1000 + simulation.random.randrange(10**9))

    def crash(self) -> None:
        """Stop at once: the process alone, or all of the machine, as the world means a crash.

        Where a machine's death could leave a group without memory the world may forbid it.
        """
        if not self.world.crash_takes_machine:
            self.kill()
        elif self.is_up and self.world.may_crash(self):
            self._die("crashes")
            self.disk.lose_power()

    def kill(self) -> None:
        """Have the process die: memory is gone, and what was written stays."""
        if self.is_up:
            self._die("is killed" if self.world.crash_takes_machine else "crashes")

    def lose_power(self) -> None:
        """Stop at once, with the machine: what was not synced is gone."""
        if self.world.crash_takes_machine:
            self.crash()
            return
        self.simulation.note(f"{self.id} loses power")
        self.kill()
        self.disk.lose_power()

    def _die(self, word: str) -> None:
        self.simulation.note(f"{self.id} {word}")
        self._forget_life()
        self._keepers = []
        self.is_up = False
        self.process = None
        self._turn_at = None

    def restart(self) -> None:
        """Crash, if up, and begin a new life."""
        self.crash()
        self.start()

    def leave(self) -> None:
        """Have all replicas here leave their groups in good order; the process stays."""
        if self.is_up:
            self.simulation.note(f"{self.id} leaves")
            self.is_leaving = True
            for resident in self.residents.values():
                if resident.replica is not None:
                    self.call(resident.replica.leave)

    def retire(self) -> None:
        """Take the machine out of service, for good."""
        self.simulation.note(f"{self.id} is out of service")
        self.kill()
        self.is_retired = True

    # ---- the disk

    def repair(self) -> None:
        """Put the disk right, and start if it was that which stopped the process."""
        self.disk.heal()
        self.start()

    def mend(self) -> None:
        """End everything that was done to this machine, and have it run."""
        self.slowness = 0
        self.set_drift(1.0)
        self.resume()
        self.repair()
        if self.is_leaving:
            self.restart()

    def replace_machine(self) -> None:
        """Put a new machine in the place of this one: its disk is empty."""
        self.simulation.note(f"{self.id} is replaced")
        self.kill()
        self.disk.replace_by_empty()
        # The operator tells the new machine how many lives its replicas have had.
        self._incarnation_min = self.lives + 1

    def put_back(self, old: SimulatedDisk) -> None:
        """Put an old copy in the place of the disk, which nobody notices: no promise covers it."""
        self.simulation.note(f"{self.id} gets an old disk")
        self.has_old_disk = True
        self.kill()
        self.disk.replace_by(old)
        for resident in self.residents.values():
            resident.disk_was_changed()

    def count_anew(self) -> None:
        """Start again with a number that nobody has seen yet: lower ones are refused."""
        self._incarnation_min = self.lives + 1
        self.restart()

    def is_vital(self, path: str) -> bool:
        """Say whether somebody here could not come back without a file of the disk."""
        return any(resident.is_vital(path) for resident in self.residents.values())

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
            decoded = self.world.read(frame)
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
        records, late = effects.records, False
        try:
            late = self._may_follow(records)
            self._store(records, process.now)
        except (StorageFailed, Died) as error:
            self.simulation.note(f"{self.id}: {error}")
            if late:
                # Records that promise nothing are written when the rest of the turn has left.
                self._send(effects.frames)
                for resident in self.residents.values():
                    resident.end_turn()
            self.kill()
            return
        for record in effects.records:
            self.residents[record.group].record(record)
        self._send(effects.frames)
        if not self._end_turn():
            return
        deadline = process.next_deadline()
        if deadline is not None:
            # A turn takes its time, however soon the next one is due.
            wait = max(deadline - self.clock(), TURN_TIME)
            self._schedule(wait if self.drift == 1.0 else int(wait / self.drift) + 1)

    def _send(self, frames: Sequence[tuple[str, bytes]]) -> None:
        note, carry, arrive = (
            self.simulation.note_frame,
            self.simulation.network.carry,
            self.world.arrive,
        )
        for destination, frame in frames:
            note(self.id, destination, frame)
            carry(self.id, destination, frame, arrive)

    def _may_follow(self, records: Sequence[Record]) -> bool:
        """Say whether all records of a turn may be written when its frames have left."""
        return bool(records) and all(
            keeper.may_follow([record for record in records if record.group == group])
            for group, keeper in self._keepers
        )

    def _store(self, records: Sequence[Record], now: int) -> None:
        """Write a turn down, before anything of it leaves, in the journals of all residents."""
        for group, keeper in self._keepers:
            mine = records
            if len(self.residents) > 1:
                mine = [record for record in records if record.group == group]
            if mine:
                keeper.write(mine)
                self.written.append(
                    (group, self.incarnation, keeper.writer.sequence, self.simulation.now)
                )
            if keeper.needs_sync(now):
                keeper.sync()

    def _end_turn(self) -> bool:
        """Answer clients, take snapshots and make room; say whether we are still alive."""
        for resident in self.residents.values():
            resident.end_turn()
        for _, keeper in self._keepers:
            work = keeper.housekeeping()
            if work is not None and not self._survives(work):
                return False
        return True

    def _survives(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Do something with the disk; say whether the process outlived it."""
        try:
            work(*args, **kwargs)
        except (StorageFailed, Died) as error:
            self.simulation.note(f"{self.id}: {error}")
            self.kill()
            return False
        return True
