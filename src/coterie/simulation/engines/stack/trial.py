"""Random runs of a stack: one group, and either clients of an object or replicas that cast."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from coterie.checking.history import Violation
from coterie.journal.engines.stack_keeper import JournalKeeper
from coterie.journal.format import Sync
from coterie.journal.keeper import KeeperSettings
from coterie.journal.retention import Retention
from coterie.journal.writer import JournalSettings
from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.simulation.campaign import Options, Trial
from coterie.simulation.engines.stack.casting import Casting
from coterie.simulation.engines.stack.simulation import Simulation
from coterie.simulation.faults import LOSSES
from coterie.simulation.world.age import draw_age
from coterie.simulation.world.settings import SIMULATED_SETTINGS
from coterie.stacks import LAYERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coterie.kernel.layers import Layer
    from coterie.kernel.settings import Settings
    from coterie.simulation.campaign import SeedRun
    from coterie.simulation.engines.stack.clients import Clients
    from coterie.simulation.engines.stack.group import Group

_NAMES = "abcdefghijklmnopqrstuvwxyz"
_STAYS = seconds(1)


class RunOptions(Options, frozen=True, kw_only=True):
    """What all runs of a campaign have in common."""

    family: ClassVar[str] = "stack"
    stack: str = "DYNSEQ:VSYNC"
    replicas: int = 5
    cast_interval: Duration = milliseconds(250)
    """The mean time between two casts of one replica; some runs are busier, some calmer."""
    sync: Sync = Sync.TURN
    """When replicas of an engine sync their journals."""
    history_bytes: int = 0
    """How much history engines keep; 0 draws between all and hardly any for each seed."""


class StackTrial(Trial):
    """The run of one seed. *layers* and *keeper* let tests put in broken variants."""

    options: RunOptions
    world: Group
    simulation_kind: ClassVar[type[Simulation]] = Simulation

    def __init__(
        self,
        seed: int,
        options: RunOptions,
        *,
        layers: Mapping[str, type[Layer]] = LAYERS,
        keeper: type[JournalKeeper] = JournalKeeper,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.options = options
        self.random = random = Random(f"{seed}/campaign")  # noqa: S311 -- reproducible on purpose
        age = draw_age(seed) if options.old else None
        history_bytes = options.history_bytes or random.choice([200, 1 << 20])
        if age is not None and not options.history_bytes:
            history_bytes = 200
        simulation = self.simulation_kind(
            seed=seed,
            stack=options.stack,
            settings=self.settings(history_bytes),
            layers=layers,
            journal=_journal_settings(seed, options),
            keeper=keeper,
            has_object=bool(options.object),
            object_kind=options.object or "counter",
            age=age,
        )
        simulation.trace = trace
        self.world = simulation.group(*_NAMES[: options.replicas])

    def settings(self, history_bytes: int) -> Settings:
        """Give the settings of all replicas."""
        return replace(SIMULATED_SETTINGS, history_bytes=history_bytes)

    def load(self) -> Casting | Clients:
        """Give clients of the object, or without one, replicas that cast."""
        # Drawn in any case, so that options do not change what else a seed draws.
        casting = Casting(self.world, self.random, self.options.cast_interval)
        return self.world.clients if self.options.object else casting

    def heal(self) -> None:
        """End everything that was done to the network and to machines."""
        self.world.simulation.note("everything is healed")
        self.world.heal()
        self.world.mend()

    def converge(self, run: SeedRun) -> list[Violation]:
        """All must be in one view and hear from each other."""
        group, options = self.world, self.options
        begun = group.simulation.now
        if set(options.faults) & LOSSES.keys():
            self._operate()
        if not group.run_until(_Settled(group), within=options.converge_within):
            evidence = f"no common view in time: {group.describe_views()}"
            return [Violation("convergence", evidence)]
        run.converged_after = group.simulation.now - begun - _STAYS
        if not group.simulation.has_engine:
            return self._all_hear_all()
        return self._clients_end() if options.object else self._all_settle()

    def violations(self) -> list[Violation]:
        """Check every promise of the stack."""
        return self.world.violations()

    def report(self, run: SeedRun) -> None:
        """Count views and deliveries, and what clients asked, were told, and nobody could judge."""
        if self.options.object:
            ended = self.world.clients.operations
            run.figures["undecided"] = len(self.world.clients.undecided)
            run.figures["calls"] = len(ended)
            run.figures["answered"] = sum(each.returned is not None for each in ended)
        for life in self.world.history.lives.values():
            run.views += len(life.eras)
            run.deliveries += sum(record.count for era in life.eras for record in era.delivered)

    # ---- coming together

    def _operate(self) -> None:
        """Have an operator look at the group now and then, until it serves again."""
        group = self.world
        end = group.simulation.now + self.options.converge_within
        for host in group:
            if host.incarnation < host.lives:
                host.count_anew()
        while not group.is_whole() and group.simulation.now < end:
            group.run(seconds(3))
            group.recover_by_hand()

    def _all_hear_all(self) -> list[Violation]:
        """Every replica must hear a last word of each, agreed and safe."""
        group = self.world
        expected = []
        for host in group:
            for safe in (False, True):
                payload = f"last word of {host.id}, {safe=}".encode()
                host.cast(payload, safe=safe)
                expected.append(payload)
        wanted = set(expected)

        def answered() -> bool:
            return all(wanted <= set(host.delivered[-200:]) for host in group)

        if group.run_until(answered, within=self.options.converge_within):
            return []
        missing = {host.id: sorted(wanted - set(host.delivered)) for host in group}
        return [Violation("liveness", f"not delivered in time: {missing}")]

    def _clients_end(self) -> list[Violation]:
        """All clients must be done, and all replicas have the same state."""
        group = self.world
        if group.run_until(lambda: _all_equal(group), within=self.options.converge_within):
            return []
        return [Violation("liveness", f"clients still wait: {group.describe_views()}")]

    def _all_settle(self) -> list[Violation]:
        """Every replica of an engine must get an entry settled everywhere, and all be equal."""
        group = self.world
        for host in group:
            host.propose(f"last word of {host.id}".encode())

        def settled() -> bool:
            states = [host.ledger.settled for host in group if host.ledger is not None]
            return len(states) == len(list(group)) and all(
                state == states[0] and state.position >= before + len(states) for state in states
            )

        before = max(host.ledger.settled.position for host in group if host.ledger)
        if group.run_until(settled, within=self.options.converge_within):
            return []
        return [Violation("liveness", f"not settled in time: {group.describe_views()}")]


def _journal_settings(seed: int, options: RunOptions) -> KeeperSettings:
    """Draw how journals are kept: some have many segments and snapshots, some hardly any."""
    random = Random(f"{seed}/journal")  # noqa: S311 -- reproducible on purpose
    segment_bytes = random.choice([1_000, 5_000, 1 << 20])
    kept = random.choice([0, 10_000, 1 << 30])
    snapshot_bytes = random.choice([1_500, 6_000, 40_000])
    if options.old:
        kept, segment_bytes, snapshot_bytes = 0, 5_000, 1_500  # all is trimmed all the time
    if options.journals:
        kept = 1 << 30  # who wants the journals wants all of them
    return KeeperSettings(
        journal=JournalSettings(sync=options.sync, segment_bytes=segment_bytes),
        retention=Retention(journal_bytes_max=kept),
        snapshot_bytes=snapshot_bytes,
    )


def _all_equal(group: Group) -> bool:
    """Whether all clients are done and all replicas have the same state."""
    states = [host.ledger.settled for host in group if host.ledger is not None]
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
        is_whole = self._group.is_whole() and self._group.operator.is_done
        place = next(iter(self._group)).place if is_whole else None
        if place is None or place != self._place:
            self._place = place
            self._since = now
        return place is not None and now - self._since >= _STAYS
