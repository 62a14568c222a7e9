"""Random runs: a safety phase in which anything may fail, then healing and a liveness phase.

A run is a pure function of its options and its seed. It fails if a promise was broken at any
time, or if the groups do not come together and answer after everything has been healed. All
families of engines are run by the same code; what is their own is in a `Trial`:

    run = run_seed(17, RunOptions(stack="TOKEN:VSYNC"))
    assert not run.violations
"""

from __future__ import annotations

import abc
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec

from coterie.journal.format import Sync
from coterie.kernel.clock import Duration, seconds
from coterie.kernel.errors import CoterieError
from coterie.simulation.engines import family_named
from coterie.simulation.faults import ALL_FAULTS, Nemesis
from coterie.simulation.world.export import write_journals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random
    from typing import Protocol

    from coterie.checking.history import Violation
    from coterie.simulation.world.world import World

    class Load(Protocol):
        """What is done with the groups while things fail."""

        def start(self) -> None:
            """Begin to use the groups."""

        def stop(self) -> None:
            """Begin nothing more."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a campaign have in common, whatever the family."""

    family: ClassVar[str]
    """The engine family whose options these are."""
    replicas: int = 3
    """How many there are in each group."""
    duration: Duration = seconds(60)
    """How long the safety phase lasts, in simulated time."""
    faults: tuple[str, ...] = ALL_FAULTS
    converge_within: Duration = seconds(30)
    """How long the liveness phase may last."""
    object: str = ""
    """What clients use; the family says what there is."""
    sync: Sync | None = None
    """When journals are synced; if nothing is said, as the family has it."""
    old: bool = False
    """Whether runs begin with what years leave on disks (`coterie.simulation.world.age`)."""
    journals: str = ""
    """The folder that gets the journals of each run, in one of its own named by the seed."""


class SeedRun(msgspec.Struct, kw_only=True):
    """What came of one seed."""

    seed: int
    violations: list[str] = []
    damage: list[str] = []
    """What the checks found where an old disk was put back, which no promise covers."""
    faults: dict[str, int] = {}
    simulated: int = 0
    views: int = 0
    deliveries: int = 0
    frames: int = 0
    events: int = 0
    converged_after: int = 0
    figures: dict[str, int] = {}
    """What the family counted, for its own summary."""
    reasons: dict[str, int] = {}
    """Why something that clients wanted was not done, where the family counts it."""
    counters: dict[str, int] = {}
    """What layers and processes counted in the lives that were going on at the end."""
    digest: int = 0


class Trial(abc.ABC):
    """The run of one seed of one family: its world, what is done in it, and what it must keep.

    The world stands when a trial has been made, and all its machines are started.
    """

    world: World
    options: Options
    seed: int
    random: Random
    """What faults and load are drawn from."""
    rests: bool = False
    """Whether faults are ended now and then, and everything is left alone for a while."""

    @abc.abstractmethod
    def load(self) -> Load:
        """Give what is done with the groups while things fail."""

    @abc.abstractmethod
    def heal(self) -> None:
        """End everything that was done to the network and to machines."""

    @abc.abstractmethod
    def converge(self, run: SeedRun) -> Iterable[Violation]:
        """Let time pass until all are together and answer; say what was not so in time.

        Sets `run.converged_after`.
        """

    @abc.abstractmethod
    def violations(self) -> Iterable[Violation]:
        """Check every promise against what happened, whether or not all came together."""

    def report(self, run: SeedRun) -> None:  # noqa: B027 -- not all count something
        """Fill in what the family counted."""


def run_seed(
    seed: int, options: Options | None = None, *, trace: Callable[[str], None] | None = None
) -> SeedRun:
    """Run one seed of the family whose options these are; by default, of group communication."""
    if options is None:
        from coterie.simulation.engines.stack.trial import RunOptions  # noqa: PLC0415 -- it uses us

        options = RunOptions()
    return run_trial(family_named(options.family).trial(seed, options, trace=trace))


def run_trial(trial: Trial) -> SeedRun:
    """Run one seed through both phases, and check everything."""
    world, options = trial.world, trial.options
    simulation = world.simulation
    nemesis = Nemesis(world, trial.random, options.faults, rests=trial.rests)
    load = trial.load()
    run = SeedRun(seed=trial.seed)
    try:
        load.start()
        nemesis.start()
        simulation.run(options.duration)
        load.stop()
        nemesis.stop()
        trial.heal()
        run.violations += map(str, trial.converge(run))
    except (AssertionError, CoterieError) as error:
        run.violations.append(f"assertion: {error}")
    run.violations += map(str, trial.violations())
    if any(machine.has_old_disk for machine in world.machines.values()):
        run.damage, run.violations = run.violations, []
    if options.journals and world.has_journals:
        write_journals(world.machines.values(), Path(options.journals) / str(trial.seed))
    run.faults = nemesis.counts
    run.simulated = simulation.now
    run.events = simulation.events
    run.frames = simulation.network.frames
    run.digest = simulation.digest
    for machine in world.machines.values():
        if machine.process is not None:
            contexts = [each.context for each in machine.process.replicas.values()]
            for counters in (*(each.counters for each in contexts), machine.process.counters):
                for name, count in counters.items():
                    run.counters[name] = run.counters.get(name, 0) + count
    trial.report(run)
    return run
