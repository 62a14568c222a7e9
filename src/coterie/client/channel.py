"""One connection to one replica.

A channel gathers what its client asks for during one tick of the loop and sends it as one frame.
It is *ready* from the replica's welcome to its own end. It pings when it has heard nothing for a
while and ends when that does not help, so a half-open connection is found out even when nobody
asks for anything.

A channel becomes *suspect* when a request made on it stays without an answer, or its replica has
no majority; it is cleared by an answer, not by a sign of life: a replica that only claims to be
well is no use.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import msgspec

from coterie.client.errors import NotWelcome
from coterie.kernel.engine import Role
from coterie.kernel.errors import FrameError
from coterie.protocol.frames import encode_frame, frame_reader
from coterie.protocol.handshake import ClientHandshake, HandshakeFailed
from coterie.protocol.kinds import NO_CLIENT, WRONG_GROUP, WRONG_SECRET, WRONG_VERSION
from coterie.protocol.messages import (
    REPORTS_MAX,
    REQUESTS_MAX,
    Answers,
    Ask,
    Challenge,
    Farewell,
    News,
    Ping,
    Pong,
    Query,
    Update,
    UpdateBatch,
    UpdateIf,
    Welcome,
    decode_from_replica,
    encode,
)
from coterie.runtime.network import send_at_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.client.settings import ClientSettings
    from coterie.objects import Answer
    from coterie.protocol.messages import FromClient, FromReplica

PERMANENT = frozenset({NO_CLIENT, WRONG_GROUP, WRONG_SECRET, WRONG_VERSION})
"""Kinds of farewell that the same replica would say again."""
FRAME_BYTES_AIM = 1 << 20
"""A tick that asks for more than this sends it in several frames."""


Item = TypeVar("Item")


class Sendable(Protocol):
    """A request, as far as a channel is concerned."""

    is_over: bool
    size: int

    def put(self, parcel: Parcel) -> None:
        """Add what is to be sent."""


class Owner(Protocol):
    """Whom a channel reports to."""

    settings: ClientSettings

    def on_ready(self, channel: Channel) -> None:
        """The replica has made us welcome."""

    def on_lost(self, channel: Channel) -> None:
        """The connection has ended; `reason` and `unwelcome` of the channel say why."""

    def on_answers(self, channel: Channel, answers: Sequence[Answer]) -> None:
        """Answers have come."""

    def on_message(self, channel: Channel, message: FromReplica) -> None:
        """A message has come that is no answer."""


class Parcel:
    """What the next frame will ask for."""

    __slots__ = (
        "batches",
        "closes",
        "conditional",
        "opens",
        "queries",
        "reports",
        "unwatches",
        "updates",
        "watches",
    )

    def __init__(self) -> None:
        self.updates: list[Update] = []
        self.batches: list[UpdateBatch] = []
        self.queries: list[Query] = []
        self.opens: list[int] = []
        self.closes: list[int] = []
        self.watches: list[tuple[int, int]] = []
        self.unwatches: list[tuple[int, int]] = []
        self.reports: list[int] = []
        self.conditional: list[UpdateIf] = []

    def to_ask(self) -> Ask:
        """Give all that was gathered as one message."""
        return Ask(
            time.time_ns() // 1000,
            self.updates,
            self.batches,
            self.queries,
            self.opens,
            self.closes,
            self.watches,
            self.unwatches,
            self.reports,
            self.conditional,
        )


class Channel(asyncio.Protocol):
    """A connection, from its hello to its end."""

    def __init__(self, owner: Owner, address: str, group: str, secret: bytes | None) -> None:
        self.address = address
        self.replica = ""
        self.welcome: Welcome | None = None
        self.is_primary = False
        """Whether the replica says that it takes updates."""
        self.is_ready = False
        """Whether requests can be made here."""
        self.is_suspect = False
        self.reason = "the connection was closed"
        self.unwelcome: NotWelcome | None = None
        self.read_at = 0.0
        self.answered_at = 0.0
        """When the replica last gave an answer that was no refusal."""
        self.chosen_at = 0.0
        """When a request last came here because it had no luck elsewhere."""
        self.welcome_after = 0.0
        """How long it took to be made welcome: far away, or busy, is long."""
        self.is_let_go = False
        """Whether we have closed it ourselves, without blame."""
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the replica has made us welcome, or never will."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self._owner = owner
        self._handshake = ClientHandshake(group, secret)
        self._loop = asyncio.get_running_loop()
        self._reader = frame_reader(frame_bytes_max=owner.settings.frame_bytes_max)
        self._outgoing: list[Sendable] = []
        self._parcel = Parcel()
        self._is_scheduled = False
        self._is_paused = False
        self._is_closing = False
        self._pulse: asyncio.TimerHandle | None = None

    # ---- the connection

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, or was one."""
        return hasattr(self, "transport")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's bear no such class
        send_at_once(transport)
        self.read_at = self._loop.time()
        self._write([self._handshake.hello])

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self.reason = f"the connection was lost: {exc}"
        elif self.welcome is None and not self._is_closing:
            self.reason = "the other end hung up without a word: is this the address for clients?"
        self._is_closing = True
        self.is_ready = False
        if self._pulse is not None:
            self._pulse.cancel()
        for done in (self.greeted, self.ended):
            if not done.done():
                done.set_result(None)
        self._owner.on_lost(self)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._schedule()

    def abort(self, reason: str) -> None:
        """End the connection at once."""
        if not self._is_closing:
            self._is_closing = True
            self.is_ready = False
            self.reason = reason
            self.transport.abort()

    def close(self) -> None:
        """Send what was asked for, and end the connection."""
        if not self._is_closing:
            self._flush()
            self.is_let_go = True
            self._is_closing = True
            self.is_ready = False
            self.transport.close()

    def _start_pulse(self) -> None:
        interval = self._owner.settings.ping_interval
        due = self._loop.time() + interval
        self._pulse = self._loop.call_later(interval, self._beat, due)

    def _beat(self, due: float) -> None:
        """Ask a silent replica whether it is there, and give it up in the end."""
        now = self._loop.time()
        settings = self._owner.settings
        if now - due > settings.ping_interval:
            # We were paused ourselves, and what came meanwhile is not read yet.
            self.read_at = max(self.read_at, now - settings.silence_max / 2)
        silence = now - self.read_at
        if silence > settings.silence_max:
            self.abort(f"replica {self.replica!r} was silent for {silence:.1f} s")
            return
        if silence >= settings.ping_interval / 2 and not self._is_closing:
            self._write([Ping()])
        self._start_pulse()

    # ---- asking

    def add(self, request: Sendable) -> None:
        """Have a request sent at the end of this tick."""
        self._outgoing.append(request)
        if not self._is_scheduled:
            self._schedule()

    def parcel(self) -> Parcel:
        """Give what is sent at the end of this tick, to add something to it."""
        if not self._is_scheduled:
            self._schedule()
        return self._parcel

    def send(self, message: FromClient) -> bool:
        """Send a message at once; False if it cannot go now."""
        if not self.is_ready or self._is_paused:
            return False
        self._write([message])
        return True

    def _schedule(self) -> None:
        if not self._is_scheduled and not self._is_paused:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        if self._is_closing or self._is_paused:
            return
        outgoing, self._outgoing = self._outgoing, []
        parcel, self._parcel = self._parcel, Parcel()
        size = count = 0
        for request in outgoing:
            if request.is_over:
                continue
            if size > FRAME_BYTES_AIM or count == REQUESTS_MAX:
                self._write_parcel(parcel)
                parcel, size, count = Parcel(), 0, 0
            request.put(parcel)
            size += request.size
            count += 1
        self._write_parcel(parcel)

    def _write_parcel(self, parcel: Parcel) -> None:
        """Send what is asked for; many sessions may end at once, more than fit into a message."""
        while (
            len(parcel.closes) > REQUESTS_MAX
            or len(parcel.unwatches) > REQUESTS_MAX
            or len(parcel.watches) > REQUESTS_MAX
            or len(parcel.reports) > REPORTS_MAX
        ):
            first = Parcel()
            first.closes, parcel.closes = _cut(parcel.closes)
            first.unwatches, parcel.unwatches = _cut(parcel.unwatches)
            first.watches, parcel.watches = _cut(parcel.watches)
            first.reports, parcel.reports = _cut(parcel.reports, REPORTS_MAX)
            self._write([first.to_ask()])
        self._write([parcel.to_ask()])

    def _write(self, messages: list[FromClient]) -> None:
        self.transport.write(encode_frame(encode(messages)))

    # ---- what the replica says

    def data_received(self, data: bytes) -> None:
        self.read_at = self._loop.time()
        try:
            for body in self._reader.feed(data):
                for message in decode_from_replica(body):
                    if self._is_closing:
                        return
                    self._take(message)
        except FrameError as error:
            kind = WRONG_VERSION if error.kind == "version" else WRONG_GROUP
            if self.welcome is None and error.kind in {"version", "magic"}:
                self.unwelcome = NotWelcome(kind, f"{self.address}: {error}")
            self.abort(str(error))
        except HandshakeFailed as error:
            self.unwelcome = NotWelcome(error.kind, f"{self.address} {error}")
            self.abort(str(self.unwelcome))
        except msgspec.DecodeError as error:
            self.abort(f"a message cannot be read: {error}")

    def _take(self, message: FromReplica) -> None:
        if isinstance(message, Answers):
            if self.welcome is not None:
                self._owner.on_answers(self, message.answers)
            return
        match message:
            case Challenge():
                self._write([self._handshake.answer(message)])
            case Welcome():
                self._enter(message)
            case Farewell(kind=kind, reason=reason):
                if kind in PERMANENT:
                    self.unwelcome = NotWelcome(kind, f"{self.address}: {reason}")
                self.abort(reason)
            case News(role=role):
                self.is_primary = role == Role.PRIMARY.value
                self._owner.on_message(self, message)
            case Pong():
                pass  # that we have read something is all
            case _:
                self._owner.on_message(self, message)

    def _enter(self, welcome: Welcome) -> None:
        self._handshake.check(welcome)
        if self.welcome is not None:
            return
        self.welcome = welcome
        self.is_ready = True
        self.replica = welcome.replica
        self.is_primary = welcome.role == Role.PRIMARY.value
        self._start_pulse()
        self._owner.on_ready(self)
        if not self.greeted.done():  # who waited for it may have given up
            self.greeted.set_result(None)


def _cut(items: list[Item], most: int = REQUESTS_MAX) -> tuple[list[Item], list[Item]]:
    return items[:most], items[most:]
