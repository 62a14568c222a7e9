"""The paper's own interface to replicated objects (**objects** section 7, figures 7 and 8).

`ObjectReplica` and `Client` are the classes of the figures, with the names written as Python does:
downcalls are methods to call, callbacks are methods to override. Nothing is done for the object
that the paper leaves to it: what a message means, when to answer a client, how the state is
packed. For most uses a plain class with `@update` methods is less work and promises more
(`coterie.objects.define`); this is for those who know the paper, and for comparing with it.

Such an object is served like any other: `coterie serve examples/replicated_value.py:ValueReplica`
(`coterie.service.engines.stack_paper`), and its clients connect with `coterie.client.paper`.

An `ObjectReplica` is an `EngineHost`, so every engine can carry it. Three things the paper leaves
open are settled here.

- *State transfer* is a conversation in the paper: the newcomer asks, the donor answers. Engines
  take a state of one moment and carry it in chunks, so the donor is asked beforehand, once for
  every request a newcomer may make (`state_requests`; by default the empty one). The newcomer
  hears `state_transfer_callback`, and what it then asks for by `request_state` is answered from
  what has arrived, all of it of the same moment. It must say `state_transfer_done` before its
  callback returns. All portions travel, asked for or not: a donor cannot know whether what a
  newcomer would keep instead belongs to the same history (an operator may have accepted a loss).
- *Roll back* has no callback in the paper. In the optimistic mode each replica keeps a twin of the
  object, made by calling its class, which is given only what has become authoritative. A roll-back
  is, to the object, a state transfer from its twin, followed by the messages that are still good.
  While they are given again, answers to clients are not sent again.
- *nsafe* in `safe_callback` counts the messages of one member ordered in one view; a message may
  become safe in a later view than the one it was ordered in, and counts for the earlier.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.kernel.engine import Role, Run, Standing, Status
from coterie.kernel.views import Member, ViewId
from coterie.objects.errors import BadSnapshot, NotPrimary, TransferUnfinished

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ObjectId = Member
"""One life of one object replica."""
ClientId = str
TransferId = int

CHUNK_BYTES = 256 << 10

_encode = msgspec.msgpack.Encoder().encode
_decode = Decoder(list[tuple[bytes, list[bytes]]]).decode


class Membership(Protocol):
    """A replica's seat in its group."""

    @property
    def me(self) -> ObjectId:
        """The replica whose seat this is."""

    def propose(self, payloads: Sequence[bytes]) -> object:
        """Have messages ordered; see `coterie.kernel.engine.Engine`."""

    def leave(self) -> None:
        """Give the seat up."""


class System(Protocol):
    """What Horus is to the paper: it knows the group and carries everything."""

    def join(self, replica: ObjectReplica, *, optimistic: bool, max_group_size: int) -> Membership:
        """Make an object a member of the group."""

    def send_request(self, client: Client, request: bytes) -> None:
        """Bring a request to one of the replicas."""

    def reply(self, client: ClientId, origin: ObjectId, reply: bytes) -> None:
        """Bring an answer to a client."""


class ObjectReplica:
    """Figure 7. Override the callbacks; the class must be callable without arguments."""

    def __init__(self) -> None:
        self._system: System | None = None
        self._membership: Membership | None = None
        self._status: Status | None = None
        self._is_optimistic = False
        self._is_mute = False
        self._twin: ObjectReplica | None = None
        self._position = 0
        self._settled = 0
        # Delivered to the object and not to its twin.
        self._suffix: deque[Run] = deque()
        self._safe: dict[tuple[ViewId, ObjectId], int] = {}
        self._transfers = 0
        self._incoming: _Incoming | None = None
        self._outgoing: list[bytes] | None = None

    # ---- object group membership (7.1)

    def join(self, system: System, *, optimistic: bool, max_group_size: int) -> None:
        """Join the group; *optimistic* or globally safe is for the whole group to agree on."""
        self._system = system
        self._is_optimistic = optimistic
        self._membership = system.join(self, optimistic=optimistic, max_group_size=max_group_size)

    def leave(self) -> None:
        """Leave the group."""
        self._seat().leave()
        self._membership = None

    def view_callback(self, members: tuple[ObjectId, ...], primary: bool) -> None:  # noqa: FBT001
        """Learn who is in the view, and whether it is primary."""

    @property
    def standing(self) -> Status | None:
        """Where the engine says that this replica stands; None before its first turn."""
        return self._status

    # ---- communication within the object group (7.2)

    def multicast(self, message: bytes) -> None:
        """Send a message to all members, ourselves included; only in a primary view."""
        if self._is_mute:
            return
        if self._status is None or self._status.role is not Role.PRIMARY:
            raise NotPrimary("the view is not primary: no update may be begun in it")
        self._seat().propose([message])

    def multicast_callback(self, origin: ObjectId, message: bytes, safe: bool) -> None:  # noqa: FBT001
        """Take a message; it is *safe* if it will be in every later history."""

    def safe_callback(self, origin: ObjectId, nsafe: int) -> None:
        """Learn how many messages of *origin*, delivered earlier, have become safe."""

    # ---- interaction with clients of the object group (7.3)

    def reply_to_client(self, client: ClientId, reply: bytes) -> None:
        """Answer a client."""
        if self._is_mute:
            return
        assert self._system is not None, "join a group first"
        self._system.reply(client, self._seat().me, reply)

    def client_request_callback(self, client: ClientId, request: bytes) -> None:
        """Take a client's request."""

    # ---- state transfer (7.4)

    def state_requests(self) -> Sequence[bytes]:
        """Give the requests by which a newcomer may ask for the state, or for parts of it."""
        return (b"",)

    def state_transfer_callback(self, transfer: TransferId) -> None:
        """Learn that a transfer begins: ask for the state by `request_state`."""

    def state_transfer_done(self, transfer: TransferId) -> None:
        """Say that the state has been taken over."""
        self._current(transfer).is_done = True

    def request_state(self, transfer: TransferId, request: bytes) -> None:
        """Ask for the state, or the part of it that *request* means."""
        incoming = self._current(transfer)
        for state in incoming.portion(request):
            self.receive_state_callback(incoming.origin, transfer, state)

    def state_request_callback(
        self, origin: ObjectId, transfer: TransferId, request: bytes
    ) -> None:
        """Answer a request for state by one or more `send_state`."""

    def send_state(self, destination: ObjectId, transfer: TransferId, state: bytes) -> None:
        """Send the state, or a portion of it."""
        del destination, transfer
        assert self._outgoing is not None, "nobody has asked for the state"
        self._outgoing.append(state)

    def receive_state_callback(self, origin: ObjectId, transfer: TransferId, state: bytes) -> None:
        """Take the state, or a portion of it."""

    def state_transfer_terminated_callback(self, transfer: TransferId) -> None:
        """Learn that a transfer that had begun came to nothing."""

    # ---- what an engine calls (`coterie.kernel.engine.EngineHost`)

    def deliver(self, runs: list[Run], standing: Standing) -> None:
        """Hand messages to the object."""
        if standing is Standing.NON_PRIMARY:
            return
        safe = standing.is_final
        if not safe and self._twin is None:
            self._twin = self._make_twin()
        for run in runs:
            for message in run.payloads:
                self._position += 1
                self.multicast_callback(run.origin, message, safe)
        if self._twin is not None:
            self._suffix.extend(runs)
        if safe:
            self.settle(self._position)

    def settle(self, position: int) -> None:
        """Tell the object, and its twin, what has become safe."""
        self._settled = max(self._settled, position)
        twin = self._twin
        if twin is None:
            return
        counted: dict[ObjectId, int] = {}
        while self._suffix and self._suffix[0].position <= position:
            run = self._suffix.popleft()
            if run.last_position > position:
                self._suffix.appendleft(run.after(position))
                run = run.up_to(position)
            for message in run.payloads:
                twin.multicast_callback(run.origin, message, True)  # noqa: FBT003 -- as in figure 7
            key = (run.view, run.origin)
            counted[run.origin] = self._safe[key] = self._safe.get(key, 0) + len(run.payloads)
            for other in [each for each in self._safe if each[0] < run.view]:
                del self._safe[other]
        for origin, count in counted.items():
            self.safe_callback(origin, count)

    def roll_back(self, position: int) -> None:
        """Take the twin's state, then what is still good."""
        assert position >= self._settled, "what is safe is never rolled back"
        if position >= self._position:
            return
        assert self._twin is not None, "nothing optimistic was delivered"
        kept = [run.up_to(position) for run in self._suffix if run.position <= position]
        self._suffix = deque(kept)
        self._is_mute = True
        try:
            self._take_over(self._twin.snapshot())
            for run in kept:
                for message in run.payloads:
                    self.multicast_callback(run.origin, message, False)  # noqa: FBT003
        finally:
            self._is_mute = False
        self._position = position

    def status_changed(self, status: Status) -> None:
        """Tell the object about a new view."""
        before, self._status = self._status, status
        if before is None or (before.members, before.role) != (status.members, status.role):
            self.view_callback(status.members, status.role is Role.PRIMARY)

    def snapshot(self) -> Iterator[bytes]:
        """Ask the object (in the optimistic mode its twin) for all portions of its state."""
        giving = self if self._twin is None else self._twin
        portions = [(request, giving._ask_for(request)) for request in self.state_requests()]  # noqa: SLF001
        data = _encode(portions)
        return iter([data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)])

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        """Have the object take over a state."""
        self._take_over(chunks)
        self._position = self._settled = position
        self._suffix.clear()
        self._twin = None

    def finish_turn(self) -> None:
        """What the object multicast has been proposed already."""

    # ---- helpers

    def _seat(self) -> Membership:
        assert self._membership is not None, "join a group first"
        return self._membership

    def _make_twin(self) -> ObjectReplica:
        twin = type(self)()
        twin._is_mute = True  # noqa: SLF001
        twin._take_over(self.snapshot())  # noqa: SLF001
        return twin

    def _ask_for(self, request: bytes) -> list[bytes]:
        self._outgoing = []
        self._transfers += 1
        try:
            self.state_request_callback(self._any_id(), self._transfers, request)
            return self._outgoing
        finally:
            self._outgoing = None

    def _take_over(self, chunks: Iterable[bytes]) -> None:
        self._transfers += 1
        transfer = self._transfers
        self._incoming = _Incoming(transfer, self._any_id(), chunks)
        try:
            self.state_transfer_callback(transfer)
            self._incoming.check_done(type(self).__qualname__)
        except BaseException:
            self.state_transfer_terminated_callback(transfer)
            raise
        finally:
            self._incoming = None

    def _current(self, transfer: TransferId) -> _Incoming:
        incoming = self._incoming
        assert incoming is not None, "no state transfer is going on"
        assert incoming.transfer == transfer, "that state transfer is over"
        return incoming

    def _any_id(self) -> ObjectId:
        """Who is at the other side of a transfer is the engines' business; we say ourselves."""
        return self._membership.me if self._membership is not None else Member("", 0)


class _Incoming:
    """A state on its way to the object."""

    def __init__(self, transfer: TransferId, origin: ObjectId, chunks: Iterable[bytes]) -> None:
        self.transfer = transfer
        self.origin = origin
        self.is_done = False
        self._chunks = chunks
        self._portions: dict[bytes, list[bytes]] | None = None

    def check_done(self, name: str) -> None:
        """Raise unless the object has said that it has the state."""
        if not self.is_done:
            raise TransferUnfinished(
                f"{name} did not call state_transfer_done: call it once the state is received"
            )

    def portion(self, request: bytes) -> list[bytes]:
        """Give what the donor answered to a request; all chunks are read before the first."""
        if self._portions is None:
            try:
                self._portions = dict(_decode(b"".join(self._chunks)))
            except msgspec.DecodeError as error:
                raise BadSnapshot(f"a state cannot be read: {error}") from None
        if request not in self._portions:
            raise BadSnapshot(f"the donor was not asked for {request!r}: name it in state_requests")
        return self._portions[request]


class Client:
    """Figure 8. Override the callback."""

    def __init__(self, system: System, id: ClientId) -> None:
        self._system = system
        self.id = id

    def send_request(self, request: bytes) -> None:
        """Send a request to one of the replicas."""
        self._system.send_request(self, request)

    def receive_reply_callback(self, origin: ObjectId, reply: bytes) -> None:
        """Take an answer; in the optimistic mode a majority of equal ones is authoritative."""
