"""A load on one replica: sessions that always have calls outstanding.

It stands in front of the host as a client port would, without clients: what is measured is the
engine, the host and the journal, not the way in. A call counts when the turn that answered it has
ended, so when its record is written and, if turns are synced, safe.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.harness.protocol import Load
from coterie.objects.execution.outcomes import AllDone, Answer, Done, NotTaken, Opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.kernel.engine import Status
    from coterie.objects import ObjectHost

METHOD = "put"
RETRY_SECONDS = 0.01


class LoadFront:
    """Makes the calls and counts the answers. A `coterie.objects.fronts.Front`."""

    def __init__(self) -> None:
        self.ask: Callable[[Callable[[ObjectHost], None]], None]
        """How a request is made of the host inside the next turn."""
        self.answered = 0
        self.gap_seconds = 0.0
        self.changed = asyncio.Event()
        """Set whenever the replica's standing changes, and when the last call is answered."""
        self._loop = asyncio.get_running_loop()
        self._load = Load(0, 0, 0, is_packed=False)
        self._arguments = msgspec.Raw()
        self._answers: list[Answer] = []
        self._numbers: dict[int, int] = {}
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._tokens = 0
        self._outstanding = 0
        self._last_at = 0.0
        self._is_stopping = False

    # ---- what a benchmark asks for

    async def start(self, load: Load) -> None:
        """Open the sessions and keep them busy from then on."""
        assert not self._outstanding, "one load at a time"
        arguments = msgspec.msgpack.encode([bytes(load.message_bytes)])
        if load.is_packed:
            arguments = msgspec.msgpack.encode([msgspec.Raw(arguments)] * load.calls)
        self._arguments = msgspec.Raw(arguments)
        self._load = load
        self._is_stopping = False
        sessions = [await self._open_session() for _ in range(load.sessions)]
        self._numbers = dict.fromkeys(sessions, 0)
        self._last_at = time.perf_counter()
        self._call([(session, load.calls) for session in sessions])

    async def _open_session(self) -> int:
        self._tokens += 1
        token = self._tokens
        opened: asyncio.Future[int] = self._loop.create_future()
        self._waiting[token] = opened
        self.ask(lambda host: host.open_session(token))
        return await opened

    async def call_once(self, method: str, *args: object) -> None:
        """Make one call in a session of its own, and wait for its answer."""
        session = await self._open_session()
        done: asyncio.Future[int] = self._loop.create_future()
        self._waiting[-session] = done
        arguments = msgspec.msgpack.encode(args)
        self.ask(lambda host: host.call(session, 1, method, arguments))
        await done

    async def stop(self) -> None:
        """Make no more calls, and wait until all are answered."""
        self._is_stopping = True
        while self._outstanding:
            self.changed.clear()
            await self.changed.wait()

    def take_gap(self) -> float:
        """Give the longest time without an answer since this was asked last."""
        now = time.perf_counter()
        longest = max(self.gap_seconds, now - self._last_at) if self._outstanding else 0.0
        self.gap_seconds = 0.0
        self._last_at = now
        return longest

    # ---- calls

    def _call(self, counts: list[tuple[int, int]]) -> None:
        """Have so many further calls made in each of some sessions, in the next turn."""
        load, arguments, numbers = self._load, self._arguments, self._numbers
        requests: list[tuple[int, int, int]] = []
        for session, count in counts:
            first = numbers[session] + 1
            numbers[session] += count
            self._outstanding += count
            requests.append((session, first, count))

        def call(host: ObjectHost) -> None:
            for session, first, count in requests:
                if load.is_packed:
                    host.call_many(session, first, METHOD, arguments, first)
                    continue
                # What a session has outstanding are the last calls of it.
                lowest = max(first + count - load.calls, 1)
                for number in range(first, first + count):
                    host.call(session, number, METHOD, arguments, lowest)

        self.ask(call)

    def turn_ended(self) -> None:
        """Count the answers of the turn, and make as many further calls."""
        if not self._answers:
            return
        answers, self._answers = self._answers, []
        counts: dict[int, int] = {}
        refused: dict[int, int] = {}
        for answer in answers:
            session = answer.session
            match answer.outcome:
                case AllDone(results=results):
                    counts[session] = counts.get(session, 0) + len(results)
                case Done():
                    if -session in self._waiting:
                        self._waiting.pop(-session).set_result(0)
                    else:
                        counts[session] = counts.get(session, 0) + 1
                case Opened(session=opened):
                    self._waiting.pop(answer.request).set_result(opened)
                case NotTaken():
                    refused[session] = refused.get(session, 0) + 1
                case outcome:
                    raise AssertionError(outcome)
        if counts:
            now = time.perf_counter()
            self.gap_seconds = max(self.gap_seconds, now - self._last_at)
            self._last_at = now
            count = sum(counts.values())
            self.answered += count
            self._go_on(counts)
        if refused:
            # At the limit of a queue: the same load again a little later, as new calls.
            self._loop.call_later(RETRY_SECONDS, self._go_on, refused)

    def _go_on(self, counts: dict[int, int]) -> None:
        self._outstanding -= sum(counts.values())
        if not self._is_stopping:
            self._call(list(counts.items()))
        elif not self._outstanding:
            self.changed.set()

    # ---- the front of the host, inside a turn

    def answer(self, answers: list[Answer]) -> None:
        self._answers += answers

    def settled(self, position: int) -> None:
        pass

    def rolled_back(self, position: int) -> None:
        pass

    def restored(self, position: int) -> None:
        pass

    def status_changed(self, status: Status) -> None:
        del status
        self.changed.set()
