"""Client sessions: how a retry is recognised. They are part of the replicated state.

A session is opened by an ordered entry, which gives its id: a number made from the identity of
that entry (origin, incarnation, number), which no other entry ever has. A position would not do:
a rolled-back position is taken again, and two clients could hold the same session. So an unknown
id means evicted, and is told so.

A session remembers the outcomes of a *window* of request numbers, not the highest number: after a
roll-back a number may come again after later ones. With every call the client says below which
number it will never ask again (`lowest`). A number below it is refused, executed or not; a number
in the window is answered from it; any other is executed. Outcomes below `lowest` are swept out
every 64th request, at the same request on every replica, so that sweeping costs next to nothing
and what is left is the same everywhere.

Bounds: sessions, outcomes per session, bytes per session and in all. Too many sessions or bytes
in all evict the session that was used at the lowest position, the same on every replica; a window
that is full refuses new requests until the client raises `lowest`. Results of up to 64 bytes are
bounded by their count only and not weighed.

**Without total order** (a commuting class on a stack that gives none) replicas see requests in
different orders, so nothing may depend on it: no session is evicted, a closed one is kept, and
`lowest` is raised only over numbers that were executed here, since one that others have executed
may still be on its way. A call that comes before the opening of its session opens it.
"""

from __future__ import annotations

import heapq
from hashlib import blake2b
from typing import TYPE_CHECKING

from coterie.objects.execution.outcomes import AllDone, Done, Failed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from coterie.kernel.views import Member
    from coterie.objects.settings import HostSettings

SMALL = 64
"""Results up to this size are not weighed."""
SWEEP = 64
"""Outcomes below the lowest number are swept out at every request divisible by this."""


OWNER_BITS = 28
"""How much of a session's number says whose it is."""
_REST_BITS = 63 - OWNER_BITS


def session_id(origin: Member, number: int, owner: int = 0) -> int:
    """Give the id of the session that the entry with this identity opens, for an owner if any.

    Whose it is stands in the number, so that every replica knows it before anything is proposed.
    """
    name = f"{origin.id}#{origin.incarnation}#{number}".encode()
    drawn = (int.from_bytes(blake2b(name, digest_size=8).digest()) >> 1) or 1
    return owner << _REST_BITS | drawn >> OWNER_BITS if owner else drawn


def owner_number(client: str) -> int:
    """Give the number that stands for a client in its sessions; 0 for one without a name."""
    if not client:
        return 0
    digest = blake2b(client.encode(), digest_size=4).digest()
    return (int.from_bytes(digest) >> (32 - OWNER_BITS)) or 1


def owner_of(session: int) -> int:
    """Give whose a session is, if it was opened for somebody."""
    return session >> _REST_BITS


class Session:
    """One client's window."""

    __slots__ = ("bytes", "id", "lowest", "outcomes", "used")

    def __init__(self, id: int, used: int, lowest: int = 1) -> None:
        self.id = id
        self.used = used
        """The position of the last entry that used it."""
        self.lowest = lowest
        self.outcomes: dict[int, Done | Failed | AllDone] = {}
        """What is kept of requests, by number; calls that came as one entry share one outcome."""
        self.bytes = 0

    def outcome(self, request: int) -> Done | Failed | None:
        """Give how a request ended, if that is remembered."""
        found = self.outcomes.get(request)
        return found.of(request) if isinstance(found, AllDone) else found

    def copy(self) -> Session:
        """Give an equal session that shares only what never changes."""
        twin = Session(self.id, self.used, self.lowest)
        twin.outcomes = self.outcomes.copy()
        twin.bytes = self.bytes
        return twin


class Sessions:
    """All sessions of a group."""

    __slots__ = ("_heap", "_settings", "bytes", "evicted", "is_ordered", "table")

    def __init__(self, settings: HostSettings, *, is_ordered: bool = True) -> None:
        self._settings = settings
        self.is_ordered = is_ordered
        self.table: dict[int, Session] = {}
        self.bytes = 0
        self.evicted = 0
        # (position of last use when pushed, id), one for each session: a use since then is found
        # out when popped, so that using a session costs one assignment. None: to be made.
        self._heap: list[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self.table)

    def open(self, id: int, position: int) -> Session | None:
        """Open a session; None if, against all odds, the id is taken.

        Without order, a call that was faster than the opening has opened it already.
        """
        if id in self.table:
            return None if self.is_ordered else self.table[id]
        while self.is_ordered and len(self.table) >= self._settings.sessions_max:
            self._evict_least_recently_used(spare=id)
        session = self.table[id] = Session(id, position)
        if self._heap is not None:
            heapq.heappush(self._heap, (position, id))
        return session

    def close(self, id: int) -> bool:
        """Forget a session; say whether it was there."""
        session = self.table.pop(id, None)
        if session is None:
            return False
        self.bytes -= session.bytes
        return True

    def has_room(self, session: Session) -> bool:
        """Say whether one more outcome may be kept; sweep first if it looks full."""
        settings = self._settings
        if not self.is_ordered:
            return True
        if (
            len(session.outcomes) < settings.window_requests_max
            and session.bytes < settings.window_bytes_max
        ):
            return True
        self.sweep(session)
        return (
            len(session.outcomes) < settings.window_requests_max
            and session.bytes < settings.window_bytes_max
        )

    def raise_lowest(self, session: Session, lowest: int) -> None:
        """Take the client's word that it will never ask below *lowest* again."""
        if self.is_ordered:
            session.lowest = max(session.lowest, lowest)
            return
        outcomes = session.outcomes
        reached = session.lowest
        while reached < lowest and reached in outcomes:
            self._drop(session, outcomes.pop(reached))
            reached += 1
        session.lowest = reached

    def sweep(self, session: Session) -> None:
        """Forget outcomes below the lowest number."""
        lowest = session.lowest
        outcomes = session.outcomes
        gone = [number for number in outcomes if number < lowest]
        if session.bytes:
            for number in gone:
                self._drop(session, outcomes[number])
        for number in gone:
            del outcomes[number]

    def _drop(self, session: Session, outcome: Done | Failed | AllDone) -> None:
        weight = weigh(outcome)
        session.bytes -= weight
        self.bytes -= weight

    def add_weight(self, session: Session, weight: int) -> None:
        """Count a large outcome; evict other sessions if there is too much of it."""
        session.bytes += weight
        self.bytes += weight
        while (
            self.is_ordered
            and self.bytes > self._settings.sessions_bytes_max
            and len(self.table) > 1
        ):
            self._evict_least_recently_used(spare=session.id)

    def _evict_least_recently_used(self, spare: int) -> None:
        heap = self._heap
        if heap is None or len(heap) > 2 * len(self.table) + SWEEP:
            heap = self._heap = [(session.used, session.id) for session in self.table.values()]
            heapq.heapify(heap)
        spared: tuple[int, int] | None = None
        while True:
            used, id = heapq.heappop(heap)
            session = self.table.get(id)
            if session is None:
                continue
            if id == spare:
                spared = (used, id)
            elif session.used > used:
                heapq.heappush(heap, (session.used, id))
            else:
                break
        if spared is not None:
            heapq.heappush(heap, spared)
        self.close(id)
        self.evicted += 1

    # ---- copies and snapshots

    def copy(self) -> Sessions:
        """Give equal sessions that share only what never changes."""
        twin = Sessions(self._settings, is_ordered=self.is_ordered)
        twin.table = {id: session.copy() for id, session in self.table.items()}
        twin.bytes = self.bytes
        twin.evicted = self.evicted
        return twin

    def without_order(self) -> Sessions:
        """Give equal sessions, to go on with by the rules of groups without order."""
        twin = self.copy()
        twin.is_ordered = False
        return twin

    def outcome_of(self, session: int, request: int) -> Done | Failed | None:
        """Give the outcome of a request, if it was executed and is remembered."""
        found = self.table.get(session)
        if found is None or request < found.lowest:
            return None
        return found.outcome(request)

    def in_order(self) -> Iterator[Session]:
        """Give the sessions in an order that all replicas share."""
        return iter(sorted(self.table.values(), key=_by_id))

    def take(self, session: Session, outcomes: Iterable[tuple[int, Done | Failed]]) -> None:
        """Put in a session from a snapshot, or more outcomes of it."""
        session = self.table.setdefault(session.id, session)
        for number, outcome in outcomes:
            session.outcomes[number] = outcome
            weight = weigh(outcome)
            session.bytes += weight
            self.bytes += weight


def weigh(outcome: Done | Failed | AllDone) -> int:
    """Give the bytes for which an outcome counts."""
    if isinstance(outcome, AllDone):
        return 0  # large results are not put together
    size = len(outcome.result) if isinstance(outcome, Done) else len(outcome.message)
    return size if size > SMALL else 0


def _by_id(session: Session) -> int:
    return session.id
