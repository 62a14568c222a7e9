"""One connection of a client, from its hello to its end.

What a turn has for a caller gathers here and leaves as one frame when the turn has ended
(`flush`). A caller that does not read its answers is not read from either; one that lets too much
pile up all the same is cut off. Nothing a client does is an exception here: what makes no sense
is answered with a farewell that names it, counted, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from typing import TYPE_CHECKING, Protocol, cast

from coterie.client.errors import BUSY, WRONG_GROUP, WRONG_SECRET, WRONG_VERSION
from coterie.client.frames import HEAD_BYTES, FrameReader, encode_frame
from coterie.client.locations import LOCATIONS
from coterie.client.messages import (
    NONCE_BYTES,
    TOKEN_BITS,
    TOKEN_MAX,
    Answers,
    Ask,
    Carry,
    Challenge,
    Farewell,
    FromReplica,
    Hello,
    Ping,
    Pong,
    Proof,
    Refusal,
    Refusals,
    Settled,
    Welcome,
    decode_from_client,
    encode,
)
from coterie.client.proof import client_proof, is_same, replica_proof
from coterie.kernel.engine import Standing
from coterie.kernel.errors import DECODE_ERRORS, FrameError
from coterie.objects.outcomes import AllDone, Done, Failed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.client.messages import Peer
    from coterie.objects import Answer
    from coterie.service.port import ClientPort

GREETING_BYTES_MAX = 4096
"""Who has not been made welcome gets no more room than that."""
MALFORMED = "malformed"
"""The kind of farewell to a client that sends what makes no sense."""


class GroupFront(Protocol):
    """What a caller needs of the group it speaks to: `ObjectFront`, or `CohortFront`."""

    group: str

    @property
    def engine(self) -> str:
        """`vsr` where the group takes transactions."""

    @property
    def class_name(self) -> str:
        """What the group replicates."""

    @property
    def window_requests_max(self) -> int:
        """How many requests of a session may be outstanding."""

    @property
    def majority(self) -> int:
        """How many replicas it takes."""

    @property
    def role(self) -> str:
        """What the replica may do at present."""

    def peers(self) -> list[Peer]:
        """The replicas of the group."""

    def add(self, caller: Caller) -> None:
        """Take a caller that has been made welcome."""

    def remove(self, caller: Caller) -> None:
        """Forget a caller whose connection has ended."""

    def receive(self, caller: Caller, ask: Ask, size: int) -> None:
        """Have all requests of one frame made inside a turn; then call `taken`."""

    def tell_news(self) -> None:
        """Tell all callers where the replica and its peers stand."""


class Caller(asyncio.Protocol):
    """One connected client."""

    def __init__(self, port: ClientPort, number: int) -> None:
        self.number = number
        self.front: GroupFront | None = None
        """The group it speaks to, once it was made welcome."""
        self.guest = ""
        """The process that the client is to cohorts, once it has said something to them."""
        self.sessions: set[int] = set()
        self.watched: set[tuple[int, int]] = set()
        self.unsettled = 0
        """The highest position of an optimistic answer that was not followed by `Settled`."""
        self.is_over = False
        self.read_at = 0.0
        self.transport: asyncio.Transport
        self._port = port
        self._reader = FrameReader(frame_bytes_max=GREETING_BYTES_MAX)
        self._hello: Hello | None = None
        self._nonce = b""
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
        connected = self.transport.get_extra_info("socket")
        if connected is not None and connected.family in {socket.AF_INET, socket.AF_INET6}:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.read_at = port.loop.time()
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
            for body in self._reader.feed(data):
                for message in decode_from_client(body):
                    self._take(message, len(body))
        except FrameError as error:
            kind = WRONG_VERSION if error.kind == "version" else MALFORMED
            self._part(kind, str(error))
        except DECODE_ERRORS as error:
            self._part(MALFORMED, f"a message cannot be read: {error}")

    def _take(self, message: object, size: int) -> None:
        if self.is_over:
            return
        front = self.front
        match message:
            case Ask() if front is not None:
                self._untaken(size)
                front.receive(self, message, size)
            case Carry(frame=frame) if front is not None:
                self._untaken(size)
                self._port.guests.receive(self, frame, size)
            case Ping() if front is not None:
                self._write([Pong()])
            case Hello() if self._hello is None:
                self._greet(message)
            case Proof(proof=proof) if self._nonce and front is None:
                self._check(proof)
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
        self._hello = hello
        port = self._port
        front = port.find(hello.group)
        if front is None:
            names = ", ".join(sorted(port.fronts.keys() - {LOCATIONS})) or "none"
            if hello.group:
                reason = f"there is no group {hello.group!r} at this replica; there is {names}"
            else:
                reason = f"say which group you mean; there is {names}"
            self._part(WRONG_GROUP, reason)
        elif port.secret is not None:
            self._nonce = secrets.token_bytes(NONCE_BYTES)
            self._write([Challenge(self._nonce)])
        else:
            self._welcome(front, b"")

    def _check(self, proof: bytes) -> None:
        port, hello = self._port, self._hello
        assert port.secret is not None
        assert hello is not None
        nonces = (hello.nonce, self._nonce)
        if not is_same(proof, client_proof(port.secret, *nonces, hello.group)):
            self._part(WRONG_SECRET, "the client does not know the secret of this group")
            return
        front = port.find(hello.group)
        assert front is not None
        self._welcome(front, replica_proof(port.secret, *nonces, hello.group))

    def _welcome(self, front: GroupFront, proof: bytes) -> None:
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
                )
            ]
        )

    def token(self, token: int) -> int:
        """Make a client's token one that is unique at this replica."""
        return (self.number << TOKEN_BITS) | (token & TOKEN_MAX)

    # ---- what a turn has for the client

    def answer(self, answer: Answer) -> None:
        """Have an answer sent when the turn has ended."""
        if not self._answers:
            self._port.has_something_for(self)
        self._answers.append(answer)
        if answer.standing is Standing.OPTIMISTIC:
            outcome = answer.outcome
            if isinstance(outcome, Done | AllDone | Failed) and answer.session:
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

    def carry(self, frame: bytes) -> None:
        """Have a frame of this process sent to the client when the turn has ended."""
        self.tell(Carry(frame))

    def settled(self, position: int) -> None:
        """Have the client told that answers are settled."""
        self.tell(Settled(position))
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
            for part in _parts(message, limit):
                self.transport.write(encode_frame(part))


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
    elif isinstance(message, Carry):
        yield body  # no larger than frames between replicas, which clients take
    else:
        # Lists of peers and reports are bounded far below any sensible limit.
        raise AssertionError(f"a {type(message).__name__} of {len(body)} bytes")
