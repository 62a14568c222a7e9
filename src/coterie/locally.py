"""A whole group in one process, in memory: for a first try, for tests and for notebooks.

    class Counter:
        value: int = 0

        @update
        def add(self, amount: int) -> int:
            self.value += amount
            return self.value

    async with coterie.local(Counter, replicas=3) as counter:
        assert await counter.add(3) == 3

The object is called as through `coterie.connect`, and calls end in the same ways. `group_of` gives
access to the replicas, to kill and start them.

The replicas are real: each has its own process state, detector, stack and host, and they talk in
encoded frames; only the network is a function call. So what a class does here it does in a group
of machines. Nothing is stored: a replica that is killed comes back as a zombie and fetches the
state from the others, and if a majority is killed at once the group has lost its memory and stops.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from coterie.assembly import make_context, make_object, make_process
from coterie.client.errors import MethodFailed, NotDone, OutcomeUnknown
from coterie.client.results import Result
from coterie.kernel.engine import Past, Role, Standing
from coterie.kernel.errors import Refused
from coterie.kernel.settings import DEFAULT_SETTINGS
from coterie.kernel.views import Configuration
from coterie.kernel.wire import decode_frame
from coterie.objects import Done, Failed, Kind, Level, NotTaken, Opened, define
from coterie.runtime.driver import Driver, clock
from coterie.runtime.recorder import NoRecorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from coterie.kernel.engine import Status
    from coterie.kernel.views import Viewstamp
    from coterie.objects import Answer, Definition, Method, ObjectHost
    from coterie.objects.faces import LevelName

T = TypeVar("T")

DEFAULT_STACK = "SAFE:DYNSEQ:PVSYNC"
DEFAULT_DEADLINE = 5.0
_RETRY_EVERY = 0.25
_SETTLING = 0.005


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
        self._group.settled(position)

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
        self._waiting: dict[tuple[int, int], asyncio.Future[Answer]] = {}
        self._unsettled: dict[int, int] = {}
        """Positions of answers that may be rolled back, by request."""
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
        answer = await self._request(
            0, self._token(), lambda host, token: host.open_session(token), DEFAULT_DEADLINE
        )
        assert isinstance(answer.outcome, Opened), answer
        self._session = answer.outcome.session

    def _token(self) -> int:
        self._tokens += 1
        return self._tokens

    async def update(
        self, method: Method, args: Sequence[object], kwargs: dict[str, object], deadline: float
    ) -> Result[Any]:
        """Execute an update exactly once, whatever fails meanwhile."""
        arguments = method.encode(args, kwargs)
        self._numbers += 1
        session, name, given = self._session, method.name, self._numbers

        def ask(host: ObjectHost, number: int) -> None:
            host.call(session, number, name, arguments, lowest=self._lowest)

        async def follow() -> Result[Any]:
            """Ask again, under the same number, until the answer stands."""
            end = asyncio.get_running_loop().time() + deadline
            while True:
                left = end - asyncio.get_running_loop().time()
                answer = await self._request(session, given, ask, left)
                if answer.standing is Standing.AUTHORITATIVE:
                    return _result(method, answer)
                await asyncio.sleep(_SETTLING)

        answer = await self._request(session, given, ask, deadline)
        if answer.standing is Standing.OPTIMISTIC and isinstance(answer.outcome, Done):
            self._unsettled[given] = answer.outcome.position
        return _result(method, answer, follow)

    @property
    def _lowest(self) -> int:
        """The lowest request number that may still be asked for."""
        waiting = [request for session, request in self._waiting if session == self._session]
        return min([*waiting, *self._unsettled], default=self._numbers)

    async def query(
        self,
        method: Method,
        args: Sequence[object],
        kwargs: dict[str, object],
        *,
        level: Level,
        deadline: float,
    ) -> Result[Any]:
        """Execute a query at one replica."""
        arguments = method.encode(args, kwargs)
        answer = await self._request(
            0,
            self._token(),
            lambda host, token: host.read(level, token, method.name, arguments),
            deadline,
        )
        return _result(method, answer)

    async def _request(
        self,
        session: int,
        number: int,
        ask: Callable[[ObjectHost, int], None],
        deadline: float,
    ) -> Answer:
        """Ask a primary, and another one when there is no answer; the request stays the same."""
        future = self._waiting.get((session, number)) or asyncio.get_running_loop().create_future()
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
                f"no answer within {deadline} s: nobody can say now whether it was executed"
            ) from None
        finally:
            self._waiting.pop((session, number), None)  # two may have waited for it

    def answered(self, answers: list[Answer]) -> None:
        """Take answers from a host."""
        for answer in answers:
            future = self._waiting.get((answer.session, answer.request))
            if future is not None and not future.done():
                future.set_result(answer)

    def settled(self, position: int) -> None:
        """Learn that answers up to *position* stand."""
        if self._unsettled:
            self._unsettled = {
                number: place for number, place in self._unsettled.items() if place > position
            }

    def close(self) -> None:
        """Stop everything."""
        for id in list(self._replicas):
            self.kill(id)


def _result(
    method: Method, answer: Answer, follow: Callable[[], Awaitable[Result[Any]]] | None = None
) -> Result[Any]:
    outcome = answer.outcome
    match outcome:
        case Done(result=result, position=position):
            value = method.decode_result(result)
            return Result(value, outcome.viewstamp, position, answer.standing, follow)
        case Failed(error=error, message=message):
            raise MethodFailed(error, message, outcome.viewstamp, answer.standing)
        case NotTaken(reason=reason):
            raise NotDone(reason)
        case _:
            raise OutcomeUnknown(f"the group answered {type(outcome).__name__}: connect again")


class LocalMethod:
    """A method to be called; `coterie.objects.faces` has its shape for type checkers."""

    def __init__(
        self,
        group: LocalGroup,
        name: str,
        *,
        deadline: float | None = None,
        level: LevelName = "consistent",
        majority: bool = False,
    ) -> None:
        self._group = group
        self._name = name
        self._deadline = DEFAULT_DEADLINE if deadline is None else deadline
        self._level = Level(level)
        self._majority = majority

    async def __call__(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401 -- any class
        """Call it, and get its answer."""
        return (await self.detailed(*args, **kwargs)).value

    async def detailed(self, *args: object, **kwargs: object) -> Result[Any]:
        """Call it, and get its answer with its place and what it may claim."""
        group, deadline = self._group, self._deadline
        method = group.definition.method(self._name)
        if method.kind is Kind.QUERY:
            return await group.query(method, args, kwargs, level=self._level, deadline=deadline)
        result = await group.update(method, args, kwargs, deadline)
        return await result.settled() if self._majority else result

    def options(
        self,
        *,
        deadline: float | None = None,
        level: LevelName = "consistent",
        majority: bool = False,
        not_before: Viewstamp | None = None,
    ) -> LocalMethod:
        """Give the same method with another deadline (seconds), or another claim."""
        del not_before  # the replica asked is in the primary view, and has everything
        return LocalMethod(
            self._group, self._name, deadline=deadline, level=level, majority=majority
        )


class LocalObject:
    """The object as its caller sees it: its methods, to be awaited."""

    def __init__(self, group: LocalGroup) -> None:
        self.__group = group

    def __getattr__(self, name: str) -> LocalMethod:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__group.definition.method(name)
        return LocalMethod(self.__group, name)

    def __dir__(self) -> list[str]:
        return sorted(self.__group.definition.methods)


def group_of(replicated: object) -> LocalGroup:
    """Give the group behind an object that `local` gave, to kill its replicas and start them."""
    group = vars(replicated).get("_LocalObject__group")
    if not isinstance(group, LocalGroup):
        raise TypeError(f"{replicated!r} is not the object of a local group")
    return group


def local(
    cls: type[T], *, replicas: int = 3, stack: str = DEFAULT_STACK
) -> AbstractAsyncContextManager[type[T]]:
    """Run *cls* as a group of *replicas* in this process; give the object to call.

    It is called as through `coterie.connect`.
    """
    # Its type is explained in coterie.objects.faces.
    return cast("AbstractAsyncContextManager[type[T]]", _run(define(cls), replicas, stack))


@asynccontextmanager
async def _run(definition: Definition, replicas: int, stack: str) -> AsyncIterator[LocalObject]:
    group = LocalGroup(definition, replicas, stack)
    try:
        for id in group.configuration.members:
            group.start(id)
        await group.open()
        yield LocalObject(group)
    finally:
        group.close()
