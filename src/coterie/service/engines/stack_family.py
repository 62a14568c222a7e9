"""The family of stacks: what it takes in a configuration, and how its replicas come to life."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as replace_fields

from coterie.journal.engines.stack import STACK
from coterie.kernel.errors import CoterieError
from coterie.objects import HostSettings
from coterie.objects.paper import ObjectReplica
from coterie.runtime.driver import clock
from coterie.service.classes import find_class, load_class
from coterie.service.engines.service_front import ServiceFront, check_multicast, make_datagrams
from coterie.service.engines.stack import HostedObject
from coterie.service.engines.stack_front import ObjectFront
from coterie.service.engines.stack_paper import (
    HostedPaperObject,
    PaperFront,
    define_paper,
    paper_class_of,
)
from coterie.service.limits import Bounds
from coterie.stacks import (
    DEFAULT_STACK,
    OBJECT_STACKS,
    has_engine,
    parse_stack,
)

if TYPE_CHECKING:
    from coterie.journal.disk import Disk
    from coterie.journal.engines.stack_keeper import JournalKeeper
    from coterie.objects import Definition
    from coterie.service.config import GroupConfig
    from coterie.service.engines.family import Slot
    from coterie.service.engines.hosted import HostedReplica, Seat
    from coterie.service.port import ClientPort


LIMITS = {
    "command_bytes_max": Bounds(1 << 10, 1_000_000),  # below `payload_bytes_max` of the group
    "waiting_commands_max": Bounds(1, 1_000_000),
}
"""Fields of `HostSettings` that only the replica that a client talks to looks at."""


def host_settings(slot: Slot) -> HostSettings:
    """Give the settings of a replica's host, as its group's configuration has them."""
    given = slot.given
    settings = HostSettings(
        dump_interval=given.dump_interval, compare_digests=given.compare_digests
    )
    return replace_fields(settings, **given.limits)


def incarnation_after_loss() -> int:
    """Give a life to a disk in place of one that is lost.

    Nobody here knows how many lives there were; each took more than a second.
    """
    return int(time.time())


class StackFamily:
    """Groups whose entries are put into one order by a stack of layers (**objects**)."""

    name = "stack"
    syncs = STACK.syncs  # all replicas execute
    has_leader = False
    needs_locations = False
    limits = LIMITS

    def kept_by(self, group: GroupConfig) -> str:
        """Name the group's stack, which keeps its replicas together."""
        return group.stack or DEFAULT_STACK

    def check(self, group: GroupConfig) -> None:
        """Refuse what is no stack, or none that an object can stand on."""
        parse_stack(self.kept_by(group), examples=OBJECT_STACKS)
        if not has_engine(self.kept_by(group)):
            raise CoterieError(f"stack = {group.stack!r} keeps no history; take {DEFAULT_STACK}")
        check_multicast(group.multicast, self.kept_by(group))
        if group.force_calls:
            raise CoterieError('force_calls is for engine = "vsr": leave it out')

    def load(self, group: GroupConfig) -> Definition:
        """Load the class of a group, which may have the paper's own interface."""
        found = find_class(group.class_)
        if issubclass(found, ObjectReplica):
            if group.limits:
                raise CoterieError(
                    f"limits: {', '.join(group.limits)} is not for a class with the paper's own "
                    "interface: leave it out"
                )
            return define_paper(found)
        return load_class(group.class_)

    def found(self, disk: Disk, slot: Slot) -> None:
        """Set the bootstrap mark of a replica."""
        STACK.found(disk, slot.group, slot.replica)

    def start(self, disk: Disk, slot: Slot) -> _Start:
        """Recover a replica from its journal."""
        return _Start(disk, slot)


class _Start:
    """A replica of an object on its way into a new life."""

    def __init__(self, disk: Disk, slot: Slot) -> None:
        self._disk = disk
        self._slot = slot
        self._keeper: JournalKeeper
        self._found = recovery = STACK.recover(disk, slot.group, slot.replica)
        self.incarnation = recovery.incarnation
        if recovery.incarnation == 1 and not recovery.is_founder:
            self.incarnation = incarnation_after_loss()  # it founds nothing, so it replaces one

    def begin(self, incarnation: int) -> JournalKeeper:
        """Begin the life in the journal."""
        settings = self._slot.keeping
        found = replace(self._found, incarnation=incarnation)
        self._keeper = STACK.open(self._disk, found, settings, at=clock())
        return self._keeper

    def host(self, live: Seat, port: ClientPort, definition: Definition) -> HostedReplica:
        """Build the stack, the host and the front."""
        slot = self._slot
        if paper_class_of(definition) is not None:
            return HostedPaperObject(
                live,
                group=slot.group,
                definition=definition,
                stack=slot.given.stack or DEFAULT_STACK,
                configuration=slot.configuration,
                front=PaperFront(port, slot.group),
                keeper=self._keeper,
            )
        datagrams = make_datagrams(slot)
        front = (
            ObjectFront(port, slot.group)
            if datagrams is None
            else ServiceFront(port, slot.group, datagrams)
        )
        hosted = HostedObject(
            live,
            group=slot.group,
            definition=definition,
            stack=slot.given.stack or DEFAULT_STACK,
            configuration=slot.configuration,
            front=front,
            keeper=self._keeper,
            settings=host_settings(slot),
        )
        front.attach(hosted)
        if datagrams is not None:
            datagrams.hosted = hosted
            hosted.way_in = datagrams
            live.driver.turn_ended.append(datagrams.turn_ended)
        return hosted
