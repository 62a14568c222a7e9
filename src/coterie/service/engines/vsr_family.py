"""The family of viewstamped replication: its configuration, and how cohorts come to life."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as replace_fields

from coterie.journal.engines.vsr import VSR
from coterie.journal.stable import join_group
from coterie.kernel.errors import CoterieError
from coterie.kernel.views import Configuration
from coterie.service.classes import load_class
from coterie.service.engines.vsr import HostedCohort
from coterie.service.engines.vsr_front import CohortFront
from coterie.service.limits import Bounds
from coterie.transactional import ObjectExecutor
from coterie.vsr import DEFAULT_VSR_SETTINGS

if TYPE_CHECKING:
    from coterie.journal.disk import Disk
    from coterie.journal.engines.vsr_keeper import CohortKeeper
    from coterie.objects import Definition
    from coterie.service.config import ClusterConfig, GroupConfig
    from coterie.service.engines.family import Slot
    from coterie.service.engines.hosted import Seat
    from coterie.service.port import ClientPort


def directory_of(config: ClusterConfig) -> dict[str, Configuration]:
    """Say where all groups are that transactions can be over."""
    return {
        name: Configuration(1, config.members(name))
        for name, group in config.groups.items()
        if group.engine == VsrFamily.name
    }


DIGEST_INTERVAL = 1000
"""At every so many events of a view the state is digested, if it is not large (`digest_bytes`)."""
LIMITS = {
    "calls_max": Bounds(1, 1_000_000),
    "transactions_max": Bounds(1, 10_000_000),
    "event_bytes_max": Bounds(1 << 10, 4 << 20),  # which fits into a frame between replicas
    "buffer_bytes_max": Bounds(1 << 20, 1 << 30),
}
"""Fields of `VsrSettings` that only the primary looks at."""


class VsrFamily:
    """Groups that take transactions: a primary executes, and its backups are told (**vsr**)."""

    name = "vsr"
    syncs = VSR.syncs
    has_leader = True
    needs_locations = True
    limits = LIMITS

    def kept_by(self, group: GroupConfig) -> str:
        """Name the engine: there is one way to run it."""
        del group
        return self.name

    def check(self, group: GroupConfig) -> None:
        """Refuse what is for stacks."""
        if group.stack:
            raise CoterieError('engine = "vsr" has no stack: leave one of the two out')
        if group.dump_interval:
            raise CoterieError(
                'dump_interval is for stacks: under engine = "vsr" nothing is dumped'
            )

    def load(self, group: GroupConfig) -> Definition:
        """Load the class of a group."""
        definition = load_class(group.class_, may_wait=True)
        ObjectExecutor(definition.cls)  # some classes that stacks run cannot be run here
        return definition

    def found(self, disk: Disk, slot: Slot) -> None:
        """Set the bootstrap mark of a cohort, with the configuration of its group."""
        VSR.found(disk, slot.group, slot.replica, slot.configuration)

    def start(self, disk: Disk, slot: Slot) -> _Start:
        """Recover a cohort from its journal."""
        return _Start(disk, slot)


class _Start:
    """A cohort on its way into a new life."""

    def __init__(self, disk: Disk, slot: Slot) -> None:
        self._disk = disk
        self._slot = slot
        self._keeper: CohortKeeper
        if not slot.configuration.number:
            join_group(disk, slot.group, slot.replica, slot.configuration)
        self._found = VSR.recover(disk, slot.group, slot.replica, slot.configuration)
        self.incarnation = self._found.incarnation

    def begin(self, incarnation: int) -> CohortKeeper:
        """Begin the life in the journal."""
        settings = self._slot.keeping
        found = replace(self._found, incarnation=incarnation)
        self._keeper = VSR.open(self._disk, found, settings)
        return self._keeper

    def host(self, live: Seat, port: ClientPort, definition: Definition) -> HostedCohort:
        """Build the cohort and its front."""
        slot = self._slot
        front = CohortFront(port, slot.group)
        hosted = HostedCohort(
            live,
            group=slot.group,
            definition=definition,
            directory=directory_of(slot.config),
            front=front,
            keeper=self._keeper,
            settings=replace_fields(
                DEFAULT_VSR_SETTINGS,
                digest_interval=DIGEST_INTERVAL,
                compare_digests=slot.given.compare_digests,
                force_calls=slot.given.force_calls,
                **slot.given.limits,
            ),
        )
        front.attach(hosted)
        return hosted
