"""What is remembered of clients that know nothing of replication (**rsp** 3).

The paper's `req_record` (the id of the last request of every client) and `out_buffer` (its reply)
are one table here, by client, and part of the replicated state: it travels in snapshots, and every
replica has the same. A client has one request outstanding, so its last reply is enough: a request
with the number on record is answered from it, a lower one is a late copy and nobody waits for it,
a higher one is executed.

Nobody opens or closes anything, so the table would grow with every client there ever was. To evict
a client that may still send its request again would execute it twice. So a client is forgotten
only after a *lease*, `client_lease` of group time without a request of it; and where the table is
full of clients that are not to be forgotten a newcomer is refused.

That a forgotten client's request does not come back is a promise of the client (it stops sending a
request again before half the lease is over) and one of the replicas: a request says what group time
was where it was received; if that is not later, by half a lease, than when the last client that was
forgotten was heard, it may be a copy that waited in a replica that was cut off, and is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coterie.objects.execution.outcomes import AlreadyForgotten, Done, Failed, NotTaken
from coterie.objects.execution.sessions import weigh

if TYPE_CHECKING:
    from coterie.kernel.requests import ServiceRequest
    from coterie.objects.settings import HostSettings

FULL = "all places for clients are taken (clients_max): try again later"
FULL_BYTES = "too many bytes of replies are kept (replies_bytes_max): try again later"
TOO_OLD = "the request was too long on its way: send it again"


class ReplyRecord(NamedTuple):
    """The last request of one client, and its reply."""

    number: int
    used: int
    """What group time was when it was executed."""
    outcome: Done | Failed


class Records:
    """The last replies to all clients, in order of last use."""

    __slots__ = ("_settings", "bytes", "forgotten", "table")

    def __init__(self, settings: HostSettings) -> None:
        self._settings = settings
        self.table: dict[int, ReplyRecord] = {}
        self.bytes = 0
        self.forgotten = 0
        """When the last one was heard of all clients that were forgotten, in group time."""

    def knows(self, client: int, number: int) -> bool:
        """Say whether a request was executed, or is older than one that was."""
        record = self.table.get(client)
        return record is not None and number <= record.number

    def before(self, request: ServiceRequest) -> Done | Failed | AlreadyForgotten | None:
        """Give how a request ended that was here before; None if it is a new one."""
        record = self.table.get(request.client)
        if record is None or request.number > record.number:
            return None
        if request.number == record.number:
            return record.outcome
        return AlreadyForgotten(record.number)

    def why_not(self, request: ServiceRequest, now: int) -> NotTaken | None:
        """Say why a new request is not to be executed, if it is not."""
        settings = self._settings
        known = self.table.get(request.client)
        if known is None:
            self.forget(now)
            if self.forgotten and request.received <= self.forgotten + settings.client_lease // 2:
                return NotTaken(TOO_OLD)
            if len(self.table) >= settings.clients_max:
                return NotTaken(FULL)
        own = 0 if known is None else weigh(known.outcome)
        if self.bytes - own >= settings.replies_bytes_max:
            return NotTaken(FULL_BYTES)
        return None

    def forget(self, now: int) -> None:
        """Forget clients whose lease is over."""
        table = self.table
        while table:
            client = next(iter(table))
            if now - table[client].used <= self._settings.client_lease:
                return
            self.forgotten = table[client].used
            self._drop(client)

    def keep(self, request: ServiceRequest, now: int, outcome: Done | Failed) -> None:
        """Put a reply on record, in the place of the client's last one."""
        self._drop(request.client)
        self.take(request.client, request.number, now, outcome)

    def take(self, client: int, number: int, used: int, outcome: Done | Failed) -> None:
        """Put a record in, as the last one used."""
        self.table[client] = ReplyRecord(number, used, outcome)
        self.bytes += weigh(outcome)

    def _drop(self, client: int) -> None:
        gone = self.table.pop(client, None)
        if gone is not None:
            self.bytes -= weigh(gone.outcome)

    # ---- copies and snapshots

    @property
    def summary(self) -> tuple[int, int, int]:
        """What goes into the digest of a state: nothing, if no such client was ever there."""
        return len(self.table), self.bytes, self.forgotten

    def copy(self) -> Records:
        """Give equal records."""
        twin = Records(self._settings)
        twin.table = self.table.copy()
        twin.bytes = self.bytes
        twin.forgotten = self.forgotten
        return twin

    def to_list(self) -> list[tuple[int, int, int, Done | Failed]]:
        """Give all records, in an order that all replicas share."""
        return [
            (client, record.number, record.used, record.outcome)
            for client, record in self.table.items()
        ]
