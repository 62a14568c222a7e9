"""A whole group in one process, in memory: for a first try, for tests and for notebooks.

    class Counter:
        value: int = 0

        @update
        def add(self, amount: int) -> int:
            self.value += amount
            return self.value

    async with coterie.local(Counter, replicas=3) as counter:
        assert await counter.add(3) == 3

The replicas are real: each has its own process state, detector, stack and host, and they talk in
encoded frames; only the network is a function call. So what a class does here it does in a group
of machines. Nothing is stored: a replica that is killed comes back as a zombie and fetches the
state from the others, and if a majority is killed at once the group has lost its memory and stops.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from coterie.assembly import make_context, make_object, make_process
from coterie.kernel.engine import Past, Role
from coterie.kernel.errors import CoterieError, Refused
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration
from coterie.kernel.wire import decode_frame
from coterie.objects import Done, Failed, Kind, Level, Opened, define
from coterie.runtime.driver import Driver, clock
from coterie.runtime.recorder import NoRecorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from coterie.kernel.engine import Status
    from coterie.objects import Answer, Definition, ObjectHost, Outcome

DEFAULT_STACK = "SAFE:DYNSEQ:PVSYNC"
DEFAULT_DEADLINE = 5.0
_RETRY_EVERY = 0.25


class UpdateFailed(CoterieError):
    """The method raised on every replica alike; the object is as it was before."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(f"{error}: {message}")
        self.error = error


class OutcomeUnknown(CoterieError):
    """No answer by the deadline: the update may have been executed, or may be yet, or never."""


class SessionLost(CoterieError):
    """The group does not know this session any more; open the object again."""


class _Memory:
    """A transport that hands frames over within the process."""

    def __init__(self, group: LocalGroup, id: str) -> None:
        self._group = group
        self._id = id
        self.counters: dict[str, int] = {}

    def send(self, destination: str, frame: bytes) -> None:
        self._group.carry(self._id, destination, frame)

    def multicast(self, destinations: Sequence[str], frame: bytes) -> None:
        for destination in destinations:
            self._group.carry(self._id, destination, frame)

    def flush(self) -> None:
        pass


class _Replica:
    """One replica of the group, and the front of its host."""

    def __init__(self, group: LocalGroup, id: str, incarnation: int) -> None:
        self._group = group
        loop = asyncio.get_running_loop()
        settings = DEFAULT_SETTINGS
        configuration = group.configuration
        self.role = Role.FORMING
        process = make_process(id, incarnation, configuration.members, settings)
        context = make_context(
            process,
            group.name,
            configuration,
            past=Past(is_zombie=True) if incarnation > 1 else None,
        )
        replica, self.host = make_object(group.definition, group.stack, context, self, clock=clock)
        process.host(replica)
        self.driver = Driver(process, NoRecorder(), loop)
        self.driver.start(_Memory(group, id))

    def ask(self, request: Callable[[ObjectHost], None]) -> None:
        """Have a request made of the host in the next turn."""
        self.driver.call(lambda: request(self.host))

    # ---- the front of the host

    def answer(self, answers: list[Answer]) -> None:
        self._group.answered(answers)

    def settled(self, position: int) -> None:
        pass

    def rolled_back(self, position: int) -> None:
        pass

    def restored(self, position: int) -> None:
        pass

    def status(self, status: Status) -> None:
        self.role = status.role
        self._group.changed.set()


class LocalGroup:
    """The replicas, and one client with one session."""

    def __init__(self, definition: Definition, replicas: int, stack: str) -> None:
        self.definition = definition
        self.name = definition.name
        self.stack = stack
        self.configuration = Configuration(1, tuple(f"r{n}" for n in range(1, replicas + 1)))
        self.changed = asyncio.Event()
        self._lives = dict.fromkeys(self.configuration.members, 0)
        self._replicas: dict[str, _Replica] = {}
        self._waiting: dict[tuple[int, int], asyncio.Future[Outcome]] = {}
        self._session = 0
        self._numbers = 0
        self._tokens = 0

    # ---- replicas

    def start(self, id: str) -> None:
        """Start a replica; one that has been killed has forgotten everything."""
        if id not in self._replicas:
            self._lives[id] += 1
            self._replicas[id] = _Replica(self, id, self._lives[id])

    def kill(self, id: str) -> None:
        """Kill a replica, with all it knew."""
        replica = self._replicas.pop(id, None)
        if replica is not None:
            replica.driver.stop()

    def carry(self, source: str, destination: str, frame: bytes) -> None:
        """Hand a frame to another replica, if it is there."""
        replica = self._replicas.get(destination)
        if replica is not None and source in self._replicas:
            limit = DEFAULT_SETTINGS.frame_bytes_max
            replica.driver.frame_arrived(decode_frame(frame, frame_bytes_max=limit))

    @property
    def primary(self) -> _Replica | None:
        """A replica that takes updates at present."""
        for replica in self._replicas.values():
            if replica.role is Role.PRIMARY:
                return replica
        return None

    def roles(self) -> list[Role]:
        """What the running replicas may do at present."""
        return [replica.role for replica in self._replicas.values()]

    # ---- the client

    async def open(self) -> None:
        """Wait for the group to come together, and open a session."""
        outcome = await self._request(
            0, self._token(), lambda host, token: host.open_session(token), DEFAULT_DEADLINE
        )
        assert isinstance(outcome, Opened), outcome
        self._session = outcome.session

    def _token(self) -> int:
        self._tokens += 1
        return self._tokens

    async def update(
        self, method: str, args: Sequence[object], kwargs: dict[str, object], deadline: float
    ) -> object:
        """Execute an update exactly once, whatever fails meanwhile."""
        found = self.definition.method(method, Kind.UPDATE)
        arguments = found.encode(args, kwargs)
        self._numbers += 1
        session = self._session
        outcome = await self._request(
            session,
            self._numbers,
            lambda host, number: host.call(session, number, method, arguments, lowest=self._lowest),
            deadline,
        )
        return _result(found.decode_result, outcome)

    @property
    def _lowest(self) -> int:
        """The lowest request number still waited for."""
        waiting = [request for session, request in self._waiting if session == self._session]
        return min(waiting, default=self._numbers)

    async def query(
        self,
        method: str,
        args: Sequence[object],
        kwargs: dict[str, object],
        *,
        level: Level,
        deadline: float,
    ) -> object:
        """Execute a query at one replica."""
        found = self.definition.method(method, Kind.QUERY)
        arguments = found.encode(args, kwargs)
        outcome = await self._request(
            0,
            self._token(),
            lambda host, token: host.read(level, token, method, arguments),
            deadline,
        )
        return _result(found.decode_result, outcome)

    async def _request(
        self,
        session: int,
        number: int,
        ask: Callable[[ObjectHost, int], None],
        deadline: float,
    ) -> Outcome:
        """Ask a primary, and another one when there is no answer; the request stays the same."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[session, number] = future

        def attempt(host: ObjectHost) -> None:
            try:
                ask(host, number)
            except Refused as error:  # the replica's class may be another version than ours
                if not future.done():
                    future.set_exception(error)

        try:
            async with asyncio.timeout(deadline):
                while True:
                    replica = self.primary
                    if replica is None:
                        self.changed.clear()
                        await self.changed.wait()
                        continue
                    replica.ask(attempt)
                    await asyncio.wait([future], timeout=_RETRY_EVERY)
                    if future.done():
                        return future.result()
        except TimeoutError:
            raise OutcomeUnknown(
                f"no answer within {deadline} s: with the same session a retry would not "
                "execute it twice, but nobody can say now whether it was executed"
            ) from None
        finally:
            del self._waiting[session, number]

    def answered(self, answers: list[Answer]) -> None:
        """Take answers from a host."""
        for answer in answers:
            future = self._waiting.get((answer.session, answer.request))
            if future is not None and not future.done():
                future.set_result(answer.outcome)

    def close(self) -> None:
        """Stop everything."""
        for id in list(self._replicas):
            self.kill(id)


def _result(decode: Callable[[bytes], object], outcome: Outcome) -> object:
    match outcome:
        case Done(result=result):
            return decode(result)
        case Failed(error=error, message=message):
            raise UpdateFailed(error, message)
        case Opened():
            return outcome.session
        case _ if hasattr(outcome, "reason"):
            raise Refused(outcome.reason)
        case _:
            raise SessionLost(f"the group answered {type(outcome).__name__}")


class LocalObject:
    """The object as its caller sees it: its methods, to be awaited.

    `deadline` (seconds) may be given to every call, `level` (dirty, weak or consistent) to
    queries. `group` gives access to the replicas, to kill and start them.
    """

    def __init__(self, group: LocalGroup) -> None:
        self.group = group

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        group = self.group
        method = group.definition.method(name)

        def call(
            *args: object,
            deadline: float = DEFAULT_DEADLINE,
            level: str = Level.CONSISTENT.value,
            **kwargs: object,
        ) -> Awaitable[object]:
            if method.kind is Kind.UPDATE:
                return group.update(name, args, kwargs, deadline)
            return group.query(name, args, kwargs, level=Level(level), deadline=deadline)

        return call


@asynccontextmanager
async def local(
    cls: type, *, replicas: int = 3, stack: str = DEFAULT_STACK
) -> AsyncIterator[LocalObject]:
    """Run *cls* as a group of *replicas* in this process; give the object to call."""
    group = LocalGroup(define(cls), replicas, stack)
    try:
        for id in group.configuration.members:
            group.start(id)
        await group.open()
        yield LocalObject(group)
    finally:
        group.close()
