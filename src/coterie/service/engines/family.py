"""What the service asks of an engine family, and what it gives to it.

A replica of a family comes to life in three steps, because all replicas of a process have the same
number for their life, and that must be known before any of them is built:

1. `Family.start` reads what earlier lives left in the journal; `Start.incarnation` says which
   number the next life must have at least;
2. `Start.begin` begins that life in the journal;
3. `Start.host` builds the replica in the running process, with its front at the clients' port.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from coterie.journal.keeper import KeeperSettings
from coterie.journal.keyed import SealKey
from coterie.journal.writer import JournalSettings
from coterie.kernel.views import Configuration
from coterie.ready.locations import LOCATIONS
from coterie.runtime.security import read_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.journal.disk import Disk
    from coterie.journal.format import Sync
    from coterie.journal.keeper import Keeper
    from coterie.objects import Definition
    from coterie.service.config import ClusterConfig, GroupConfig
    from coterie.service.engines.hosted import HostedReplica, Seat
    from coterie.service.limits import Bounds
    from coterie.service.port import ClientPort


@dataclass(frozen=True, slots=True)
class Slot:
    """Which replica of which group, in which deployment."""

    config: ClusterConfig
    group: str
    replica: str

    @property
    def given(self) -> GroupConfig:
        """What the configuration says of the group."""
        return self.config.all_groups[self.group]

    @property
    def configuration(self) -> Configuration:
        """The replicas that the group begins with; for one that joins later, whom to look for."""
        everyone = self.config.everyone(self.group)
        joins = self.config.replicas[self.replica].joins
        if self.group in joins or (joins and self.group == LOCATIONS):
            return Configuration(0, tuple(id for id in everyone if id != self.replica))
        return Configuration(1, self.config.members(self.group))

    @property
    def keeping(self) -> KeeperSettings:
        """How its journal is kept; raises `SecurityError` if its seal key cannot be used."""
        file = self.config.security.seal_key
        key = SealKey(*read_secrets(Path(file))) if file else None
        return KeeperSettings(journal=JournalSettings(sync=self.given.sync, seal_key=key))


class Start(Protocol):
    """A replica on its way into a new life; the steps are taken once, in this order."""

    @property
    def incarnation(self) -> int:
        """The lowest number that its next life may have."""

    def begin(self, incarnation: int) -> Keeper:
        """Begin the life of that number in the journal, and give what keeps it.

        Raises `StorageFailed` or `WrongJournal`: the replica must not start.
        """

    def host(self, live: Seat, port: ClientPort, definition: Definition) -> HostedReplica:
        """Build the replica, and the front by which clients reach it."""


class Family(Protocol):
    """One way to replicate. It holds no state: what is kept belongs to what it makes."""

    @property
    def name(self) -> str:
        """Its key in the registries."""

    @property
    def syncs(self) -> frozenset[Sync]:
        """What `sync` may be in a group's configuration."""

    @property
    def has_leader(self) -> bool:
        """Whether the order of a group's replicas matters: the first leads if it can."""

    @property
    def needs_locations(self) -> bool:
        """Whether its groups must find each other, so that a location service runs beside them."""

    @property
    def limits(self) -> Mapping[str, Bounds]:
        """What `limits` may name in a group's configuration, and what each may be."""

    def kept_by(self, group: GroupConfig) -> str:
        """Say what keeps the replicas of a group together, in a word."""

    def check(self, group: GroupConfig) -> None:
        """Refuse a configuration with a `CoterieError` that says what to do instead."""

    def load(self, group: GroupConfig) -> Definition:
        """Load the class of a group; raises `ClassNotFound` or `NotReplicable`."""

    def found(self, disk: Disk, slot: Slot) -> None:
        """Make a replica one of those its group begins with.

        Raises `ValueError` if the disk holds anything of it already.
        """

    def start(self, disk: Disk, slot: Slot) -> Start:
        """Read what earlier lives of a replica left, and prepare the next one."""
