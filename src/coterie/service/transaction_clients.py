"""Clients that are processes of their own: what they say to replicas here, and are told.

Who runs transactions speaks to several groups at once, so to their replicas such a client is a
process like any other, except that nobody watches it and that it is reached by its own connection.
It may say only what the front of a group lets a client say (`GroupFront.guest_tags`): the messages
by which replicas speak among themselves are not for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.errors import FrameError
from coterie.kernel.views import Member
from coterie.kernel.wire import Envelope, decode_body
from coterie.protocol.messages import guest_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from coterie.kernel.wire import Frame
    from coterie.runtime.driver import Driver
    from coterie.service.caller import Caller
    from coterie.service.engines.front import GroupFront

GUEST = "@"
"""The names of clients begin with this, and those of replicas cannot."""
_NAME_MAX = 64
_ARRAYS = range(0x90, 0xA0)
"""How a short array begins in MessagePack; every message is one, and its tag comes first."""


class Guests:
    """The clients of transactions that are connected here; without a driver none are taken."""

    def __init__(self, driver: Driver | None, fronts: Mapping[str, GroupFront[Any]]) -> None:
        self._driver = driver
        self._fronts = fronts
        self._callers: dict[str, Caller] = {}

    def receive(self, caller: Caller, body: msgspec.Raw, size: int) -> None:
        """Have what a client says taken inside a turn; raises `FrameError` if it makes no sense.

        *size* is what counts as taken then.
        """
        driver = self._driver
        if driver is None or not any(front.guest_tags for front in self._fronts.values()):
            raise FrameError("guest", "no group here takes transactions")
        frame = decode_body(body)
        self._check(caller, frame)
        if not caller.guest:
            self._admit(driver, caller, frame.process)

        def take() -> None:
            caller.taken(size)
            if not caller.is_over:
                driver.process.guest_said(self._admitted(caller, frame))

        driver.call(take)

    def remove(self, caller: Caller) -> None:
        """Forget a client whose connection has ended."""
        guest = caller.guest
        if self._driver is not None and self._callers.get(guest) is caller:
            del self._callers[guest]
            del self._driver.guests[guest]
            self._driver.process.dismiss(guest)

    def _admit(self, driver: Driver, caller: Caller, guest: str) -> None:
        """Have the replicas here speak to a client by its latest connection."""
        caller.guest = guest
        self._callers[guest] = caller
        driver.guests[guest] = caller.carry
        driver.process.admit(guest)

    def _admitted(self, caller: Caller, frame: Frame) -> Frame:
        """Give what is left of a frame when what its client may not say is refused."""
        fronts = self._fronts
        if not any(fronts[each.group].admission.is_needed(caller) for each in frame.envelopes):
            return frame
        envelopes = [
            Envelope(
                group,
                incarnation,
                list(
                    fronts[group].admit_guest(caller, Member(frame.process, incarnation), messages)
                ),
            )
            for group, incarnation, messages in (
                (each.group, each.incarnation, each.messages) for each in frame.envelopes
            )
        ]
        return msgspec.structs.replace(frame, envelopes=envelopes)

    def _check(self, caller: Caller, frame: Frame) -> None:
        name = frame.process
        if not name.startswith(GUEST) or len(name) > _NAME_MAX or frame.heartbeat is not None:
            raise FrameError("guest", "a client of transactions is no replica, and called @...")
        if not name.startswith(guest_prefix(caller.client.owner)):
            raise FrameError("guest", "another client's name, or one of an earlier release's")
        if caller.guest not in {"", name}:
            raise FrameError("guest", "a connection belongs to one client")
        for envelope in frame.envelopes:
            front = self._fronts.get(envelope.group)
            if front is None or not front.guest_tags:
                raise FrameError("guest", f"the group {envelope.group!r} takes no transactions")
            if not all(_is_one_of(front.guest_tags, message) for message in envelope.messages):
                raise FrameError("guest", "a message that is none of a client's")


def _is_one_of(tags: frozenset[object], message: msgspec.Raw) -> bool:
    """Say whether a message has one of these tags, without reading it."""
    view = memoryview(message)
    return len(view) > 1 and view[0] in _ARRAYS and view[1] in tags
