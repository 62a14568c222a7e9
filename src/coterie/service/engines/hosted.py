"""A replica in a live process, whichever engine it has.

What the process, its clients' port, its metrics and its log need of a replica is asked here. What
is the same for all engines is done here, too; an engine's own module says the rest.
"""

from __future__ import annotations

import abc
import asyncio
import time
from typing import TYPE_CHECKING, ClassVar, Protocol

from coterie.kernel.engine import Role
from coterie.kernel.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from coterie.journal.keeper import Keeper
    from coterie.kernel.engine import HistoryKeeper, Status, Version
    from coterie.kernel.process import Process
    from coterie.kernel.replica import Replica
    from coterie.kernel.views import Configuration, ReplicaAddresses
    from coterie.objects import Definition
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
        """What takes the turns of the process."""

    def host(self, replica: Replica) -> None:
        """Host a replica from the next turn on."""


class HostedReplica(abc.ABC):
    """One replica of one group; *keeper* keeps its journal, if it has one.

    *lost* says why the replica has lost what it knew, in words, if it has.
    """

    cannot_recover: ClassVar[str] = ""
    """Why an operator cannot let the group go on with loss; empty where `recover` may do it."""
    way_in: AbstractAsyncContextManager[object] | None = None
    """One more way in for clients, opened with the clients' port, where an engine has one."""
    figures_help: ClassVar[Mapping[str, str]] = {}
    """What the names in `figures` mean."""

    def __init__(
        self,
        live: Seat,
        replica: Replica,
        *,
        configuration: Configuration,
        keeper: Keeper | None = None,
        lost: str = "",
    ) -> None:
        assert replica.history is not None, "what is hosted here keeps a history"
        self.group = replica.context.group
        self._configuration = configuration
        self.replica = replica
        self.history: HistoryKeeper = replica.history
        self._driver = live.driver
        self._keeper = keeper
        self._lost = lost
        self._driver.turn_ended.append(self._turn_ended)
        live.host(replica)

    # ---- what it says of itself

    @property
    def configuration(self) -> Configuration:
        """Who belongs to the group, as far as is known here."""
        return self._configuration

    @property
    @abc.abstractmethod
    def definition(self) -> Definition:
        """The class it executes; a group may go on as a later version of it."""

    @property
    @abc.abstractmethod
    def status(self) -> Status | None:
        """Where the replica stands; None before its first turn."""

    @property
    def is_primary(self) -> bool:
        """Whether updates are taken here at present."""
        status = self.status
        return status is not None and status.role is Role.PRIMARY

    @property
    def version(self) -> Version:
        """How advanced the history is."""
        return self.history.version

    @property
    def position(self) -> int:
        """The position of the last entry that its state reflects."""
        return self.history.position

    @property
    def settled(self) -> int:
        """Up to which position the history is authoritative."""
        return self.history.settled

    @property
    def trouble(self) -> str:
        """Why the replica is not as it should be, in words for an operator; empty if it is."""
        if self.history.is_zombie:
            return self._lost
        return "" if self._keeper is None else self._keeper.trouble

    @property
    def faults(self) -> Sequence[str]:
        """What went wrong in the class it executes, in words."""
        return ()

    def details(self) -> dict[str, str | int]:
        """Say what only this engine has to say, for its status and its log."""
        return {}

    def figures(self) -> dict[str, float]:
        """Give what only this engine counts, for its metrics; `figures_help` explains each name."""
        return {}

    # ---- what is asked of it

    def call(self, work: Callable[[], None]) -> None:
        """Have something done inside the next turn."""
        self._driver.call(work)

    def call_alone(self, work: Callable[[], None]) -> None:
        """Have something done inside the next turn; nothing came with it, as far as is known."""
        self._driver.call_alone(work)

    def leave(self) -> None:
        """Leave the group in good order."""
        self._driver.call(self.replica.leave)

    @property
    def has_left(self) -> bool:
        """Whether the others know that this replica has left."""
        return self.replica.bottom.has_left

    def recover(self) -> asyncio.Future[None]:
        """Let this replica's history count although entries may have been lost.

        Raises `Refused` where it is not needed, would change nothing, or is not possible.
        """

        def recover() -> None:
            self._check_recovery()
            self.history.recover()

        return self.in_turn(recover)

    def in_turn(self, work: Callable[[], None], *, expected: int = 0) -> asyncio.Future[None]:
        """Have something done inside the next turn; the future raises `Refused` where *work* does.

        What it depends on is to be looked at there, because it may change between turns: *expected*
        is the number that the group's configuration must have then, if it matters.
        """
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def do() -> None:
            if outcome.cancelled():
                return
            try:
                self._check_configuration(expected)
                work()
            except Refused as refusal:
                outcome.set_exception(refusal)
            else:
                outcome.set_result(None)

        self._driver.call(do)
        return outcome

    def _check_configuration(self, expected: int) -> None:
        number = self.configuration.number
        if expected not in {0, number}:
            raise Refused(f"the configuration is {number} by now, not {expected}")

    def admit(self, id: str, at: ReplicaAddresses | None = None) -> None:
        """Have a replica join the group, found *at* these addresses; inside a turn.

        Raises `Refused` if it cannot be. What comes of it is in `configuration`.
        """
        del at
        raise Refused(f"{id} cannot join: {self.members_stay}")

    def dismiss(self, id: str) -> None:
        """Have a replica removed; inside a turn. Raises `Refused` if it cannot be."""
        raise Refused(f"{id} cannot go: {self.members_stay}")

    @property
    def members_stay(self) -> str:
        """Why the members of the group cannot change while it serves, in words; empty if so."""
        return "the members of a group of this engine do not change while it serves"

    @property
    def is_removed(self) -> bool:
        """Whether the group has gone on without this replica for good, and it has left."""
        return self.replica.context.is_removed and self.has_left

    def mark_removed(self) -> None:
        """See to it that the replica never starts again on its disk; for one that is removed."""
        if self._keeper is not None:
            self._keeper.mark_removed()

    def _check_recovery(self) -> None:
        """Raise `Refused` where `recover` must not be, or would change nothing."""
        if self.cannot_recover:
            raise Refused(self.cannot_recover)

    def _turn_ended(self) -> None:
        """Have snapshots written and old segments removed, in a thread, while turns go on."""
        if self._keeper is None:
            return
        work = self._keeper.housekeeping()
        if work is not None:
            self._driver.beside(work)
