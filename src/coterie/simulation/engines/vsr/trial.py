"""Random runs of transactions over several groups: clients, healing, a last look, checks."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from coterie.checking.history import Violation
from coterie.journal.format import Sync
from coterie.journal.retention import Retention
from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.simulation.campaign import Options, Trial
from coterie.simulation.engines.vsr.modules import Airline, Bank
from coterie.simulation.engines.vsr.transactions import TransactionWorld
from coterie.simulation.engines.vsr.workloads import Customers, Tellers
from coterie.simulation.engines.vsr.world import COHORT_FAULTS, keeping
from coterie.simulation.world.age import VIEWS, draw_age
from coterie.vsr.commit.client import Fate
from coterie.vsr.commit.server import Server
from coterie.vsr.settings import VsrSettings
from coterie.vsr.views.cohort import Cohort

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.journal.keeper import KeeperSettings
    from coterie.simulation.campaign import SeedRun
    from coterie.simulation.engines.vsr.modules import Methods
    from coterie.simulation.engines.vsr.workloads import Workload

_MACHINES = "abcde"
_CLIENTS = "xyz"

OBJECTS: dict[str, tuple[type[Methods], type[Workload]]] = {
    "bank": (Bank, Tellers),
    "airline": (Airline, Customers),
}


class TransactionOptions(Options, frozen=True, kw_only=True):
    """What all runs of a campaign have in common."""

    family: ClassVar[str] = "vsr"
    object: str = "bank"
    """One of `OBJECTS`."""
    groups: int = 3
    replicas: int = 3
    objects: int = 4
    """Accounts in each group; few, so that transactions get into each other's way."""
    duration: Duration = seconds(15)
    faults: tuple[str, ...] = COHORT_FAULTS
    converge_within: Duration = seconds(40)
    interval: Duration = milliseconds(200)
    """The mean time between two transactions of one client; some runs are busier, some calmer."""
    sync: Sync | None = None
    """Which events are on disk before they count (4.2); if nothing is said, each seed draws."""


ENDED_OLD = 60
"""How many ends of transactions an old group remembers."""

LOOKS_MAX = 4
"""What clients have begun meanwhile may end a look as a deadlock's victim; not several in a row."""


def spread(name: str, groups: int, replicas: int) -> dict[str, tuple[str, ...]]:
    """Put groups on machines so that they share some, and their first cohorts do not coincide."""
    return {
        f"{name}{group}": tuple(
            _MACHINES[(2 * group + rank) % len(_MACHINES)] for rank in range(replicas)
        )
        for group in range(groups)
    }


class TransactionTrial(Trial):
    """The run of one seed. *cohort_kind* and *server_kind* let tests put in broken variants."""

    options: TransactionOptions
    world: TransactionWorld

    def __init__(
        self,
        seed: int,
        options: TransactionOptions,
        *,
        cohort_kind: type[Cohort] = Cohort,
        server_kind: type[Server] = Server,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.options = options
        self.random = random = Random(f"{seed}/{options.object}")  # noqa: S311 -- reproducible
        executor, self._make_workload = OBJECTS[options.object]
        self.world = TransactionWorld(
            seed=seed,
            groups=spread(options.object, options.groups, options.replicas),
            clients=tuple(_CLIENTS),
            executor=executor,
            settings=_settings(options, random),
            journal=_journal_settings(options, random),
            cohort_kind=cohort_kind,
            server_kind=server_kind,
            age=draw_age(seed) if options.old else None,
            objects=executor.begins_with(options.objects) if options.old else None,
        )
        self.world.simulation.trace = trace
        self._workload: Workload | None = None
        self._is_quiet = False

    @property
    def workload(self) -> Workload:
        """The clients, once there is load."""
        assert self._workload is not None, "a trial is asked for its load first"
        return self._workload

    def load(self) -> Workload:
        """Give the clients of the object."""
        self._workload = self._make_workload(self.world, self.random, self.options)
        return self._workload

    def heal(self) -> None:
        """End everything that was done to the network and to machines."""
        self.world.heal()

    def converge(self, run: SeedRun) -> list[Violation]:
        """All groups must come together, all transactions end, and a last look must succeed."""
        world, workload, within = self.world, self.workload, self.options.converge_within
        begun = world.simulation.now
        if not world.run_until(lambda: world.is_quiet, within=within):
            return [Violation("convergence", f"not quiet in time: {world.describe()}")]
        run.converged_after = world.simulation.now - begun
        before = workload.checks
        for _ in range(LOOKS_MAX):
            workload.look_last()
            if world.run_until(lambda: workload.checks > before, within=seconds(5)):
                break
        else:
            return [Violation("liveness", f"the last looks failed: {workload.last}")]
        world.run_until(lambda: world.is_quiet, within=within)
        self._is_quiet = True
        return []

    def violations(self) -> list[Violation]:
        """Check what all groups promise, and what their clients saw."""
        world = self.world
        # What transactions did can be told once they have ended; that they have not is said above.
        found = world.violations() if self._is_quiet else world.group_violations()
        return [*found, *self.workload.wrong]

    def report(self, run: SeedRun) -> None:
        """Count views, and how transactions ended."""
        workload, trackers = self.workload, self.world.trackers.values()
        run.views = sum(tracker.views for tracker in trackers)
        run.figures = {
            "committed": workload.fates[Fate.COMMITTED],
            "aborted": workload.fates[Fate.ABORTED],
            "unknown": workload.fates[Fate.UNKNOWN],
            "checks": workload.checks,
            "states_taken": sum(tracker.states_taken for tracker in trackers),
        }
        run.reasons = workload.reasons


def _settings(options: TransactionOptions, random: Random) -> VsrSettings:
    log_bytes = random.choice([2000, 1 << 20])
    if not options.old:
        return VsrSettings(log_bytes=log_bytes, digest_interval=25)
    # All limits that a group of that age has reached.
    return VsrSettings(
        log_bytes=2000, digest_interval=25, history_views_max=VIEWS, ended_max=ENDED_OLD
    )


def _journal_settings(options: TransactionOptions, random: Random) -> KeeperSettings:
    # Drawn in any case, so that options do not change what else a seed draws.
    drawn = random.choice([Sync.NONE, Sync.NONE, Sync.PRIMARY, Sync.TURN])
    sync = options.sync or drawn
    kept = random.choice([20_000, 1 << 30])
    if options.old:
        kept = 0
    if options.journals:
        kept = 1 << 30  # who wants the journals wants all of them
    return replace(keeping(sync), retention=Retention(journal_bytes_max=kept))
