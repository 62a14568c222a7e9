"""A request of a client that knows nothing of replication (**rsp** 2, 3).

The paper's message has an id, the pair of its sender and a number, and data. What is ordered here
is the whole of it: the paper orders ids alone, and if the only replica that holds a body dies then
all others wait for it for ever (its figure 4). Like every payload it is a MessagePack array with
its tag first, and is read as one of `coterie.objects.execution.commands`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from coterie.kernel.views import NO_VIEW, ReplicaId, ViewId

REQUEST_TAG = 12

ClientId = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
"""Chosen by the client, at random: its sender's id, and the key of what is remembered of it."""
RequestNumber = Annotated[int, msgspec.Meta(ge=1, le=(1 << 62) - 1)]
GroupMoment = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]


class ServiceRequest(msgspec.Struct, tag=REQUEST_TAG, frozen=True, array_like=True, gc=False):
    """Execute a method once for (client, number); a client has one request outstanding."""

    client: ClientId
    number: RequestNumber
    method: str
    arguments: msgspec.Raw
    clock: GroupMoment
    """The wall clock of the replica that proposes it."""
    received: GroupMoment
    """What group time was, as far as known, at the replica that received it."""
    reply_to: str = ""
    """Where the answer goes, as the replica saw it that received the request."""
    via: ReplicaId = ""
    """The replica that holds the client's connection; empty where the client sends datagrams."""
    view: ViewId = NO_VIEW
    """In which view it was decided who synchronises it."""

    @property
    def id(self) -> tuple[int, int]:
        """The paper's m.id."""
        return self.client, self.number


encode_request = msgspec.msgpack.Encoder().encode
"""Give a request as the payload of an entry."""
