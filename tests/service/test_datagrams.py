"""The port of datagrams, told what nobody should say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.fuzz.datagrams import PATIENCE, PLACES, STACK, Server

from coterie.protocol.datagrams import HEAD, MAGIC, MessageKind
from coterie.service.datagrams import CONNECTIONS_MAX
from coterie.simulation.engines.servers.trial import ServerSimulation

if TYPE_CHECKING:
    from coterie.objects import ObjectHost


@pytest.mark.parametrize("place", PLACES)
def test_an_answer_that_can_go_nowhere_is_counted(place: str) -> None:
    """A replica said so of a request that it passed on, and the replica that answered it died."""
    simulation = ServerSimulation(seed=1, stack=STACK, has_object=True, object_kind="counter")
    group = simulation.group("a", "b", "c")
    assert simulation.run_until(group.is_whole, within=PATIENCE)
    servers = [Server(host) for host in group]
    arguments = msgspec.msgpack.encode([1])

    def ask(host: ObjectHost) -> None:
        host.request(7, 1, "add", arguments, place)

    for each in group:
        each.ask(ask)

    def is_counted() -> bool:
        for server in servers:
            server.port.turn_ended()
        counted = (server.context.counters.get("datagrams.malformed", 0) for server in servers)
        return sum(counted) == 1

    assert simulation.run_until(is_counted, within=PATIENCE)
    assert not any(server.sent.replies for server in servers)


def test_a_crowd_of_silent_connections_keeps_nobody_out() -> None:
    """It took all places, and had them for as long as it liked."""
    simulation = ServerSimulation(seed=1, stack=STACK, has_object=True, object_kind="counter")
    group = simulation.group("a", "b", "c")
    assert simulation.run_until(group.is_whole, within=PATIENCE)
    server = Server(group["a"])
    asking = server.connect()
    body = HEAD.pack(MAGIC, MessageKind.REQUEST, 0, 7, 1) + b'["add", 1]'
    asking.made.data_received(len(body).to_bytes(4, "big") + body)
    crowd = [server.connect() for _ in range(CONNECTIONS_MAX + 5)]
    assert not asking.stream.is_over, "who waits for an answer stays"
    assert [each.stream.is_over for each in crowd] == [True] * 6 + [False] * (CONNECTIONS_MAX - 1)
    assert len(server.port._connections) == CONNECTIONS_MAX
