"""Random runs: a safety phase in which anything may fail, then healing and a liveness phase.

A run is a pure function of its options and its seed. It fails if a promise was broken at any
time, or if the group does not come together and answer after everything has been healed.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from coterie.checking.history import Violation
from coterie.journal.format import Sync
from coterie.journal.keeper import JournalKeeper, KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.kernel.errors import CoterieError
from coterie.simulation.disk_faults import LOSSES
from coterie.simulation.export import write_journals
from coterie.simulation.faults import FAULTS, OF_MACHINES, Nemesis
from coterie.simulation.simulation import SIMULATED_SETTINGS, Simulation
from coterie.stacks import LAYERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coterie.kernel.layers import Layer
    from coterie.simulation.group import Group

ALL_FAULTS = tuple(kind for kind in FAULTS if kind not in LOSSES.keys() | OF_MACHINES)

_NAMES = "abcdefghijklmnopqrstuvwxyz"
REPLICAS_MAX = len(_NAMES)
_STAYS = seconds(1)
_CLIENTS = 6


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a campaign have in common."""

    stack: str = "DYNSEQ:VSYNC"
    replicas: int = 5
    duration: Duration = seconds(60)
    """How long the safety phase lasts, in simulated time."""
    faults: tuple[str, ...] = ALL_FAULTS
    converge_within: Duration = seconds(30)
    """How long the liveness phase may last."""
    cast_interval: Duration = milliseconds(250)
    """The mean time between two casts of one replica; some runs are busier, some calmer."""
    object: str = ""
    """What clients use (`coterie.simulation.kinds`); if nothing, replicas propose to a ledger."""
    sync: Sync = Sync.TURN
    """When replicas of an engine sync their journals."""
    journals: str = ""
    """The folder that gets the journals of each run, in one of its own named by the seed."""
    history_bytes: int = 0
    """How much history engines keep; 0 draws between all and hardly any for each seed."""


DEFAULT_OPTIONS = RunOptions()


class Run(msgspec.Struct, kw_only=True):
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
    counters: dict[str, int] = {}
    digest: int = 0


class _Workload:
    """Every replica casts now and then, alone or in bursts, agreed or safe."""

    def __init__(self, group: Group, random: Random, interval: Duration) -> None:
        self._group = group
        self._random = random
        self._interval = interval * random.choice([0.3, 1.0, 3.0])
        self._is_active = True
        self._serial = 0

    def start(self) -> None:
        for id in self._group.hosts:
            self._later(id)

    def stop(self) -> None:
        self._is_active = False

    def _later(self, id: str) -> None:
        wait = int(self._random.expovariate(1 / self._interval))
        self._group.simulation.at(wait, self._cast, id)

    def _cast(self, id: str) -> None:
        if not self._is_active:
            return
        random = self._random
        count = 1 if random.random() < 0.8 else random.randrange(2, 30)  # noqa: PLR2004
        safe = random.random() < 0.3  # noqa: PLR2004
        self._serial += 1
        payloads = [b"%d/%d" % (self._serial, n) for n in range(count)]
        if self._group.simulation.has_engine:
            self._group[id].propose(*payloads)
        else:
            self._group[id].cast(*payloads, safe=safe)
        self._later(id)


def run_seed(
    seed: int,
    options: RunOptions = DEFAULT_OPTIONS,
    *,
    layers: Mapping[str, type[Layer]] = LAYERS,
    keeper: type[JournalKeeper] = JournalKeeper,
    trace: Callable[[str], None] | None = None,
) -> Run:
    """Run one seed. *layers* and *keeper* let tests put in broken variants."""
    random = Random(f"{seed}/campaign")  # noqa: S311 -- reproducible on purpose
    history_bytes = options.history_bytes or random.choice([200, 1 << 20])
    simulation = Simulation(
        seed=seed,
        stack=options.stack,
        settings=replace(SIMULATED_SETTINGS, history_bytes=history_bytes),
        layers=layers,
        journal=_journal_settings(seed, options),
        keeper=keeper,
        has_object=bool(options.object),
        object_kind=options.object or "counter",
    )
    simulation.trace = trace
    group = simulation.group(*_NAMES[: options.replicas])
    nemesis = Nemesis(group, random, options.faults)
    workload = _Workload(group, random, options.cast_interval)
    run = Run(seed=seed)
    try:
        if options.object:
            group.clients.start(_CLIENTS)
        else:
            workload.start()
        nemesis.start()
        simulation.run(options.duration)
        workload.stop()
        group.clients.stop()
        nemesis.stop()
        run.violations += _converge(group, options, run)
    except (AssertionError, CoterieError) as error:
        run.violations.append(f"assertion: {error}")
    run.violations += [str(violation) for violation in group.violations()]
    if any(host.has_old_disk for host in group):
        run.damage, run.violations = run.violations, []
    if options.journals and simulation.has_engine:
        write_journals(group, Path(options.journals) / str(seed))
    run.faults = nemesis.counts
    run.simulated = simulation.now
    run.events = simulation.events
    run.frames = simulation.network.frames
    run.digest = simulation.digest
    for life in group.history.lives.values():
        run.views += len(life.eras)
        run.deliveries += sum(record.count for era in life.eras for record in era.delivered)
    for host in group.hosts.values():
        if host.replica is not None and host.process is not None:
            for counters in (host.replica.context.counters, host.process.counters):
                for name, count in counters.items():
                    run.counters[name] = run.counters.get(name, 0) + count
    return run


def _journal_settings(seed: int, options: RunOptions) -> KeeperSettings:
    """Draw how journals are kept: some have many segments and snapshots, some hardly any."""
    random = Random(f"{seed}/journal")  # noqa: S311 -- reproducible on purpose
    segment_bytes = random.choice([1_000, 5_000, 1 << 20])
    kept = random.choice([0, 10_000, 1 << 30])
    if options.journals:
        kept = 1 << 30  # who wants the journals wants all of them
    return KeeperSettings(
        journal=JournalSettings(sync=options.sync, segment_bytes=segment_bytes),
        retention=Retention(journal_bytes_max=kept),
        snapshot_bytes=random.choice([1_500, 6_000, 40_000]),
    )


def _converge(group: Group, options: RunOptions, run: Run) -> list[str]:
    """Heal everything; then all must be in one view and hear from each other."""
    simulation = group.simulation
    simulation.note("everything is healed")
    group.heal()
    for host in group.hosts.values():
        host.slowness = 0
        host.set_drift(1.0)
        host.resume()
        host.repair()
        if host.is_leaving:
            host.restart()
    begun = simulation.now
    if set(options.faults) & LOSSES.keys():
        _operate(group, options.converge_within)
    if not simulation.run_until(_Settled(group), within=options.converge_within):
        return [str(Violation("convergence", f"no common view in time: {group.describe_views()}"))]
    run.converged_after = simulation.now - begun - _STAYS
    if simulation.has_engine:
        return _answers(group, options)
    expected = []
    for host in group.hosts.values():
        for safe in (False, True):
            payload = f"last word of {host.id}, {safe=}".encode()
            host.cast(payload, safe=safe)
            expected.append(payload)
    wanted = set(expected)

    def answered() -> bool:
        return all(wanted <= set(host.delivered[-200:]) for host in group.hosts.values())

    if not simulation.run_until(answered, within=options.converge_within):
        missing = {host.id: sorted(wanted - set(host.delivered)) for host in group.hosts.values()}
        return [str(Violation("liveness", f"not delivered in time: {missing}"))]
    return []


def _operate(group: Group, within: Duration) -> None:
    """Have an operator look at the group now and then, until it serves again."""
    simulation = group.simulation
    end = simulation.now + within
    for host in group:
        if host.incarnation < host.lives:
            host.count_anew()
    while not group.is_whole() and simulation.now < end:
        simulation.run(seconds(3))
        group.recover_by_hand()


def _all_equal(group: Group) -> bool:
    """Whether all clients are done and all replicas have the same state."""
    states = [host.ledger.settled for host in group.hosts.values() if host.ledger is not None]
    return group.clients.are_done and all(state == states[0] for state in states)


class _Settled:
    """Whether all have been together in the same view for a while.

    At the moment of healing all may be in one view that is about to end, because of a suspicion
    from before.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._place: object = None
        self._since = 0

    def __call__(self) -> bool:
        now = self._group.simulation.now
        place = next(iter(self._group.hosts.values())).place if self._group.is_whole() else None
        if place is None or place != self._place:
            self._place = place
            self._since = now
        return place is not None and now - self._since >= _STAYS


def _answers(group: Group, options: RunOptions) -> list[str]:
    """Every replica of an engine must get an entry settled everywhere, and all be equal."""
    simulation = group.simulation
    if options.object:
        if simulation.run_until(lambda: _all_equal(group), within=options.converge_within):
            return []
        return [str(Violation("liveness", f"clients still wait: {group.describe_views()}"))]
    for host in group.hosts.values():
        host.propose(f"last word of {host.id}".encode())

    def settled() -> bool:
        states = [host.ledger.settled for host in group.hosts.values() if host.ledger is not None]
        return len(states) == len(group.hosts) and all(
            state == states[0] and state.position >= before + len(states) for state in states
        )

    before = max(host.ledger.settled.position for host in group.hosts.values() if host.ledger)
    if simulation.run_until(settled, within=options.converge_within):
        return []
    return [str(Violation("liveness", f"not settled in time: {group.describe_views()}"))]
