"""Casts that wait to be sent, packed into packets in order.

The backlog is where packing happens: everything cast since the last send leaves together, up to
the packet size. It is also where flow control reaches the caller: at its limit a cast is refused
instead of kept.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from coterie.kernel.clock import Duration
from coterie.kernel.errors import BacklogFull, PayloadTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coterie.kernel.layers import Context


class Packet(NamedTuple):
    """Messages that leave together."""

    safe: bool
    first: int
    payloads: list[bytes]
    mark: int = 0
    """What the layer above told its own messages apart by."""


class _Cast:
    """Messages cast together, of which some may have left already."""

    __slots__ = ("first", "kind", "payloads", "size", "taken")

    def __init__(
        self, kind: tuple[bool, int], first: int, payloads: Sequence[bytes], size: int
    ) -> None:
        self.kind = kind
        self.first = first
        self.payloads = payloads
        self.size = size
        self.taken = 0


class Backlog:
    """A bounded queue of casts of one replica."""

    __slots__ = ("_context", "bytes", "casts")

    def __init__(self, context: Context) -> None:
        self._context = context
        self.casts: deque[_Cast] = deque()
        """What waits; nothing if it is empty."""
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self.casts)

    def add(self, payloads: Sequence[bytes], *, safe: bool, mark: int = 0) -> int:
        """Queue messages and number them; give the number of the first."""
        settings = self._context.settings
        size = sum(map(len, payloads))
        if size > settings.payload_bytes_max:
            largest = max(map(len, payloads))
            if largest > settings.payload_bytes_max:
                raise PayloadTooLarge(
                    f"a message of {largest} bytes is over the limit of "
                    f"{settings.payload_bytes_max} (payload_bytes_max): send it in parts"
                )
        if self.casts and self.bytes + size > settings.backlog_bytes:
            raise BacklogFull(
                f"{self.bytes} bytes wait to be sent already (backlog_bytes is "
                f"{settings.backlog_bytes}): wait for deliveries, then cast again"
            )
        first = self._context.number_messages(len(payloads))
        if payloads:
            self.casts.append(_Cast((safe, mark), first, payloads, size))
            self.bytes += size
        return first

    def packets(self, may_send: Callable[[], bool]) -> Iterator[Packet]:
        """Take packets while *may_send* allows, as many as one turn should make.

        What is left then is for the next turn, which comes at once.
        """
        context = self._context
        for _ in range(context.settings.turn_packets):
            if not (self.casts and may_send()):
                return
            yield self.take_packet()
        if self.casts:
            context.set_timer("backlog", Duration(0), _nothing)

    def take_packet(self) -> Packet:
        """Take the next packet's worth of messages that ask for the same."""
        settings = self._context.settings
        room, count_max = settings.packet_bytes_max, settings.packet_messages_max
        casts = self.casts
        cast = casts[0]
        kind = cast.kind
        first = cast.first + cast.taken
        is_alone = len(casts) == 1 and not cast.taken
        if is_alone and cast.size <= room and len(cast.payloads) <= count_max:
            casts.popleft()
            self.bytes -= cast.size
            return Packet(kind[0], first, [*cast.payloads], kind[1])
        packet: list[bytes] = []
        size = 0
        while casts and casts[0].kind == kind:
            cast = casts[0]
            if size + cast.size <= room and len(packet) + len(cast.payloads) <= count_max:
                # All of it fits, which is the usual case.
                packet += cast.payloads[cast.taken :] if cast.taken else cast.payloads
                size += cast.size
                casts.popleft()
                continue
            for index in range(cast.taken, len(cast.payloads)):
                payload = cast.payloads[index]
                if packet and (size + len(payload) > room or len(packet) >= count_max):
                    break
                packet.append(payload)
                size += len(payload)
                cast.size -= len(payload)
                cast.taken += 1
            if cast.taken < len(cast.payloads):
                break
            casts.popleft()
        self.bytes -= size
        return Packet(kind[0], first, packet, kind[1])


def _nothing() -> None:
    """A timer that only has to bring about a turn."""
