"""What a program's process and the one at its edge say to each other, over one stream.

A frame is a head (kind, number, length) and a payload. Input goes in and output comes out; orders
go out from the process that leads, and in to one that follows. Nothing here is trusted: whoever
reads a head that is none stops with `BadWire`.
"""

from __future__ import annotations

import enum
import struct

HEAD = struct.Struct("<BIqI")
PAYLOAD_MAX = 1 << 24
WINDOW = 256 << 10
"""So much output of a connection may wait outside the program, and so much input inside it."""


class WireKind(enum.IntEnum):
    """What a frame is; the number is a connection, a listener or a signal."""

    # Into the program.
    ARRIVED = 1
    """A client has connected; the value is its listener, the payload its address."""
    DATA = 2
    END = 3
    """No more input; the value is an error's number, if it broke."""
    DELIVERED = 4
    """So many more bytes of output were taken outside; to a replica: so many in all."""
    SIGNALLED = 5
    LISTENING = 6
    """The value is the port, or below 0 an error's number."""
    ENTRIES = 7
    """Orders; out of the program that leads, into one that follows."""
    ENOUGH = 8
    """No more orders come."""
    LEAD = 9
    """Behind all orders so far: lead from here on."""
    CONNECTED = 10
    """A connection that the program asked for is there; the value is an error's number if not."""
    PING = 11
    """Say that you are there: answered by PONG, at the next call of the program's."""
    FREEZE = 12
    """Have a copy of the process made, in all replicas at the same place."""
    # Out of the program.
    OUTPUT = 20
    SHUT = 21
    CLOSED = 22
    LISTEN = 23
    """The payload is host and backlog, the value the port."""
    CONSUMED = 24
    REFUSED = 25
    """The program asked for something that cannot be replicated: a sentence, and where."""
    DIVERGED = 26
    SAID = 27
    """A remark for whoever runs the program."""
    EXITED = 28
    FOLLOWED = 29
    """All orders were followed; the value says how many."""
    CONNECT = 31
    """Connect to the outside: the payload is the host, the value the port."""
    PONG = 32
    EXECUTED = 30
    """So many frames of orders were followed, and all output of theirs has come before this."""
    FROZEN = 33
    """A copy was made: its process, how many inputs it has, and the name of its socket."""


class BadWire(Exception):
    """The other side sent what is no frame."""


WireFrame = tuple[int, int, int, bytes]


def frame(kind: WireKind, number: int = 0, value: int = 0, payload: bytes = b"") -> bytes:
    """Give a frame as bytes."""
    return HEAD.pack(kind, number, value, len(payload)) + payload


class WireReader:
    """Cuts a stream into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[WireFrame]:
        """Take bytes; give the frames that are whole."""
        self._data += data
        found: list[WireFrame] = []
        at = 0
        while at + HEAD.size <= len(self._data):
            kind, number, value, size = HEAD.unpack_from(self._data, at)
            if kind not in _KINDS or size > PAYLOAD_MAX:
                raise BadWire(f"a frame of kind {kind} with {size} bytes")
            end = at + HEAD.size + size
            if end > len(self._data):
                break
            found.append((kind, number, value, bytes(self._data[at + HEAD.size : end])))
            at = end
        del self._data[:at]
        return found


_KINDS = frozenset(map(int, WireKind))
