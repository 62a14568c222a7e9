"""ONUS: clients that know nothing of replication; exactly one replica speaks for all (**rsp**).

A client sends each request to all replicas, by an unreliable multicast, or to any one of them. Each
replica keeps what it receives in `req_buffer`. One is *decided* to synchronise it, by the same
function everywhere,

    onus(client, view) = the member of rank (client mod size) in the primary view,

and proposes it to the layers below; when it is delivered, the same function over the view in which
it was *ordered* decides who answers. So nobody has to agree on anything: the agreement is in the
view and in the order.

**Losses.** The synchroniser itself may have missed a request. A replica that has kept one for
`advertise_interval` without seeing it delivered sends it to the other members of its view, again
and again, until `PATIENCE` is over; then the client, if it still cares, sends it again. A request
that came to one replica alone (`relay`) is sent to the others at once.

**Views.** At each primary view the onus of what is kept is evaluated again. The synchroniser of the
view before may have proposed, and PRIMARY proposes again what was not ordered; so one request can
be ordered twice. It is executed once: the first one is put on record (`req_record` and `out_buffer`
of the paper are part of the replicated state, `coterie.objects.execution.records`), the second one
finds it.

**Answers.** What was ordered in a view is answered by its onus there, whoever is in the view when
it is delivered. If that replica is gone the reply is lost, as datagrams are; the client asks again,
and the onus of the present view answers from the record. Where the client holds a connection to
one replica, that replica has the onus of answering.

Below it must be SAFE. A client that knows nothing of standing would be told what can be taken back.

RSP-1 and RSP-2 are checked by `coterie.checking.servers`; departures stand in
`docs/internals/papers.md`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from coterie.kernel.clock import seconds
from coterie.kernel.decoding import Decoder
from coterie.kernel.engine import Role
from coterie.kernel.errors import BadMessage, Refused
from coterie.kernel.layers import Service
from coterie.kernel.requests import ServiceRequest, encode_request
from coterie.kernel.views import NO_VIEW
from coterie.replication.layer import EngineLayer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.clock import Instant
    from coterie.kernel.engine import Status
    from coterie.kernel.layers import Context
    from coterie.kernel.views import Member, ViewId

RESEND = "onus resend"
"""The name of the timer by which requests are sent again to the other replicas."""
BUFFER_MAX = 10_000
"""How many requests are kept; beyond it a new one is dropped, which is a lost datagram."""
BUFFER_BYTES_MAX = 16 << 20
RELAY_BYTES_MAX = 256 << 10
"""How much is sent again at once; the rest waits for the next time."""
PATIENCE = seconds(10)
"""After this long a request is dropped: its client has asked again, or has given up. It must be
well below half of `client_lease`."""
VIEWS_MAX = 64
"""Of how many past views the members are remembered, to know who answers what was ordered there."""

_decoder: Decoder[list[ServiceRequest]] = Decoder(list[ServiceRequest])


def onus(client: int, members: Sequence[Member]) -> Member:
    """Give the member that speaks for all (definition 3.1, its example)."""
    return members[client % len(members)]


class RecordHolder(Protocol):
    """What stands on top and executes, as this layer sees it."""

    def has_record(self, client: int, number: int) -> bool:
        """Say whether a request was executed, or is older than one that was."""

    def wall_clock(self) -> int:
        """Give what every command carries: this replica's wall clock in microseconds."""


class _Kept(NamedTuple):
    """A request in the buffer."""

    request: ServiceRequest
    since: Instant
    size: int
    proposed: ViewId
    """The last view in which we proposed it."""


class Onus(EngineLayer):
    """Receives requests, decides who synchronises them and who answers."""

    name = "ONUS"
    needs = frozenset({Service.PRIMARY_VIEWS, Service.TOTAL_ORDER, Service.GLOBAL_SAFETY})
    gives = frozenset({Service.PRIMARY_VIEWS, Service.TOTAL_ORDER, Service.GLOBAL_SAFETY})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.served: RecordHolder | None = None
        """Set by whoever builds the replica, before its first turn."""
        self.req_buffer: OrderedDict[tuple[int, int], _Kept] = OrderedDict()
        self._bytes = 0
        self._status: Status | None = None
        self._views: OrderedDict[ViewId, tuple[Member, ...]] = OrderedDict()

    # ---- receiving (figure 3)

    def receive(self, request: ServiceRequest, *, relay: bool = False) -> bool:
        """Take a request from a client; say whether it is kept.

        With *relay* it came to this replica alone, so the others are told.
        """
        is_kept = self._keep(request)
        if is_kept and relay:
            self._relay([request])
        return is_kept

    def _keep(self, request: ServiceRequest) -> bool:
        assert self.served is not None, "whoever builds the replica says what it serves"
        if request.id in self.req_buffer:
            return True  # it came twice, as datagrams do
        if self.served.has_record(request.client, request.number):
            return False
        size = len(request.arguments) + len(request.method) + 64
        if len(self.req_buffer) >= BUFFER_MAX or self._bytes + size > BUFFER_BYTES_MAX:
            self.context.count("onus.dropped")
            return False
        self.req_buffer[request.id] = _Kept(request, self.context.now, size, NO_VIEW)
        self._bytes += size
        self._evaluate(request.id)
        self._watch()
        return True

    def _evaluate(self, id: tuple[int, int]) -> None:
        """Synchronise a request if that is our onus, once in each view."""
        kept, status = self.req_buffer[id], self._status
        if status is None or status.role is not Role.PRIMARY or kept.proposed == status.view:
            return
        if not self.has_onus(kept.request.client):
            return
        assert self.served is not None
        clock = self.served.wall_clock()
        request = replace(kept.request, view=status.view, clock=clock)
        try:
            self.propose([self.payload(request)])
        except Refused:
            self.context.count("onus.refused")
            return  # the next time-out tries again
        self.req_buffer[id] = kept._replace(proposed=status.view)

    def payload(self, request: ServiceRequest) -> bytes:
        """Give what is ordered: the whole request, so that nobody has to look for its body."""
        return encode_request(request)

    def has_onus(self, client: int) -> bool:
        """Say whether in the present view it is this replica that speaks for a client."""
        status = self._status
        return (
            status is not None
            and status.role is Role.PRIMARY
            and onus(client, status.members) == self.context.me
        )

    # ---- sending again

    def _watch(self) -> None:
        if self.req_buffer and not self.context.timer_is_set(RESEND):
            wait = self.context.settings.advertise_interval
            self.context.set_timer(RESEND, wait, self._resend)

    def _resend(self) -> None:
        """Send what was not delivered in time to the others, and forget what is too old."""
        assert self.served is not None
        context = self.context
        late = context.now - PATIENCE
        again: list[ServiceRequest] = []
        size = 0
        for id, kept in list(self.req_buffer.items()):
            if self.served.has_record(*id):
                self._drop(id)  # as part of a state that was taken over
            elif kept.since < late:
                self._drop(id)
                context.count("onus.expired")
            else:
                self._evaluate(id)
                size += kept.size
                if size <= RELAY_BYTES_MAX:
                    again.append(kept.request)
        if again:
            self._relay(again)
        self._watch()

    def _relay(self, requests: list[ServiceRequest]) -> None:
        status, me = self._status, self.context.me
        if status is None:
            return
        others = [member for member in status.members if member != me]
        if others:
            self.context.count("onus.relayed", len(requests))
            self.below.send_direct(others, encode_request(requests))

    def receive_direct(self, sender: Member, body: bytes) -> None:  # noqa: ARG002
        try:
            requests = _decoder.decode(body)
        except msgspec.DecodeError as error:
            raise BadMessage(f"no requests: {error}") from None
        for request in requests:
            self._keep(request)

    def _drop(self, id: tuple[int, int]) -> None:
        kept = self.req_buffer.pop(id, None)
        if kept is not None:
            self._bytes -= kept.size

    # ---- delivering (figure 4)

    def delivered(self, request: ServiceRequest, view: ViewId) -> bool:
        """Learn that a request is executed; say whether this replica's output is enabled.

        *view* is the one in which it was ordered, the same everywhere.
        """
        self._drop(request.id)
        members = self._views.get(view)
        if members is None:
            return False  # in a life before this one, or by others
        if request.via:
            return request.via == self.context.me.id
        return onus(request.client, members) == self.context.me

    # ---- views (figure 7)

    def status_changed(self, status: Status) -> None:
        self._status = status
        if status.role is Role.PRIMARY:
            self._views[status.view] = status.members
            while len(self._views) > VIEWS_MAX:
                self._views.popitem(last=False)
            for id in list(self.req_buffer):
                self._evaluate(id)
        self.above.status_changed(status)
