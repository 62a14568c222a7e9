"""Simulated programs: threads with locks, clocks, chance and connections, as plain data.

A thread is a place in its script and a few numbers, so a program can be copied as bytes at any
point between two operations. Everything that could come out differently is an operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from zlib import crc32

import msgspec

from coterie.kernel.claims import OrderKind
from coterie.kernel.clock import milliseconds
from coterie.kernel.decoding import Decoder
from coterie.llft.programs import DivergedError, Want

if TYPE_CHECKING:
    from coterie.kernel.claims import Order

REQUEST = 8
"""A request: its number, and what to add, four bytes each."""
REPLY = 16
"""A reply: the number, the sum afterwards (eight bytes), and what was drawn."""
TICK = milliseconds(150)


class Thread(msgspec.Struct, array_like=True):
    """One thread: where it is in its script, and what it holds."""

    place: str = "read"
    conn: str = ""
    """The connection it serves."""
    got: bytes = b""
    rest: bytes = b""
    """What it still has to write."""
    number: int = 0
    calls: int = 0
    """How many connections of its own have ended."""
    request: bytes = b""
    """What it asked on the present one."""
    deadline: int = 0
    """When it tries again."""


class ProgramMemory(msgspec.Struct, array_like=True):
    """What all threads share."""

    threads: list[Thread]
    total: int = 0
    lock: int = -1
    """Which thread holds it."""
    ticks: int = 0
    deadline: int = 0
    clock: int = 0
    ended: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = Decoder(ProgramMemory).decode


class CounterProgram:
    """A server: workers add what requests say to one sum, under a lock; a ticker counts time."""

    workers: ClassVar[int] = 3
    has_ticker: ClassVar[bool] = True
    reply: ClassVar[int] = REPLY
    """How long an answer is."""
    calls: ClassVar[tuple[str, ...]] = ()
    """Connections that it opens: the part of their names before the count."""
    server: ClassVar[str] = ""
    """The program that these go to."""

    def __init__(self) -> None:
        self.memory = ProgramMemory([Thread() for _ in range(self.workers)])

    @property
    def total(self) -> int:
        """The sum."""
        return self.memory.total

    @property
    def mark(self) -> int:
        """What is cheap to compare."""
        memory = self.memory
        return (memory.total * 31 + memory.ticks) & 0xFFFFFFFF

    def snapshot(self) -> bytes:
        """Give everything."""
        return _encode(self.memory)

    def restore(self, state: bytes) -> None:
        """Become what `snapshot` gave."""
        self.memory = _decode(state)

    def may_take(self, thread: int, conn: str) -> bool:
        """Say whether nobody else serves a connection, and it is no connection of our own."""
        if self.calls and conn.partition("/")[0] in self.calls:
            return False
        for index, each in enumerate(self.memory.threads):
            if each.conn == conn and index != thread:
                return False
        return True

    def wants(self) -> list[Want]:
        """Say what every thread would do next."""
        found = []
        for index, thread in enumerate(self.memory.threads):
            found += self._want(index, thread)
        if self.has_ticker:
            found.append(Want(self.workers, OrderKind.TIMEOUT, deadline=self.memory.deadline))
        return found

    def _want(self, index: int, thread: Thread) -> list[Want]:
        match thread.place:
            case "read":
                size = REQUEST - len(thread.got)
                return [Want(index, OrderKind.TOOK, thread.conn, size)]
            case "lock":
                return [Want(index, OrderKind.LOCK)] if self.memory.lock == -1 else []
            case "clock":
                return [Want(index, OrderKind.CLOCK)]
            case "chance":
                return [Want(index, OrderKind.CHANCE)]
            case "write":
                return [Want(index, OrderKind.SENT, thread.conn, data=thread.rest)]
            case _:
                raise AssertionError(thread.place)

    def can_perform(self, order: Order) -> bool:
        """Say that it is never behind."""
        del order
        return True

    def perform(self, order: Order, taken: bytes) -> bytes:
        """Do one operation of one thread."""
        memory = self.memory
        if order.thread == self.workers and self.has_ticker:
            if order.kind is not OrderKind.TIMEOUT or order.clock < memory.deadline:
                raise DivergedError("the ticker's time has not come")
            memory.ticks += 1
            memory.deadline = order.clock + TICK
            return b""
        if not 0 <= order.thread < self.workers:
            raise DivergedError(f"there is no thread {order.thread}")
        thread = memory.threads[order.thread]
        wants = self._want(order.thread, thread)
        kinds = {want.kind for want in wants}
        kinds |= {OrderKind.AGAIN for want in wants if not want.waits}
        if OrderKind.TOOK in kinds:
            kinds.add(OrderKind.ENDED)
        if order.kind not in kinds:
            raise DivergedError(f"thread {order.thread} is at {thread.place}, not {order.kind}")
        return self._do(order, thread, taken)

    def _do(self, order: Order, thread: Thread, taken: bytes) -> bytes:
        memory = self.memory
        match order.kind:
            case OrderKind.TOOK:
                self._took(order, thread, taken)
            case OrderKind.ENDED:
                memory.ended += 1
                self._ended(order, thread)
            case OrderKind.LOCK:
                memory.lock = order.thread
                thread.number = memory.total  # read under the lock, used two operations later
                thread.place = "clock"
            case OrderKind.CLOCK:
                memory.clock = order.value
                thread.place = "chance"
            case OrderKind.CHANCE:
                memory.total = thread.number + int.from_bytes(thread.got[4:])
                memory.lock = -1
                draw = (order.value ^ memory.clock) & 0xFFFFFFFF
                thread.rest = thread.got[:4] + memory.total.to_bytes(8) + draw.to_bytes(4)
                thread.got = b""
                thread.place = "write"
            case OrderKind.SENT:
                return self._sent(order, thread)
            case _:
                raise DivergedError(f"nobody wants {order.kind}")
        return b""

    def _took(self, order: Order, thread: Thread, taken: bytes) -> None:
        thread.conn = order.conn
        thread.got += taken
        if len(thread.got) == REQUEST:
            thread.place = "lock"

    def _ended(self, order: Order, thread: Thread) -> None:
        """A request that ends in the middle is given up with its connection."""
        del order
        thread.conn, thread.got, thread.place = "", b"", "read"

    def _sent(self, order: Order, thread: Thread) -> bytes:
        written, thread.rest = thread.rest[: order.value], thread.rest[order.value :]
        if not thread.rest:
            thread.place, thread.conn = "read", ""
        return written


class TimersProgram(CounterProgram):
    """A server with one worker, most of whose life is time."""

    workers = 1


class DeskProgram(CounterProgram):
    """A server that lets go of each connection that has ended, as well-written ones do."""

    def _want(self, index: int, thread: Thread) -> list[Want]:
        if thread.place == "close":
            return [Want(index, OrderKind.CLOSED, thread.conn)]
        return super()._want(index, thread)

    def _do(self, order: Order, thread: Thread, taken: bytes) -> bytes:
        if order.kind is not OrderKind.CLOSED:
            return super()._do(order, thread, taken)
        thread.conn, thread.place = "", "read"
        return b""

    def _ended(self, order: Order, thread: Thread) -> None:
        thread.conn, thread.got, thread.place = order.conn, b"", "close"


class RelayProgram(CounterProgram):
    """A replicated client of a replicated server: it passes requests on, and replies back."""

    workers = 2
    calls = ("relay:0", "relay:1")
    server = "counter"

    def _call(self, index: int) -> str:
        return f"{self.calls[index]}/{self.memory.threads[index].calls}"

    def _ended(self, order: Order, thread: Thread) -> None:
        """Ask again on a new connection; without a guard the other program's branch was void."""
        if order.conn == self._call(order.thread):
            thread.calls += 1
            thread.rest, thread.got, thread.place = thread.request, b"", "pass"
        else:
            super()._ended(order, thread)

    @property
    def mark(self) -> int:
        """What is cheap to compare."""
        return crc32(repr([each.place for each in self.memory.threads]).encode())

    def _want(self, index: int, thread: Thread) -> list[Want]:
        match thread.place:
            case "pass":
                return [Want(index, OrderKind.SENT, self._call(index), data=thread.rest)]
            case "await":
                return [Want(index, OrderKind.TOOK, self._call(index), REPLY - len(thread.got))]
            case _:
                return super()._want(index, thread)

    def _took(self, order: Order, thread: Thread, taken: bytes) -> None:
        thread.got += taken
        if thread.place == "read":
            thread.conn = order.conn
            if len(thread.got) == REQUEST:
                thread.rest = thread.request = thread.got
                thread.got, thread.place = b"", "pass"
        elif len(thread.got) == REPLY:
            thread.rest, thread.got, thread.place = thread.got, b"", "write"

    def _sent(self, order: Order, thread: Thread) -> bytes:
        if thread.place != "pass":
            return super()._sent(order, thread)
        written, thread.rest = thread.rest[: order.value], thread.rest[order.value :]
        if not thread.rest:
            thread.place = "await"
        return written


class ErrandsProgram(RelayProgram, DeskProgram):
    """A relay that hangs up behind each answer, and calls again for the next request."""

    calls = ("errands:0", "errands:1")
    server = "desk"

    def _want(self, index: int, thread: Thread) -> list[Want]:
        if thread.place in {"hang up", "call again"}:
            return [Want(index, OrderKind.CLOSED, self._call(index))]
        return super()._want(index, thread)

    def _do(self, order: Order, thread: Thread, taken: bytes) -> bytes:
        if order.kind is not OrderKind.CLOSED or thread.place == "close":
            return super()._do(order, thread, taken)
        thread.calls += 1
        thread.place = "write" if thread.place == "hang up" else "pass"
        return b""

    def _took(self, order: Order, thread: Thread, taken: bytes) -> None:
        super()._took(order, thread, taken)
        if thread.place == "write":
            thread.place = "hang up"

    def _ended(self, order: Order, thread: Thread) -> None:
        if order.conn == self._call(order.thread):
            thread.rest, thread.got, thread.place = thread.request, b"", "call again"
        else:
            super()._ended(order, thread)


PAGE = 6000
"""How long a page is: more than an edge takes at once."""
PAUSE = milliseconds(15)


class PagesProgram(DeskProgram):
    """A server that never waits for a reader, and hangs up behind each answer, as web servers do.

    It tries to write, is told to try again, sleeps, and closes the connection when all is written.
    """

    workers = 2
    reply = PAGE

    def _want(self, index: int, thread: Thread) -> list[Want]:
        match thread.place:
            case "write":
                return [Want(index, OrderKind.SENT, thread.conn, data=thread.rest, waits=False)]
            case "sleep":
                return [Want(index, OrderKind.TIMEOUT, deadline=thread.deadline)]
            case _:
                return super()._want(index, thread)

    def _do(self, order: Order, thread: Thread, taken: bytes) -> bytes:
        match order.kind:
            case OrderKind.AGAIN:
                thread.deadline, thread.place = order.clock + PAUSE, "sleep"
            case OrderKind.TIMEOUT:
                if order.clock < thread.deadline:
                    raise DivergedError("its time has not come")
                thread.place = "write"
            case OrderKind.CHANCE:
                super()._do(order, thread, taken)
                thread.rest += b"." * (PAGE - REPLY)
            case _:
                return super()._do(order, thread, taken)
        return b""

    def _sent(self, order: Order, thread: Thread) -> bytes:
        written, thread.rest = thread.rest[: order.value], thread.rest[order.value :]
        if not thread.rest:
            thread.place = "close"
        return written


PROGRAMS: dict[str, type[CounterProgram]] = {
    "counter": CounterProgram,
    "relay": RelayProgram,
    "desk": DeskProgram,
    "errands": ErrandsProgram,
    "timers": TimersProgram,
    "pages": PagesProgram,
}
"""What can be simulated, by name."""
