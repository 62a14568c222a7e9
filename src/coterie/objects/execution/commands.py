"""What an entry of an object group holds.

A payload is one of these records as a MessagePack array, its tag first. They can be read without
knowing the class, so that journals and reports can name sessions, requests and methods; only the
arguments need the definition. New kinds get new tags and new fields go last with a default, so an
older replica reads what it knows. Tag 6 stays free. `ServiceRequest` (tag 12) is of the kernel,
because an engine looks into it.

`clock` is the wall clock of the replica that proposes, in microseconds: group time is made of these
and nothing else (`coterie.objects.execution.group_time`). `asked_at` is the client's own clock when
it asked, for reports.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Annotated, NamedTuple

import msgspec

from coterie.kernel.configuration import Reconfigure
from coterie.kernel.decoding import Decoder
from coterie.kernel.past_lives import PastLives
from coterie.kernel.requests import ServiceRequest
from coterie.kernel.views import ReplicaId

Microseconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
"""Since 1970; it ends in the year 2255, so that sums of such times can always be encoded."""


class OpenSession(msgspec.Struct, tag=1, frozen=True, array_like=True, gc=False):
    """Give a client a session; the answer names it."""

    token: int
    """Tells the replica that proposed this whom to answer."""
    asked_at: int
    clock: Microseconds


class OpenOwnSession(msgspec.Struct, tag=10, frozen=True, array_like=True, gc=False):
    """Give a client that has a credential a session that no other credential is good for."""

    token: int
    asked_at: int
    clock: Microseconds
    owner: Annotated[int, msgspec.Meta(ge=1, lt=1 << 28)]
    """Who it is, as `coterie.objects.execution.sessions.owner_of` tells it from the session's
    number."""


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


class Condition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """That a query still answers what it answered when somebody made up their mind."""

    method: Annotated[str, msgspec.Meta(max_length=256)]
    arguments: msgspec.Raw
    digest: Annotated[bytes, msgspec.Meta(max_length=16)]
    """`digest_of_answer` of the answer."""


CONDITIONS_MAX = 16
"""How many conditions one call may have: every replica executes a query for each."""
Conditions = Annotated[tuple[Condition, ...], msgspec.Meta(max_length=CONDITIONS_MAX)]


def digest_of_answer(result: bytes) -> bytes:
    """Give what stands for an answer in a condition."""
    return blake2b(result, digest_size=16).digest()


class Grounds(NamedTuple):
    """What a query answered, so that an update can rest on it."""

    method: str
    arguments: msgspec.Raw
    result: bytes

    def condition(self) -> Condition:
        """Give the condition that it is still so."""
        return Condition(self.method, self.arguments, digest_of_answer(self.result))


class CallIf(msgspec.Struct, tag=13, frozen=True, array_like=True, gc=False):
    """Execute an update as `Call` does, if queries at this place still answer what they did."""

    session: int
    request: int
    method: str
    arguments: msgspec.Raw
    asked_at: int
    lowest: int
    clock: Microseconds
    conditions: Conditions


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


class Announce(msgspec.Struct, tag=8, frozen=True, array_like=True, gc=False):
    """Say which versions of the class the proposing replica knows."""

    known: tuple[tuple[int, int], ...]
    """Versions, each with the fingerprint of its class."""
    members: tuple[ReplicaId, ...]
    """The replicas of the group: when all know the next version, it begins."""
    clock: Microseconds


class Compare(msgspec.Struct, tag=9, frozen=True, array_like=True, gc=False):
    """Say what digest the proposing replica has of its state (`coterie.kernel.comparing`)."""

    position: int
    digest: bytes
    clock: Microseconds


Command = (
    OpenSession
    | OpenOwnSession
    | CloseSession
    | Call
    | Calls
    | CallIf
    | Read
    | Tick
    | Announce
    | Compare
    | ServiceRequest
    | Reconfigure
    | PastLives
)

encode_command = msgspec.msgpack.Encoder().encode
"""Give a command as the payload of an entry."""

_decoder: Decoder[Command] = Decoder(Command)
decode_command = _decoder.decode
"""Read a payload; raise `msgspec.DecodeError` if it is no command."""
decode_command_quickly = _decoder.decode_quickly
"""Read a payload; raise one of `DECODE_ERRORS` if it is no command."""

_ARGUMENTS_NONE = msgspec.msgpack.encode(())

NO_ARGUMENTS = msgspec.Raw(_ARGUMENTS_NONE)
"""The arguments of a method that takes none."""
