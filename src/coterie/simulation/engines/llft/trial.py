"""Random runs of programs: clients, healing, one group behind one primary, checks."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, ClassVar

from coterie.checking.history import Violation
from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.llft.edge import Edge
from coterie.llft.replica import ProgramReplica
from coterie.llft.settings import Backups, Guard
from coterie.simulation.campaign import Options, Trial
from coterie.simulation.engines.llft.clients import ProgramClients
from coterie.simulation.engines.llft.world import ProgramWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.simulation.campaign import SeedRun

FAULTS = (
    *("loss", "duplication", "damage", "delay", "reordering", "clogging"),
    *("partition", "one-way", "non-transitive", "isolation", "flapping"),
    *("crash", "restart", "restart-all", "pause", "slow"),
    *("clock-jump", "clock-drift"),
    *("kill", "power-all", "torn-write", "full-disk", "failing-sync"),
)
"""What programs outlive. No disk loses what it has synced: an edge could not come back."""


class ProgramOptions(Options, frozen=True, kw_only=True):
    """What all runs of a campaign have in common."""

    family: ClassVar[str] = "llft"
    program: str = "relay"
    guard: str = "quorum"
    backups: str = "active"
    standby: str = "no"
    replicas: int = 3
    duration: Duration = seconds(20)
    faults: tuple[str, ...] = FAULTS
    paces: tuple[Duration, ...] = (milliseconds(60), milliseconds(120), milliseconds(240))
    """How long clients wait between two requests, on average; a run draws one."""
    rests: bool = True
    """Whether faults leave the group time to come back and serve, now and then."""


class ProgramTrial(Trial):
    """The run of one seed; *replica_kind* and *edge_kind* let tests put in broken variants."""

    world: ProgramWorld
    options: ProgramOptions

    def __init__(
        self,
        seed: int,
        options: ProgramOptions,
        *,
        trace: Callable[[str], None] | None = None,
        replica_kind: type[ProgramReplica] | None = None,
        edge_kind: type[Edge] | None = None,
    ) -> None:
        self.seed, self.options = seed, options
        self.rests = options.rests
        self.random = Random(f"{seed}/llft")  # noqa: S311 -- reproducible on purpose
        self.world = ProgramWorld(
            seed=seed,
            program=options.program,
            replicas=options.replicas,
            guard=Guard(options.guard),
            backups=Backups(options.backups),
            has_standby=options.standby == "yes",
            replica_kind=replica_kind,
            edge_kind=edge_kind,
        )
        self.world.simulation.trace = trace
        self.clients = ProgramClients(self.world, self.random, options.paces)
        self.world.start()

    def load(self) -> ProgramClients:
        """Give the clients."""
        return self.clients

    def heal(self) -> None:
        """End everything that was done to the network and to machines."""
        self.world.heal()
        self.world.mend()

    def converge(self, run: SeedRun) -> Sequence[Violation]:
        """Theorems 5 and 6: there is a primary view of all, and operations go on in it."""
        world, within = self.world, self.options.converge_within
        begun = world.simulation.now
        groups = list(world.configurations)
        if not world.run_until(lambda: all(map(world.is_whole, groups)), within=within):
            return [Violation("a primary view of all", world.describe())]
        run.converged_after = world.simulation.now - begun
        for client in self.clients.everybody:
            client.conn, client.waits_for, client.got = "", 0, b""
            self.clients.ask(client)
        everybody = self.clients.everybody
        if not world.run_until(
            lambda: not any(client.waits_for for client in everybody), within=within
        ):
            return [Violation("operations go on", world.describe())]
        ends = {group: tracker.end for group, tracker in world.trackers.items()}

        def have_all() -> bool:
            return all(
                replica.execution.number >= ends[group]
                for group in groups
                for replica in world.replicas_of(group)
            )

        if not world.run_until(have_all, within=within):
            return [Violation("operations go on", f"not at all replicas: {world.describe()}")]
        return []

    def violations(self) -> Sequence[Violation]:
        """Check every promise."""
        found = [each for tracker in self.world.trackers.values() for each in tracker.finish()]
        return [*found, *self.clients.violations]

    def report(self, run: SeedRun) -> None:
        """Count views, orders, answers, and what was given up."""
        trackers = self.world.trackers.values()
        run.views = sum(tracker.views for tracker in trackers)
        run.figures = {
            "orders": sum(len(tracker.chain) for tracker in trackers),
            "rosters": sum(tracker.rosters for tracker in trackers),
            "edges lost": self.world.edges_lost,
            "edges installed": sum(tracker.installed for tracker in trackers),
            "asked": self.clients.asked,
            "answered": self.clients.answered,
            "broken": self.clients.broken,
            "discarded": sum(tracker.discarded for tracker in trackers),
        }
