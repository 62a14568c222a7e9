"""What stands around a host: the engine below it, and the front that speaks for clients."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.engine import Status
    from coterie.objects.outcomes import Answer


class Level(enum.Enum):
    """How much a read may claim."""

    DIRTY = "dirty"
    """This replica, all it knows."""
    WEAK = "weak"
    """This replica, only what is authoritative; it may be old."""
    CONSISTENT = "consistent"
    """Linearizable: the read takes a place in the order."""


class Proposer(Protocol):
    """What the host asks of an engine (`coterie.kernel.engine.Engine`)."""

    def propose(self, payloads: Sequence[bytes]) -> object:
        """Have entries ordered; raise `Refused`, with no effect, when too much is waiting."""


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

    def status(self, status: Status) -> None:
        """Learn that this replica's standing in the group changed."""


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

    def status(self, status: Status) -> None:
        pass
