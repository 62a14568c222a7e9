"""What servers of **transis** tell each other.

*Actions* are multicast, safe, each with its index and its time in front of the command. *Control*
messages are multicast, too, and name their view, because a cast may wait past the end of the view
it was meant for. What an exchange fetches travels *directly*, and never leaves its view.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.components import Action, Component, Vulnerable, Word, Yellow
from coterie.kernel.decoding import COUNT_MAX, Count, Decoder
from coterie.kernel.errors import BadMessage
from coterie.kernel.views import Member, ReplicaId, ViewId
from coterie.replication.messages import (
    Entries,
    FetchChunk,
    FetchEntries,
    OtherHistory,
    StateChunk,
    StateOffer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTROL = 1
"""The mark of ordered messages that are no actions."""
_PREFIX = struct.Struct(">QQ")
PREFIX_BYTES = _PREFIX.size
"""How much is in front of every command."""


class State(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Multicast in a new configuration: what this server knows."""

    view: ViewId
    round: int
    """Counts exchanges in one view: an operator's word begins another one."""
    red_cut: list[tuple[Member, int]]
    """For every creator, up to which index its actions are here."""
    green_end: int
    lines: list[tuple[ReplicaId, int]]
    prim: Component
    vulnerable: Vulnerable | None
    yellow: Yellow | None
    is_zombie: bool
    time: Count
    is_by_hand: bool = False
    """Whether an operator said that what this server knows is to count."""
    primary_min: int = 1
    """How many members a primary component must have, as this server is told."""
    mark: int = 0
    """Names which actions are green here (`coterie.replication.log.Log.mark`)."""
    words: tuple[Word, ...] = ()
    """Those of operators on which what is green here rests."""
    start: int = 0
    """From which position on green actions are kept here for others; before it, only a state."""
    was_left_out: bool = False
    """Whether others began a component in the view before without waiting for this server."""


class Cpc(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Create Primary Component.

    This server holds all that the others do, and its record of the attempt is on disk.
    """

    view: ViewId


class GreenLine(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """Up to where actions are green at this server."""

    position: int


class Again(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """An operator spoke here: exchange states once more."""

    view: ViewId


Control = State | Cpc | GreenLine | Again


class FetchActions(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=20):
    """Direct: send actions that are not within this cut, and not green."""

    serial: int
    red_cut: list[tuple[Member, int]]


class Actions(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=21):
    """Direct: the answer; as many as fit into one message."""

    serial: int
    actions: list[Action]


Direct = (
    FetchEntries
    | Entries
    | StateOffer
    | FetchChunk
    | StateChunk
    | OtherHistory
    | FetchActions
    | Actions
)

_encoder = msgspec.msgpack.Encoder()
_control: Decoder[Control] = Decoder(Control)
_direct: Decoder[Direct] = Decoder(Direct)


def encode(message: Control | Direct) -> bytes:
    """Give a message as bytes."""
    return _encoder.encode(message)


def decode_control(payload: bytes) -> Control | None:
    """Read a control message; None if it is none."""
    try:
        return _control.decode(payload)
    except msgspec.DecodeError:
        return None


def decode_direct(body: bytes) -> Direct:
    """Read a direct message; raise `BadMessage` if it is none."""
    try:
        return _direct.decode(body)
    except msgspec.DecodeError as error:
        raise BadMessage(f"not a message of the colours layer: {error}") from None


def encode_actions(actions: Sequence[Action]) -> list[bytes]:
    """Give actions as their creator multicasts them."""
    return [_PREFIX.pack(each.index, each.time) + each.command for each in actions]


def decode_action(creator: Member, payload: bytes) -> Action | None:
    """Read an action that its creator multicast; None if it is none."""
    if len(payload) < PREFIX_BYTES:
        return None
    index, time = _PREFIX.unpack_from(payload)
    if index >= COUNT_MAX or time > COUNT_MAX:
        return None  # in a cut that index says more (`coterie.kernel.past_lives.ALL`)
    return Action(creator, index, time, payload[PREFIX_BYTES:])
