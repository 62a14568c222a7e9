"""The events of transactions, as `docs/journal-format.md` specifies them.

They are read here by their format and not by the engine's own code, so that the pipeline needs
nothing of the engine, and an engine that writes something else is found out.
"""

from __future__ import annotations

import msgspec

from coterie.kernel.errors import DECODE_ERRORS
from coterie.kernel.views import ViewId, Viewstamp


class Aid(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The name of a transaction: who coordinates it, the view it began in, and a number."""

    group: str
    view: ViewId
    number: int

    def __str__(self) -> str:
        return f"{self.group}/{self.view}/{self.number}"


class Read(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object that was read, in the version that the event at `version` installed."""

    name: str
    version: Viewstamp | None


class Write(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object that was written."""

    name: str
    value: bytes | None


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one group has to install."""

    group: str
    calls: tuple[Viewstamp, ...]


class _Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    aid: Aid


class Completed(_Event, tag=1, frozen=True):
    """A call is complete; it holds read locks on `reads` and write locks on `writes`."""

    call: str
    reads: list[Read]
    writes: list[Write]


class GivenUp(_Event, tag=2, frozen=True):
    """Calls, with all they called, are no part of the transaction."""

    calls: tuple[str, ...]


class Decided(_Event, tag=3, frozen=True):
    """The coordinator has committed."""

    parts: list[Part]


class Done(_Event, tag=4, frozen=True):
    """All participants know the decision."""


class Installed(_Event, tag=5, frozen=True):
    """A participant has installed these calls, or has only read."""

    calls: tuple[Viewstamp, ...]
    is_read_only: bool = False


class Aborted(_Event, tag=6, frozen=True):
    """The transaction is void here."""

    reason: str


Event = Completed | GivenUp | Decided | Done | Installed | Aborted

WORDS: dict[type, str] = {
    Completed: "call",
    GivenUp: "given up",
    Decided: "decided",
    Done: "done",
    Installed: "installed",
    Aborted: "aborted",
}
"""What kinds of event are called in tables."""

_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def read_event(data: bytes) -> Event | None:
    """Read an event; None if it is no event of a transaction."""
    try:
        return _decoder.decode(data)
    except DECODE_ERRORS:
        return None


def is_within(call: str, given_up: str) -> bool:
    """Say whether a call is, or was made by, one that was given up."""
    return call == given_up or call.startswith(f"{given_up}.")
