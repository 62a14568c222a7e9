"""A member: one replica of a group, as the program that runs it sees it.

What happens to the replica inside a turn is told to a `Watcher` after the turn, when the records
are written and the frames have left: whoever acts on a delivery can rely on it being on record.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from coterie.kernel.errors import BacklogFull, Refused
from coterie.kernel.layers import Batch
from coterie.kernel.views import Member as Life
from coterie.kernel.views import View, ViewId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.replica import Replica
    from coterie.runtime.driver import Driver


class Transitional(NamedTuple):
    """The regular part of a view is over; what follows holds for these members only."""

    view: ViewId
    members: tuple[Life, ...]


Event = Batch | Transitional | View


class Watcher(Protocol):
    """Who is told what happens to a member."""

    def happened(self, events: Sequence[Event]) -> None:
        """Take everything that one turn brought, in order."""


class HasLeft(Refused):
    """This member has left its group and takes no more casts."""


class LiveMember:
    """The handle of one replica in a live process."""

    def __init__(self, driver: Driver, watcher: Watcher) -> None:
        self.view: View | None = None
        """The current view; None until the first turn."""
        self.application = _Application(self)
        self.events: list[Event] = []
        self._driver = driver
        self._watcher = watcher
        self._replica: Replica
        self._waiting: list[asyncio.Future[None]] = []
        self._leaving: asyncio.Future[None] | None = None

    def attach(self, replica: Replica) -> None:
        """Learn which replica this is the handle of."""
        self._replica = replica
        self._driver.turn_ended.append(self._turn_ended)

    # ---- use

    def cast_soon(self, payloads: Sequence[bytes], *, safe: bool = False) -> asyncio.Future[int]:
        """Multicast messages in the next turn.

        The future gives the number of the first message, once the turn is over, or raises
        `Refused` if the messages were not taken; then they have no effect at all.
        """
        outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        replica = self._replica

        def cast() -> None:
            if outcome.cancelled():
                return
            try:
                if self._leaving is not None:
                    raise HasLeft("this member is leaving its group and takes no more casts")
                outcome.set_result(replica.cast(payloads, safe=safe))
            except Refused as refusal:
                outcome.set_exception(refusal)

        self._driver.call(cast)
        return outcome

    async def cast(self, payloads: Sequence[bytes], *, safe: bool = False) -> int:
        """Multicast messages, and wait as long as too much is waiting already.

        Gives the number of the first one. Raises `PayloadTooLarge` or `HasLeft`.
        """
        while True:
            try:
                return await self.cast_soon(payloads, safe=safe)
            except BacklogFull:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(waiter)
                await waiter

    async def leave(self) -> None:
        """Leave the group in good order: what was cast is stable first, if that comes soon."""
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_future()
            self._driver.call(self._replica.leave)
        await asyncio.shield(self._leaving)

    # ---- the turn

    def _turn_ended(self) -> None:
        events = self.events
        if events:
            self.events = []
            self._watcher.happened(events)
        leaving = self._leaving
        if self._waiting and (events or leaving is not None):
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
        if leaving is not None and self._replica.bottom.has_left and not leaving.done():
            leaving.set_result(None)


class _Application:
    """The top of the stack: keeps what happens until the turn is over."""

    def __init__(self, member: LiveMember) -> None:
        self._member = member

    def deliver(self, batches: list[Batch]) -> None:
        self._member.events.extend(batches)

    def transitional(self, view: ViewId, members: tuple[Life, ...]) -> None:
        self._member.events.append(Transitional(view, members))

    def view(self, view: View) -> None:
        self._member.view = view
        self._member.events.append(view)
