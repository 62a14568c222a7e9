"""A replicated object in a live process: its stack, its host, and the keeper of its journal."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

from coterie.assembly import make_context, make_object
from coterie.kernel.engine import Role
from coterie.kernel.errors import Refused
from coterie.objects import DEFAULT_HOST_SETTINGS
from coterie.replication.forming import FormingViews
from coterie.runtime.forked import ForkedChunks

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.journal.keeper import JournalKeeper
    from coterie.kernel.engine import Status, Version
    from coterie.kernel.process import Process
    from coterie.kernel.replica import Replica
    from coterie.kernel.views import Configuration
    from coterie.objects import Definition, HostSettings, ObjectHost
    from coterie.objects.fronts import Front
    from coterie.runtime.driver import Driver


def wall_clock() -> int:
    """Give the time of day in microseconds, from which group time is made."""
    return time.time_ns() // 1000


class Seat(Protocol):
    """A process with its driver, in which replicas are hosted (`LiveProcess` is one)."""

    @property
    def process(self) -> Process:
        """The kernel's process."""

    @property
    def driver(self) -> Driver:
        """What takes its turns."""

    def host(self, replica: Replica) -> None:
        """Host a replica from the next turn on."""


class HostedObject:
    """One replica of one replicated object.

    What *keeper* recovered is what the replica knows of its earlier lives; without a keeper it
    knows nothing and keeps nothing. The front is called inside turns: it must not let an answer
    out before the turn has ended (`Driver.turn_ended`).
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        live: Seat,
        *,
        group: str,
        definition: Definition,
        stack: str,
        configuration: Configuration,
        front: Front,
        keeper: JournalKeeper | None = None,
        settings: HostSettings = DEFAULT_HOST_SETTINGS,
    ) -> None:
        self.group = group
        self.definition = definition
        self.stack = stack
        self.configuration = configuration
        self._driver = live.driver
        self._keeper = keeper
        context = make_context(
            live.process,
            group,
            configuration,
            past=None if keeper is None else keeper.past(),
        )
        replica, self.host = make_object(
            definition,
            stack,
            context,
            front,
            settings=settings,
            clock=wall_clock,
            take_snapshot=ForkedChunks,
        )
        self.primary: FormingViews[Any] = next(
            layer for layer in replica.layers if isinstance(layer, FormingViews)
        )
        self.replica = replica
        if keeper is not None:
            keeper.checkpoint = self.primary.checkpoint
            self.host.dump = keeper.dump
            self._driver.turn_ended.append(self._keep_house)
        live.host(replica)

    @property
    def status(self) -> Status | None:
        """Where the replica stands; None before its first turn."""
        return self.host.standing

    @property
    def is_primary(self) -> bool:
        """Whether updates are taken here at present."""
        status = self.status
        return status is not None and status.role is Role.PRIMARY

    def ask(self, request: Callable[[ObjectHost], None]) -> None:
        """Have a request made of the host inside the next turn."""
        host = self.host
        self._driver.call(lambda: request(host))

    @property
    def version(self) -> Version:
        """How advanced the history is."""
        return self.primary.log.version

    @property
    def trouble(self) -> str:
        """Why the replica is not as it should be, in words for an operator; empty if it is."""
        if self._keeper is None:
            return ""
        if self.primary.is_zombie:
            return self._keeper.recovery.reason
        return self._keeper.trouble

    def recover(self) -> asyncio.Future[None]:
        """Let this replica's history count although entries may have been lost.

        Raises `Refused` where it is not needed, or would change nothing: the way out is for a view
        with a majority of the replicas of which too few remember.
        """
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def recover() -> None:
            # Asked here, inside the turn that acts on it, because it may change between turns.
            if outcome.cancelled():
                return
            reason = self._why_not_recover()
            if reason:
                outcome.set_exception(Refused(reason))
            else:
                self.primary.recover()
                outcome.set_result(None)

        self._driver.call(recover)
        return outcome

    def _why_not_recover(self) -> str:
        status = self.status
        if status is None or status.role in {Role.FORMING, Role.LEARNER}:
            return "a primary view is being formed: wait for it"
        if status.role is Role.PRIMARY:
            return "the replica is in a primary view: nothing has to be recovered"
        members = frozenset(member.id for member in status.members)
        if not self.configuration.has_majority(members):
            together = ", ".join(sorted(members))
            return (
                f"the replica is in touch with too few to go on ({together}): "
                "start more of the others"
            )
        return ""

    def leave(self) -> None:
        """Leave the group in good order."""
        self._driver.call(self.replica.leave)

    @property
    def has_left(self) -> bool:
        """Whether the others know that this replica has left."""
        return self.replica.bottom.has_left

    def _keep_house(self) -> None:
        """Have snapshots written and old segments removed, in a thread, while turns go on."""
        if self._keeper is None:
            return
        work = self._keeper.housekeeping()
        if work is not None:
            self._driver.beside(work)
