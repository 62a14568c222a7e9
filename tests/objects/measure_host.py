"""A program: measures the host alone, without an engine. `python -m tests.objects.measure_host`.

Times are of one core. A rate is that of the best twentieth of the batches, so that what else runs
on the machine shows little; the median stands beside it.
"""
# ruff: noqa: T201 -- printing is what it is for

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import msgspec
from tests.objects.classes import Seats
from tests.objects.fake_engine import START, context_for

from coterie.kernel.engine import Run, Standing
from coterie.kernel.views import Member, ViewId
from coterie.objects import (
    Answer,
    Call,
    NoFront,
    ObjectHost,
    Opened,
    OpenSession,
    define,
    update,
)
from coterie.objects.execution.commands import encode_command

if TYPE_CHECKING:
    from collections.abc import Callable

VIEW = ViewId(1, "a", 1)
SESSIONS = 16


class Counter:
    value: int = 0

    @update
    def add(self, amount: int, note: str) -> int:
        del note
        self.value += amount
        return self.value


class Table:
    rows: dict[str, str] = {}  # noqa: RUF012

    @update
    def put(self, key: str, value: str) -> None:
        self.rows[key] = value

    @update
    def put_and_fail(self, key: str, value: str) -> None:
        self.rows[key] = value
        raise ValueError(key)


class Keeper(NoFront):
    def __init__(self) -> None:
        self.sessions: list[int] = []
        self.count = 0

    def answer(self, answers: list[Answer]) -> None:
        self.count += len(answers)
        self.sessions += [
            answer.outcome.session for answer in answers if isinstance(answer.outcome, Opened)
        ]


class Load:
    """A host under a stream of calls."""

    def __init__(
        self, cls: type, *, standing: Standing = Standing.AUTHORITATIVE, recording: bool = False
    ) -> None:
        self.context, self.surroundings = context_for("a", "abc")
        self.front = Keeper()
        self.host = ObjectHost(
            define(cls), self.context, front=self.front, records_replies=recording
        )
        self.standing = standing
        self.position = 0
        self.requests = [0] * SESSIONS
        self.deliver([encode_command(OpenSession(n, 0, START)) for n in range(SESSIONS)])

    def deliver(self, payloads: list[bytes], origin: str = "a") -> float:
        """Deliver one run; give the seconds it took."""
        at = self.position + 1
        run = Run(VIEW, at, at, Member(origin, 1), at, payloads)
        self.position = run.last_position
        began = time.perf_counter()
        self.host.deliver([run], self.standing)
        self.host.settle(self.position)
        return time.perf_counter() - began

    def calls(self, count: int, method: str, arguments: Callable[[int], bytes]) -> list[bytes]:
        payloads = []
        for index in range(count):
            who = index % SESSIONS
            self.requests[who] += 1
            request = self.requests[who]
            lowest = max(1, request - 64)
            raw = msgspec.Raw(arguments(index))
            clock = START + self.position
            payloads.append(
                encode_command(
                    Call(self.front.sessions[who], request, method, raw, START, lowest, clock)
                )
            )
        return payloads


def rate(  # noqa: PLR0913 -- a line of the report
    name: str,
    load: Load,
    method: str,
    arguments: Callable[[int], bytes],
    *,
    batch: int = 1000,
    count: int = 100_000,
    origin: str = "a",
) -> None:
    """Print how many calls a second a host executes."""
    took = []
    size = 0
    for _ in range(count // batch):
        payloads = load.calls(batch, method, arguments)
        size = len(payloads[0])
        took.append(load.deliver(payloads, origin) / batch)
    took.sort()
    best, median = took[len(took) // 20], took[len(took) // 2]
    print(
        f"{name:44}{size:5} B {1e-3 / best:8.0f} k/s  {best * 1e9:6.0f} ns"
        f"   (median {1e-3 / median:.0f} k/s)"
    )


def seconds_of(function: Callable[[], object], times: int = 3) -> float:
    """The best of a few."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        function()
        took.append(time.perf_counter() - began)
    return min(took)


def measure_state(rows: int) -> None:
    """Print what a large state costs."""
    load = Load(Table)
    table = load.host.replicated
    assert isinstance(table, Table)
    table.rows.update({f"key {number:08}": "v" * 80 for number in range(rows)})
    chunks = list(load.host.snapshot())
    megabytes = sum(map(len, chunks)) / 1e6
    encode = seconds_of(lambda: list(load.host.snapshot()))
    restore = seconds_of(lambda: load.host.restore(chunks, load.position))
    digest = seconds_of(load.host.digest)
    machine = load.host.copies.machine
    copy = seconds_of(machine.copy)
    print(
        f"state of {megabytes:6.1f} MB in {len(chunks)} chunks: snapshot {encode * 1e3:.0f} ms,"
        f" restore {restore * 1e3:.0f} ms, digest {digest * 1e3:.0f} ms, copy {copy * 1e3:.0f} ms"
    )
    failing = load.calls(1, "put_and_fail", lambda _: msgspec.msgpack.encode(("key 00000001", "x")))
    print(f"    undoing an update that failed half-way: {load.deliver(failing) * 1e3:.1f} ms")
    print(f"    and another: {again(load) * 1e3:.1f} ms")
    optimistic = Load(Table, standing=Standing.OPTIMISTIC)
    optimistic.host.restore(chunks, load.position - 2)
    optimistic.position = load.position - 2
    puts = optimistic.calls(1000, "put", lambda n: msgspec.msgpack.encode((f"k{n}", "v")))
    at = optimistic.position + 1
    run = Run(VIEW, at, at, Member("b", 1), at, puts)
    optimistic.host.deliver([run], Standing.OPTIMISTIC)
    began = time.perf_counter()
    optimistic.host.roll_back(at + 500)
    print(f"    rolling back 500 of 1000 entries: {(time.perf_counter() - began) * 1e3:.1f} ms")


def again(load: Load) -> float:
    failing = load.calls(1, "put_and_fail", lambda _: msgspec.msgpack.encode(("key 00000001", "x")))
    return load.deliver(failing)


def main() -> None:
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    encode = msgspec.msgpack.encode

    def add(_: int) -> bytes:
        return encode((3, "x" * 60))

    def put(number: int) -> bytes:
        return encode((f"key {number:08}", "v" * 48))

    def book_taken(_: int) -> bytes:
        return encode(("1A", "somebody with a name " * 2))

    optimistic = Standing.OPTIMISTIC
    rate("Counter.add, asked here, packed by 1000", Load(Counter), "add", add)
    rate("Counter.add, asked elsewhere", Load(Counter), "add", add, origin="b")
    rate("Counter.add, with a record of each reply", Load(Counter, recording=True), "add", add)
    rate("Counter.add, packed by 10", Load(Counter), "add", add, batch=10)
    rate("Counter.add, one by one", Load(Counter), "add", add, batch=1, count=20_000)
    rate("Counter.add, optimistic (two copies)", Load(Counter, standing=optimistic), "add", add)
    rate("Table.put", Load(Table), "put", put)
    rate("Table.put, optimistic", Load(Table, standing=optimistic), "put", put)
    load = Load(Seats)
    rate("Seats.book, failing after its check", load, "book", book_taken)
    for rows in (1_000, 100_000, 1_000_000):
        measure_state(rows)


if __name__ == "__main__":
    main()
