"""Descriptors of the program: numbers from 100000 on, given where the program asks for them.

Numbers are given at `accept`, `socket` or `pipe`, never when something arrives, so they are the
same everywhere. Behind a number is a file: a connection to the outside, a listener, one end of a
pair inside the program, or a poller. Files inside the program need no entries: who writes to them
and who reads is fixed by the order of the threads.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any
from zlib import crc32

from coterie.program.courses import Arrived
from coterie.program.entries import EntryKind, ProgramEntry
from coterie.program.machine import WaitQueue, machine
from coterie.program.wire import WINDOW, WireKind

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = 100_000
POLLIN, POLLOUT, POLLERR, POLLHUP, POLLRDHUP = 1, 4, 8, 16, 0x2000
STDIN, STDOUT, STDERR = 0, 1, 2


def os_error(number: int) -> OSError:
    """Give the error of a number, of the class that Python gives it."""
    return OSError(number, os.strerror(number))


class VirtualFile:
    """What a descriptor stands for."""

    def __init__(self) -> None:
        self.changed = WaitQueue()
        """Threads that wait for it to become readable or writable."""
        self.holders = 0
        """How many descriptors stand for it."""
        self.is_blocking = True

    def ready(self) -> int:
        """Say which events it is ready for; of files to the outside only who leads asks."""
        return 0

    def read(self, size: int, deadline: int | None, *, is_peek: bool = False) -> bytes:
        """Read some; an empty result is the end."""
        raise os_error(errno.ENOTCONN)

    def write(self, data: bytes, deadline: int | None) -> int:
        """Write some; say how much."""
        raise os_error(errno.ENOTCONN)

    def shut(self, how: int) -> None:
        """Read or write no more."""
        raise os_error(errno.ENOTCONN)

    def close(self) -> None:
        """Nobody holds it any more."""

    def wait(self, deadline: int | None) -> None:
        """Wait for a change, or raise what a call raises that may not wait."""
        here = machine()
        if not self.is_blocking:
            raise os_error(errno.EAGAIN)
        thread = here.current
        self.changed.add(thread)
        try:
            if here.block(deadline) == 1:
                raise TimeoutError("timed out")
        finally:
            self.changed.discard(thread)


class OutsideConnection(VirtualFile):
    """A connection of a client, held by the edge."""

    def __init__(self, conn: int) -> None:
        super().__init__()
        self.conn = conn
        self._is_shut = self._is_deaf = False
        by_number[conn] = self

    def ready(self) -> int:
        course = machine().course
        arrived = course.conns[self.conn]
        if not arrived.is_connected and not arrived.broken:
            return 0
        found = POLLIN if arrived.data or arrived.is_ended or self._is_deaf else 0
        if arrived.broken:
            return found | POLLOUT | POLLERR | POLLHUP
        if arrived.is_ended:
            found |= POLLRDHUP
        return found | (POLLOUT if course.room(self.conn) > 0 else 0)

    def read(self, size: int, deadline: int | None, *, is_peek: bool = False) -> bytes:
        here = machine()
        if self._is_deaf:
            return b""
        arrived = here.course.conns[self.conn]

        def attempt() -> tuple[int, bytes] | None:
            if arrived.data:
                return min(size, len(arrived.data)), b""
            if arrived.broken:
                return -arrived.broken, b""
            if arrived.is_ended:
                return 0, b""
            return None if self.is_blocking else (-errno.EAGAIN, b"")

        while True:
            here.checkpoint()
            found = here.decide_or_wait(EntryKind.TOOK, self.conn, attempt)
            if found is not None:
                break
            self.wait(deadline)
        count = found[0]
        if count < 0:
            raise os_error(-count)
        data = bytes(arrived.data[:count])
        assert len(data) == count, "input comes before the entry that takes it"
        if not is_peek:
            del arrived.data[:count]
            here.course.send(WireKind.CONSUMED, self.conn, count)
        return data

    def write(self, data: bytes, deadline: int | None) -> int:
        here = machine()
        if self._is_shut:
            raise os_error(errno.EPIPE)
        course = here.course

        def attempt() -> tuple[int, bytes] | None:
            arrived = course.conns.get(self.conn)
            if arrived is None or arrived.broken:
                return -errno.EPIPE, b""
            if not arrived.is_connected:
                return -errno.ENOTCONN, b""
            count = min(len(data), course.room(self.conn))
            if count > 0 or not data:
                return count, crc32(data[:count]).to_bytes(4)
            return None if self.is_blocking else (-errno.EAGAIN, b"")

        while True:
            here.checkpoint()
            found = here.decide_or_wait(EntryKind.SENT, self.conn, attempt)
            if found is not None:
                break
            self.wait(deadline)
        return send_decided(self.conn, data, found)

    def connect(self, host: str, port: int, deadline: int | None) -> int:
        """Have the edge connect to the outside; give an error's number, 0 when it is there.

        EINPROGRESS if that takes longer than the caller may wait.
        """
        here = machine()
        here.course.conns.setdefault(self.conn, Arrived(b"", is_connected=False))
        here.course.send(WireKind.CONNECT, self.conn, port, host.encode())
        here.course.flush()
        if not self.is_blocking:
            return errno.EINPROGRESS
        while (found := self.connected()) == errno.EINPROGRESS:
            self.wait(deadline)
        return found

    def connected(self) -> int:
        """Say how far `connect` is: 0, EINPROGRESS, or an error's number."""
        here = machine()
        arrived = here.course.conns[self.conn]

        def attempt() -> tuple[int, bytes] | None:
            if arrived.is_connected or arrived.broken:
                return arrived.broken, b""
            return None if self.is_blocking else (errno.EINPROGRESS, b"")

        here.checkpoint()
        found = here.decide_or_wait(EntryKind.RESULT, self.conn, attempt)
        return errno.EINPROGRESS if found is None else found[0]

    def shut(self, how: int) -> None:
        if how != 0 and not self._is_shut:
            self._is_shut = True
            machine().course.send(WireKind.SHUT, self.conn)
            machine().course.flush()
        if how != 1:
            self._is_deaf = True
            self.changed.wake_all()

    def close(self) -> None:
        course = machine().course
        by_number.pop(self.conn, None)
        course.conns.pop(self.conn, None)
        course.send(WireKind.CLOSED, self.conn)
        course.flush()
        self.changed.wake_all()


def send_decided(conn: int, data: bytes, found: tuple[int, bytes]) -> int:
    """Send what an entry says, if it is what this process would send."""
    here = machine()
    count, crc = found
    if count < 0:
        raise os_error(-count)
    if crc32(data[:count]).to_bytes(4) != crc or len(data) < count:
        shown = data[: max(count, 1)]
        number = here.current.number
        here.count -= 1
        here.diverged(
            ProgramEntry(EntryKind.SENT, number, conn, count, crc),
            f"write {len(shown)} bytes (CRC {crc32(shown).to_bytes(4).hex()}): {shown[:400]!r}",
        )
    if count:
        here.course.send(WireKind.OUTPUT, conn, 0, bytes(data[:count]))
        here.course.flush()
    return count


class OutsideListener(VirtualFile):
    """A port that the edge listens at."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        by_number[number] = self

    def ready(self) -> int:
        return POLLIN if machine().course.waiting.get(self.number) else 0

    def accept(self, deadline: int | None) -> tuple[OutsideConnection, str]:
        """Take the next client in; give its connection and its address."""
        here = machine()
        waiting = here.course.waiting

        def attempt() -> tuple[int, bytes] | None:
            if waiting.get(self.number):
                conn = waiting[self.number][0]
                return conn, here.course.conns[conn].peer
            return None if self.is_blocking else (-errno.EAGAIN, b"")

        while True:
            here.checkpoint()
            found = here.decide_or_wait(EntryKind.ACCEPT, self.number, attempt)
            if found is not None:
                break
            self.wait(deadline)
        conn, peer = found
        if conn < 0:
            raise os_error(-conn)
        waiting[self.number].remove(conn)  # it came before the entry that takes it
        return OutsideConnection(conn), peer.decode()

    def close(self) -> None:
        by_number.pop(self.number, None)
        machine().course.send(WireKind.CLOSED, self.number)
        machine().course.flush()


class ByteChannel:
    """Bytes on their way from one end inside the program to another."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_ended = False
        self.ends: list[PairEnd] = []

    def change(self) -> None:
        """Tell whoever waits at either end."""
        for end in self.ends:
            end.changed.wake_all()


class PairEnd(VirtualFile):
    """One end of a socket pair or a pipe inside the program."""

    def __init__(self, incoming: ByteChannel | None, outgoing: ByteChannel | None) -> None:
        super().__init__()
        self.incoming, self.outgoing = incoming, outgoing
        self.number = machine().number()
        for channel in (incoming, outgoing):
            if channel is not None:
                channel.ends.append(self)

    def ready(self) -> int:
        found = 0
        if self.incoming is not None and (self.incoming.data or self.incoming.is_ended):
            found |= POLLIN if self.incoming.data or self.outgoing is not None else POLLHUP
        if self.outgoing is not None:
            if self.outgoing.is_ended:
                found |= POLLERR | POLLOUT
            elif len(self.outgoing.data) < WINDOW:
                found |= POLLOUT
        return found

    def read(self, size: int, deadline: int | None, *, is_peek: bool = False) -> bytes:
        channel = self.incoming
        if channel is None:
            raise os_error(errno.EBADF)
        machine().step(6, self.number)
        while not channel.data and not channel.is_ended:
            self.wait(deadline)
        data = bytes(channel.data[:size])
        if not is_peek:
            del channel.data[:size]
            channel.change()
        return data

    def write(self, data: bytes, deadline: int | None) -> int:
        channel = self.outgoing
        if channel is None:
            raise os_error(errno.EBADF)
        machine().step(7, self.number)
        while len(channel.data) >= WINDOW and not channel.is_ended:
            self.wait(deadline)
        if channel.is_ended:
            raise os_error(errno.EPIPE)
        count = min(len(data), WINDOW - len(channel.data))
        channel.data += data[:count]
        channel.change()
        return count

    def shut(self, how: int) -> None:
        for channel, is_shut in ((self.incoming, how != 1), (self.outgoing, how != 0)):
            if channel is not None and is_shut:
                channel.is_ended = True
                channel.change()

    def close(self) -> None:
        self.shut(2)


def make_pair() -> tuple[PairEnd, PairEnd]:
    """Make a pair of ends that speak to each other."""
    one, other = ByteChannel(), ByteChannel()
    return PairEnd(one, other), PairEnd(other, one)


class OutputFile(VirtualFile):
    """Standard output or error: written once, in order, however many replicas there are."""

    def __init__(self, conn: int) -> None:
        super().__init__()
        self.conn = conn

    def ready(self) -> int:
        return POLLOUT

    def write(self, data: bytes, deadline: int | None) -> int:
        here = machine()
        here.checkpoint()
        crc = crc32(data).to_bytes(4)
        found = here.decide(EntryKind.SENT, self.conn, lambda: (len(data), crc))
        return send_decided(self.conn, data, found)


class EmptyInput(VirtualFile):
    """Standard input: a program has none."""

    def ready(self) -> int:
        return POLLIN

    def read(self, size: int, deadline: int | None, *, is_peek: bool = False) -> bytes:
        return b""


# ---- the table

_files: dict[int, VirtualFile] = {}
_next = FIRST
by_number: dict[int, Any] = {}
"""Files to the outside, by what the edge calls them."""


def queues_of(number: int) -> Iterator[WaitQueue]:
    """Give those who wait for a connection or listener, and those who poll it."""
    file = by_number.get(number)
    if file is not None:
        yield file.changed


def add_file(file: VirtualFile) -> int:
    """Give a file a descriptor."""
    global _next  # noqa: PLW0603 -- a process has one table
    number = _next
    _next += 1
    put_file(number, file)
    return number


def put_file(number: int, file: VirtualFile) -> None:
    """Have a descriptor stand for a file."""
    _files[number] = file
    file.holders += 1


def is_virtual(number: object) -> bool:
    """Say whether a descriptor is the program's."""
    return isinstance(number, int) and (number in _files or number >= FIRST)


def file_of(number: int) -> VirtualFile:
    """Give the file of a descriptor."""
    file = _files.get(number)
    if file is None:
        raise os_error(errno.EBADF)
    return file


def close_descriptor(number: int) -> None:
    """Close a descriptor; the file is closed with the last one."""
    file = file_of(number)
    del _files[number]
    file.holders -= 1
    machine().note(8, number)
    for poller in pollers:
        poller.forget(number)
    if not file.holders:
        file.close()


pollers: list[Any] = []
"""All pollers; a descriptor that is closed leaves them."""
