"""Courses: what drives a program's process, whether it leads or follows.

The determinizer asks its course. One that leads decides, from what has really happened, and hands
on the entry; one that follows is told. Recording, replaying and whatever stores orders elsewhere
differ only behind this interface. The process has one stream to its edge (`coterie.program.wire`):
entries leave on it before the output that rests on them, so whoever reads it in order stores first.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn, Protocol

from coterie.program.entries import BadEntries, ProgramEntry, unpack
from coterie.program.wire import WINDOW, BadWire, WireFrame, WireKind, WireReader, frame

if TYPE_CHECKING:
    from collections.abc import Callable

# The determinizer replaces these names in their modules; a course needs the real ones.
_read, _write, _poll, _monotonic = os.read, os.write, select.poll, time.monotonic_ns
_exit = os._exit
_READ_SIZE = 1 << 18
_BUFFER_MAX = 1 << 16


class Arrived:
    """What has come in on one connection and is not read yet."""

    __slots__ = ("broken", "data", "is_connected", "is_ended", "peer")

    def __init__(self, peer: bytes, *, is_connected: bool = True) -> None:
        self.peer = peer
        self.is_connected = is_connected
        """Whether it is there; one to the outside is dialled by the edge first."""
        self.data = bytearray()
        self.is_ended = False
        self.broken = 0
        """The number of the error that it broke with."""


class Course(Protocol):
    """What a determinizer needs of whoever drives it."""

    is_leading: bool
    conns: dict[int, Arrived]
    waiting: dict[int, deque[int]]
    """By listener: connections that are not accepted yet."""
    on_input: Callable[[int], None]
    """Told the connection or listener that something has come for."""

    @property
    def may_connect(self) -> bool:
        """Whether the edge dials for the program."""

    signals: deque[int]
    must_freeze: bool
    """Whether whoever leads is to have a copy of the process made."""

    on_thawed: Callable[[], None]
    """Called in a process that begins as a copy of another one."""

    @property
    def is_cut(self) -> bool:
        """Whether whoever this process speaks to is gone."""

    def freeze(self) -> bool:
        """Make a copy of this process; say whether this one was thawed from it."""

    def begin_leading(self, now: int) -> None:
        """Learn that this process leads from here on; the group's clock shows *now*."""

    def clock(self) -> int:
        """Give the group's clock, in nanoseconds; only who leads asks."""

    def look(self, timeout_ns: int | None) -> None:
        """Take what has come from outside; wait for so long if there is nothing."""

    def write(self, entry: ProgramEntry) -> None:
        """Hand on what was decided."""

    def peek(self) -> ProgramEntry | None:
        """Give the next entry to follow.

        Nothing if there are no more: then this process leads, if `is_leading` says so, or is done.
        """

    def drop(self) -> None:
        """Go on behind the entry that `peek` gave."""

    def room(self, conn: int) -> int:
        """Say how many bytes may be written to a connection now."""

    def send(self, kind: WireKind, number: int = 0, value: int = 0, payload: bytes = b"") -> None:
        """Tell the edge something that is no entry, behind all entries so far."""

    def tell(self, kind: WireKind, text: str) -> None:
        """Tell whoever runs the program a sentence."""

    def flush(self) -> None:
        """Send all that waits."""

    def leave(self, status: int) -> NoReturn:
        """End this process once the edge has all that it was told."""

    def listen(self, listener: int, host: str, port: int, backlog: int) -> int:
        """Have a port listened at; give it, or an error's number below 0. Only who leads asks."""


class _Wired:
    """What both courses have: the stream, and what has come in on it."""

    is_leading = False
    must_freeze = False

    def __init__(self, wire: int) -> None:
        self._wire = wire
        self._reader = WireReader()
        self._out = bytearray()
        self._poll = _poll()
        self._poll.register(wire, select.POLLIN)
        self._cut = _poll()
        self._cut.register(wire, 0)
        self.conns: dict[int, Arrived] = {}
        self.waiting: dict[int, deque[int]] = {}
        self.signals: deque[int] = deque()
        self._listening: int | None = None
        self._unread: dict[int, int] = {}
        self.on_input: Callable[[int], None] = lambda _: None
        self.on_thawed: Callable[[], None] = lambda: None

    @property
    def may_connect(self) -> bool:
        return False

    def begin_leading(self, now: int) -> None:
        raise AssertionError("here it is decided at the start who leads")

    def freeze(self) -> bool:
        raise AssertionError("only replicas are asked for copies")

    @property
    def is_cut(self) -> bool:
        """Whether nobody is at the other end any more."""
        return bool(self._cut.poll(0))

    def _receive(self) -> None:
        try:
            data = _read(self._wire, _READ_SIZE)
        except ConnectionResetError:
            data = b""
        if not data:
            # Nobody is left to answer to: what goes on without an edge would go on alone.
            _exit(0)
        for each in self._reader.feed(data):
            self._take(each)

    def _take(self, each: WireFrame) -> None:
        kind, number, value, payload = each
        match kind:
            case WireKind.DATA if number in self.conns:
                self.conns[number].data += payload
            case WireKind.ARRIVED:
                self.conns[number] = Arrived(payload)
                self.waiting.setdefault(value, deque()).append(number)
                number = value
            case WireKind.END if number in self.conns:
                arrived = self.conns[number]
                arrived.is_ended, arrived.broken = True, value
            case WireKind.CONNECTED:
                # Who follows may hear of it before it has come to ask for it.
                arrived = self.conns.setdefault(number, Arrived(b"", is_connected=False))
                arrived.is_connected, arrived.broken = not value, value
            case WireKind.SIGNALLED:
                self.signals.append(number)
            case WireKind.LISTENING:
                self._listening = value
            case WireKind.PING:
                self.send(WireKind.PONG)
                self.flush()
                return
            case WireKind.DATA | WireKind.END:
                return  # closed here before it came
            case _:
                raise BadWire(f"a frame of kind {kind} goes the other way")
        self.on_input(number)

    def send(self, kind: WireKind, number: int = 0, value: int = 0, payload: bytes = b"") -> None:
        self._out += frame(kind, number, value, payload)

    def tell(self, kind: WireKind, text: str) -> None:
        self.send(kind, payload=text.encode(errors="backslashreplace"))
        self.flush()

    def flush(self) -> None:
        data = memoryview(bytes(self._out))
        self._out.clear()
        try:
            while data:
                data = data[_write(self._wire, data) :]
        except (BrokenPipeError, ConnectionResetError):
            _exit(0)  # nobody is left to answer to

    def leave(self, status: int) -> NoReturn:
        self.flush()
        # Who closes a stream with something unread in it may take its last words along.
        with suppress(ConnectionResetError):
            while _read(self._wire, _READ_SIZE):
                pass
        _exit(status)


class LeadingCourse(_Wired):
    """Decides; the edge learns every entry before any output behind it."""

    is_leading = True

    def __init__(self, wire: int) -> None:
        super().__init__(wire)
        self._entries = bytearray()
        self._sent: dict[int, int] = {}
        self._begun = _monotonic()

    def clock(self) -> int:
        return _monotonic() - self._begun

    def look(self, timeout_ns: int | None) -> None:
        if timeout_ns != 0:
            self.flush()
        # Rounded up: a poll that ends before its time would be called again and again.
        wait = None if timeout_ns is None else -(-timeout_ns // 1_000_000)
        if self._poll.poll(wait):
            self._receive()

    def _take(self, each: WireFrame) -> None:
        if each[0] == WireKind.DELIVERED:
            number = each[1]
            if number in self._sent:
                self._sent[number] = max(0, self._sent[number] - each[2])
                self.on_input(number)
            return
        super()._take(each)

    def write(self, entry: ProgramEntry) -> None:
        self._entries += entry.pack()
        if len(self._entries) > _BUFFER_MAX:
            self._seal()

    def _seal(self) -> None:
        if self._entries:
            self._out += frame(WireKind.ENTRIES, payload=bytes(self._entries))
            self._entries.clear()

    def peek(self) -> ProgramEntry | None:
        raise AssertionError("who leads follows nobody")

    def drop(self) -> None:
        raise AssertionError("who leads follows nobody")

    def room(self, conn: int) -> int:
        return WINDOW - self._sent.get(conn, 0)

    def send(self, kind: WireKind, number: int = 0, value: int = 0, payload: bytes = b"") -> None:
        self._seal()
        if kind == WireKind.OUTPUT:
            self._sent[number] = self._sent.get(number, 0) + len(payload)
        elif kind == WireKind.CLOSED:
            self._sent.pop(number, None)
            self._unread.pop(number, None)
        elif kind == WireKind.CONSUMED:
            # Said in halves of a window, not for each read.
            value += self._unread.pop(number, 0)
            if value < WINDOW // 2:
                self._unread[number] = value
                return
        super().send(kind, number, value, payload)

    def flush(self) -> None:
        self._seal()
        super().flush()

    def _answer(self) -> int | None:
        return self._listening

    def listen(self, listener: int, host: str, port: int, backlog: int) -> int:
        self._listening = None
        self.send(WireKind.LISTEN, listener, port, f"{backlog} {host}".encode())
        self.flush()
        while (found := self._answer()) is None:
            self.look(None)
        return found


class FollowingCourse(_Wired):
    """Does what the entries say; has all input, and sends no output."""

    def __init__(self, wire: int) -> None:
        super().__init__(wire)
        self._entries: deque[ProgramEntry] = deque()
        self._is_enough = False

    def clock(self) -> int:
        raise AssertionError("who follows is told the time")

    def look(self, timeout_ns: int | None) -> None:
        """Nothing: input comes with the orders that take it."""

    def _take(self, each: WireFrame) -> None:
        match each[0]:
            case WireKind.ENTRIES:
                try:
                    self._entries.extend(unpack(each[3]))
                except BadEntries as error:
                    raise BadWire(str(error)) from None
            case WireKind.ENOUGH:
                self._is_enough = True
            case WireKind.DELIVERED | WireKind.SIGNALLED | WireKind.LISTENING:
                return
            case _:
                super()._take(each)

    def write(self, entry: ProgramEntry) -> None:
        raise AssertionError("who follows decides nothing")

    def peek(self) -> ProgramEntry | None:
        while not self._entries:
            if self._is_enough:
                return None
            self.flush()
            self._receive()
        return self._entries[0]

    def drop(self) -> None:
        self._entries.popleft()

    def room(self, conn: int) -> int:
        raise AssertionError("who follows is told how much was written")

    def send(self, kind: WireKind, number: int = 0, value: int = 0, payload: bytes = b"") -> None:
        if kind in _OF_FOLLOWERS:
            super().send(kind, number, value, payload)

    def listen(self, listener: int, host: str, port: int, backlog: int) -> int:
        raise AssertionError("who follows is told the port")


_OF_FOLLOWERS = {WireKind.DIVERGED, WireKind.SAID, WireKind.EXITED, WireKind.FOLLOWED}
