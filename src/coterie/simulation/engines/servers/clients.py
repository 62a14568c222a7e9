"""Clients that know nothing of replication: datagrams that are lost, doubled, late and reordered.

A client sends its request to the service, which is all replicas at once, or for some clients any
one of them, and waits for one reply (**rsp** 2). A *reliable* one sends it again until its
deadline; an *unreliable* one sends it once and, after a while, goes on as if nothing had been. Now
and then a client's program ends and another one begins, under a new id. Copies of datagrams may be
seconds late, long after the client has gone on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from coterie.checking.linearizability import UNSEEN, Operation
from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.objects import Done, Failed
from coterie.simulation.engines.stack.clients import SETTINGS, Clients

if TYPE_CHECKING:
    from random import Random

    from coterie.checking.linearizability import Unseen
    from coterie.objects import Answer, ObjectHost
    from coterie.simulation.engines.stack.group import Group
    from coterie.simulation.engines.stack.kinds import ObjectKind, Operations, Use

ATTEMPT = milliseconds(300)
DEADLINE = seconds(4)
UNRELIABLE_WAIT = seconds(1)
SERVER_CLIENTS = 6
LOSS = 0.15
TWICE = 0.1
LATE = 0.05
LATEST = seconds(3)
"""How late a copy of a datagram may be."""
CHURN = 0.03
"""How often a program ends and another one begins."""
SERVER_SETTINGS = replace(SETTINGS, clients_max=14, client_lease=seconds(16))
"""Half a lease is longer than a client sends again and a datagram travels, together."""


class _Asked(NamedTuple):
    """What one client waits for."""

    client: int
    number: int
    use: Use
    called: int
    arguments: bytes


class _Unaware:
    """One program that uses the service, one request at a time."""

    def __init__(self, name: int, *, is_reliable: bool, is_unicast: bool) -> None:
        self.name = name
        self.is_reliable = is_reliable
        self.is_unicast = is_unicast
        self.id = 0
        self.number = 0
        self.asked: _Asked | None = None
        self.has_had_last_word = False


class UnawareClients(Clients):
    """All programs that use a simulated service."""

    def __init__(self, group: Group, random: Random, kind: ObjectKind) -> None:
        super().__init__(group, random, kind)
        self.settings = SERVER_SETTINGS
        self._programs: list[_Unaware] = []
        self._is_last = False
        self._waiting: dict[tuple[int, int], _Unaware] = {}

    def start(self, count: int = SERVER_CLIENTS) -> None:
        """Let *count* clients begin: most are reliable, some know one address only."""
        self._programs = [
            _Unaware(name, is_reliable=name % 3 != 0, is_unicast=name % 4 == 0)
            for name in range(1, count + 1)
        ]
        for program in self._programs:
            self._soon(program)

    @property
    def are_done(self) -> bool:
        """Whether nobody waits for anything."""
        return not self._waiting

    def pending(self) -> Operations:
        """Give what is waited for still."""
        return [
            Operation(process=each.name, command=each.asked.use.command, called=each.asked.called)
            for each in self._programs
            if each.asked is not None
        ]

    # ---- asking

    def _soon(self, program: _Unaware) -> None:
        wait = int(self._random.expovariate(1 / milliseconds(150)))
        self._group.simulation.at(wait, self._ask, program)

    def last_words(self) -> None:
        """Have every client ask once more, and send it again until it is answered."""
        self._is_last = True
        for program in self._programs:
            program.is_reliable = True
            self._ask(program)

    def _ask(self, program: _Unaware) -> None:
        if not self._is_active and (not self._is_last or program.has_had_last_word):
            return
        program.has_had_last_word = self._is_last
        if not program.id or self._random.random() < CHURN:
            program.id, program.number = self._random.getrandbits(62) + 1, 0
        program.number += 1
        use = self.kind.draw(self._random, f"{program.id}.{program.number}")
        arguments = self.kind.definition.method(use.method).encode(use.arguments, {})
        now = self._group.simulation.now
        asked = _Asked(program.id, program.number, use, now, arguments)
        program.asked = asked
        self._waiting[asked.client, asked.number] = program
        self._send(program, asked)
        if not program.is_reliable:
            self._group.simulation.at(UNRELIABLE_WAIT, self._give_up, program, asked)

    def _send(self, program: _Unaware, asked: _Asked) -> None:
        if program.asked is not asked:
            return
        simulation = self._group.simulation
        if simulation.now - asked.called > DEADLINE and not self._is_last:
            self._finish(program, asked)
            return
        hosts = list(self._group.hosts)
        targets = [self._random.choice(hosts)] if program.is_unicast else hosts
        for target in targets:
            for delay in self._travel():
                simulation.at(delay, self._arrive, target, program.is_unicast, asked)
        if program.is_reliable:
            simulation.at(ATTEMPT, self._send, program, asked)

    def _travel(self) -> list[Duration]:
        """Draw when copies of a datagram arrive: none, one or two, some of them late."""
        random = self._random
        copies = 0 if random.random() < LOSS else 2 if random.random() < TWICE else 1
        return [
            Duration(
                random.randrange(LATEST)
                if random.random() < LATE
                else random.randrange(500, milliseconds(40))
            )
            for _ in range(copies)
        ]

    def _arrive(self, target: str, is_unicast: bool, asked: _Asked) -> None:  # noqa: FBT001
        def take(host: ObjectHost) -> None:
            method, arguments = asked.use.method, asked.arguments
            host.request(asked.client, asked.number, method, arguments, relay=is_unicast)

        self._group.hosts[target].ask(take)

    def _give_up(self, program: _Unaware, asked: _Asked) -> None:
        if program.asked is asked:
            self._finish(program, asked)

    # ---- replies

    def answered(self, answer: Answer) -> None:
        """Take a reply from a replica and carry it to the client, if it gets there."""
        for delay in self._travel():
            self._group.simulation.at(delay, self._reply, answer)

    def _reply(self, answer: Answer) -> None:
        program = self._waiting.get((answer.session, answer.request))
        if program is None or program.asked is None:
            return  # a reply that came twice
        asked = program.asked
        match answer.outcome:
            case Done(result=encoded):
                value = self.kind.definition.method(asked.use.method).decode_result(encoded)
                self._finish(program, asked, self.kind.result(asked.use, value))
            case Failed():
                raise AssertionError(answer)
            case _:
                pass  # refused: sent again, or given up

    def _finish(self, program: _Unaware, asked: _Asked, result: object | Unseen = UNSEEN) -> None:
        del self._waiting[asked.client, asked.number]
        program.asked = None
        is_known = result is not UNSEEN
        self.operations.append(
            Operation(
                process=program.name if is_known else (asked.client, asked.number),
                command=asked.use.command,
                result=result,
                called=asked.called,
                returned=self._group.simulation.now if is_known else None,
            )
        )
        self._soon(program)
