"""A replicated object in a live process: its stack, its host, and the keeper of its journal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from coterie.assembly import make_context, make_object
from coterie.kernel.engine import Role
from coterie.replication.primary import PrimaryViews

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.journal.keeper import JournalKeeper
    from coterie.kernel.engine import Status
    from coterie.kernel.views import Configuration
    from coterie.objects import Definition, ObjectHost
    from coterie.objects.fronts import Front
    from coterie.runtime.process import LiveProcess


def wall_clock() -> int:
    """Give the time of day in microseconds, from which group time is made."""
    return time.time_ns() // 1000


class HostedObject:
    """One replica of one replicated object.

    What *keeper* recovered is what the replica knows of its earlier lives; without a keeper it
    knows nothing and keeps nothing. The front is called inside turns: it must not let an answer
    out before the turn has ended (`Driver.turn_ended`).
    """

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        live: LiveProcess,
        *,
        group: str,
        definition: Definition,
        stack: str,
        configuration: Configuration,
        front: Front,
        keeper: JournalKeeper | None = None,
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
        replica, self.host = make_object(definition, stack, context, front, clock=wall_clock)
        self.primary: PrimaryViews = next(
            layer for layer in replica.layers if isinstance(layer, PrimaryViews)
        )
        self.replica = replica
        if keeper is not None:
            keeper.checkpoint = self.primary.checkpoint
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

    def recover(self) -> None:
        """Let this replica's history count although it may have lost entries; see `recover`."""
        self._driver.call(self.primary.recover)

    def leave(self) -> None:
        """Leave the group in good order."""
        self._driver.call(self.replica.leave)

    def _keep_house(self) -> None:
        """Have snapshots written and old segments removed, in a thread, while turns go on."""
        if self._keeper is None:
            return
        work = self._keeper.housekeeping()
        if work is not None:
            self._driver.beside(work)
