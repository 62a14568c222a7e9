"""Clients of transactions at one process: what they say to its cohorts, and are told.

To the cohorts such a client is a process like any other, except that nobody watches it and that it
is reached by its own connection. So it may say only what a client has to say (3.5), and only to
groups that run under viewstamped replication: the messages by which replicas form views and commit
are not for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import FrameError
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.wire import decode_frame
from coterie.vsr.calling import Begin, Call, End, StillHere, WhereIs

if TYPE_CHECKING:
    from collections.abc import Collection

    import msgspec

    from coterie.kernel.wire import Frame
    from coterie.runtime.driver import Driver
    from coterie.service.caller import Caller

GUEST = "@"
"""The names of clients begin with this, and those of replicas cannot."""
_NAME_MAX = 64
_SAID_BY_CLIENTS = frozenset(
    kind.__struct_config__.tag for kind in (WhereIs, Call, Begin, End, StillHere)
)
_ARRAYS = range(0x90, 0xA0)
"""How a short array begins in MessagePack; every message is one, and its tag comes first."""


class Guests:
    """The clients of transactions that are connected here; without a driver none are taken."""

    def __init__(self, driver: Driver | None = None, groups: Collection[str] = ()) -> None:
        self._driver = driver
        self._groups = frozenset(groups)
        self._callers: dict[str, Caller] = {}

    def receive(self, caller: Caller, data: bytes, size: int) -> None:
        """Have a frame of a client taken inside a turn; raises `FrameError` if it makes no sense.

        *size* is what counts as taken then.
        """
        driver = self._driver
        if driver is None or not self._groups:
            raise FrameError("guest", "no group here takes transactions")
        frame = decode_frame(data, frame_bytes_max=DEFAULT_SETTINGS.frame_bytes_max)
        self._check(caller, frame)
        if not caller.guest:
            self._admit(driver, caller, frame.process)

        def take() -> None:
            caller.taken(size)
            if not caller.is_over:
                driver.process.guest_said(frame)

        driver.call(take)

    def remove(self, caller: Caller) -> None:
        """Forget a client whose connection has ended."""
        guest = caller.guest
        if self._driver is not None and self._callers.get(guest) is caller:
            del self._callers[guest]
            del self._driver.guests[guest]
            self._driver.process.dismiss(guest)

    def _admit(self, driver: Driver, caller: Caller, guest: str) -> None:
        """Have the cohorts here speak to a client by its latest connection."""
        caller.guest = guest
        self._callers[guest] = caller
        driver.guests[guest] = caller.carry
        driver.process.admit(guest)

    def _check(self, caller: Caller, frame: Frame) -> None:
        name = frame.process
        if not name.startswith(GUEST) or len(name) > _NAME_MAX or frame.heartbeat is not None:
            raise FrameError("guest", "a client of transactions is no replica, and called @...")
        if caller.guest not in {"", name}:
            raise FrameError("guest", "a connection belongs to one client")
        for envelope in frame.envelopes:
            if envelope.group not in self._groups:
                raise FrameError("guest", f"the group {envelope.group!r} takes no transactions")
            if not all(map(_is_of_client, envelope.messages)):
                raise FrameError("guest", "a message that is none of a client's")


def _is_of_client(message: msgspec.Raw) -> bool:
    """Say whether a message is one that clients send, without reading it."""
    view = memoryview(message)
    return len(view) > 1 and view[0] in _ARRAYS and view[1] in _SAID_BY_CLIENTS
