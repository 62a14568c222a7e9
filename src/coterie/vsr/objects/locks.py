"""Strict two-phase locking at a primary: who holds what, who waits for whom.

A call takes the lock of every object it touches. A transaction holds the locks of its calls until
it ends (its read locks, until it is prepared). A call that meets a lock of another transaction
waits. If that closes a circle of transactions waiting for each other, the call is refused instead,
with the circle as the reason: a call that has not run can be refused without aborting anything, and
what becomes of its transaction is for the coordinator to say (design 10 g).

Calls that a client makes at the same time, in one transaction, are subactions that must not see
each other's work either (3.6). A lock belongs to its call until that, and the client's call that it
is a part of, is over; then the transaction inherits it, and no call of it has to wait for it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from coterie.vsr.commit.psets import Aid, CallId, number_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.vsr.commit.psets import CallsProgress


class Mode(enum.IntEnum):
    """How an object is locked."""

    READ = 1
    WRITE = 2


class LockOwner(NamedTuple):
    """A call that has taken locks; a transaction has those that it inherited under no call."""

    aid: Aid
    call: CallId


class LockTable:
    """The locks of one primary."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[LockOwner, Mode]] = {}
        self._held: dict[Aid, dict[LockOwner, dict[str, Mode]]] = {}
        self._waits: dict[Aid, dict[tuple[CallId, str], Mode]] = {}

    def acquire(self, owner: LockOwner, name: str, mode: Mode, progress: CallsProgress) -> bool:
        """Take a lock, or make it stronger; False if somebody is in the way."""
        if not self.is_free(owner, name, mode, progress):
            return False
        self.grant(owner, name, mode)
        return True

    def is_free(self, owner: LockOwner, name: str, mode: Mode, progress: CallsProgress) -> bool:
        """Say whether no other transaction, and no other call of this one, is in the way.

        What a call holds is in nobody's way in its own transaction once *progress* says it is over.
        """
        number = number_of(owner.call)
        for other, held in self._holders.get(name, {}).items():
            if held is Mode.READ and mode is Mode.READ:
                continue
            if other.aid != owner.aid:
                return False
            if other.call and other.call != owner.call:
                its_number = number_of(other.call)
                if its_number != number and not progress.is_over(its_number):
                    return False
        return True

    def grant(self, owner: LockOwner, name: str, mode: Mode) -> None:
        """Take a lock whoever holds it, for a call that has run with it in an earlier view.

        A transaction that was prepared there had released its read locks, which nobody knows here.
        """
        holders = self._holders.setdefault(name, {})
        strongest = max(holders.get(owner, mode), mode)
        holders[owner] = strongest
        self._held.setdefault(owner.aid, {}).setdefault(owner, {})[name] = strongest

    def inherit(self, owner: LockOwner) -> None:
        """Pass the locks of a call that is over on to its transaction."""
        for name, mode in self._held.get(owner.aid, {}).get(owner, {}).items():
            self.grant(LockOwner(owner.aid, ""), name, mode)
        self.release_call(owner)

    def in_the_way(self, aid: Aid, name: str, mode: Mode) -> list[Aid]:
        """Give the other transactions that hold a lock which excludes this one."""
        holders = self._holders.get(name, {})
        return list(
            dict.fromkeys(
                other.aid
                for other, held in holders.items()
                if other.aid != aid and Mode.WRITE in (held, mode)
            )
        )

    def release_call(self, owner: LockOwner) -> None:
        """Give up the locks that a call has taken."""
        calls = self._held.get(owner.aid)
        if calls is None:
            return
        for name in calls.pop(owner, ()):
            self._drop(owner, name)
        if not calls:
            del self._held[owner.aid]

    def release(self, aid: Aid) -> None:
        """Give up all locks of a transaction."""
        for owner, held in self._held.pop(aid, {}).items():
            for name in held:
                self._drop(owner, name)

    def release_reads(self, aid: Aid) -> None:
        """Give up the read locks of a transaction that is prepared."""
        for owner, held in self._held.get(aid, {}).items():
            for name in [name for name, mode in held.items() if mode is Mode.READ]:
                del held[name]
                self._drop(owner, name)

    def _drop(self, owner: LockOwner, name: str) -> None:
        holders = self._holders[name]
        del holders[owner]
        if not holders:
            del self._holders[name]

    # ---- waiting

    def wait(self, owner: LockOwner, name: str, mode: Mode) -> list[Aid]:
        """Wait for a lock; give the circle of transactions that this would close, if it does."""
        self._waits.setdefault(owner.aid, {})[owner.call, name] = mode
        circle = self._circle(owner.aid)
        if circle:
            self.stop_waiting(owner, name)
        return circle

    def stop_waiting(self, owner: LockOwner, name: str) -> None:
        """Do not wait for a lock any more."""
        waits = self._waits.get(owner.aid)
        if waits is not None:
            waits.pop((owner.call, name), None)
            if not waits:
                del self._waits[owner.aid]

    def _blockers(self, aid: Aid) -> Iterable[Aid]:
        for (_, name), mode in self._waits.get(aid, {}).items():
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
