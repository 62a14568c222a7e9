"""Edges speak with each other of the connections between them, and of no others."""

from __future__ import annotations

import pytest

from coterie.agents.gateway import GatewayEdge
from coterie.kernel.clock import seconds
from coterie.kernel.errors import BadMessage
from coterie.kernel.views import Member
from coterie.llft.connections import EDGE
from coterie.llft.edge import Edge
from coterie.llft.messages import CarriedBytes, CarryBytes
from coterie.llft.settings import Guard
from coterie.simulation.engines.llft.clients import ProgramClients
from coterie.simulation.engines.llft.world import ProgramWorld


def relayed() -> tuple[ProgramWorld, Edge, Edge]:
    """Give a relay at work, and the edges of both programs."""
    world = ProgramWorld(seed=1, program="relay", replicas=3, guard=Guard.QUORUM)
    clients = ProgramClients(world, world.simulation.random)
    world.start()
    clients.start()
    assert world.run_until(lambda: clients.answered >= 5, within=seconds(10))
    found = []
    for program in ("relay", "counter"):
        [edge] = [
            each.replica.bottom
            for machine in world.machines.values()
            for name, each in machine.residents.items()
            if name == program + EDGE and each.replica is not None
        ]
        assert isinstance(edge, Edge)
        found.append(edge)
    return world, found[0], found[1]


def test_nobody_speaks_for_a_client() -> None:
    """Whoever was a peer could put words into a client's mouth, and end its connection."""
    _, relay, counter = relayed()
    [conn, *_] = [name for name, line in relay.lines.items() if line.peer is None and line.is_open]
    received = relay.lines[conn].received
    for sender in (counter.context.me, Member("a", 1)):
        with pytest.raises(BadMessage, match="for the connection of another"):
            relay.receive(sender, CarryBytes("counter", conn, received, b"forged", is_end=True))
        with pytest.raises(BadMessage, match="sent to another"):
            relay.receive(sender, CarriedBytes(conn, 0, is_end=True))
    assert relay.lines[conn].is_open
    assert relay.lines[conn].received == received


def test_nobody_speaks_for_another_program() -> None:
    _, relay, counter = relayed()
    [conn, *_] = [name for name, line in counter.lines.items() if line.peer is not None]
    line = counter.lines[conn]
    assert line.peer is not None
    received = line.received
    stranger = Member("a" if relay.context.me.id != "a" else "b", 1)
    for source in ("relay", "other"):
        with pytest.raises(BadMessage, match="for the connection of another"):
            counter.receive(stranger, CarryBytes(source, conn, received, b"x", is_end=True))
    assert line.received == received


def test_real_programs_have_no_edges_beside_them() -> None:
    edge = GatewayEdge.__new__(GatewayEdge)
    with pytest.raises(BadMessage, match="from program to program"):
        edge.receive(Member("a", 1), CarryBytes("x", "y", 0, b"forged", is_end=False))
