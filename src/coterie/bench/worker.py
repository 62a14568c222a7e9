"""One process of a benchmark: a member of the group, or one end of the raw echo.

Started as `python -m coterie.bench.worker`; it takes orders as lines of JSON on standard input and
answers each with one line on standard output, so that the conductor can start all members first
and tell each where the others listen. It ends with its input.
"""

from __future__ import annotations

import asyncio
import cProfile
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.echo import measure_echo, serve_echo
from coterie.kernel.clock import seconds
from coterie.kernel.layers import Batch
from coterie.kernel.settings import Settings
from coterie.kernel.views import View
from coterie.runtime.address import Address
from coterie.runtime.garbage import calm_collector
from coterie.runtime.loop import run
from coterie.runtime.process import LiveProcess
from coterie.runtime.recorder import FileRecorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.runtime.member import Event, Member

SETTINGS = Settings(
    # On a machine with fewer cores than members some have to wait for the processor; a benchmark
    # of the normal case must not take that for a failure.
    suspect_after_min=seconds(3),
    suspect_after_max=seconds(6),
)


class Join(msgspec.Struct, tag=True):
    """Become a member of a group; answered by `Ready` when all of them are in one view."""

    id: str
    peers: dict[str, int]
    stack: str
    recordings: str = ""
    profile: str = ""


class Rounds(msgspec.Struct, tag=True):
    """Send in rounds together with all other members; answered by `Measured`."""

    count: int
    warm_up: int
    messages: int
    message_bytes: int


class Echo(msgspec.Struct, tag=True):
    """Measure the raw round trip to an echo server; answered by `Measured`."""

    port: int
    count: int
    warm_up: int
    message_bytes: int


class Listening(msgspec.Struct, tag=True):
    """Where this worker listens, and where its echo server does."""

    port: int
    echo_port: int


class Ready(msgspec.Struct, tag=True):
    """All members are in one view."""


class Measured(msgspec.Struct, tag=True):
    """How long the rounds took after the warm-up, and what of it was our own processor time."""

    seconds: float
    cpu_seconds: float
    turns: int = 0


Order = Join | Rounds | Echo
Answer = Listening | Ready | Measured


class Rower:
    """Sends one batch a round, and starts the next round when all of this one has come."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.is_whole = asyncio.Event()
        self.member: Member
        self._size = len(ids)
        self._received = dict.fromkeys(ids, 0)
        self._wanted = 0
        """How many messages of each member make the present round complete."""
        self._left = 0
        self._is_rowing = False
        self._rounds: Rounds
        self._payloads: list[bytes] = []
        self._done: asyncio.Future[Measured]
        self._began = (0.0, 0.0)

    async def row(self, rounds: Rounds) -> Measured:
        """Do so many rounds; members that get the order later are waited for in the first."""
        self._done = asyncio.get_running_loop().create_future()
        self._rounds = rounds
        self._payloads = [bytes(rounds.message_bytes)] * rounds.messages
        self._left = rounds.warm_up + rounds.count
        self._is_rowing = True
        self._next_round()
        return await self._done

    def _next_round(self) -> None:
        rounds = self._rounds
        if self._left == rounds.count:
            self._began = (time.perf_counter(), time.process_time())
        if self._left == 0:
            self._is_rowing = False
            began, cpu_began = self._began
            took = time.perf_counter() - began
            self._done.set_result(Measured(took, time.process_time() - cpu_began))
            return
        self._left -= 1
        self._wanted += rounds.messages
        self.member.cast_soon(self._payloads)

    def happened(self, events: Sequence[Event]) -> None:
        """Count what arrived. Each sender's messages are in order, so the count tells the round."""
        received = self._received
        for event in events:
            if isinstance(event, Batch):
                received[event.sender.id] += len(event.payloads)
            elif isinstance(event, View) and len(event.members) == self._size:
                self.is_whole.set()
        if self._is_rowing and min(received.values()) >= self._wanted:
            self._next_round()


async def work() -> None:
    """Take orders until there are no more."""
    listener = socket.create_server(("127.0.0.1", 0))
    reader = await _open_stdin()
    async with serve_echo() as echo_port:
        _answer(Listening(listener.getsockname()[1], echo_port))
        while line := await reader.readline():
            order = msgspec.json.decode(line, type=Order)
            if isinstance(order, Join):
                await _be_member(order, listener, reader)
                return
            assert isinstance(order, Echo)
            calm_collector()
            took, cpu = await measure_echo(
                order.port, order.count, order.warm_up, order.message_bytes
            )
            _answer(Measured(took, cpu))


async def _be_member(join: Join, listener: socket.socket, reader: asyncio.StreamReader) -> None:
    peers = {id: Address("127.0.0.1", port) for id, port in join.peers.items()}
    recorder = FileRecorder(Path(join.recordings), join.id, 1) if join.recordings else None
    rower = Rower(sorted([join.id, *peers]))
    async with LiveProcess(
        id=join.id,
        incarnation=1,
        cluster="bench",
        listen=listener,
        peers=peers,
        recorder=recorder,
        settings=SETTINGS,
    ) as process:
        rower.member = process.join("bench", join.stack, rower)
        await rower.is_whole.wait()
        calm_collector()
        _answer(Ready())
        profile = cProfile.Profile() if join.profile else None
        while line := await reader.readline():
            rounds = msgspec.json.decode(line, type=Rounds)
            turns = process.driver.turns
            if profile is not None:
                profile.enable()
            measured = await rower.row(rounds)
            if profile is not None:
                profile.disable()
            measured.turns = process.driver.turns - turns
            _answer(measured)
        if profile is not None:
            profile.dump_stats(Path(join.profile) / f"{join.id}.pstats")


async def _open_stdin() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


def _answer(answer: Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    run(work())
