"""Consistent reads that wait until the engine has confirmed that all they must see is here.

Those of one turn share a serial, and the engine confirms serials in order
(`coterie.replication.confirming`). Nothing of this is replicated or written down: a read that is
lost with its replica is asked again elsewhere.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from coterie.kernel.engine import Standing
from coterie.objects.execution.outcomes import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.objects.execution.commands import Read
    from coterie.objects.execution.machine import StateMachine

NO_MAJORITY = "this replica's view has no majority: ask another replica, or wait"
TOO_MANY = "too many requests wait at this replica (waiting_commands_max)"


class ConfirmedReads:
    """The reads of one host, in the order in which they arrived."""

    def __init__(self, waiting_max: int) -> None:
        self.gathered: list[Read] = []
        """Those of the running turn."""
        self.by_time: set[str] = set()
        """Queries that ask what time it is: they take a place in the order, where time passes."""
        self._waiting: deque[tuple[int, list[Read]]] = deque()
        self._count = 0
        self._serial = 0
        self._waiting_max = waiting_max

    def add(self, query: Read) -> bool:
        """Keep a read, if there is room for it."""
        if self._count >= self._waiting_max:
            return False
        self.gathered.append(query)
        self._count += 1
        return True

    def next_serial(self) -> int:
        """Have what has gathered wait; give the serial that is to be confirmed for it."""
        self._serial += 1
        self._waiting.append((self._serial, self.gathered))
        self.gathered = []
        return self._serial

    def read(self, machine: StateMachine, serial: int) -> tuple[list[Answer], list[Read]]:
        """Answer the reads up to a serial; give the answers, and what asked for the time."""
        answers: list[Answer] = []
        to_order: list[Read] = []
        for query in self._take(serial):
            machine.was_asked_time = False
            outcome = machine.ask(query)
            if machine.was_asked_time:
                self.by_time.add(query.method)
                to_order.append(query)
            else:
                answers.append(
                    Answer(0, query.token, outcome, Standing.AUTHORITATIVE, query.asked_at)
                )
        return answers, to_order

    def _take(self, serial: int) -> Iterator[Read]:
        """Give the reads up to a serial, which wait no longer."""
        while self._waiting and self._waiting[0][0] <= serial:
            reads = self._waiting.popleft()[1]
            self._count -= len(reads)
            yield from reads

    def give_up(self) -> list[Read]:
        """Give all reads, which wait no longer."""
        given_up = [*self._take(self._serial), *self.gathered]
        self.gathered = []
        self._count = 0
        return given_up
