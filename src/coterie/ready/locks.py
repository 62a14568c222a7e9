"""Locks that end, with fencing numbers."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from coterie.objects import now, query, update
from coterie.ready import expiry
from coterie.ready.limits import Full, Name, Seconds, microseconds


class Holding(msgspec.Struct, frozen=True):
    """Who holds a lock, under which number, and until which group time (microseconds)."""

    owner: str
    fence: int
    expires: int


class Locks:
    """Any number of locks, by name.

    A lock is given for a time, its *lease*, and ends with it unless it is renewed: so an owner
    that dies does not hold it for ever. The lease runs by group time, which the owner cannot see;
    it should count from before it asked, by its own clock, and stop well before the end.

    That is not enough, for a paused owner does not know that it was paused. Each holding has a
    *fence*, a number higher than any before it. Whoever keeps what the lock protects refuses a
    number lower than one it has seen: then an owner that comes too late does no harm.

    A lock that is held is not given again before it is released or has ended, not even to the same
    owner; a restarted owner that has kept its fence may go on with it.
    """

    locks_max: ClassVar[int] = 100_000

    held: dict[str, Holding] = {}  # noqa: RUF012 -- each object has its own copy
    agenda: list[tuple[int, str]] = []  # noqa: RUF012
    last_fence: int = 0

    @update
    def acquire(self, name: Name, owner: Name, lease: Seconds = 10.0) -> int | None:
        """Take a lock for *lease* seconds; give its fence, or None if it is held.

        Raises `Full` if too many locks are held.
        """
        if self._holding(name) is not None:
            return None
        if name not in self.held and len(self.held) >= self.locks_max:
            raise Full(f"{self.locks_max} locks are held (locks_max): release some first")
        self.last_fence += 1
        self._hold(name, Holding(owner, self.last_fence, now() + microseconds(lease)))
        return self.last_fence

    @update
    def renew(self, name: Name, fence: int, lease: Seconds = 10.0) -> bool:
        """Hold on to a lock for *lease* seconds from now; False if it is held no more."""
        holding = self._holding(name)
        if holding is None or holding.fence != fence:
            return False
        self._hold(name, Holding(holding.owner, fence, now() + microseconds(lease)))
        return True

    @update
    def release(self, name: Name, fence: int) -> bool:
        """Give a lock back; False if it was held no more."""
        holding = self._holding(name)
        if holding is None or holding.fence != fence:
            return False
        del self.held[name]
        return True

    @query
    def holder(self, name: Name) -> Holding | None:
        """Say who holds a lock; None if it is free."""
        return self._holding(name)

    @query
    def is_current(self, name: Name, fence: int) -> bool:
        """Say whether the lock is held under this number at present."""
        holding = self._holding(name)
        return holding is not None and holding.fence == fence

    @query
    def count(self) -> int:
        """Give how many locks are held, with those that ended since the last tick."""
        return len(self.held)

    def on_tick(self) -> None:
        """Free the places of locks that have ended."""
        for when, name in expiry.ended(self.agenda, now()):
            if self._is_due(when, name):
                del self.held[name]

    def _holding(self, name: str) -> Holding | None:
        holding = self.held.get(name)
        return holding if holding is not None and holding.expires > now() else None

    def _hold(self, name: str, holding: Holding) -> None:
        self.held[name] = holding
        expiry.enter(self.agenda, holding.expires, name)
        expiry.sweep(self.agenda, len(self.held), self._is_due)

    def _is_due(self, when: int, name: str) -> bool:
        holding = self.held.get(name)
        return holding is not None and holding.expires == when
