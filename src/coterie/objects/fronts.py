"""What stands around a host: the engine below it, and the front that speaks for clients."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.kernel.engine import Status
    from coterie.kernel.requests import ServiceRequest
    from coterie.kernel.views import ViewId
    from coterie.objects.execution.outcomes import Answer


class Level(enum.Enum):
    """How much a read may claim."""

    DIRTY = "dirty"
    """What this replica knows, also what may be rolled back."""
    WEAK = "weak"
    """What this replica knows to be authoritative; it may be old."""
    CONSISTENT = "consistent"
    """Linearizable: the read takes a place in the order, or is confirmed (`ObjectHost.read`)."""


class Proposer(Protocol):
    """What the host asks of an engine (`coterie.kernel.engine.Engine`)."""

    def propose(self, payloads: Sequence[bytes]) -> object:
        """Have entries ordered; raise `Refused`, with no effect, when too much is waiting."""

    def confirm(self, serial: int, confirmed: Callable[[int], None]) -> None:
        """Have *confirmed* called when all is settled here that a reader must see."""


class Synchroniser(Protocol):
    """The layer that decides who speaks to clients that know nothing of replication (ONUS)."""

    def receive(self, request: ServiceRequest, *, relay: bool = False) -> bool:
        """Take a request that is not on record; say whether it is kept."""

    def has_onus(self, client: int) -> bool:
        """Say whether this replica speaks for a client in the present view."""

    def delivered(self, request: ServiceRequest, view: ViewId) -> bool:
        """Learn that a request is executed; say whether this replica answers it."""


class Front(Protocol):
    """Whoever stands between the host and those who ask."""

    def answer(self, answers: list[Answer]) -> None:
        """Take answers; some may be for requests nobody waits for any more."""

    def settled(self, position: int) -> None:
        """Learn that all answers from positions up to this one are authoritative now."""

    def rolled_back(self, position: int) -> None:
        """Learn that all answers from positions above this one are void."""

    def restored(self, position: int) -> None:
        """Learn that the state was replaced: ask `outcome_of` for what is still waited for."""

    def status_changed(self, status: Status) -> None:
        """Learn that this replica's role, view or members have changed."""


class NoFront:
    """A front with nobody behind it."""

    def answer(self, answers: list[Answer]) -> None:
        pass

    def settled(self, position: int) -> None:
        pass

    def rolled_back(self, position: int) -> None:
        pass

    def restored(self, position: int) -> None:
        pass

    def status_changed(self, status: Status) -> None:
        pass
