"""What an entry of an object group holds.

A payload is one of these records as a MessagePack array, its tag first. They can be read without
knowing the class, so that journals and reports can name sessions, requests and methods; only the
arguments need the definition. New kinds get new tags and new fields go last with a default, so an
older replica reads what it knows.

`clock` is the wall clock of the replica that proposes, in microseconds: group time is made of
these and nothing else (`coterie.objects.group_time`). `asked_at` is the client's own clock when it
asked, for reports.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from coterie.kernel.views import ReplicaId
from coterie.objects.outcomes import Done, Failed

Microseconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
"""Since 1970; it ends in the year 2255, so that sums of such times can always be encoded."""


class OpenSession(msgspec.Struct, tag=1, frozen=True, array_like=True, gc=False):
    """Give a client a session; the answer names it."""

    token: int
    """By which the proposing replica knows whom to answer."""
    asked_at: int
    clock: Microseconds


class CloseSession(msgspec.Struct, tag=2, frozen=True, array_like=True, gc=False):
    """Forget a session: its client has said goodbye, or an operator evicts it."""

    session: int
    clock: Microseconds


class Call(msgspec.Struct, tag=3, frozen=True, array_like=True, gc=False):
    """Execute an update, once for each (session, request)."""

    session: int
    request: int
    method: str
    arguments: msgspec.Raw
    asked_at: int
    lowest: int
    """The client will never ask again below this number: their results may be forgotten."""
    clock: Microseconds


class Calls(msgspec.Struct, tag=7, frozen=True, array_like=True, gc=False):
    """Execute updates of one method with consecutive request numbers, each once, as one entry."""

    session: int
    first: int
    method: str
    arguments: msgspec.Raw
    """An array with the arguments of each call."""
    asked_at: int
    lowest: int
    clock: Microseconds


class Read(msgspec.Struct, tag=4, frozen=True, array_like=True, gc=False):
    """Execute a query at this place in the order, at the replica that proposed it only."""

    token: int
    method: str
    arguments: msgspec.Raw
    asked_at: int
    clock: Microseconds


class Tick(msgspec.Struct, tag=5, frozen=True, array_like=True, gc=False):
    """Let time pass where nobody calls, or bear witness to what time it is."""

    clock: Microseconds


class Effects(msgspec.Struct, tag=6, frozen=True, array_like=True, gc=False):
    """What a call did where it was executed, for engines of the primary kind.

    The fields that changed, whole, as MessagePack; the name is empty for a class with its own
    snapshot. The position and viewstamp in the outcome are those of the entry itself.
    """

    session: int
    request: int
    lowest: int
    clock: Microseconds
    outcome: Done | Failed
    changes: dict[str, msgspec.Raw]


class Announce(msgspec.Struct, tag=8, frozen=True, array_like=True, gc=False):
    """Say which versions of the class the proposing replica knows."""

    known: tuple[tuple[int, int], ...]
    """Versions, each with the fingerprint of its class."""
    members: tuple[ReplicaId, ...]
    """The replicas of the group: when all know the next version, it begins."""
    clock: Microseconds


Command = OpenSession | CloseSession | Call | Calls | Read | Tick | Effects | Announce

encode_command = msgspec.msgpack.Encoder().encode
"""Give a command as the payload of an entry."""

decode_command = msgspec.msgpack.Decoder(Command).decode
"""Read a payload; raise `msgspec.DecodeError` if it is no command."""

_ARGUMENTS_NONE = msgspec.msgpack.encode(())

NO_ARGUMENTS = msgspec.Raw(_ARGUMENTS_NONE)
"""The arguments of a method that takes none."""
