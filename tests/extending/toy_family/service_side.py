"""The service's side: what `coterie.service.engines` asks of a family."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.extending.toy_family.engine import NAME, Copying, make_toy

from coterie.journal.engines.stack import STACK
from coterie.journal.engines.stack_keeper import JournalKeeper
from coterie.journal.format import Sync
from coterie.journal.keeper import KeeperSettings
from coterie.journal.stable import found_group
from coterie.journal.writer import JournalSettings
from coterie.kernel.errors import CoterieError
from coterie.objects import HostSettings
from coterie.service.classes import load_class
from coterie.service.engines.stack import HostedObject
from coterie.service.engines.stack_front import ObjectFront

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.journal.disk import Disk
    from coterie.objects import Definition
    from coterie.service.config import GroupConfig
    from coterie.service.engines.family import Slot
    from coterie.service.engines.hosted import Seat
    from coterie.service.limits import Bounds
    from coterie.service.port import ClientPort


class ToyFront(ObjectFront):
    """Clients speak to it as to a stack, in sessions; only the name is another."""

    engine = NAME


class HostedToy(HostedObject):
    """An object whose engine is the toy; it says how many entries only its leader may have."""

    cannot_recover = "a toy group goes on when its first replica is back with its folder"
    figures_help = {  # noqa: RUF012 -- as the base says
        "toy_waiting": "Entries that wait for a majority.",
    }

    @property
    def engine(self) -> Copying:
        """The engine below the host."""
        assert isinstance(self.replica.bottom, Copying)
        return self.replica.bottom

    def details(self) -> dict[str, str | int]:
        """Say how many entries wait for a majority."""
        return {"waiting": self.engine.position - self.engine.settled}

    def figures(self) -> dict[str, float]:
        """Give the same for metrics."""
        return {"toy_waiting": self.engine.position - self.engine.settled}


class ToyFamily:
    """Groups that the first replica leads."""

    name = NAME
    syncs = frozenset({Sync.NONE, Sync.TURN})
    has_leader = True
    needs_locations = False
    limits: Mapping[str, Bounds] = {}

    def kept_by(self, group: GroupConfig) -> str:
        """Name the engine."""
        del group
        return self.name

    def check(self, group: GroupConfig) -> None:
        """Refuse what only stacks know."""
        if group.stack:
            raise CoterieError(f'engine = "{self.name}" has no stack: leave one of the two out')

    def load(self, group: GroupConfig) -> Definition:
        """Load the class of a group."""
        return load_class(group.class_)

    def found(self, disk: Disk, slot: Slot) -> None:
        """Set the bootstrap mark of a replica."""
        found_group(disk, slot.group, slot.replica)

    def start(self, disk: Disk, slot: Slot) -> _Start:
        """Recover a replica from its journal."""
        return _Start(disk, slot)


class _Start:
    def __init__(self, disk: Disk, slot: Slot) -> None:
        self._disk = disk
        self._slot = slot
        self._keeper: JournalKeeper
        self._found = STACK.recover(disk, slot.group, slot.replica)
        self.incarnation = self._found.incarnation

    def begin(self, incarnation: int) -> JournalKeeper:
        settings = KeeperSettings(journal=JournalSettings(sync=self._slot.given.sync))
        found = replace(self._found, incarnation=incarnation)
        self._keeper = STACK.open(self._disk, found, settings)
        return self._keeper

    def host(self, live: Seat, port: ClientPort, definition: Definition) -> HostedToy:
        slot = self._slot
        front = ToyFront(port, slot.group)
        hosted = HostedToy(
            live,
            group=slot.group,
            definition=definition,
            stack=NAME,
            configuration=slot.configuration,
            front=front,
            keeper=self._keeper,
            settings=HostSettings(dump_interval=slot.given.dump_interval),
            make=make_toy,
        )
        front.attach(hosted)
        return hosted
