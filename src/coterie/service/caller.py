"""One connection of a client, from its hello to its end.

What a turn has for a caller gathers here and leaves as one frame when the turn has ended
(`flush`). A caller that does not read its answers is not read from either; one that lets too much
pile up all the same is cut off. Nothing a client does is an exception here: what makes no sense
is answered with a farewell that names it, counted, and the connection is closed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import msgspec

from coterie.kernel.errors import FrameError
from coterie.objects.execution.outcomes import EXECUTED
from coterie.protocol.frames import HEAD_BYTES, encode_frame, frame_reader
from coterie.protocol.handshake import HandshakeFailed, ReplicaHandshake
from coterie.protocol.kinds import BUSY, MALFORMED, NO_CLIENT, TOO_LARGE, WRONG_GROUP, WRONG_VERSION
from coterie.protocol.messages import (
    TOKEN_BITS,
    TOKEN_MAX,
    Answers,
    Ask,
    Carry,
    Farewell,
    FromReplica,
    Hello,
    PaperListen,
    PaperRequest,
    Ping,
    Pong,
    Proof,
    Refusal,
    Refusals,
    Reported,
    SettledNotice,
    Welcome,
    decode_from_client,
    encode,
)
from coterie.ready.locations import LOCATIONS
from coterie.runtime.address import Address
from coterie.runtime.network import send_at_once
from coterie.service.known_clients import ANYBODY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from coterie.objects import Answer
    from coterie.service.engines.front import GroupFront
    from coterie.service.known_clients import KnownClient, KnownClients
    from coterie.service.port import ClientPort

REQUEST_BYTES = 256
"""What a request counts for at least, however short it is: most of its cost is not its bytes."""
REASON_CHARS_MAX = 2000
"""How much is kept of a reason that is too long for a frame."""
_SHORT_CHARS = 200
"""How much is kept of the reason of a farewell that is too long for a frame."""
GREETING_BYTES_MAX = 4096
"""Who has not been made welcome gets no more room than that."""


class Caller(asyncio.Protocol):
    """One connected client."""

    def __init__(self, port: ClientPort, number: int, client: KnownClient | None = None) -> None:
        self.number = number
        self.client = client or ANYBODY
        """Who it is; if that is not known from the start, once it was made welcome."""
        self._is_known = client is not None
        self.front: GroupFront[Any] | None = None
        """The group it speaks to, once it was made welcome."""
        self.guest = ""
        """The process that the client is to replicas, once it has said something to them as one."""
        self.sessions: set[int] = set()
        self.watched: set[tuple[int, int]] = set()
        self.unsettled = 0
        """The highest position of an answer that is not final and had no `SettledNotice`."""
        self.is_over = False
        self.read_at = 0.0
        self.transport: asyncio.Transport
        self._port = port
        self._reader = frame_reader(frame_bytes_max=GREETING_BYTES_MAX)
        self._handshake = ReplicaHandshake(())
        self._deadline: asyncio.TimerHandle | None = None
        self._untaken_bytes = 0
        self._is_blocked = False
        self._is_reading = True
        # What the running turn has for this client, in order; answers last.
        self._messages: list[FromReplica] = []
        self._answers: list[Answer] = []
        self._refusals: list[Refusal] = []

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's bear no such class
        port = self._port
        self.transport.set_write_buffer_limits(high=port.settings.queue_bytes_high)
        send_at_once(transport)
        self.read_at = port.loop.time()
        if not port.is_trusted(transport):
            self.abort()  # withdrawn while the connection was being made
            return
        if not port.admit(self):
            self._part(BUSY, "too many clients are connected to this replica: ask another")
            return
        wait = port.settings.hello_timeout / 1e6
        self._deadline = port.loop.call_later(wait, self._hello_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.is_over = True
        self._forget_deadline()
        self._port.leave(self)

    def pause_writing(self) -> None:
        self._is_blocked = True
        self._read_or_not()

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._read_or_not()

    def _read_or_not(self) -> None:
        """Read on unless too much waits for a turn, or for the client to read it."""
        limit = self._port.settings.untaken_bytes_max
        reads = not self._is_blocked and self._untaken_bytes <= limit
        if reads != self._is_reading and not self.is_over and not self.transport.is_closing():
            self._is_reading = reads
            if reads:
                self.transport.resume_reading()
            else:
                self._port.events.count("port.callers_held_back")
                self.transport.pause_reading()

    def _hello_is_late(self) -> None:
        self._port.events.count("port.hellos_timed_out")
        self.abort()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def abort(self) -> None:
        """End the connection at once."""
        self.is_over = True
        self.transport.abort()

    def close(self) -> None:
        """End the connection when everything has been written."""
        self.is_over = True
        self.transport.close()

    def _part(self, kind: str, reason: str) -> None:
        """Say why, and hang up."""
        if self.is_over:
            return
        self._port.events.warn("caller sent away", counter=f"port.farewells_{kind}", reason=reason)
        self._write([Farewell(kind, reason)])
        self.close()

    # ---- what the client says

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        self.read_at = self._port.loop.time()
        try:
            whole = self._reader.whole(data)
            if whole is not None:
                messages = decode_from_client(whole)
                for message in messages:
                    self._take(message, len(whole), alone=len(messages) == 1)
                return
            for body in self._reader.feed(data):
                for message in decode_from_client(body):
                    self._take(message, len(body))
        except FrameError as error:
            kind = WRONG_VERSION if error.kind == "version" else MALFORMED
            self._part(kind, str(error))
        except msgspec.DecodeError as error:
            self._part(MALFORMED, f"a message cannot be read: {error}")

    def _take(self, message: object, size: int, *, alone: bool = False) -> None:
        if self.is_over:
            return
        front = self.front
        match message:
            case Ask() if front is not None:
                # Small requests are work, too: what a turn may find here is bounded by both.
                size = max(size, REQUEST_BYTES * message.count)
                self._untaken(size)
                front.receive(self, message, size, alone=alone)
            case Carry(body=body) if front is not None:
                self._untaken(size)
                self._port.guests.receive(self, body, size)
            case PaperListen() | PaperRequest() if front is not None:
                self._untaken(size)
                front.said(self, message, size)
            case Ping() if front is not None:
                self._write([Pong()])
            case Hello() if self._handshake.hello is None:
                self._greet(message)
            case Proof() if self._handshake.awaits_proof:
                self._check(message)
            case _:
                self._part(MALFORMED, "a message came out of turn: a client says hello first")

    def _untaken(self, size: int) -> None:
        self._untaken_bytes += size
        if self._untaken_bytes > self._port.settings.untaken_bytes_max:
            self._read_or_not()

    def taken(self, size: int) -> None:
        """Learn that a turn has taken so many bytes of what the client said."""
        self._untaken_bytes -= size
        if not self._is_reading:
            self._read_or_not()

    def _greet(self, hello: Hello) -> None:
        port = self._port
        if port.clients is not None and not self._is_known:
            try:
                self._handshake = self._begin_handshake(port.clients)
            except HandshakeFailed as error:
                self._part(error.kind, str(error))
                return
        challenge = self._handshake.challenge(hello)
        front = port.find(hello.group)
        if front is None:
            names = ", ".join(sorted(port.fronts.keys() - {LOCATIONS})) or "none"
            if hello.group:
                reason = f"there is no group {hello.group!r} at this replica; there is {names}"
            else:
                reason = f"say which group you mean; there is {names}"
            self._part(WRONG_GROUP, reason)
        elif challenge is not None:
            self._write([challenge])
        else:
            self._welcome(front, b"")

    def _begin_handshake(self, clients: KnownClients) -> ReplicaHandshake:
        """Find out who it can be, and ask for their secrets; raises `HandshakeFailed`."""
        possible = clients.find(self.transport.get_extra_info("peercert"))
        secrets = [(each.name, secret) for each in possible for secret in each.secrets]
        if not secrets:
            [self.client] = possible  # it has shown the certificate, and need not show more
        return ReplicaHandshake(secrets)

    def _check(self, shown: Proof) -> None:
        try:
            proof = self._handshake.prove(shown)
        except HandshakeFailed as error:
            self._part(error.kind, str(error))
            return
        assert self._handshake.hello is not None
        assert self._port.clients is not None
        self.client = self._port.clients[self._handshake.client]
        front = self._port.find(self._handshake.hello.group)
        assert front is not None
        self._welcome(front, proof)

    @property
    def address(self) -> str:
        """Where the client is, for logs and journals."""
        name = self.transport.get_extra_info("peername")
        return str(Address(*name[:2])) if isinstance(name, tuple) else ""

    def _welcome(self, front: GroupFront[Any], proof: bytes) -> None:
        unwelcome = self.client.why_unwelcome(front.group)
        if unwelcome:
            self._part(NO_CLIENT, unwelcome)
            return
        self._forget_deadline()
        port = self._port
        settings = port.settings
        self._reader.frame_bytes_max = settings.frame_bytes_max
        self.front = front
        front.add(self)
        self._write(
            [
                Welcome(
                    group=front.group,
                    class_name=front.class_name,
                    replica=port.replica,
                    incarnation=port.incarnation,
                    role=front.role,
                    peers=front.peers(),
                    majority=front.majority,
                    window_requests_max=front.window_requests_max,
                    frame_bytes_max=settings.frame_bytes_max,
                    proof=proof,
                    engine=front.engine,
                    cluster=port.cluster,
                    preferred=front.preferred,
                    owner=self.client.owner,
                )
            ]
        )

    @property
    def is_trusted(self) -> bool:
        """Whether nothing that it was let in for has been withdrawn since."""
        clients, shown = self._port.clients, self._handshake.shown
        if shown and (clients is None or shown not in clients.secrets_of(self.client.name)):
            return False
        return self._port.is_trusted(self.transport)

    def token(self, token: int) -> int:
        """Make a client's token one that is unique at this replica."""
        return (self.number << TOKEN_BITS) | (token & TOKEN_MAX)

    # ---- what a turn has for the client

    def answer(self, answer: Answer) -> None:
        """Have an answer sent when the turn has ended."""
        self.answer_all([answer])

    def answer_all(self, answers: list[Answer]) -> None:
        """Have answers of one standing, at least one, sent when the turn has ended."""
        if not self._answers:
            self._port.has_something_for(self)
        self._answers += answers
        if not answers[0].standing.is_final:
            for answer in answers:
                outcome = answer.outcome
                if isinstance(outcome, EXECUTED) and answer.session:
                    self.unsettled = max(self.unsettled, outcome.position)

    def refuse(self, refusal: Refusal) -> None:
        """Have a refusal sent when the turn has ended."""
        self._port.has_something_for(self)
        self._refusals.append(refusal)

    def tell(self, message: FromReplica) -> None:
        """Have news sent when the turn has ended, after the answers before it."""
        self._port.has_something_for(self)
        self._seal()
        self._messages.append(message)

    def carry(self, body: bytes) -> None:
        """Have what this process says to the client sent when the turn has ended."""
        self.tell(Carry(msgspec.Raw(body)))

    def settled(self, position: int) -> None:
        """Have the client told that answers are settled."""
        self.tell(SettledNotice(position))
        if position >= self.unsettled:
            self.unsettled = 0

    def _seal(self) -> None:
        if self._answers:
            self._messages.append(Answers(self._answers))
            self._answers = []
        if self._refusals:
            self._messages.append(Refusals(self._refusals))
            self._refusals = []

    def flush(self) -> None:
        """The turn has ended: send everything, in one frame if it fits."""
        self._seal()
        messages, self._messages = self._messages, []
        if self.is_over or not messages:
            return
        self._write(messages)
        if self.transport.get_write_buffer_size() > self._port.settings.queue_bytes_max:
            self._port.events.warn("caller does not read", counter="port.callers_cut_off")
            self.abort()

    def _write(self, messages: list[FromReplica]) -> None:
        limit = self._port.settings.answer_frame_bytes_max - HEAD_BYTES
        body = encode(messages)
        if len(body) <= limit:
            self.transport.write(encode_frame(body))
            return
        for message in messages:
            try:
                for part in _parts(message, limit):
                    self.transport.write(encode_frame(part))
            except _FitsNoFrame as error:
                self._part(TOO_LARGE, str(error))
                return


class _FitsNoFrame(Exception):
    """A message can neither be cut nor left out: without it the client would be misled."""


def _parts(message: FromReplica, limit: int) -> Iterator[bytes]:
    """Give the bodies of frames that carry a message which may be too large for one."""
    body = encode([message])
    if len(body) <= limit:
        yield body
    elif isinstance(message, Answers) and len(message.answers) > 1:
        middle = len(message.answers) // 2
        yield from _parts(Answers(message.answers[:middle]), limit)
        yield from _parts(Answers(message.answers[middle:]), limit)
    elif isinstance(message, Answers):
        answer = message.answers[0]
        reason = f"the answer has {len(body)} bytes, over the limit of {limit}: ask for less"
        yield encode([Refusals([Refusal(answer.session, answer.request, "size", reason)])])
    elif isinstance(message, Refusals) and len(message.refusals) > 1:
        middle = len(message.refusals) // 2
        yield from _parts(Refusals(message.refusals[:middle]), limit)
        yield from _parts(Refusals(message.refusals[middle:]), limit)
    elif isinstance(message, Refusals):
        [refusal] = message.refusals
        reason = f"{refusal.reason[:REASON_CHARS_MAX]} …"
        yield encode([Refusals([Refusal(refusal.session, refusal.request, refusal.kind, reason)])])
    elif isinstance(message, Reported):
        reason = f"the report has {len(body)} bytes, over the limit of {limit}"
        yield encode([Refusals([Refusal(0, message.token, "size", reason)])])
    elif isinstance(message, Carry):
        yield body  # no larger than frames between replicas, which clients take
    elif isinstance(message, Farewell):
        yield encode([Farewell(message.kind, f"{message.reason[:_SHORT_CHARS]} …")])
    else:
        # What is left speaks of the replicas of a group, or is what a class of the paper's own
        # interface answers.
        raise _FitsNoFrame(
            f"a {type(message).__name__} of {len(body)} bytes is over the limit of {limit} "
            "(answer_frame_bytes_max)"
        )
