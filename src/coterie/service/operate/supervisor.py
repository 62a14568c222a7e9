"""A supervisor: the processes of a group on one machine, started, watched, and started again.

Each replica is a process of its own (`coterie replica`), which logs JSON lines to the supervisor
and stops by itself when the supervisor is gone. One that ends is started again after a pause that
doubles as long as its lives come to nothing; a life in which it was in a primary view was of use,
and the next pause is the shortest again. What starting again cannot cure is not tried: a process
that refuses its configuration is given up, and one whose disk is full is tried at long intervals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, cast

import msgspec

from coterie.kernel.decoding import decode_json
from coterie.kernel.errors import CoterieError
from coterie.service.folder import lock_folder
from coterie.service.operate.control import (
    ControlAnswer,
    Look,
    ProcessSeen,
    PutUp,
    Stop,
    TakeDown,
    listening,
)
from coterie.service.operate.members import put_up, take_down
from coterie.service.operate.overview import IN_SERVICE
from coterie.service.state_folder import CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from coterie.service.config import ClusterConfig
    from coterie.service.operate.control import ControlOrder

PAUSE_FIRST = 0.1
PAUSE_MAX = 5.0
PAUSE_STORAGE = 30.0
"""How long to wait before a disk that was full or broken is tried again."""
USELESS_MAX = 8
"""After so many lives in a row that came to nothing because of a bug, a replica is given up."""
STOP_SECONDS = 10.0
"""How long processes may take to stop before they are killed."""
DRAIN_SECONDS = 1.0
"""How long to wait for the last lines of a process that has ended."""
LINE_BYTES_MAX = 1 << 20
LINES_KEPT = 20

# The exit statuses of `coterie replica` that decide what is done about it.
MISUSE, BUG, STORAGE = 2, 70, 74


class Supervisor:
    """Runs all replicas of a configuration; *say* is told what happens, as a name and fields."""

    def __init__(
        self, folder: Path, config: ClusterConfig, say: Callable[[str, dict[str, object]], None]
    ) -> None:
        self.folder = folder
        self.config = config
        self.say = say
        self.watched = {id: WatchedProcess(self, id) for id in config.ids}
        self._stopping = asyncio.Event()
        self._keeping: dict[str, asyncio.Future[None]] = {}

    def command(self, id: str) -> list[str]:
        """Give the command line of a replica's process."""
        config = str(self.folder / CONFIG)
        replica = ["replica", "--until-eof", "--json", "--config", config, "--id", id]
        return [sys.executable, "-m", "coterie.cli", *replica]

    def stop(self) -> None:
        """Have everything end in good order."""
        self._stopping.set()

    async def run(self) -> bool:
        """Run until told to stop, or until no replica is left; say whether it was told to."""
        taken = f"the group in {self.folder} is being served already; coterie stop ends that"
        with lock_folder(self.folder, taken):
            async with listening(self.folder, self._obey):
                everyone = asyncio.ensure_future(self._keep_all())
                stopping = asyncio.ensure_future(self._stopping.wait())
                await asyncio.wait({everyone, stopping}, return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                if everyone.done():
                    return everyone.result()
                self.say("stopping", {})
                await asyncio.gather(*(each.end() for each in self.watched.values()))
                await everyone
                self.say("stopped", {})
                return True

    async def _keep_all(self) -> bool:
        for id in self.watched:
            self._keep(id)
        while self._keeping:
            ended, _ = await asyncio.wait(
                self._keeping.values(), return_when=asyncio.FIRST_COMPLETED
            )
            for id, keeping in list(self._keeping.items()):
                if keeping in ended:
                    del self._keeping[id]
                    keeping.result()
        return False

    def _keep(self, id: str) -> None:
        self._keeping[id] = asyncio.ensure_future(self.watched[id].keep())

    def _put_up(self, order: PutUp) -> str:
        """Begin to run a newcomer; give its id."""
        self.config, id = put_up(self.folder, self.config, order.group, order.id)
        self.watched[id] = WatchedProcess(self, id)
        self._keep(id)
        return id

    async def _take_down(self, order: TakeDown) -> None:
        """Run a replica no more, unless it is in other groups."""
        self.config = take_down(self.folder, self.config, order.group, order.id)
        if order.id not in self.config.replicas:
            await self.watched.pop(order.id).end()

    async def _obey(self, order: ControlOrder) -> ControlAnswer:
        match order:
            case Stop():
                self.stop()
                return ControlAnswer(is_done=True, pid=os.getpid())
            case Look():
                seen = [each.seen() for each in self.watched.values()]
                return ControlAnswer(is_done=True, pid=os.getpid(), processes=seen)
            case PutUp():
                return ControlAnswer(is_done=True, pid=os.getpid(), text=self._put_up(order))
            case TakeDown():
                await self._take_down(order)
                return ControlAnswer(is_done=True, pid=os.getpid())
            case _:
                raise CoterieError(f"a supervisor does not take the order {type(order).__name__}")


class Starts(Protocol):
    """Who has replicas started, and hears of them."""

    @property
    def say(self) -> Callable[[str, dict[str, object]], None]:
        """Is told what happens, as a name and fields."""

    def command(self, id: str) -> list[str]:
        """Give the command line of a replica's process."""


class WatchedProcess:
    """One replica, life after life."""

    def __init__(self, supervisor: Starts, id: str) -> None:
        self.id = id
        self._supervisor = supervisor
        self._state = "starting"
        self._role = ""
        self._roles: dict[str, str] = {}
        self._reason = ""
        self._lives = 0
        self._useless = 0
        self._was_of_use = False
        self._is_removed = False
        """Whether its groups have gone on without it for good."""
        self._process: asyncio.subprocess.Process | None = None
        self._ending = asyncio.Event()
        self._ended_late: asyncio.Task[None] | None = None
        self._last_lines: deque[str] = deque(maxlen=LINES_KEPT)

    def seen(self) -> ProcessSeen:
        return ProcessSeen(
            id=self.id,
            state=self._state,
            role=self._role,
            roles=dict(self._roles),
            pid=0 if self._process is None else self._process.pid,
            restarts=max(0, self._lives - 1),
            reason=self._reason,
        )

    async def keep(self) -> None:
        """Keep the replica running until told to end, or until it is given up."""
        while not self._ending.is_set():
            status = await self._live()
            if self._ending.is_set():
                break
            if self._is_removed:
                self._state = "removed"
                return
            self._useless = 0 if self._was_of_use else self._useless + 1
            self._reason = self._why(status)
            pause = pause_after(status, self._useless)
            if pause is None:
                self._state = "given up"
                self._say("given up", reason=self._reason)
                return
            self._state = "waiting"
            self._say("ended", reason=self._reason, pause=pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause)
        self._state = "stopped"

    async def end(self) -> None:
        """End it in good order, or by force if that takes too long."""
        self._ending.set()
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            process.send_signal(signal.SIGCONT)  # one that is paused hears nothing
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            self._say("killed", reason=f"it did not stop within {STOP_SECONDS:.0f} s")
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def _live(self) -> int:
        """Start the process, follow its log, and give its exit status."""
        self._state, self._was_of_use = "starting", False
        self._last_lines.clear()
        self._lives += 1
        # The pipes are ours, not asyncio's: that would not notice the end of a process before the
        # end of its pipes, which what it forked may keep open.
        with _pipe() as lifeline, _pipe() as log:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._supervisor.command(self.id),
                stdin=lifeline.reading,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log.writing,
                # A Ctrl-C at the terminal is for the supervisor alone.
                start_new_session=True,
            )
            lifeline.reading.close()
            log.writing.close()
            if self._ending.is_set():  # while it was made, when there was nothing to end yet
                self._ended_late = asyncio.ensure_future(self.end())
            reading = asyncio.ensure_future(self._read(log.reading))
            try:
                status = await process.wait()
                await asyncio.wait({reading}, timeout=DRAIN_SECONDS)
                return status
            finally:
                self._process, self._role, self._roles = None, "", {}
                reading.cancel()
                await asyncio.wait({reading})  # it uses the pipe

    async def _read(self, log: BinaryIO) -> None:
        """Follow the log of the process to its end."""
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), log
        )
        with contextlib.closing(transport):
            while True:
                try:
                    line = await reader.readline()
                except ValueError:
                    continue  # a line that is too long; the next one begins behind it
                if not line:
                    return
                self._on_line(line.decode(errors="replace").rstrip("\n"))

    def _on_line(self, line: str) -> None:
        event = _parse(line)
        if event is None:
            self._last_lines.append(line)
            self._say("line", text=line)
            return
        name = str(event.pop("log"))
        if name == "started":
            self._state = "running"
        elif name == "stopped":
            self._is_removed = bool(event.get("is_removed"))
        elif name == "role":
            self._role = str(event.get("role", ""))
            self._roles[str(event.get("group", ""))] = self._role
            self._was_of_use = self._was_of_use or self._role in IN_SERVICE
        self._say(name, **{"replica": self.id, **event})

    def _why(self, status: int) -> str:
        """Say why the process ended, in words."""
        if status < 0:
            return f"killed ({signal.Signals(-status).name})"
        if status == 0:
            return "told to stop"
        for line in reversed(self._last_lines):
            if line.startswith("coterie: "):
                return line.removeprefix("coterie: ")
        last = self._last_lines[-1] if self._last_lines else "it said nothing"
        return f"ended with status {status}: {last}"

    def _say(self, name: str, **fields: object) -> None:
        self._supervisor.say(name, {"replica": self.id, **fields})


class _Pipe(NamedTuple):
    reading: BinaryIO
    writing: BinaryIO


@contextlib.contextmanager
def _pipe() -> Iterator[_Pipe]:
    """Give a pipe that is closed with the block, as far as it is not closed before."""
    ends = os.pipe()
    with os.fdopen(ends[0], "rb", 0) as reading, os.fdopen(ends[1], "wb", 0) as writing:
        yield _Pipe(cast("BinaryIO", reading), cast("BinaryIO", writing))


def pause_after(status: int, useless: int) -> float | None:
    """Give the pause before a process that ended is started again; None to give it up.

    *useless* is how many of its lives in a row have come to nothing.
    """
    if status == MISUSE or (status == BUG and useless >= USELESS_MAX):
        return None
    if status == STORAGE:
        return PAUSE_STORAGE
    doublings = min(max(useless - 1, 0), 10)
    return min(PAUSE_FIRST * 2.0**doublings, PAUSE_MAX)


def _parse(line: str) -> dict[str, Any] | None:
    """Read a line of a log; None for anything else."""
    try:
        event = decode_json(line)
    except msgspec.DecodeError:
        return None
    return event if isinstance(event, dict) and "log" in event else None
