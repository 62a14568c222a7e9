"""The family of partitioned networks: what it takes, and how its replicas come to life."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coterie.journal.engines.colours import COLOURS
from coterie.kernel.errors import CoterieError
from coterie.runtime.driver import clock
from coterie.service.classes import load_class
from coterie.service.engines.colours import HostedColours
from coterie.service.engines.colours_front import ColoursFront
from coterie.service.engines.stack_family import LIMITS, host_settings, incarnation_after_loss
from coterie.stacks import COLOURS_STACKS, is_partitioned, parse_stack

if TYPE_CHECKING:
    from coterie.journal.disk import Disk
    from coterie.journal.engines.colours import ColoursKeeper
    from coterie.objects import Definition
    from coterie.service.config import GroupConfig
    from coterie.service.engines.family import Slot
    from coterie.service.engines.hosted import Seat
    from coterie.service.port import ClientPort

DEFAULT = COLOURS_STACKS[0]


class ColoursFamily:
    """Groups in which every side of a partition takes updates (**transis**)."""

    name = "colours"
    syncs = COLOURS.syncs
    has_leader = False
    needs_locations = False
    limits = LIMITS

    def kept_by(self, group: GroupConfig) -> str:
        """Name the group's stack, which keeps its replicas together."""
        return group.stack or DEFAULT

    def check(self, group: GroupConfig) -> None:
        """Refuse what is no such stack."""
        stack = self.kept_by(group)
        parse_stack(stack, examples=COLOURS_STACKS)
        if group.force_calls:
            raise CoterieError('force_calls is for engine = "vsr": leave it out')
        if not is_partitioned(stack):
            raise CoterieError(
                f'stack = {stack!r} is not for engine = "{self.name}"; take {DEFAULT}, or leave '
                "the engine out"
            )

    def load(self, group: GroupConfig) -> Definition:
        """Load the class of a group."""
        return load_class(group.class_)

    def found(self, disk: Disk, slot: Slot) -> None:
        """Set the bootstrap mark of a replica."""
        COLOURS.found(disk, slot.group, slot.replica)

    def start(self, disk: Disk, slot: Slot) -> _Start:
        """Recover a replica from its journal."""
        return _Start(disk, slot)


class _Start:
    """A replica on its way into a new life."""

    def __init__(self, disk: Disk, slot: Slot) -> None:
        self._disk = disk
        self._slot = slot
        self._keeper: ColoursKeeper
        self._found = found = COLOURS.recover(disk, slot.group, slot.replica)
        self.incarnation = found.incarnation
        if found.incarnation == 1 and found.is_zombie:
            self.incarnation = incarnation_after_loss()

    def begin(self, incarnation: int) -> ColoursKeeper:
        """Begin the life in the journal."""
        found = replace(self._found, incarnation=incarnation)
        self._keeper = COLOURS.open(self._disk, found, self._slot.keeping, at=clock())
        return self._keeper

    def host(self, live: Seat, port: ClientPort, definition: Definition) -> HostedColours:
        """Build the stack, the host and the front."""
        slot = self._slot
        front = ColoursFront(port, slot.group)
        hosted = HostedColours(
            live,
            group=slot.group,
            definition=definition,
            stack=slot.given.stack or DEFAULT,
            configuration=slot.configuration,
            front=front,
            keeper=self._keeper,
            settings=host_settings(slot),
        )
        front.attach(hosted)
        return hosted
