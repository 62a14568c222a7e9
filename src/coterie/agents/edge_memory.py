"""What a gateway remembers of its earlier lives, beside what every edge does.

Orders and inputs go once all replicas have a copy of the program behind them. Two things in them
are needed for as long as the program runs: what it listens at, and the ports that it was given.

Copies do not outlive their machine, nor `coterie stop`. But what has gone from memory is still in
the journal: the first life of a gateway after such an end is *whole*, it remembers everything from
the founding on, and replicas that have nothing begin there. Snapshots of lives before it are of no
use from there on: it removes them (`LlftJournal.recover_whole`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from coterie.agents.app import LISTENING
from coterie.kernel.claims import Order, OrderKind
from coterie.kernel.decoding import Decoder
from coterie.kernel.records import InputsHeld, OrdersFreed, OrdersKnown
from coterie.llft.memory import EdgeMemory
from coterie.llft.orders import each_order
from coterie.program.wire import WireKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.records import Record

_encode = msgspec.msgpack.Encoder().encode


class StoredGateway(msgspec.Struct, frozen=True, array_like=True):
    """A gateway's memory, in a snapshot."""

    edge: bytes
    told: dict[str, Order]
    answers: dict[str, bytes]


_decode = Decoder(StoredGateway).decode


class GatewayMemory(EdgeMemory):
    """An edge's memory, and what the program has told it for good."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, Order] = {}
        """What the program has said that still holds, by its connection or listener."""
        self.answers: dict[str, bytes] = {}
        """What its listeners were answered: the ports."""

    @classmethod
    def recall(cls, chunks: Iterable[bytes], records: Iterable[Record]) -> Self:
        """Build it; what was freed before a whole life is not."""
        found = list(records)
        whole = [n for n, each in enumerate(found) if is_whole_mark(each)]
        last = whole[-1] if whole else 0
        return super().recall(
            chunks, [r for n, r in enumerate(found) if n >= last or not isinstance(r, OrdersFreed)]
        )

    def add(self, record: Record) -> None:
        """Take a record that was stored."""
        match record:
            case OrdersKnown(runs=runs):
                for _, _, _, order in each_order(runs):
                    self._note(order)
            case InputsHeld(inputs=inputs):
                for each in inputs:
                    if each.conn.startswith(LISTENING):
                        self.answers[each.conn] = each.data
            case _:
                pass
        super().add(record)

    def encoded(self) -> bytes:
        """Give everything."""
        return _encode(StoredGateway(super().encoded(), self.told, self.answers))

    def restore(self, body: bytes) -> None:
        """Become what `encoded` gave."""
        found = _decode(body)
        super().restore(found.edge)
        self.told, self.answers = found.told, found.answers

    def _note(self, order: Order) -> None:
        if order.kind is not OrderKind.TOLD:
            return
        if order.value in {WireKind.LISTEN, WireKind.EXITED}:
            self.told[order.conn] = order
        elif order.value == WireKind.CLOSED:
            self.told.pop(order.conn, None)


def is_whole_mark(record: Record) -> bool:
    """Say whether a record says that its life remembers everything from the founding on."""
    return isinstance(record, OrdersFreed) and not record.orders and not record.inputs


class WholeMemory(GatewayMemory):
    """One of a life that remembers everything."""

    @classmethod
    def recall(cls, chunks: Iterable[bytes], records: Iterable[Record]) -> Self:
        """Build it; nothing was freed."""
        kept = [each for each in records if not isinstance(each, OrdersFreed)]
        return super().recall(chunks, kept)
