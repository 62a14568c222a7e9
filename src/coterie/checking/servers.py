"""What a server group promises to clients that know nothing of it: RSP-1 and RSP-2 (**rsp** 3).

The paper words them for one view after the other, each request in one of them. Here PRIMARY
proposes again what its view did not order, and the onus of the next view proposes it as well; so
what is checked is what the two are for:

- *RSP-1*: in each view at most one replica is decided to synchronise a request (the entry says in
  which view that was); and a request is executed once, wherever and however often it was ordered;
- *RSP-2*: of a request that is delivered, at most one replica commits the output. That some replica
  is decided to is the liveness of the runs: a client that sends again is answered.

A reply that is sent again from the record is no new output, and is not on record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.checking.history import Violation
from coterie.kernel.decoding import Decoder
from coterie.kernel.records import EntriesAccepted, Replied
from coterie.kernel.requests import REQUEST_TAG, ServiceRequest

if TYPE_CHECKING:
    from coterie.kernel.records import Record
    from coterie.kernel.views import Member, ViewId

_decoder = Decoder(ServiceRequest)
_SMALL_ARRAY = 0x90
"""How an array of up to 15 begins in MessagePack; the tag follows."""


def request_in(payload: bytes) -> ServiceRequest | None:
    """Give the request that an entry holds, if it holds one."""
    if len(payload) < 2 or payload[0] >> 4 << 4 != _SMALL_ARRAY or payload[1] != REQUEST_TAG:  # noqa: PLR2004
        return None
    try:
        return _decoder.decode(payload)
    except msgspec.DecodeError:
        return None


class ServerTracker:
    """Follows the records of a group of servers."""

    def __init__(self) -> None:
        self._seen: set[tuple[ViewId, int]] = set()
        self._synchronisers: dict[tuple[int, int, ViewId], set[Member]] = {}
        self._places: dict[tuple[int, int], set[tuple[ViewId, int]]] = {}
        self._outputs: dict[tuple[int, int], list[tuple[Member, int]]] = {}

    @property
    def requests(self) -> int:
        """How many requests were ordered."""
        return len(self._places)

    @property
    def ordered_again(self) -> int:
        """How many of them were ordered more than once."""
        return sum(len(places) > 1 for places in self._places.values())

    def add(self, record: Record) -> None:
        """Take a record of a replica."""
        if isinstance(record, EntriesAccepted):
            run = record.run
            for index, payload in enumerate(run.payloads):
                place = (run.view, run.number + index)
                if place in self._seen:
                    continue
                self._seen.add(place)
                request = request_in(payload)
                if request is not None:
                    decided = (*request.id, request.view)
                    self._synchronisers.setdefault(decided, set()).add(run.origin)
                    self._places.setdefault(request.id, set()).add(place)
        elif isinstance(record, Replied):
            for reply in record.replies:
                id = (reply.session, reply.request)
                if id in self._places:
                    self._outputs.setdefault(id, []).append((record.member, reply.position))

    def violations(self) -> list[Violation]:
        """Say which promise was broken, with who broke it."""
        found = [
            Violation(
                "RSP-1",
                f"request {number} of client {client} was synchronised by {_names(members)}"
                f" in view {view}",
            )
            for (client, number, view), members in self._synchronisers.items()
            if len(members) > 1
        ]
        for (client, number), outputs in self._outputs.items():
            positions = sorted({position for _, position in outputs})
            if len(positions) > 1:
                found.append(
                    Violation(
                        "RSP-1",
                        f"request {number} of client {client} was executed at {positions}",
                    )
                )
            if len(outputs) > 1:
                who = ", ".join(str(member) for member, _ in outputs)
                found.append(
                    Violation("RSP-2", f"request {number} of client {client} was answered by {who}")
                )
        return found


def _names(members: set[Member]) -> str:
    return ", ".join(str(member) for member in sorted(members))
