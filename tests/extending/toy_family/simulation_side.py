"""The simulator's side: replicas on simulated machines, load, healing, and what must hold.

The family says what it survives: every fault of the network, of clocks and of processes, because a
replica goes on from its journal. It keeps no promise when a disk is lost, so it is not asked to.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar

from tests.extending.toy_family.engine import NAME, Copying

from coterie.checking.history import Violation
from coterie.journal import JournalKeeper, KeeperSettings, found_group
from coterie.journal.format import Sync
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import milliseconds
from coterie.kernel.errors import Refused
from coterie.kernel.records import Replied, StateDigest
from coterie.kernel.replica import Replica
from coterie.kernel.views import Configuration
from coterie.replication.layer import EngineTop
from coterie.simulation.campaign import Options, Trial
from coterie.simulation.engines import Family
from coterie.simulation.engines.stack.ledger import Ledger
from coterie.simulation.world.resident import Resident
from coterie.simulation.world.virtual_time import VirtualTime
from coterie.simulation.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coterie.kernel.engine import Past
    from coterie.kernel.process import Process
    from coterie.kernel.records import Record
    from coterie.simulation.campaign import SeedRun
    from coterie.simulation.engines import Asked
    from coterie.simulation.world.machine import Machine

FAULTS = (
    *("loss", "duplication", "damage", "delay", "reordering", "clogging", "partition", "one-way"),
    *("non-transitive", "isolation", "flapping", "crash", "restart", "restart-all", "pause"),
    *("slow", "suspicion", "clock-jump", "clock-drift"),
)
GROUP = "toys"
BETWEEN = milliseconds(20)
"""How long it is, about, from one proposal to the next."""


class ToyReplica(Resident):
    """One replica with its journal; a ledger stands on it, which chains all that it is given."""

    keeps_journal = True
    keeper: JournalKeeper | None

    def __init__(self, machine: Machine, trial: ToyTrial, kind: type[Copying]) -> None:
        super().__init__(machine, GROUP, trial.configuration)
        self._trial = trial
        self._kind = kind
        self._past: Past | None = None
        self.ledger: Ledger | None = None
        found_group(machine.disk, GROUP, machine.id)

    def open(self, incarnation_min: int) -> int:
        """Begin a life with what the journal knows of earlier ones."""
        machine = self.machine
        self.keeper = keeper = JournalKeeper(
            *(machine.disk, GROUP, machine.id, machine.world.journal),
            incarnation_min=incarnation_min,
            at=machine.clock(),
        )
        self._past = keeper.past()
        return keeper.incarnation

    def build(self, process: Process) -> Replica:
        """Put the engine under a ledger."""
        context = self.make_context(process, past=self._past)
        context.recording = False  # entries are on record instead of messages
        engine, self.ledger = self._kind(context), Ledger(context)
        assert self.keeper is not None
        self.keeper.checkpoint = engine.checkpoint
        top = EngineTop(context, self.ledger)
        return Replica(context, top, [engine], engine, history=engine)

    @property
    def engine(self) -> Copying | None:
        """The engine of the present life."""
        bottom = None if self.replica is None else self.replica.bottom
        assert bottom is None or isinstance(bottom, Copying)
        return bottom

    def propose(self, payload: bytes) -> None:
        """Propose an entry here, in vain if this is not the leader, or if too much waits."""
        engine = self.engine

        def propose() -> None:
            assert engine is not None
            try:
                engine.propose([payload])
            except Refused:
                engine.context.count("toy.refused")

        if engine is not None:
            self.machine.call(propose)

    def record(self, record: Record) -> None:
        """Have the trial look at what was written down."""
        self._trial.watch(record)


class ToyOptions(Options, frozen=True, kw_only=True):
    """Nothing but what all families have."""

    family: ClassVar[str] = NAME
    faults: tuple[str, ...] = FAULTS


class ToyTrial(Trial):
    """One seed: the leader is asked for entries while things fail; *kind* may be a broken one."""

    options: ToyOptions

    def __init__(
        self,
        seed: int,
        options: ToyOptions,
        *,
        kind: type[Copying] = Copying,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.options = options
        self.random = Random(f"{seed}/toy")  # noqa: S311 -- reproducible on purpose
        self.configuration = Configuration(1, tuple("abcdefghi"[: options.replicas]))
        settings = KeeperSettings(journal=JournalSettings(sync=Sync.TURN, segment_bytes=20_000))
        self.world = World(VirtualTime(seed=seed), journal=settings)
        self.world.simulation.trace = trace
        self.digests: dict[int, tuple[bytes, str]] = {}
        self.answered = 0
        self.broken: list[Violation] = []
        self._is_active = True
        self._asked = 0
        self.replicas: list[ToyReplica] = []
        for id in self.configuration.members:
            machine = self.world.machine(id)
            self.replicas.append(ToyReplica(machine, self, kind))
            machine.put(self.replicas[-1])
        self.world.start()

    # ---- load

    def load(self) -> ToyTrial:
        """Be the load, too."""
        return self

    def start(self) -> None:
        """Ask for entries, again and again."""
        if self._is_active:
            self._ask()
            wait = int(self.random.expovariate(1 / BETWEEN))
            self.world.simulation.at(wait, self.start)

    def stop(self) -> None:
        """Ask for nothing more."""
        self._is_active = False

    def _ask(self) -> None:
        self._asked += 1
        self.replicas[0].propose(b"entry %d" % self._asked)

    # ---- what must hold

    def watch(self, record: Record) -> None:
        """Compare what replicas say of their state, and remember what was answered."""
        match record:
            case StateDigest(position=position, digest=digest):
                known, by = self.digests.setdefault(position, (digest, str(record.member)))
                if known != digest:
                    evidence = f"at {position}, {by} and {record.member} differ"
                    self.broken.append(Violation("one history", evidence))
            case Replied(replies=replies):
                self.answered = max(self.answered, *(each.position for each in replies))

    def heal(self) -> None:
        """End everything that was done to the network and to machines."""
        self.world.heal()
        self.world.mend()

    def converge(self, run: SeedRun) -> Iterator[Violation]:
        """One more entry must come to all, and all be equal."""
        begun = self.world.simulation.now
        self.world.run(milliseconds(100))  # the leader's first turn, if it has just started
        self._ask()
        if not self.world.run_until(self._is_one, within=self.options.converge_within):
            yield Violation("liveness", f"the replicas have settled {self._settled()}")
        run.converged_after = self.world.simulation.now - begun

    def _settled(self) -> list[int]:
        return [each.ledger.settled.position for each in self.replicas if each.ledger is not None]

    def _is_one(self) -> bool:
        engines = [each.engine for each in self.replicas]
        if any(engine is None for engine in engines):
            return False
        states = [each.ledger.settled for each in self.replicas if each.ledger is not None]
        positions = {engine.position for engine in engines if engine is not None}
        return all(state == states[0] for state in states) and positions == {states[0].position}

    def violations(self) -> Iterator[Violation]:
        """What was answered is there at the end, in one history."""
        yield from self.broken
        last = max(self._settled(), default=0)
        if last < self.answered:
            yield Violation("answers stand", f"{self.answered} was answered, and {last} is the end")

    def report(self, run: SeedRun) -> None:
        """Count entries."""
        run.figures = {"entries": max(self._settled(), default=0)}


class SimulatedToys(Family):
    """As `coterie sim --engine toy` sees it."""

    name = NAME
    about = "the first replica leads for ever"
    replicas_max = 9

    @property
    def faults(self) -> tuple[str, ...]:
        """What it survives."""
        return FAULTS

    def options(self, asked: Asked) -> ToyOptions:
        """Give the options of runs."""
        return ToyOptions(
            replicas=asked.replicas,
            duration=asked.duration,
            faults=asked.faults,
            journals=asked.journals,
        )

    def trial(
        self, seed: int, options: ToyOptions, *, trace: Callable[[str], None] | None = None
    ) -> ToyTrial:
        """Prepare the run of one seed."""
        return ToyTrial(seed, options, trace=trace)
