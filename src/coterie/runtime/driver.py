"""The turn driver: gathers what arrives, lets the process take its turn, carries out the effects.

Whatever arrives first (a frame, a request, a due timer) has a turn scheduled with `call_soon`.
The loop runs it after everything else that the same poll of the sockets brought, so a turn takes
all that has arrived and nothing waits for more to come: under light load there is no delay, and
under load turns grow. Under light load even the way through the loop is left out: what comes alone,
a while after a turn that had no more to do, has its turn at once (`ALONE_AFTER_NS`); what the same
poll brings besides waits for the next turn, as ever.

The effects are carried out in this order, and this is the one place that knows it: the records
are written, the frames leave (one write for each peer), and then those who asked are told what
happened. Records that promise nothing are written last of all, when the loop has written to the
sockets and the others are at work already (`Recorder.may_follow`), and before the next turn. Where
records must survive the loss of the machine they are synced in between, in a
thread; what arrives meanwhile waits for the next turn, so under load one sync serves many. An
exception in a turn is a bug of ours: the driver stops for good, because a replica
in an unknown state must not say another word, and `wait_failed` raises `TurnFailed`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from time import monotonic_ns
from typing import TYPE_CHECKING

from coterie.journal.writer import StorageFailed
from coterie.kernel.errors import CoterieError
from coterie.runtime.events import log
from coterie.runtime.port import Syncing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.kernel.process import Process
    from coterie.kernel.records import Record
    from coterie.kernel.views import ReplicaId
    from coterie.kernel.wire import Frame
    from coterie.runtime.port import Recorder, Transport


class TurnFailed(CoterieError):
    """A turn ended in an exception, so this process has stopped; the cause tells where."""


ALONE_AFTER_NS = 30_000
"""How long the last turn must be over before something that comes alone has one at once. Less than
a turn takes: then the same poll of the sockets brought it, and there may be more."""

_SINCE = time.time_ns() - time.monotonic_ns()


def clock() -> int:
    """Give the time on the clock of all turns: microseconds, never set back.

    It shows what the wall clock showed when the process began plus what has passed since, so that
    the records of several machines can be laid side by side.
    """
    return (monotonic_ns() + _SINCE) // 1000


class Driver:
    """Runs one process on one event loop."""

    def __init__(
        self, process: Process, recorder: Recorder, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.process = process
        self.turns = 0
        self.answering: list[Callable[[], None]] = []
        """Called first of all when the frames of a turn have left: somebody waits for that."""
        self.turn_ended: list[Callable[[], None]] = []
        """Called after the effects of every turn are carried out."""
        self.guests: dict[ReplicaId, Callable[[bytes], None]] = {}
        """Where frames for processes go that the transport does not reach: clients, at a port."""
        self._recorder = recorder
        self._loop = loop
        self._transport: Transport | None = None
        self._failed: asyncio.Future[None] = loop.create_future()
        self._frames: list[Frame] = []
        self._calls: list[Callable[[], None]] = []
        self._refused: list[ReplicaId] = []
        self._is_scheduled = False
        self._is_in_turn = False
        self._is_light = True
        """Whether the last turn had no more to do than one thing."""
        self._ended_at = 0
        """When the last turn ended, in nanoseconds."""
        self._is_stopped = False
        self._syncing: asyncio.Future[None] | None = None
        self._beside: set[asyncio.Future[None]] = set()
        # The frames of a turn whose records are not synced yet; no turn begins meanwhile.
        self._held: list[tuple[ReplicaId, bytes]] | None = None
        self._late: Sequence[Record] = ()
        """The records of the last turn, as long as they may follow it."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0

    def start(self, transport: Transport) -> None:
        """Begin to take turns, with this transport for the frames."""
        self._transport = transport
        self._schedule()

    def stop(self) -> None:
        """Take no further turn."""
        self._is_stopped = True
        if self._late:
            self._follow()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def wait_idle(self) -> None:
        """Wait until nothing runs in a thread any more."""
        if self._beside:
            await asyncio.wait(self._beside)

    async def wait_failed(self) -> None:
        """Wait, perhaps for ever, and raise `TurnFailed` when a turn has failed."""
        await self._failed

    # ---- what arrives

    def frame_arrived(self, frame: Frame, *, alone: bool = False) -> None:
        self._frames.append(frame)
        if not self._is_scheduled:
            if alone:
                self._turn_soon()
            else:
                self._schedule()

    def peer_refused(self, peer: ReplicaId) -> None:
        self._refused.append(peer)
        self._schedule()

    def call(self, call: Callable[[], None]) -> None:
        """Have *call* made inside the next turn."""
        self._calls.append(call)
        self._schedule()

    def call_alone(self, call: Callable[[], None]) -> None:
        """Have *call* made inside the next turn; nothing else has come with it, as far as known."""
        self._calls.append(call)
        if not self._is_scheduled:
            self._turn_soon()

    def beside(self, work: Callable[[], None]) -> None:
        """Have work done in a thread while turns go on; if it fails, so does the driver."""
        self._in_thread(work).add_done_callback(self._done_beside)

    def _done_beside(self, done: asyncio.Future[None]) -> None:
        error = done.exception()
        if isinstance(error, Exception) and not self._is_stopped:
            self.fail(error)

    def _in_thread(self, work: Callable[[], None]) -> asyncio.Future[None]:
        future = self._loop.run_in_executor(None, work)
        self._beside.add(future)
        future.add_done_callback(self._beside.discard)
        return future

    def _schedule(self) -> None:
        if not self._is_scheduled and self._may_turn():
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _may_turn(self) -> bool:
        """Say whether turns are taken: a frame may arrive before we can answer it (`start`)."""
        return self._transport is not None and not self._is_stopped and self._held is None

    def _turn_soon(self) -> None:
        """Take a turn at once if that takes nobody's place, and at the end of this poll if not."""
        if (
            self._is_light
            and not self._is_in_turn
            and self._may_turn()
            and monotonic_ns() - self._ended_at > ALONE_AFTER_NS
        ):
            self._turn()
        else:
            self._schedule()

    # ---- the turn

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_stopped:
            return
        self._is_in_turn = True
        try:
            self._take_turn()
        except Exception as error:  # noqa: BLE001 -- whatever it is, it must not be passed over
            self.fail(error)
        self._is_in_turn = False
        self._ended_at = monotonic_ns()

    def _take_turn(self) -> None:
        if self._late:
            self._follow()
            if self._is_stopped:
                return
        frames, self._frames = self._frames, []
        calls, self._calls = self._calls, []
        refused, self._refused = self._refused, []
        self._is_light = len(frames) + len(calls) <= 1
        self.turns += 1
        now = (monotonic_ns() + _SINCE) // 1000
        effects = self.process.turn(now, frames, calls, refused)
        recorder, records = self._recorder, effects.records
        late: list[Record] = []
        if records:
            if recorder.may_follow(records):
                late = records
            else:
                recorder.record(records)
        syncing = recorder.syncing(now)
        if syncing is not Syncing.NOT_NOW and self._syncing is None:
            self._sync()
        if syncing is Syncing.BEFORE_FRAMES:
            if late:
                recorder.record(late)
            self._held = effects.frames
        else:
            self._finish_turn(effects.frames, late)

    def _finish_turn(
        self, frames: list[tuple[ReplicaId, bytes]], late: Sequence[Record] = ()
    ) -> None:
        if frames:
            self._send(frames)
        for answer in self.answering:
            answer()
        if late:
            # Not at once: what was said above leaves when the loop is asked again.
            self._late = late
            self._loop.call_soon(self._follow)
        else:
            self._end_turn()

    def _end_turn(self) -> None:
        for tell in self.turn_ended:
            tell()
        self._set_timer()

    def _follow(self) -> None:
        """Write what may follow the frames of its turn, and end that turn."""
        late, self._late = self._late, ()
        if not late or self._failed.done():
            return
        try:
            self._recorder.record(late)
            if not self._is_stopped:
                self._end_turn()
        except Exception as error:  # noqa: BLE001 -- as in a turn
            self.fail(error)

    def _sync(self) -> None:
        self._syncing = self._in_thread(self._recorder.sync)
        self._syncing.add_done_callback(self._synced)

    def _synced(self, done: asyncio.Future[None]) -> None:
        self._syncing = None
        try:
            done.result()
            held = self._held
            if held is None or self._is_stopped:
                return
            if self._recorder.syncing(clock()) is Syncing.BEFORE_FRAMES:
                self._sync()  # that one had begun before the turn was recorded
                return
            self._held = None
            self._finish_turn(held)
        except Exception as error:  # noqa: BLE001 -- as in a turn
            self.fail(error)
        if self._frames or self._calls or self._refused:
            self._schedule()

    def _send(self, frames: list[tuple[ReplicaId, bytes]]) -> None:
        transport = self._transport
        assert transport is not None
        if self.guests:
            frames = self._send_to_guests(frames)
        # The process gives equal frames as one object, sorted by destination.
        same = frames[0][1] if frames else b""
        for _, frame in frames:
            if frame is not same:
                break
        else:
            transport.multicast([destination for destination, _ in frames], same)
            transport.flush()
            return
        together: dict[int, tuple[list[ReplicaId], bytes]] = {}
        for destination, frame in frames:
            known = together.get(id(frame))
            if known is None:
                together[id(frame)] = ([destination], frame)
            else:
                known[0].append(destination)
        for destinations, frame in together.values():
            transport.multicast(destinations, frame)
        transport.flush()

    def _send_to_guests(
        self, frames: list[tuple[ReplicaId, bytes]]
    ) -> list[tuple[ReplicaId, bytes]]:
        """Hand frames for guests to them; give the others."""
        others = []
        for destination, frame in frames:
            take = self.guests.get(destination)
            if take is None:
                others.append((destination, frame))
            else:
                take(frame)
        return others

    def fail(self, error: Exception) -> None:
        """Stop for good, loudly, because of a bug that shows as *error*."""
        self.stop()
        process = self.process
        log(
            logging.CRITICAL,
            "turn failed",
            process=process.id,
            incarnation=process.incarnation,
            turn=self.turns,
            error=repr(error),
        )
        failure: CoterieError
        if isinstance(error, StorageFailed):
            failure = error  # no bug: it says what to do
        else:
            failure = TurnFailed(f"process {process.id!r} stopped in turn {self.turns}: {error!r}")
            failure.__cause__ = error
        if not self._failed.done():
            self._failed.set_exception(failure)

    # ---- the timer

    def _set_timer(self) -> None:
        """Have a timer fire at the process's next deadline, or earlier: that does no harm."""
        if self._is_scheduled:
            return
        deadline = self.process.next_deadline()
        if deadline is None:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        # uvloop counts in milliseconds and rounds to the nearest; too late is better than early.
        wait_ms = -(max(deadline - clock(), 0) // -1000)
        self._timer = self._loop.call_later(wait_ms / 1000, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        deadline = self.process.next_deadline()
        if deadline is not None and deadline <= clock():
            self._schedule()
        else:
            self._set_timer()
