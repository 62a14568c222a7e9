"""Taking connections at an address of this machine.

We accept them ourselves, and do not leave it to the event loop, for three reasons:

- A loop that runs out of descriptors while it accepts gives up listening (uvloop), or says so in
  words only (asyncio). Here it is counted, and tried again in a moment; and it does not come to
  that, because the last descriptors are never given to connections (`descriptors`).
- A connection whose TLS handshake is not over is nothing to the protocols above, so nobody would
  count it. Here it counts, has a time-out, and where there is no room for one more, the oldest of
  them is ended: who means it takes milliseconds, so those who never finish keep nobody out.
- Each handshake uses the certificates that are in force when it begins.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coterie.runtime.address import Address
from coterie.runtime.descriptors import FOR_CLIENTS, descriptors_for

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

BACKLOG = 128
HANDSHAKES_MIN = 16
"""So many handshakes may go on even where no more connections are taken: to tell them so."""
HANDSHAKES_MAX = 512
"""And no more than that, however much room there is."""
ACCEPTED_AT_ONCE = 64
PAUSE_SECONDS = 0.1
"""How long nobody is let in after the system had nothing to let them in with."""
_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class TurnedAway(enum.StrEnum):
    """Why a connection was not handed over; the values are what counters are called."""

    NO_DESCRIPTORS = "turned_away_no_descriptors"
    NO_ROOM = "strangers_turned_away"
    HANDSHAKE_LATE = "handshakes_timed_out"
    HANDSHAKE_FAILED = "handshakes_failed"


def _nobody_counts(why: TurnedAway) -> None:
    del why


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenTerms:
    """Who is let in at an address, and on what terms."""

    tls: Callable[[], ssl.SSLContext] | None = None
    """What the next connection is encrypted with; without it, connections are plain."""
    handshake_seconds: float = 2.0
    """How long a TLS handshake may take, and how long the other end may take to say goodbye."""
    room: Callable[[], int] = lambda: sys.maxsize
    """How many more connections there may be, not counting those in their handshake."""
    turned_away: Callable[[TurnedAway], None] = _nobody_counts
    """Is told of everybody who was not let in."""
    descriptors_kept: int = FOR_CLIENTS
    """How many descriptors of the process connections leave alone."""


EVERYBODY = ListenTerms()
"""Whoever comes is let in, as long as there are descriptors."""


async def bind(at: Address) -> list[socket.socket]:
    """Bind sockets to all that an address stands for; raises `OSError`."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        at.host or None, at.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                made = socket.socket(family, kind, protocol)
            except OSError:
                continue  # a family of addresses that this system has not
            bound.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
    except BaseException:
        for each in bound:
            each.close()
        raise
    if not bound:
        raise OSError(errno.EADDRNOTAVAIL, "the host has no address that this system knows")
    return bound


class TcpListener:
    """Accepts connections, and hands them to protocols that *make* makes."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make: Callable[[], asyncio.Protocol],
        admission: ListenTerms,
    ) -> None:
        self._sockets = list(sockets)
        self._make = make
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._untouched: set[socket.socket] = set()
        """Sockets that were accepted and that nobody has got hold of yet."""
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._arriving: set[asyncio.Task[None]] = set()
        self._pauses: set[asyncio.TimerHandle] = set()
        for each in self._sockets:
            each.settimeout(0)
            each.listen(BACKLOG)
            self._loop.add_reader(each.fileno(), self._accept, each)

    @property
    def address(self) -> Address:
        """Where it listens, with the port that was chosen if it was 0."""
        return Address(*self._sockets[0].getsockname()[:2])

    @property
    def handshakes(self) -> int:
        """How many connections are in their handshake."""
        return len(self._handshakes)

    async def close(self) -> None:
        """Take no more connections; those who are in, and only waited for their turn, get it."""
        self._is_closed = True
        for pause in self._pauses:
            pause.cancel()
        for each in self._sockets:
            self._loop.remove_reader(each.fileno())
        for handshake in self._handshakes:
            handshake.cancel()
        try:
            if self._arriving:
                await asyncio.wait(self._arriving)
        finally:
            for each in self._sockets:
                each.close()

    # ---- inside

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _SHORT:
                    continue  # it went away before it was let in
                self._admission.turned_away(TurnedAway.NO_DESCRIPTORS)
                self._pause(listening)
                return
            self._take(accepted)

    def _pause(self, listening: socket.socket) -> None:
        """Look again in a moment: until then the loop would ask for it without end."""
        self._loop.remove_reader(listening.fileno())

        def go_on() -> None:
            self._pauses.discard(pause)
            if not self._is_closed:
                self._loop.add_reader(listening.fileno(), self._accept, listening)

        pause = self._loop.call_later(PAUSE_SECONDS, go_on)
        self._pauses.add(pause)

    def _take(self, accepted: socket.socket) -> None:
        admission, number = self._admission, accepted.fileno()
        if number >= descriptors_for(admission.descriptors_kept):
            # One in its handshake makes room, but what it has is free only when the loop is round.
            is_last = number >= descriptors_for(admission.descriptors_kept // 2)
            if is_last or not self._handshakes:
                accepted.close()
                admission.turned_away(TurnedAway.NO_DESCRIPTORS)
                return
            self._end(next(iter(self._handshakes)), TurnedAway.NO_DESCRIPTORS)
        accepted.settimeout(0)
        if admission.tls is None:
            self._begin(accepted, {}, is_handshake=False)
            return
        if len(self._handshakes) >= max(min(admission.room(), HANDSHAKES_MAX), HANDSHAKES_MIN):
            self._end(next(iter(self._handshakes)), TurnedAway.NO_ROOM)
        options = {
            "ssl": admission.tls(),
            "ssl_handshake_timeout": admission.handshake_seconds,
            "ssl_shutdown_timeout": admission.handshake_seconds,
        }
        self._begin(accepted, options, is_handshake=True)

    def _begin(
        self, accepted: socket.socket, options: dict[str, Any], *, is_handshake: bool
    ) -> None:
        arriving = self._loop.create_task(self._hand_over(accepted, options))
        self._untouched.add(accepted)
        self._arriving.add(arriving)
        if is_handshake:
            self._handshakes[arriving] = None

        def over(task: asyncio.Task[None]) -> None:
            self._handshakes.pop(task, None)
            self._arriving.discard(task)
            if accepted in self._untouched:  # it was ended before it began
                self._untouched.discard(accepted)
                accepted.close()

        arriving.add_done_callback(over)

    def _end(self, handshake: asyncio.Task[None], why: TurnedAway) -> None:
        del self._handshakes[handshake]
        handshake.cancel()
        self._admission.turned_away(why)

    async def _hand_over(self, accepted: socket.socket, options: dict[str, Any]) -> None:
        """Make a connection of an accepted socket; whatever the other end does is no error."""
        self._untouched.discard(accepted)
        try:
            await self._loop.connect_accepted_socket(self._make, accepted, **options)
        except ConnectionAbortedError:
            self._admission.turned_away(TurnedAway.HANDSHAKE_LATE)
        except OSError:  # those of TLS among them
            self._admission.turned_away(TurnedAway.HANDSHAKE_FAILED)
