"""The controller's side of a benchmark: starts workers, gives them orders, ends them."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from coterie.bench.harness.protocol import (
    Alone,
    AwaitMembers,
    Counted,
    CountPrepares,
    Echo,
    Latencies,
    Listening,
    Measured,
    OrderDone,
    Sampled,
    TakeSample,
    Transact,
    WorkerAnswer,
    WorkerOrder,
)
from coterie.kernel.errors import CoterieError
from coterie.service.operate.founding import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

WAIT_SECONDS = 60.0
END_SECONDS = 5.0

T = TypeVar("T")


class BenchError(CoterieError):
    """A measurement could not be made; says what to do."""


@contextmanager
def surviving(part: str, troubles: list[str], progress: Callable[[str], None]) -> Iterator[None]:
    """Go on with the other parts of a benchmark if one cannot be measured, and note why."""
    try:
        yield
    except BenchError as error:
        troubles.append(f"{part}: {error}")
        progress(f"{part} could not be measured: {error}")


class Worker:
    """A process of the benchmark, as the controller sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._order = "nothing yet"
        self.listening: Listening

    @property
    def pid(self) -> int:
        """The process, as the system knows it."""
        return self._process.pid

    def tell(self, order: WorkerOrder) -> None:
        """Give an order; one that cannot be given is noticed when its answer does not come."""
        assert self._process.stdin is not None
        if self._process.returncode is None and not self._process.stdin.is_closing():
            self._order = type(order).__name__
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")

    async def answer(self) -> WorkerAnswer:
        """Wait for the next answer; a worker that is gone or stuck is an error."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise BenchError(
                f"a member has not answered for {WAIT_SECONDS:.0f} s (its order: {self._order}): "
                "run again when this machine is less busy"
            ) from None
        if not line:
            raise BenchError("a member has ended before its time; its last words are above")
        answer: WorkerAnswer = msgspec.json.decode(line, type=WorkerAnswer)
        return answer

    async def ready(self) -> None:
        """Wait until the last order has been carried out."""
        await self._expect(OrderDone)

    async def measured(self) -> Measured:
        return await self._expect(Measured)

    async def sample(self) -> Sampled:
        """Have the worker say what happened since it was asked last."""
        self.tell(TakeSample())
        return await self._expect(Sampled)

    async def echo(self, echo: Echo) -> Latencies:
        """Have the worker measure the raw round trip."""
        self.tell(echo)
        return await self._expect(Latencies)

    async def with_members(self, members: int) -> None:
        """Wait until every group of a replica has so many members."""
        self.tell(AwaitMembers(members))
        await self.ready()

    async def latencies(self) -> Latencies:
        return await self._expect(Latencies)

    async def call_alone(self, alone: Alone) -> Latencies:
        """Have the worker make one call after the other."""
        self.tell(alone)
        return await self._expect(Latencies)

    async def transact(self, transact: Transact) -> Latencies:
        """Have the worker run one transaction after the other."""
        self.tell(transact)
        return await self._expect(Latencies)

    async def count(self) -> Counted:
        """Have the worker say how often it was asked to prepare."""
        self.tell(CountPrepares())
        return await self._expect(Counted)

    async def _expect(self, kind: type[T]) -> T:
        answer = await self.answer()
        assert isinstance(answer, kind), answer
        return answer

    async def kill(self) -> None:
        """End it as a failure would, with SIGKILL."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def end(self) -> None:
        """Close its input, which ends it; if not, end it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
        await self.kill()


async def samples(workers: Sequence[Worker]) -> list[Sampled]:
    """Sample several workers at once."""
    return list(await asyncio.gather(*(worker.sample() for worker in workers)))


def free_ports(count: int) -> list[int]:
    """Give ports of loopback that nobody uses, also while their replicas are down."""
    with ExitStack() as held:
        return [free_port(held) for _ in range(count)]


class WorkerPool:
    """The workers of one measurement; further ones may be started at any time."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []

    async def start(self, count: int = 1, *, by: Sequence[str] = ()) -> list[Worker]:
        """Start workers, *by* a command that runs another one, and wait until they listen."""
        started: list[Worker] = []
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(
                *(*by, sys.executable, "-m", "coterie.bench.harness.worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            started.append(Worker(process))
            self.workers.append(started[-1])
        for worker in started:
            answer = await worker.answer()
            assert isinstance(answer, Listening), answer
            worker.listening = answer
        return started

    async def end(self) -> None:
        await asyncio.gather(*(worker.end() for worker in self.workers))


@asynccontextmanager
async def worker_pool(count: int = 0) -> AsyncIterator[WorkerPool]:
    """Start workers, and end them all with the block."""
    made = WorkerPool()
    try:
        await made.start(count)
        yield made
    finally:
        await made.end()
