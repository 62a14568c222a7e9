"""Objects of a class in the simulator: real hosts, and clients that retry wherever they can.

Clients have sessions. A request that is not answered goes to another replica, the same request
again; one whose deadline passes has an unknown outcome. An answer counts when it is authoritative:
where the stack delivers optimistically a client waits until the position has settled, and asks
again if it was rolled back. What they do and what they must have seen is in `kinds.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from coterie.assembly import make_object
from coterie.checking.linearizability import UNSEEN, Operation
from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.engine import Role
from coterie.objects import Done, HostSettings, Level, Opened
from coterie.objects.execution.outcomes import SessionEvicted
from coterie.simulation.engines.stack.kinds import UNDECIDED
from coterie.simulation.engines.stack.old import old_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from coterie.checking.history import Violation
    from coterie.checking.linearizability import Unseen
    from coterie.kernel.engine import Status
    from coterie.kernel.layers import Context
    from coterie.objects import Answer, ObjectHost
    from coterie.simulation.engines.stack.group import Group
    from coterie.simulation.engines.stack.kinds import ObjectKind, Operations, Use

ATTEMPT = milliseconds(300)
DEADLINE = seconds(4)
CLIENTS = 6
CHURN = 0.05
"""How often a client of an old group leaves its session behind and opens another."""
SETTINGS = HostSettings(digest_interval=5, dump_interval=50)


class SettledValue(NamedTuple):
    """What is authoritative at a replica."""

    position: int
    value: object


class SimulatedObject:
    """A host on a simulated replica, and its front."""

    def __init__(self, group: Group, context: Context) -> None:
        self._clients = group.clients
        self._kind = group.clients.kind
        self.status: Status | None = None
        self._unsettled: list[tuple[int, Answer]] = []
        self._ready: list[Answer] = []
        simulation = group.simulation
        before = 0 if simulation.age is None else simulation.age.lives
        self.replica, self.engine_host = make_object(
            self._kind.release(context.me.incarnation - before),
            simulation.stack,
            context,
            _Front(self),
            settings=group.clients.settings,
            layers=simulation.layers,
        )

    @property
    def is_primary(self) -> bool:
        """Whether updates are taken here at present."""
        return self.status is not None and self.status.role is Role.PRIMARY

    @property
    def settled(self) -> SettledValue:
        """The authoritative state at this replica."""
        host = self.engine_host
        return SettledValue(host.settled_position, host.query(Level.WEAK, self._kind.look))

    def snapshot(self) -> Iterator[bytes]:
        """Give the authoritative state in chunks."""
        return self.engine_host.snapshot()

    # ---- the front

    def answer(self, answers: list[Answer]) -> None:
        for answer in answers:
            if not answer.standing.is_final and isinstance(answer.outcome, Done):
                self._unsettled.append((answer.outcome.position, answer))
            else:
                self._ready.append(answer)

    def settled_up_to(self, position: int) -> None:
        self._ready += [answer for place, answer in self._unsettled if place <= position]
        self._unsettled = [each for each in self._unsettled if each[0] > position]

    def release_answers(self) -> None:
        """Let the answers of a turn go to the clients, once the turn has been written down."""
        ready, self._ready = self._ready, []
        for answer in ready:
            self._clients.answered(answer)

    def rolled_back(self, position: int) -> None:
        self._unsettled = [each for each in self._unsettled if each[0] <= position]

    def restored(self, position: int) -> None:
        self._unsettled = []
        del position

    def status_changed(self, status: Status) -> None:
        self.status = status


class _Front:
    """The front of a `SimulatedObject`, which has a property of the name `settled` itself."""

    def __init__(self, simulated: SimulatedObject) -> None:
        self.answer = simulated.answer
        self.settled = simulated.settled_up_to
        self.rolled_back = simulated.rolled_back
        self.restored = simulated.restored
        self.status_changed = simulated.status_changed


class _Request(NamedTuple):
    """What one client waits for."""

    session: int
    number: int
    use: Use | None
    """None where a session is to be opened."""
    called: int
    ask: Callable[[ObjectHost], None]


class _Client:
    """One caller, one thing at a time."""

    def __init__(self, name: int, number: int = 0) -> None:
        self.name = name
        self.session = 0
        self.number = number
        self.request: _Request | None = None
        self.attempt = 0


class Clients:
    """All clients of a simulated object."""

    def __init__(self, group: Group, random: Random, kind: ObjectKind) -> None:
        self.kind = kind
        self.age = group.simulation.age
        self.settings = SETTINGS if self.age is None else old_settings(SETTINGS)
        self._group = group
        self._random = random
        self._clients: list[_Client] = []
        self._by_request: dict[tuple[int, int], _Client] = {}
        self._tokens = 0
        self._is_active = True
        self.operations: Operations = []
        self.undecided: list[str] = []
        """Why it could not be said whether the clients saw one order, if it could not."""

    def start(self, count: int = CLIENTS) -> None:
        """Let *count* clients begin."""
        number = 0 if self.age is None else self.age.number
        self._clients = [_Client(name, number) for name in range(1, count + 1)]
        for client in self._clients:
            self._later(client)

    def stop(self) -> None:
        """Let no new requests begin."""
        self._is_active = False

    @property
    def are_done(self) -> bool:
        """Whether nobody waits for anything."""
        return all(client.request is None for client in self._clients)

    def pending(self) -> Operations:
        """Give what is waited for still."""
        return [
            Operation(
                process=client.name,
                command=client.request.use.command,
                called=client.request.called,
            )
            for client in self._clients
            if client.request is not None and client.request.use is not None
        ]

    def violations(self) -> list[Violation]:
        """Check what the clients saw."""
        settled = [
            host.ledger.settled for host in self._group if isinstance(host.ledger, SimulatedObject)
        ]
        # Where the replicas have not come together that is said elsewhere.
        is_one = all(each == settled[0] for each in settled)
        states = [each.value for each in settled] if is_one else []
        found = self.kind.violations([*self.operations, *self.pending()], states)
        self.undecided = [str(each) for each in found if each.check == UNDECIDED]
        return [each for each in found if each.check != UNDECIDED]

    # ---- asking

    def _later(self, client: _Client) -> None:
        wait = int(self._random.expovariate(1 / milliseconds(150)))
        self._group.simulation.at(wait, self._begin, client)

    def _begin(self, client: _Client) -> None:
        if not self._is_active:
            return
        now = self._group.simulation.now
        if self.age is not None and self._random.random() < CHURN:
            client.session = 0  # its program ended without a word, and another one begins
        if not client.session:
            token = self._token()
            request = _Request(0, token, None, now, lambda host: host.open_session(token))
        else:
            use = self.kind.draw(self._random, f"{client.name}.{client.number + 1}")
            request = self._request(client, use)
        client.request = request
        self._by_request[request.session, request.number] = client
        self._try(client, request)

    def _request(self, client: _Client, use: Use) -> _Request:
        now = self._group.simulation.now
        arguments = self.kind.definition.method(use.method).encode(use.arguments, {})
        if use.is_read:
            token = self._token()

            def read(host: ObjectHost) -> None:
                host.read(Level.CONSISTENT, token, use.method, arguments)

            return _Request(0, token, use, now, read)
        client.number += 1
        session, number = client.session, client.number
        # A number that was given up may still be on its way, so it is not below the lowest.
        lowest = max(1, number - 50)

        def call(host: ObjectHost) -> None:
            host.call(session, number, use.method, arguments, lowest=lowest)

        return _Request(session, number, use, now, call)

    def _token(self) -> int:
        self._tokens += 1
        return self._tokens

    def _try(self, client: _Client, request: _Request) -> None:
        if client.request is not request:
            return
        simulation = self._group.simulation
        if simulation.now - request.called > DEADLINE:
            self._end(client, request)
            return
        host = self._random.choice(list(self._group))
        host.ask(request.ask)
        simulation.at(ATTEMPT, self._try, client, request)

    # ---- answers

    def answered(self, answer: Answer) -> None:
        """Take an answer from a replica."""
        client = self._by_request.get((answer.session, answer.request))
        if client is None or client.request is None:
            return
        request = client.request
        match answer.outcome:
            case Opened(session=session):
                client.session = session
                self._end(client, request)
            case Done(result=encoded) if request.use is not None:
                value = self.kind.definition.method(request.use.method).decode_result(encoded)
                self._end(client, request, self.kind.result(request.use, value))
            case SessionEvicted() if self.age is not None and request.use is not None:
                # An earlier attempt may have been executed while the session was there.
                client.session = 0
                self._end(client, request)
            case _:
                # Not taken, or forgotten: the next attempt or the deadline decides.
                pass

    def _end(self, client: _Client, request: _Request, result: object | Unseen = UNSEEN) -> None:
        del self._by_request[request.session, request.number]
        client.request = None
        if request.use is not None:
            is_known = result is not UNSEEN
            self.operations.append(
                Operation(
                    # Where the outcome is unknown, the client goes on as if it were someone else.
                    process=client.name if is_known else (client.name, request.number),
                    command=request.use.command,
                    result=result,
                    called=request.called,
                    returned=self._group.simulation.now if is_known else None,
                )
            )
        self._later(client)
