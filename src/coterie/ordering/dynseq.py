"""DYNSEQ: total order by a sequencer, which is the first member of the view.

**objects** section 6.1. Every member multicasts its own messages; the sequencer multicasts the
order in which it received them, one order per turn for all that the turn brought. Its own
messages carry their order with them. So an order costs one small packet per turn under load, and
nothing when the messages are the sequencer's own.

The paper sends messages to the sequencer alone, which forwards them. We multicast first, because
then a message belongs to its view's reliable multicast from the start: the flush of a view change
covers it, its sender always delivers it itself, and nothing has to be sent again (and perhaps
twice) in the next view. The number of hops is the same.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.errors import BadMessage
from coterie.ordering.delivery import OrderLayer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coterie.kernel.layers import Batch, Context, Ending


class SequencerHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The header of every packet.

    `runs` is filled in by the sequencer: (rank, count) pairs, meaning that the next *count*
    packets of that sender come next in the order.
    """

    safe: bool
    runs: list[tuple[int, int]]
    mark: int = 0


_ITSELF = [(0, 1)]
"""The order of a packet of the sequencer that follows everything ordered before."""
_encoder = msgspec.msgpack.Encoder()
ITSELF = SequencerHeader(safe=False, runs=_ITSELF)
"""The header of a packet of the sequencer that orders nothing but itself, as nearly all do."""
ITSELF_HEADER = _encoder.encode(ITSELF)
_decoder = Decoder(SequencerHeader)


class DynamicSequencer(OrderLayer):
    """The sequencer is rank 0; it changes with the view."""

    name = "DYNSEQ"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.begin_order()

    def begin_order(self) -> None:
        size = len(self.members)
        self._waiting: list[deque[Batch]] = [deque() for _ in range(size)]
        # Ranks in order, each with the sequencer's packet that said so.
        self._order: deque[tuple[int, int]] = deque()
        self._delivered = [0] * size
        self._order_known = 0
        self._unordered: list[tuple[int, int]] = []
        self._unordered_is_safe = False
        self._stable: Sequence[int] | None = None

    # ---- downwards

    def finish_turn(self) -> None:
        if self.backlog.casts:
            is_sequencer = self.rank == 0
            for safe, first, payloads, mark in self.backlog.packets(lambda: self.below.can_cast):
                runs = [*self._take_unordered(), (0, 1)] if is_sequencer else []
                order = SequencerHeader(safe, runs, mark)
                self._send(order, first, payloads, urgent=safe or self._unordered_is_safe)
        if self._unordered and self.below.can_cast:
            order = SequencerHeader(safe=False, runs=self._take_unordered())
            self._send(order, 0, [], urgent=self._unordered_is_safe)
        if not self._unordered:
            self._unordered_is_safe = False

    def _send(
        self, order: SequencerHeader, first: int, payloads: list[bytes], *, urgent: bool
    ) -> None:
        header = _encoder.encode(order)
        self.below.cast_packet(
            header, first, payloads, safe=order.safe, urgent=urgent, parsed=order
        )

    def _take_unordered(self) -> list[tuple[int, int]]:
        runs, self._unordered = self._unordered, []
        return runs

    # ---- the common case (`coterie.bypass`)

    def is_clear(self) -> bool:
        """Say whether the sequencer's next packet is delivered as it comes: nothing waits."""
        return not self._order and not self._waiting[0]

    def is_calm(self) -> bool:
        """Say whether this turn has left nothing to be sent or ordered."""
        return not self.backlog.casts and not self._unordered

    def orders_at_once(self, payloads: Sequence[bytes]) -> bool:
        """Say whether these messages, cast now, leave as one packet that orders itself."""
        if self.rank or not self.is_clear():
            return False
        settings = self.context.settings
        size = sum(map(len, payloads))
        return (
            size <= settings.packet_bytes_max
            and size <= settings.payload_bytes_max
            and len(payloads) <= settings.packet_messages_max
        )

    def pass_next(self, batch: Batch) -> None:
        """Give the sequencer's next batch its place."""
        self._delivered[0] = batch.packet
        batch.number = self._numbered + 1
        self._numbered += len(batch.payloads)

    def forget_safety(self) -> None:
        """End a turn in which nothing was left to be ordered."""
        self._unordered_is_safe = False

    # ---- upwards

    def parse(self, header: bytes) -> SequencerHeader:
        try:
            order = _decoder.decode(header)
        except msgspec.DecodeError as error:
            raise BadMessage(f"not a sequencer's header: {error}") from None
        size = len(self.members)
        limit = 2 * size * self.context.settings.window_packets
        for rank, count in order.runs:
            if not (0 <= rank < size and 0 < count <= limit):
                raise BadMessage("an order of packets that cannot exist")
        return order

    def is_next(self, batch: Batch, order: SequencerHeader) -> bool:
        """Say whether this is the common case, in which a batch is delivered as it comes.

        It is the sequencer's own, brings the place of nothing but itself, waits for nobody, and
        nothing waits before it.
        """
        return (
            batch.rank == 0
            and not order.safe
            and order.runs == _ITSELF
            and not self._order
            and not self._waiting[0]
            and bool(batch.payloads)
        )

    def deliver(self, batches: list[Batch]) -> None:
        batch = batches[0]
        order = batch.header
        assert isinstance(order, SequencerHeader)
        if len(batches) == 1 and self.is_next(batch, order):
            batch.mark = order.mark
            self._delivered[0] = batch.packet
            self.hand_up_next(batch)
            return
        for batch in batches:
            order = batch.header
            assert isinstance(order, SequencerHeader)
            batch.safe = order.safe
            batch.mark = order.mark
            if batch.payloads:
                self._waiting[batch.rank].append(batch)
                if self.rank == 0 and batch.rank != 0:
                    self._note_unordered(batch)
            if batch.rank == 0:
                for rank, count in order.runs:
                    self._order.extend([(rank, batch.packet)] * count)
        if self._tells_receipt:
            self.above.received_batches(batches)
        if self._order:
            self.deliver_in_order()

    def _note_unordered(self, batch: Batch) -> None:
        """Remember a packet for this turn's order."""
        runs = self._unordered
        if runs and runs[-1][0] == batch.rank:
            runs[-1] = (batch.rank, runs[-1][1] + 1)
        else:
            runs.append((batch.rank, 1))
        self._unordered_is_safe |= batch.safe

    def stability_rose(self) -> None:
        if self._order:
            self.deliver_in_order()
        self.above.stability_rose()

    def next_in_order(self, *, ignore_stability: bool) -> Iterator[Batch]:
        order = self._order
        while order:
            rank, ordered_by = order[0]
            if not self._waiting[rank]:
                return
            batch = self._waiting[rank][0]
            if batch.safe and not (ignore_stability or self._is_stable(batch, ordered_by)):
                return
            order.popleft()
            self._waiting[rank].popleft()
            self._delivered[rank] = batch.packet
            yield batch

    def _is_stable(self, batch: Batch, ordered_by: int) -> bool:
        """Say whether all members have the batch, its place, and everything before it.

        Everything before: or a member could be left with a hole in front of it, and could not
        deliver it in its place.
        """
        stable = self._stable if self._stable is not None else self.below.stable
        return (
            stable[batch.rank] >= batch.packet
            and stable[0] >= ordered_by
            and all(has >= done for has, done in zip(stable, self._delivered, strict=True))
        )

    def adopt_stability(self, ending: Ending) -> None:
        self._stable = ending.stable

    def left_over(self) -> Iterator[Batch]:
        for rank, _ in self._order:
            if self._waiting[rank]:
                yield self._waiting[rank].popleft()
        for waiting in self._waiting:
            yield from waiting
