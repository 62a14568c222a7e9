"""What a worker does that is a node of PySyncObj, with the same load inside.

PySyncObj has no clients apart from its nodes, so calls are made where its leader is: it has one
way over the network less than a client of ours. It runs a thread of its own, in which it tells
what came of a call; the next call is made there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from coterie.bench.harness.protocol import (
    Alone,
    JoinPySyncObj,
    Latencies,
    Load,
    OrderDone,
    StopLoad,
    TakeSample,
)
from coterie.bench.harness.sampling import Nothing, sampling
from coterie.bench.harness.worker_io import answer
from coterie.bench.workloads.measuring import summarize

if TYPE_CHECKING:
    from coterie.bench.harness.worker_io import Orders


def pysyncobj_version() -> str:
    """Give the version that is installed; nothing if none is."""
    return version("pysyncobj") if find_spec("pysyncobj") is not None else ""


class _Node(Nothing):
    """One node. A `Source` of samples."""

    def __init__(self, join: JoinPySyncObj) -> None:
        from pysyncobj import SyncObj, SyncObjConf, replicated  # noqa: PLC0415 -- it is an extra

        class Box(SyncObj):  # type: ignore[misc]
            """What `coterie.bench.workloads.objects.Box` is, as an object of PySyncObj."""

            def __init__(self, me: str, others: list[str], conf: SyncObjConf) -> None:
                super().__init__(me, others, conf)
                self.data = b""
                self.count = 0

            @replicated  # type: ignore[untyped-decorator]
            def put(self, data: bytes) -> int:
                self.data = data
                self.count += 1
                return self.count

        self._box: Any = Box(
            f"127.0.0.1:{join.port}",
            [f"127.0.0.1:{port}" for port in join.peers],
            SyncObjConf(appendEntriesUseBatch=join.batches, connectionRetryTime=0.1),
        )
        self.answered = 0
        self._outstanding = 0
        self._is_stopping = False
        self._loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()

    async def wait_ready(self) -> None:
        """Wait until the node has joined the others."""
        await asyncio.to_thread(self._box.waitReady)

    @property
    def is_orderer(self) -> bool:
        status = self._box.getStatus()
        return bool(status["leader"] == status["self"])

    def start(self, load: Load) -> None:
        """Keep as many calls outstanding as all sessions would."""
        data = bytes(load.message_bytes)
        self._is_stopping = False
        self._idle.clear()
        self._outstanding = load.sessions * load.calls

        def done(_result: object, error: int) -> None:
            assert not error, f"PySyncObj failed with {error}"
            self.answered += 1
            if self._is_stopping:
                self._outstanding -= 1
                if not self._outstanding:
                    self._loop.call_soon_threadsafe(self._idle.set)
            else:
                self._box.put(data, callback=done)

        for _ in range(self._outstanding):
            self._box.put(data, callback=done)

    async def stop(self) -> None:
        self._is_stopping = True
        await self._idle.wait()

    async def call_alone(self, alone: Alone) -> Latencies:
        """Make one call after the other, and time each."""
        loop = asyncio.get_running_loop()
        data = bytes(alone.message_bytes)
        done = loop.create_future()
        times: list[float] = []
        cpu_began = began = 0.0

        def call() -> None:
            nonlocal began
            began = time.perf_counter()
            self._box.put(data, callback=answered)

        def answered(_result: object, error: int) -> None:
            nonlocal cpu_began
            assert not error, f"PySyncObj failed with {error}"
            times.append(time.perf_counter() - began)
            if len(times) == alone.warm_up:
                cpu_began = time.process_time()
            if len(times) < alone.warm_up + alone.count:
                call()
            else:
                loop.call_soon_threadsafe(done.set_result, None)

        call()
        await done
        return summarize(times[alone.warm_up :], time.process_time() - cpu_began)

    def destroy(self) -> None:
        self._box.destroy()


async def run_pysyncobj(join: JoinPySyncObj, orders: Orders) -> None:
    """Be a node until there are no more orders."""
    logging.disable(logging.CRITICAL)  # it complains about each node that has not started yet
    node = _Node(join)
    try:
        await node.wait_ready()
        answer(OrderDone())
        with sampling(node) as sampler:
            async for order in orders:
                match order:
                    case Alone():
                        answer(await node.call_alone(order))
                    case Load():
                        node.start(order)
                        answer(OrderDone())
                    case TakeSample():
                        answer(sampler.take())
                    case StopLoad():
                        await node.stop()
                        answer(OrderDone())
                    case _:
                        raise AssertionError(order)
    finally:
        node.destroy()
