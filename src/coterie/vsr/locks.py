"""Strict two-phase locking at a primary: who holds what, who waits for whom.

A transaction holds a lock from the moment a call of it touches an object until it ends (its read
locks, until it is prepared). A call that meets a lock of another transaction waits. If that closes
a circle of transactions waiting for each other, the call is refused instead, with the circle as
the reason: a call that has not run can be refused without aborting anything, and what becomes of
its transaction is for the coordinator to say (design 10 g).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.vsr.psets import Aid


class Mode(enum.IntEnum):
    """How an object is locked."""

    READ = 1
    WRITE = 2


class Locks:
    """The locks of one primary."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[Aid, Mode]] = {}
        self._held: dict[Aid, dict[str, Mode]] = {}
        self._waits: dict[Aid, dict[str, Mode]] = {}

    def acquire(self, aid: Aid, name: str, mode: Mode) -> bool:
        """Take a lock, or make it stronger; False if another transaction is in the way."""
        if self.in_the_way(aid, name, mode):
            return False
        self.grant(aid, name, mode)
        return True

    def grant(self, aid: Aid, name: str, mode: Mode) -> None:
        """Take a lock whoever holds it, for a call that has run with it in an earlier view.

        A transaction that was prepared there had released its read locks, which nobody knows here.
        """
        holders = self._holders.setdefault(name, {})
        strongest = max(holders.get(aid, mode), mode)
        holders[aid] = strongest
        self._held.setdefault(aid, {})[name] = strongest

    def in_the_way(self, aid: Aid, name: str, mode: Mode) -> list[Aid]:
        """Give the transactions that hold a lock which excludes this one."""
        return [
            other
            for other, held in self._holders.get(name, {}).items()
            if other != aid and Mode.WRITE in (held, mode)
        ]

    def held(self, aid: Aid) -> dict[str, Mode]:
        """Give all locks of a transaction."""
        return dict(self._held.get(aid, {}))

    def reset(self, aid: Aid, held: dict[str, Mode]) -> None:
        """Go back to the locks that a transaction held before."""
        for name, mode in list(self._held.get(aid, {}).items()):
            if name not in held:
                self._drop(aid, name)
            elif mode != held[name]:
                self._holders[name][aid] = self._held[aid][name] = held[name]

    def release(self, aid: Aid) -> None:
        """Give up all locks of a transaction."""
        for name in list(self._held.get(aid, {})):
            self._drop(aid, name)
        self._held.pop(aid, None)

    def release_reads(self, aid: Aid) -> None:
        """Give up the read locks of a transaction that is prepared."""
        for name, mode in list(self._held.get(aid, {}).items()):
            if mode is Mode.READ:
                self._drop(aid, name)

    def _drop(self, aid: Aid, name: str) -> None:
        del self._held[aid][name]
        holders = self._holders[name]
        del holders[aid]
        if not holders:
            del self._holders[name]

    # ---- waiting

    def wait(self, aid: Aid, name: str, mode: Mode) -> list[Aid]:
        """Wait for a lock; give the circle of transactions that this would close, if it does."""
        self._waits.setdefault(aid, {})[name] = mode
        circle = self._circle(aid)
        if circle:
            self.stop_waiting(aid, name)
        return circle

    def stop_waiting(self, aid: Aid, name: str) -> None:
        """Do not wait for a lock any more."""
        waits = self._waits.get(aid)
        if waits is not None:
            waits.pop(name, None)
            if not waits:
                del self._waits[aid]

    def _blockers(self, aid: Aid) -> Iterable[Aid]:
        for name, mode in self._waits.get(aid, {}).items():
            yield from self.in_the_way(aid, name, mode)

    def _circle(self, start: Aid) -> list[Aid]:
        """Give a way from a transaction back to itself along who waits for whom."""
        path = [start]
        seen = {start}
        ways = [iter(list(self._blockers(start)))]
        while ways:
            step = next(ways[-1], None)
            if step is None:
                ways.pop()
                path.pop()
            elif step == start:
                return path
            elif step not in seen:
                seen.add(step)
                path.append(step)
                ways.append(iter(list(self._blockers(step))))
        return []
