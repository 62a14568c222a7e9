"""Sending in rounds, as in section 6.2 of **objects**: what a member of the group does.

Members stand on group communication alone, or on an engine's stack. There a message is an entry,
and it has come when it is delivered to the host: optimistically, or, under SAFE, when it is
authoritative.
"""

from __future__ import annotations

import asyncio
import cProfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.assembly import make_context
from coterie.bench.harness.protocol import Join, Measured, OrderDone, Pace, Rounds
from coterie.bench.harness.worker_io import answer
from coterie.bench.workloads.paced import Paced
from coterie.kernel.clock import Duration, seconds
from coterie.kernel.engine import Role, Standing
from coterie.kernel.layers import Batch
from coterie.kernel.settings import Settings
from coterie.kernel.views import Configuration, View
from coterie.replication.layer import EngineLayer
from coterie.runtime.address import Address
from coterie.runtime.garbage import calm_collector
from coterie.runtime.process import LiveProcess
from coterie.runtime.recorder import FileRecorder
from coterie.stacks import build_engine, has_engine

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from coterie.bench.harness.worker_io import Orders
    from coterie.kernel.engine import Run, Status
    from coterie.runtime.member import Event, LiveMember

GROUP = "bench"
PATIENT = Settings(
    # On a machine with fewer cores than members some have to wait for the processor; a benchmark
    # of the normal case must not take that for a failure.
    suspect_after_min=seconds(3),
    suspect_after_max=seconds(6),
)


class RoundSender:
    """Sends one batch a round, and starts the next round when all of this one has come."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.is_whole = asyncio.Event()
        self.send: Callable[[list[bytes]], object]
        """How the messages of a round leave."""
        self.delivered: Callable[[Batch], None] = _nothing
        """Is told of each batch."""
        self.size = len(ids)
        self._received = dict.fromkeys(ids, 0)
        self._wanted = 0
        """How many messages of each member make the present round complete."""
        self._left = 0
        self._is_running = False
        self._rounds: Rounds
        self._payloads: list[bytes] = []
        self._done: asyncio.Future[Measured]
        self._began = (0.0, 0.0)

    async def send_rounds(self, rounds: Rounds) -> Measured:
        """Do so many rounds; members that get the order later are waited for in the first."""
        self._done = asyncio.get_running_loop().create_future()
        self._rounds = rounds
        self._payloads = [bytes(rounds.message_bytes)] * rounds.messages
        self._left = rounds.warm_up + rounds.count
        self._is_running = True
        self._next_round()
        return await self._done

    def _next_round(self) -> None:
        rounds = self._rounds
        if self._left == rounds.count:
            self._began = (time.perf_counter(), time.process_time())
        if self._left == 0:
            self._is_running = False
            began, cpu_began = self._began
            took = time.perf_counter() - began
            self._done.set_result(Measured(took, time.process_time() - cpu_began))
            return
        self._left -= 1
        self._wanted += rounds.messages
        self.send(self._payloads)

    def came(self, sender: str, count: int) -> None:
        """Count what arrived. Each sender's messages are in order, so the count tells the round."""
        self._received[sender] += count

    def look(self) -> None:
        """Begin the next round if this one is complete."""
        if self._is_running and min(self._received.values()) >= self._wanted:
            self._next_round()

    def happened(self, events: Sequence[Event]) -> None:
        """Watch a member of group communication (`coterie.runtime.member.Watcher`)."""
        for event in events:
            if isinstance(event, Batch):
                self.delivered(event)
                self.came(event.sender.id, len(event.payloads))
            elif isinstance(event, View) and len(event.members) == self.size:
                self.is_whole.set()
        self.look()


def _nothing(batch: Batch) -> None:
    """Nobody wants to know."""


class CountingHost:
    """Stands on an engine in place of an object, and only counts (`EngineHost`)."""

    def __init__(self, sender: RoundSender) -> None:
        self._sender = sender

    def deliver(self, runs: list[Run], standing: Standing) -> None:
        if standing is not Standing.NON_PRIMARY:
            for run in runs:
                self._sender.came(run.origin.id, len(run.payloads))

    def settle(self, position: int) -> None:
        pass

    def roll_back(self, position: int) -> None:
        raise AssertionError(f"rolled back to {position} in a benchmark of the normal case")

    def status_changed(self, status: Status) -> None:
        if status.role is Role.PRIMARY and len(status.members) == self._sender.size:
            self._sender.is_whole.set()

    def snapshot(self) -> Iterator[bytes]:
        return iter(())

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        raise AssertionError(f"a state came for {position}: {len(list(chunks))} chunks")

    def finish_turn(self) -> None:
        pass


async def be_member(join: Join, listener: socket.socket, orders: Orders) -> None:
    """Join the group, and row whenever told to."""
    peers = {id: Address("127.0.0.1", port) for id, port in join.peers.items()}
    recorder = FileRecorder(Path(join.recordings), GROUP, join.id) if join.recordings else None
    sender = RoundSender(sorted([join.id, *peers]))
    async with LiveProcess(
        id=join.id,
        incarnation=1,
        cluster=GROUP,
        listen=listener,
        peers=peers,
        recorder=recorder,
        settings=msgspec.structs.replace(PATIENT, token_hold=Duration(join.hold_us)),
    ) as process:
        member: LiveMember | None = None
        if has_engine(join.stack):
            _stand_on_engine(process, join, sender)
        else:
            member = process.join(GROUP, join.stack, sender)
            sender.send = member.cast_soon
        await sender.is_whole.wait()
        calm_collector()
        answer(OrderDone())
        profile = cProfile.Profile() if join.profile else None
        async for order in orders:
            if isinstance(order, Pace):
                assert member is not None, "an engine's stack is measured by its clients"
                pace = Paced(member, order)
                sender.delivered = pace.delivered
                answer(await pace.run())
                sender.delivered = _nothing
                continue
            assert isinstance(order, Rounds), order
            turns = process.driver.turns
            if profile is not None:
                profile.enable()
            measured = await sender.send_rounds(order)
            if profile is not None:
                profile.disable()
            measured.turns = process.driver.turns - turns
            answer(measured)
        if profile is not None:
            profile.dump_stats(Path(join.profile) / f"{join.id}.pstats")


def _stand_on_engine(process: LiveProcess, join: Join, sender: RoundSender) -> None:
    """Build an engine that tells the sender what it delivers."""
    configuration = Configuration(1, tuple(sorted([join.id, *join.peers])))
    context = make_context(process.process, GROUP, configuration, recording=bool(join.recordings))
    replica = build_engine(join.stack, context, CountingHost(sender))
    engine = replica.layers[0]
    assert isinstance(engine, EngineLayer)
    driver = process.driver
    sender.send = lambda payloads: driver.call(lambda: engine.propose(payloads))
    driver.turn_ended.append(sender.look)
    process.host(replica)
