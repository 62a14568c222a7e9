"""Order entries: what one process of a program decided, and what others do in the same place.

The paper's four-tuple is (thread, operation, count, metadata) (**llft** V-B). As only one thread
runs at a time, the count is the entry's place in the one sequence and is not written down. An entry
is a fixed head, and bytes where the operation gave some.
"""

from __future__ import annotations

import enum
import errno
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = struct.Struct("<BIIqI")
DATA_MAX = 1 << 24


class EntryKind(enum.IntEnum):
    """Which operation came out in a way that another process could not know."""

    SWITCH = 1
    """A thread goes on: the subject says why (`Wake`), the value is the group's clock."""
    PAUSE = 2
    """A running thread steps aside for others."""
    CLOCK = 3
    BYTES = 4
    """Chance."""
    TOOK = 5
    """So many bytes of a connection were read; below 0, it is an error's number."""
    ACCEPT = 6
    READY = 7
    """What a poll found."""
    SENT = 8
    """So many bytes were written, with this CRC; below 0, it is an error's number."""
    RESULT = 9
    """What the surroundings said: names, addresses, files' times."""
    SIGNAL = 10
    COLLECT = 11
    """Cyclic garbage is collected here."""
    MARK = 12
    """The digest of all calls and outputs so far."""
    EXIT = 13
    FREEZE = 14
    """A copy of the process is made here, for whoever begins with this state."""


class Wake(enum.IntEnum):
    """Why a thread goes on."""

    RUN = 0
    """Another thread of the program let it, or it had not begun."""
    TIMEOUT = 1
    INPUT = 2
    """Something came from outside."""
    SIGNAL = 3


class ProgramEntry(NamedTuple):
    """One decision."""

    kind: int
    thread: int
    subject: int = 0
    value: int = 0
    data: bytes = b""

    def pack(self) -> bytes:
        """Give it as bytes."""
        kind, thread, subject, value, data = self
        return _HEAD.pack(kind, thread, subject, value, len(data)) + data

    def __str__(self) -> str:
        return f"{describe(self)} in thread {self.thread}"


class BadEntries(Exception):
    """These bytes are no entries."""


def unpack(data: bytes) -> Iterator[ProgramEntry]:
    """Give the entries in some bytes; raises `BadEntries` at the first that is none."""
    at = 0
    while at < len(data):
        if at + _HEAD.size > len(data):
            raise BadEntries("an entry is cut off")
        kind, thread, subject, value, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if kind not in _KINDS or size > DATA_MAX or at + size > len(data):
            raise BadEntries(f"entry of kind {kind} with {size} bytes")
        yield ProgramEntry(kind, thread, subject, value, data[at : at + size])
        at += size


_KINDS = frozenset(map(int, EntryKind))


def describe(entry: ProgramEntry) -> str:  # noqa: C901, PLR0911, PLR0912 -- one line a kind
    """Say in words what an entry says."""
    kind, _, subject, value, data = entry
    failed = errno.errorcode.get(-value, str(value)) if value < 0 else ""
    match kind:
        case EntryKind.FREEZE:
            return "freeze a copy"
        case EntryKind.SWITCH:
            why = ("", " after its time-out", " because of input", " because of a signal")
            return f"go on{why[subject] if subject < len(why) else ''}"
        case EntryKind.TOOK:
            return f"read {failed or f'{value} bytes'} from connection {subject}"
        case EntryKind.SENT:
            if failed:
                return f"write to connection {subject}: {failed}"
            return f"write {value} bytes (CRC {data.hex()}) to connection {subject}"
        case EntryKind.ACCEPT:
            return f"accept {failed or f'connection {value}'} at listener {subject}"
        case EntryKind.BYTES:
            return f"draw {len(data)} random bytes"
        case EntryKind.EXIT:
            return f"exit with status {value}"
        case EntryKind.SIGNAL:
            return f"handle signal {value}"
        case EntryKind.CLOCK | EntryKind.PAUSE | EntryKind.COLLECT:
            return {3: "read the clock", 2: "step aside", 11: "collect garbage"}[kind]
        case EntryKind.READY:
            return "poll"
        case EntryKind.RESULT:
            return f"ask for {SURROUNDINGS.get(subject, 'something')}"
        case _:
            return "compare digests"


SURROUNDINGS = {
    1: "the process's number",
    2: "the host's name",
    3: "the number of processors",
    4: "an address",
    5: "a file's times",
    6: "a port to listen at",
    7: "its parent's number",
    8: "the system's name",
    9: "the load",
    10: "the wall clock at the start",
}
PID, HOST, CPUS, ADDRESS, FILE_TIMES, PORT, PARENT, SYSTEM, LOAD, EPOCH = SURROUNDINGS
