"""Random runs of transactions over several groups: faults, healing, checks."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec.structs import replace

from coterie.checking.history import Violation
from coterie.journal.format import Sync
from coterie.journal.retention import Retention
from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.simulation.export import write_journals
from coterie.simulation.faults import Nemesis
from coterie.simulation.machines import COHORT_FAULTS, keeping
from coterie.simulation.modules import Airline, Bank
from coterie.simulation.transactions import TransactionWorld
from coterie.simulation.workloads import Customers, Tellers
from coterie.vsr.client import Fate
from coterie.vsr.cohort import Cohort
from coterie.vsr.server import Server
from coterie.vsr.settings import VsrSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.journal.keeper import KeeperSettings
    from coterie.simulation.group import Group
    from coterie.simulation.modules import Methods
    from coterie.simulation.workloads import Workload

_MACHINES = "abcde"
REPLICAS_MAX = len(_MACHINES)
_CLIENTS = "xyz"

OBJECTS: dict[str, tuple[type[Methods], type[Workload]]] = {
    "bank": (Bank, Tellers),
    "airline": (Airline, Customers),
}


class TransactionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a campaign have in common."""

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
    journals: str = ""
    """The folder that gets the journals of each run, in one of its own named by the seed."""


LOOKS_MAX = 4
"""What clients have begun meanwhile may end a look as a deadlock's victim; not several in a row."""


class TransactionRun(msgspec.Struct, kw_only=True):
    """What came of one seed."""

    seed: int
    violations: list[str] = []
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    checks: int = 0
    reasons: dict[str, int] = {}
    views: int = 0
    states_taken: int = 0
    faults: dict[str, int] = {}
    simulated: int = 0
    converged_after: int = 0
    digest: int = 0


def spread(name: str, groups: int, replicas: int) -> dict[str, tuple[str, ...]]:
    """Put groups on machines so that they share some, and their first cohorts do not coincide."""
    return {
        f"{name}{group}": tuple(
            _MACHINES[(2 * group + rank) % len(_MACHINES)] for rank in range(replicas)
        )
        for group in range(groups)
    }


def run_transactions(
    seed: int,
    options: TransactionOptions,
    *,
    cohort_kind: type[Cohort] = Cohort,
    server_kind: type[Server] = Server,
    trace: Callable[[str], None] | None = None,
) -> TransactionRun:
    """Run one seed; *cohort_kind* and *server_kind* let tests put in broken variants."""
    random = Random(f"{seed}/{options.object}")  # noqa: S311 -- reproducible on purpose
    executor, make_workload = OBJECTS[options.object]
    world = TransactionWorld(
        seed=seed,
        groups=spread(options.object, options.groups, options.replicas),
        clients=tuple(_CLIENTS),
        executor=executor,
        settings=VsrSettings(log_bytes=random.choice([2000, 1 << 20]), digest_interval=25),
        journal=_journal_settings(options, random),
        cohort_kind=cohort_kind,
        server_kind=server_kind,
    )
    world.simulation.trace = trace
    nemesis = Nemesis(cast("Group", world), random, options.faults)
    workload = make_workload(world, random, options)
    run = TransactionRun(seed=seed)
    try:
        workload.start()
        nemesis.start()
        world.run(options.duration)
        workload.stop()
        nemesis.stop()
        world.heal()
        run.violations += _converge(world, workload, options, run)
    except AssertionError as error:
        run.violations.append(f"assertion: {error}")
    run.violations += [str(violation) for violation in workload.wrong]
    run.committed = workload.fates[Fate.COMMITTED]
    run.aborted = workload.fates[Fate.ABORTED]
    run.unknown = workload.fates[Fate.UNKNOWN]
    run.reasons = workload.reasons
    run.checks = workload.checks
    run.views = sum(tracker.views for tracker in world.trackers.values())
    run.states_taken = sum(tracker.states_taken for tracker in world.trackers.values())
    run.faults = nemesis.counts
    run.simulated = world.simulation.now
    run.digest = world.simulation.digest
    if options.journals:
        write_journals(world.hosts.values(), Path(options.journals) / str(seed))
    return run


def _journal_settings(options: TransactionOptions, random: Random) -> KeeperSettings:
    # Drawn in any case, so that options do not change what else a seed draws.
    drawn = random.choice([Sync.NONE, Sync.NONE, Sync.PRIMARY, Sync.TURN])
    sync = options.sync or drawn
    kept = random.choice([20_000, 1 << 30])
    if options.journals:
        kept = 1 << 30  # who wants the journals wants all of them
    return replace(keeping(sync), retention=Retention(journal_bytes_max=kept))


def _converge(
    world: TransactionWorld, workload: Workload, options: TransactionOptions, run: TransactionRun
) -> list[str]:
    """All groups must come together, every transaction must end, and a last look must succeed."""
    begun = world.simulation.now
    if not world.run_until(lambda: world.is_quiet, within=options.converge_within):
        return [str(Violation("convergence", f"not quiet in time: {world.describe()}"))]
    run.converged_after = world.simulation.now - begun
    before = workload.checks
    for _ in range(LOOKS_MAX):
        workload.look_last()
        if world.run_until(lambda: workload.checks > before, within=seconds(5)):
            break
    else:
        return [str(Violation("liveness", f"the last looks failed: {workload.last}"))]
    world.run_until(lambda: world.is_quiet, within=options.converge_within)
    return [str(violation) for violation in world.violations()]
