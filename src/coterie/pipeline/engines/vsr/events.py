"""The events of transactions, as `docs/internals/journal-format.md` specifies them.

They are read here by their format and not by the engine's own code, so that the pipeline needs
nothing of the engine, and an engine that writes something else is found out.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from coterie.kernel.decoding import Decoder
from coterie.kernel.views import ViewId, Viewstamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa


class JournalAid(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The name of a transaction: who coordinates it, the view it began in, and a number."""

    group: str
    view: ViewId
    number: int

    def __str__(self) -> str:
        return f"{self.group}/{self.view}/{self.number}"


class JournalRead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object that was read, in the version that the event at `version` installed."""

    name: str
    version: Viewstamp | None


class Write(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object that was written."""

    name: str
    value: bytes | None


class JournalPart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one group has to install."""

    group: str
    calls: tuple[Viewstamp, ...]


class _Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    aid: JournalAid


class Completed(_Event, tag=1, frozen=True):
    """A call is complete; it holds read locks on `reads` and write locks on `writes`."""

    call: str
    reads: list[JournalRead]
    writes: list[Write]


class GivenUp(_Event, tag=2, frozen=True):
    """Calls, with all they called, are no part of the transaction."""

    calls: tuple[str, ...]


class Decided(_Event, tag=3, frozen=True):
    """The coordinator has decided to commit."""

    parts: list[JournalPart]


class JournalDone(_Event, tag=4, frozen=True):
    """All participants know the decision."""


class Installed(_Event, tag=5, frozen=True):
    """A participant has installed these calls, or has only read."""

    calls: tuple[Viewstamp, ...]
    is_read_only: bool = False


class JournalAborted(_Event, tag=6, frozen=True):
    """The transaction is void here."""

    reason: str


Event = Completed | GivenUp | Decided | JournalDone | Installed | JournalAborted

WORDS: dict[type, str] = {
    Completed: "call",
    GivenUp: "given up",
    Decided: "decided",
    JournalDone: "done",
    Installed: "installed",
    JournalAborted: "aborted",
}
"""What kinds of event are called in tables."""

_ARRAY_HEAD = struct.Struct(">BI")
_decode_all: Callable[[bytes], list[Event]] = Decoder(list[Event]).decode
_decoder: Decoder[Event] = Decoder(Event)


def read_event(data: bytes) -> Event | None:
    """Read an event; None if it is no event of a transaction."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None


def read_all(column: pa.ChunkedArray) -> list[Event | None]:
    """Read events at once, which is several times faster, or one by one if one is none."""
    return [event for chunk in column.chunks for event in _read_chunk(chunk)]


def _read_chunk(data: pa.BinaryArray) -> Sequence[Event | None]:
    if not len(data):
        return []
    # They lie one after the other in one piece of memory, so with a head they are an array.
    _, ends, content = data.buffers()
    bounds = np.frombuffer(ends, np.int32)[data.offset : data.offset + len(data) + 1]
    head = _ARRAY_HEAD.pack(0xDD, len(data))
    try:
        return _decode_all(head + memoryview(content)[bounds[0] : bounds[-1]])
    except msgspec.DecodeError:
        return [read_event(each) for each in data.to_pylist()]


def is_within(call: str, given_up: str) -> bool:
    """Say whether a call is, or was made by, one that was given up."""
    return call == given_up or call.startswith(f"{given_up}.")
