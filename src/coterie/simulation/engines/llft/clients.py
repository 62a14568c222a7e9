"""Clients of a simulated program: one request after the other, on connections that may break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.checking.history import Violation
from coterie.kernel.clock import milliseconds
from coterie.simulation.engines.llft.programs import PROGRAMS, REPLY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from coterie.simulation.engines.llft.world import ProgramWorld

CLIENTS = 3
SLOW = 0.3
"""How often a client takes half of what comes, and the rest later."""
READS_AFTER = milliseconds(60)
PACES = (milliseconds(20), milliseconds(80), milliseconds(250))
"""How long clients wait between two requests, on average: one of these, for all of them."""
PATIENCE = milliseconds(1500)
"""Who has no answer for so long may hang up and try on another connection."""


class ProgramClient:
    """One client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.conn = ""
        self.at = ""
        """On which machine the edge of that connection is."""
        self.got = b""
        self.waits_for = 0
        """The number of the request that is not answered yet; 0 for none."""
        self.amount = 0
        self.asked_at = 0
        self.total = 0


class ProgramClients:
    """All clients, and what they were told."""

    def __init__(self, world: ProgramWorld, random: Random, paces: Sequence[int] = PACES) -> None:
        self._world = world
        self._random = random
        self._clients = {name: ProgramClient(name) for name in (f"c{i}" for i in range(CLIENTS))}
        self._is_active = False
        self._connections = 0
        self.asked = 0
        self.answered = 0
        self.broken = 0
        self.told: dict[int, int] = {}
        """What each sum was told as the answer to."""
        self.violations: list[Violation] = []
        self._pace = random.choice(paces)
        self._reply = PROGRAMS[world.front].reply
        world.takes_of, world.wrote_to = self._takes, self._wrote
        world.broke_at, world.closed_at = self._broke, self._closed
        world.died = self._died

    def start(self) -> None:
        """Begin."""
        self._is_active = True
        for client in self._clients.values():
            self._later(client)

    def stop(self) -> None:
        """Begin nothing more."""
        self._is_active = False

    def _later(self, client: ProgramClient) -> None:
        wait = int(self._random.expovariate(1 / self._pace))
        self._world.simulation.at(wait, self._act, client)

    def _act(self, client: ProgramClient) -> None:
        if not self._is_active:
            return
        now = self._world.simulation.now
        if not client.waits_for:
            self.ask(client)
        elif now - client.asked_at > PATIENCE and self._random.random() < 0.2:  # noqa: PLR2004
            self._hang_up(client)
        self._later(client)

    @property
    def everybody(self) -> list[ProgramClient]:
        """All clients."""
        return list(self._clients.values())

    def ask(self, client: ProgramClient) -> None:
        """Send a request, on a new connection if there is none."""
        world = self._world
        # On a new connection, clients go to whichever edge they hear of: perhaps an old one.
        places = [id for id in world.edges[world.front] if world.edge(world.front, id) is not None]
        if not client.conn and places:
            client.at = places[0] if len(places) == 1 else self._random.choice(places)
        edge = world.edge(world.front, client.at) if client.at in places else None
        machine = world.machines[client.at or world.edges[world.front][0]]
        if edge is None or machine.is_paused:
            return
        self.asked += 1
        client.waits_for, client.amount = self.asked, self._random.randrange(1, 100)
        client.asked_at = world.simulation.now
        is_new = not client.conn
        if is_new:
            self._connections += 1
            client.conn, client.got = f"{client.name}.{self._connections}", b""
        conn = client.conn
        body = client.waits_for.to_bytes(4) + client.amount.to_bytes(4)

        def do() -> None:
            if is_new:
                edge.open(conn)
            edge.take(conn, body)

        machine.call(do)

    def _hang_up(self, client: ProgramClient) -> None:
        world, conn = self._world, client.conn
        edge = world.edge(world.front, client.at)
        if edge is not None and conn in edge.lines:
            world.machines[client.at].call(lambda: edge.end(conn))
        self._forget(client)

    def _forget(self, client: ProgramClient) -> None:
        client.conn, client.got, client.waits_for = "", b"", 0
        self.broken += 1

    def _broke(self, conn: str) -> None:
        for client in self._clients.values():
            if client.conn and conn == client.conn:
                self._forget(client)

    def _died(self, edge: str) -> None:
        for client in self._clients.values():
            if client.conn and client.at == edge:
                self._forget(client)

    def _closed(self, conn: str) -> None:
        """Learn that the program hung up: behind an answer, and never before."""
        for client in self._clients.values():
            if client.conn != conn:
                continue
            if client.waits_for and self._world.llft.guard != "none":
                self._fail(f"{conn} was closed before {client.waits_for} was answered")
            client.conn, client.got, client.waits_for = "", b"", 0

    def _takes(self, conn: str, data: bytes) -> int:
        """Say how much is taken at once; who reads slowly takes half of a long answer later."""
        del conn
        is_slow = self._reply > REPLY and self._random.random() < SLOW
        return len(data) // 2 if is_slow else len(data)

    def _wrote(self, conn: str, data: bytes, rest: bytes) -> None:
        if rest:
            wait = self._random.randrange(1, READS_AFTER)
            self._world.simulation.at(wait, self._take_rest, conn, rest)
        self._take(conn, data)

    def _take_rest(self, conn: str, rest: bytes) -> None:
        world = self._world
        client = next((each for each in self._clients.values() if each.conn == conn), None)
        edge = None if client is None else world.edge(world.front, client.at)
        if client is not None and edge is not None:
            world.machines[client.at].call(lambda: edge.took(conn, len(rest)))
            self._take(conn, rest)

    def _take(self, conn: str, data: bytes) -> None:
        client = self._clients.get(conn.partition(".")[0])
        if client is None or client.conn != conn:
            return
        client.got += data
        size = self._reply
        while len(client.got) >= size:
            reply, client.got = client.got[:size], client.got[size:]
            self._told(client, int.from_bytes(reply[:4]), int.from_bytes(reply[4:12]))
            if size > REPLY:
                client.conn = ""  # the program hangs up

    def _told(self, client: ProgramClient, number: int, total: int) -> None:
        if number != client.waits_for:
            self._fail(f"{client.name} asked {client.waits_for} and was answered {number}")
            return
        self.answered += 1
        client.waits_for = 0
        if self._world.llft.guard == "none":
            return  # a branch that was answered from may be given up: counted, not promised
        if total in self.told:
            self._fail(f"{number} and {self.told[total]} were both told {total}")
        if total < client.total + client.amount:
            self._fail(f"{client.name} was told {total} after {client.total}")
        self.told[total] = number
        client.total = total

    def _fail(self, evidence: str) -> None:
        self.violations.append(Violation("clients saw one program", evidence))
