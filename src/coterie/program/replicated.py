"""The course of a replica: it follows, and leads from wherever the orders end once it is told to.

A process that takes over is somewhere in its program, in the middle of a call that waits for the
next entry. There it stops following and decides for itself: nothing is run again, and nobody who
is connected notices. So who follows keeps everything that whoever leads has: clients that are not
accepted yet, signals, and how much output waits outside. It tells its agent the same as whoever
leads, in the same order: what was not ordered before the other one died, is ordered then.

The group's clock goes on from what was last decided, never back; whoever leads shows the time since
the group was founded, as far as its machine knows it.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from coterie.program import freezing
from coterie.program.courses import LeadingCourse
from coterie.program.entries import BadEntries, ProgramEntry, unpack
from coterie.program.wire import BadWire, WireFrame, WireKind, WireReader

if TYPE_CHECKING:
    from typing import NoReturn

NOT_ALONE = (
    "no copy of the program's state can be made: an extension module has threads of its own; the"
    " log since the founding is kept instead"
)
# The determinizer replaces these names in their modules; a course needs the real ones.
_monotonic, _wall = time.monotonic_ns, time.time_ns


class ReplicaCourse(LeadingCourse):
    """Follows orders, then leads."""

    def __init__(self, wire: int, founded: int, folder: int | None = None) -> None:
        super().__init__(wire)
        self.is_leading = False
        self._folder = folder
        self._inputs = 0
        """How many inputs have come since the founding."""
        self._has_told = False
        self._taken: dict[int, int] = {}
        """How much of each connection's output was taken outside."""
        self._founded = founded
        self._frames: deque[deque[ProgramEntry]] = deque()
        self._executed = 0
        self._may_lead = False
        self._base = 0

    # ---- following

    def peek(self) -> ProgramEntry | None:
        while True:
            while self._frames:
                if self._frames[0]:
                    return self._frames[0][0]
                self._frames.popleft()
                self._executed += 1
                self.send(WireKind.EXECUTED, value=self._executed)
            if self._may_lead:
                self.is_leading = True
                return None
            self.flush()
            self._receive()

    def drop(self) -> None:
        self._frames[0].popleft()

    def _take(self, each: WireFrame) -> None:
        match each[0]:
            case WireKind.ENTRIES if not self._may_lead:
                try:
                    self._frames.append(deque(unpack(each[3])))
                except BadEntries as error:
                    raise BadWire(str(error)) from None
            case WireKind.LEAD:
                self._may_lead = True
            case WireKind.FREEZE:
                self.must_freeze = self._folder is not None
            case WireKind.DELIVERED:
                self._deliver(each[1], each[2])
            case WireKind.PING:
                super()._take(each)
            case _:
                self._inputs += 1
                super()._take(each)

    def _deliver(self, number: int, at: int) -> None:
        if at > self._taken.get(number, 0) and number in self._sent:
            self._taken[number] = at
            self.on_input(number)

    def room(self, conn: int) -> int:
        return super().room(conn) + self._taken.get(conn, 0)

    def send(self, kind: WireKind, number: int = 0, value: int = 0, payload: bytes = b"") -> None:
        if kind == WireKind.CLOSED:
            self._taken.pop(number, None)
        super().send(kind, number, value, payload)

    # ---- the state

    def freeze(self) -> bool:
        self.must_freeze = False
        self._seal()
        # What is read and not said yet is said here, or a copy would wait for it with its reader.
        for conn, count in sorted(self._unread.items()):
            super(LeadingCourse, self).send(WireKind.CONSUMED, conn, count)
        self._unread.clear()
        self.flush()
        if self._folder is None:
            return False
        if not freezing.is_alone():
            if not self._has_told:
                self.tell(WireKind.SAID, NOT_ALONE)
            self._has_told = True
            return False
        pid, name = freezing.freeze(self._folder, self._wire)
        if pid:
            self.send(WireKind.FROZEN, pid, self._inputs, name.encode())
            self.flush()
            return False
        self.is_leading = self._may_lead = False
        self._reader = WireReader()
        self._out.clear()
        self._frames.clear()
        self._executed = 0
        self.on_thawed()
        return True

    # ---- leading

    @property
    def may_connect(self) -> bool:
        return True

    def begin_leading(self, now: int) -> None:
        self._base = max(now, _wall() - self._founded)
        self._begun = _monotonic()

    def clock(self) -> int:
        return self._base + _monotonic() - self._begun

    def leave(self, status: int) -> NoReturn:
        # Whoever ends as the orders say has executed the last of them.
        if not self.is_leading:
            self._executed += len(self._frames)
            self._frames.clear()
            self.send(WireKind.EXECUTED, value=self._executed)
        super().leave(status)
