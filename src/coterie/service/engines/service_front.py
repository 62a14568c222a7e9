"""The front of an object whose clients may know nothing of replication (ONUS).

Clients of the usual kind are served as on every stack; answers that have a place to go to are for
the port of datagrams.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from coterie.kernel.errors import CoterieError
from coterie.runtime.address import parse_address
from coterie.service.datagrams import DatagramPort
from coterie.service.engines.stack_front import ObjectFront
from coterie.stacks import DEFAULT_STACK, SERVER_STACKS, serves_datagrams

if TYPE_CHECKING:
    from coterie.objects import Answer
    from coterie.service.engines.family import Slot
    from coterie.service.port import ClientPort


class ServiceFront(ObjectFront):
    """Speaks for all clients of one group at one replica."""

    def __init__(self, port: ClientPort, group: str, datagrams: DatagramPort) -> None:
        super().__init__(port, group)
        self._datagrams = datagrams

    def answer(self, answers: list[Answer]) -> None:
        others = [answer for answer in answers if not answer.reply_to]
        for answer in answers:
            if answer.reply_to:
                self._datagrams.answer(answer)
        if others:
            super().answer(others)


def make_datagrams(slot: Slot) -> DatagramPort | None:
    """Make the port of datagrams, if the group has ONUS and the replica an address for them."""
    mine = slot.config.replicas[slot.replica]
    if not serves_datagrams(slot.given.stack or DEFAULT_STACK) or not mine.datagrams:
        return None
    multicast = parse_address(slot.given.multicast) if slot.given.multicast else None
    return DatagramPort(parse_address(mine.datagrams), multicast, slot.replica)


def check_multicast(text: str, stack: str) -> None:
    """Refuse what is no address that all replicas can hear, or has nobody who listens."""
    if not text:
        return
    if not serves_datagrams(stack):
        raise CoterieError(
            f"multicast = {text!r} is for a stack with ONUS: take {SERVER_STACKS[0]}"
        )
    host = parse_address(text).host
    try:
        is_right = ipaddress.IPv4Address(host).is_multicast
    except ValueError:
        is_right = False
    if not is_right:
        raise CoterieError(
            f"multicast = {text!r} is no IPv4 multicast address: take one such as 239.255.7.1:7700"
        )
