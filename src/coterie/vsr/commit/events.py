"""The event records of transaction processing (figures 2 and 3), as they go through the buffer."""

from __future__ import annotations

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.views import Viewstamp
from coterie.vsr.commit.psets import Aid, CallId, Pset


class _Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    aid: Aid


class ObjectRead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object that was read, in the version that the event at `version` installed."""

    name: str
    version: Viewstamp | None
    """None: nobody had written it."""


class ObjectWritten(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object that was written, with its tentative version; None removes it."""

    name: str
    value: bytes | None


class GroupCalls(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one group has to install: the calls with these viewstamps, and no others."""

    group: str
    calls: tuple[Viewstamp, ...]


class CompletedCall(_Event, tag=1, frozen=True):
    """A call is complete; it holds read locks on `reads` and write locks on `writes`."""

    call: CallId
    reads: list[ObjectRead]
    writes: list[ObjectWritten]
    reply: bytes
    is_failure: bool
    pset: Pset
    """The pset of the calls that this call made."""
    void: tuple[CallId, ...] = ()
    """What was called on the way for a call that failed: `1.` stands for all that 1 called."""
    groups: tuple[str, ...] = ()
    """Groups that were called on the way, and are not in the pset: they hold locks."""


class CallsGivenUp(_Event, tag=2, frozen=True):
    """Calls, with all they called, are no part of the transaction (3.6: aborted subactions)."""

    calls: tuple[CallId, ...]


class Committing(_Event, tag=3, frozen=True):
    """The coordinator's decision; all that is left is to tell the participants."""

    parts: list[GroupCalls]


class DecisionKnown(_Event, tag=4, frozen=True):
    """All participants know the decision."""


class Committed(_Event, tag=5, frozen=True):
    """A participant installs the versions of these calls, and releases all locks.

    One that has only read does so when it is prepared, and never hears the decision.
    """

    calls: tuple[Viewstamp, ...]
    is_read_only: bool = False


class Aborted(_Event, tag=6, frozen=True):
    """The transaction is void here; its coordinator has decided so, or will."""

    reason: str


Event = CompletedCall | CallsGivenUp | Committing | DecisionKnown | Committed | Aborted

_encoder = msgspec.msgpack.Encoder()
_decoder: Decoder[Event] = Decoder(Event)


def encode_event(event: Event) -> bytes:
    """Give an event as bytes for the buffer."""
    return _encoder.encode(event)


def decode_event(data: bytes) -> Event:
    """Read an event back."""
    return _decoder.decode(data)
