"""The paper's example: one integer, replicated (objects, section 7.5, figures 9 and 10).

    coterie serve value=examples/replicated_value.py:ValueReplica
    python examples/replicated_value.py ADDRESS 42      # any that `coterie status value` shows
    python examples/replicated_value.py ADDRESS         # reads it

Compare it with the figures line by line. `Message` with its `<<` and `>>` is MessagePack here, and
the condition variable on which a client waits for its answer is a future. A read is answered by the
replica that is asked, from its own state: it may be behind what another replica has told. Kill a
replica meanwhile (`kill -9`, its process is in `coterie status value`), and run it again.
"""
# ruff: noqa: INP001, T201 -- a program, not a package, that prints

from __future__ import annotations

import enum
import sys
from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec

from coterie.client.paper import connect_paper
from coterie.objects.paper import Client, ObjectReplica

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.objects.paper import ClientId, ObjectId, System, TransferId

pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode


class RequestType(enum.IntEnum):
    """What a client may ask for."""

    READ = 0
    UPDATE = 1


class ValueReplica(ObjectReplica):
    """Figure 9: `MyObjectReplica`."""

    def __init__(self) -> None:
        super().__init__()
        self.state = 0

    def multicast_callback(self, origin: ObjectId, message: bytes, safe: bool) -> None:  # noqa: FBT001
        """Got a relayed update request: modify the state accordingly."""
        del origin, safe
        _, self.state = unpack(message, type=tuple[RequestType, int])

    def client_request_callback(self, client: ClientId, request: bytes) -> None:
        """Got a client request."""
        request_type, *_ = unpack(request, type=list[int])
        match RequestType(request_type):
            case RequestType.READ:
                self.reply_to_client(client, pack(self.state))
            case RequestType.UPDATE:
                self.multicast(request)  # to all replicas

    def state_transfer_callback(self, transfer: TransferId) -> None:
        """Start state transfer."""
        self.request_state(transfer, b"")

    def state_request_callback(
        self, origin: ObjectId, transfer: TransferId, request: bytes
    ) -> None:
        """Got a state request."""
        del request
        self.send_state(origin, transfer, pack(self.state))

    def receive_state_callback(self, origin: ObjectId, transfer: TransferId, state: bytes) -> None:
        """Received the state."""
        del origin
        self.state = unpack(state, type=int)
        self.state_transfer_done(transfer)


class ValueClient(Client):
    """Figure 10: `MyClient`."""

    def __init__(self, system: System, id: ClientId) -> None:
        super().__init__(system, id)
        self._answer: Future[int] = Future()

    def read(self) -> Future[int]:
        """Send a read request; the future holds its answer (not reentrant)."""
        self._answer = Future()
        self.send_request(pack((RequestType.READ,)))
        return self._answer

    def update(self, new_state: int) -> None:
        """Send an update request."""
        self.send_request(pack((RequestType.UPDATE, new_state)))

    def receive_reply_callback(self, origin: ObjectId, reply: bytes) -> None:
        """Received a reply to a read request."""
        del origin
        if not self._answer.done():
            self._answer.set_result(unpack(reply, type=int))


def make_replicas(system: System, count: int = 3) -> list[ValueReplica]:
    """Join a group in the globally safe mode, as the paper's example does."""
    replicas = [ValueReplica() for _ in range(count)]
    for replica in replicas:
        replica.join(system, optimistic=False, max_group_size=count)
    return replicas


def demonstrate(system: System, work: Callable[[], None]) -> int:
    """Update the value through one client and read it through another.

    *work* lets the group carry on until nothing is on its way.
    """
    make_replicas(system)
    work()
    ValueClient(system, "writer").update(42)
    work()
    answer = ValueClient(system, "reader").read()
    work()
    return answer.result(timeout=5)


def main(address: str, *values: str) -> None:
    """Set the value if one is given, and read it until it is that."""
    with connect_paper(address, group="value") as system:
        client = ValueClient(system, "example")
        for value in values:
            client.update(int(value))
        while True:
            try:
                found = client.read().result(timeout=1)
            except TimeoutError:
                continue  # the paper's requests have no outcome: who hears nothing asks again
            if not values or found == int(values[-1]):
                break
            client.update(int(values[-1]))
        print("the value is", found)


if __name__ == "__main__":
    main(*sys.argv[1:])
