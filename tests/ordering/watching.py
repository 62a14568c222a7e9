"""What the ordering layers say to each other, as it passes by on the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from coterie.membership.messages import Data, Direct
from coterie.ordering.dynseq import SequencerHeader
from coterie.ordering.token import Token, TokenArrived, TokenHeader, TokenWanted

if TYPE_CHECKING:
    from tests.simulation.scripted import ScriptedNetwork

    from coterie.membership.messages import VsyncMessage

TokenMessage = Token | TokenArrived | TokenWanted

_tokens: msgspec.msgpack.Decoder[TokenMessage] = msgspec.msgpack.Decoder(TokenMessage)


class Packet(NamedTuple):
    """A packet on its way."""

    source: str
    destination: str
    payloads: list[bytes]
    header: bytes

    @property
    def order(self) -> SequencerHeader:
        """The header, where DYNSEQ wrote it."""
        return msgspec.msgpack.decode(self.header, type=SequencerHeader)

    @property
    def place(self) -> TokenHeader:
        """The header, where TOKEN wrote it."""
        return msgspec.msgpack.decode(self.header, type=TokenHeader)


class Watch:
    """Notes packets and messages of the token, and loses none."""

    def __init__(self, network: ScriptedNetwork) -> None:
        self.packets: list[Packet] = []
        self.tokens: list[tuple[str, str, TokenMessage]] = []
        self.others: list[VsyncMessage] = []
        network.lose(self._see)

    def clear(self) -> None:
        self.packets.clear()
        self.tokens.clear()
        self.others.clear()

    def _see(self, source: str, destination: str, message: VsyncMessage) -> bool:
        match message:
            case Data():
                packet = Packet(source, destination, message.payloads, message.header)
                self.packets.append(packet)
            case Direct():
                self.tokens.append((source, destination, _tokens.decode(message.body)))
            case _:
                self.others.append(message)
        return False


def token_in(message: VsyncMessage) -> TokenMessage | None:
    """What a direct message of TOKEN says, or None for other messages."""
    return _tokens.decode(message.body) if isinstance(message, Direct) else None
