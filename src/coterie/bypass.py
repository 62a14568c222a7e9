"""The bypass: what nearly every turn of a group at work does, written straight down.

Layers are asked in turn whether they have something to say, and in a group at work nearly always
the same few of them do. As Ensemble and Horus had it (M. Hayden and R. van Renesse, *Optimizing
Layered Communication Protocols*), the common case has a *predicate*, which is asked whole before
anything changes, and one straight way; everything else goes through the layers, untouched. There
are four traces of events, all in a confirmed primary view that goes on, with nothing missing:

- who orders proposes what has gathered, and that is ordered at once (`finish_turn`);
- a member takes the next packet of who orders, with what is settled behind it (`receive`);
- a member takes an acknowledgement, or hears what is settled (`receive`);
- a turn ends in which nothing is proposed (`finish_turn`).

**The layers stay the definition.** With the bypass and without it a seed gives the same trace, the
same frames and the same journals, byte for byte (`tests/simulation/test_common_case.py`). What each
layer does on its part of the way stands in that layer, next to the long way: here is only which
parts follow each other. A stack in which one layer is not the product's own has no bypass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.decoding import DECODE_ERRORS
from coterie.membership.messages import Data, Direct
from coterie.membership.vsync import Vsync, decode_quickly
from coterie.ordering.dynseq import ITSELF, ITSELF_HEADER, DynamicSequencer
from coterie.replication.forming import decode_direct_quickly
from coterie.replication.layer import EngineTop
from coterie.replication.messages import AckEntries, SettledUpTo
from coterie.replication.primary import PrimaryViews
from coterie.replication.safe import GlobalSafety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from coterie.kernel.layers import Layer
    from coterie.kernel.views import Member, ViewId
    from coterie.membership.multicast import Multicast

_STACKS = (
    [EngineTop, GlobalSafety, PrimaryViews, DynamicSequencer, Vsync],
    [EngineTop, PrimaryViews, DynamicSequencer, Vsync],
)
"""The stacks that have one; exactly these, because a layer of another class may do otherwise."""

TOGETHER_MAX = 2
"""A packet, and what is settled behind it."""


class Bypass:
    """The straight way through one replica's layers."""

    __slots__ = ("_order", "_primary", "_top", "_upper", "_vsync")

    def __init__(
        self,
        top: EngineTop,
        upper: GlobalSafety | EngineTop,
        primary: PrimaryViews,
        order: DynamicSequencer,
        vsync: Vsync,
    ) -> None:
        self._top = top
        self._upper = upper
        """Who takes entries that are not authoritative yet."""
        self._primary = primary
        self._order = order
        self._vsync = vsync

    # ---- what arrives

    def receive(self, sender: Member, messages: Sequence[msgspec.Raw]) -> bool:
        """Take the messages of one envelope; False if they are none of the common case.

        Then nothing has changed, and the layers take them.
        """
        multicast = self._vsync.multicast
        rank = multicast.ranks.get(sender)
        if rank is None or multicast.is_frozen or not 0 < len(messages) <= TOGETHER_MAX:
            return False
        try:
            packet, told = _read(messages, multicast.view)
        except DECODE_ERRORS:
            return False
        if packet is not None:
            if not self._is_next(multicast, rank, packet):
                return False
            # Nothing waits for stability where nothing waits in the order.
            batch = multicast.take_next(
                *(rank, packet.number, packet.first, ITSELF_HEADER, ITSELF, packet.payloads),
                packet.received,
            )
            self._order.pass_next(batch)
            self._upper.deliver_next(self._primary.accept_next(batch))
            if packet.is_urgent:
                multicast.is_urgent = True
        elif told is None:
            return False
        if type(told) is AckEntries:
            self._primary.acknowledged(sender, told.position)
        elif told is not None:
            self._primary.hear_settled(told.position)
        return True

    def _is_next(self, multicast: Multicast, rank: int, packet: Data) -> bool:
        """Say whether a packet is the next one of who orders, with entries and nothing else."""
        return (
            not rank
            and packet.header == ITSELF_HEADER
            and bool(packet.payloads)
            and multicast.is_next(rank, packet.number)
            and self._order.is_clear()
            and self._primary.takes_next()
        )

    # ---- the end of the turn

    def finish_turn(self) -> bool:
        """End the turn; False if there is more to do than the common case has.

        What the host has gathered is proposed in any case: from there on the layers go on.
        """
        self._top.finish_turn()
        primary, order, vsync = self._primary, self._order, self._vsync
        if not vsync.is_calm() or not order.is_calm():
            return False
        multicast = vsync.multicast
        payloads = primary.next_to_cast()
        if payloads is not None:
            if not payloads or not order.orders_at_once(payloads) or not multicast.has_room:
                return False
            first = primary.cast_next(payloads)
            batch = multicast.send(first, ITSELF_HEADER, ITSELF, [*payloads], urgent=False)
            order.pass_next(batch)
            self._upper.deliver_next(primary.accept_next(batch))
        order.forget_safety()
        multicast.send_acks()
        primary.end_turn()
        return True


def _read(
    messages: Sequence[msgspec.Raw], view: ViewId
) -> tuple[Data | None, AckEntries | SettledUpTo | None]:
    """Give the packet, and what was said beside it, in this view; neither if there is more."""
    first = decode_quickly(messages[0])
    packet: Data | None = None
    said: object = first
    if type(first) is Data:
        if first.view != view:
            return None, None
        packet = first
        if len(messages) == 1:
            return packet, None
        said = decode_quickly(messages[1])
    elif len(messages) > 1:
        return None, None
    if type(said) is not Direct or said.view != view:
        return None, None
    told = decode_direct_quickly(said.body)
    if type(told) is SettledUpTo or (type(told) is AckEntries and not told.wants_answer):
        return packet, told
    return None, None


def bypass_of(top: Layer, layers: Sequence[Layer]) -> Bypass | None:
    """Give the bypass of a stack, if it has one."""
    parts: list[Layer] = [top, *layers]
    if [type(part) for part in parts] not in _STACKS:
        return None
    *upper, primary, order, vsync = parts
    assert isinstance(top, EngineTop)
    assert isinstance(primary, PrimaryViews)
    assert isinstance(order, DynamicSequencer)
    assert isinstance(vsync, Vsync)
    above = upper[-1]
    assert isinstance(above, GlobalSafety | EngineTop)
    return Bypass(top, above, primary, order, vsync)
