"""The supervisor: all processes of a replicated program on one machine, kept running.

`coterie program run` is one. It founds the group, starts the gateway and the agents, starts again
what dies, and ends with the status that the program exits with. A replica that has diverged twice
in the same place is not started again: it is unprotected to go on without it, and `status` says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.agents.deployment import EDGE_ID, FILE
from coterie.agents.process import Signalled, encode_order
from coterie.kernel.decoding import decode_json
from coterie.kernel.errors import CoterieError
from coterie.service.folder import lock_folder
from coterie.service.operate.control import (
    ChangeReplica,
    ControlAnswer,
    Look,
    ProcessSeen,
    SignalProgram,
    Stop,
    listening,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coterie.agents.deployment import ProgramDeployment
    from coterie.service.operate.control import ControlOrder

PAUSE_FIRST, PAUSE_MAX = 0.05, 5.0
STOP_SECONDS = 10.0
LINE_BYTES_MAX = 1 << 20
STOPPED_STATUS = 143
"""What the command exits with when the program was stopped, and had not exited: as by SIGTERM."""


class ProgramSupervisor:
    """Runs all processes of a deployment; *say* is told what happens, as a name and fields."""

    def __init__(
        self,
        folder: Path,
        deployment: ProgramDeployment,
        say: Callable[[str, dict[str, object]], None],
    ) -> None:
        self.folder, self.deployment, self.say = folder, deployment, say
        ids = [EDGE_ID, *deployment.replicas]
        self.watched = {id: _WatchedMember(self, id) for id in ids}
        self.status: int | None = None
        """What the program exited with."""
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Have everything end."""
        self._stopping.set()

    def exited(self, status: int) -> None:
        """Learn that the program has exited."""
        self.status = status
        self.stop()

    def signal(self, number: int) -> None:
        """Send the program a signal, in its place in the order."""
        self.watched[EDGE_ID].order(Signalled(number))

    async def run(self) -> int:
        """Run until the program exits or is stopped; give its status."""
        taken = f"the program in {self.folder} runs already; coterie stop ends it"
        with lock_folder(self.folder, taken):
            async with listening(self.folder, self._obey):
                keeping = [asyncio.create_task(each.keep()) for each in self.watched.values()]
                await self._stopping.wait()
                await asyncio.gather(*(each.end() for each in self.watched.values()))
                await asyncio.gather(*keeping)
        return STOPPED_STATUS if self.status is None else self.status

    async def _obey(self, order: ControlOrder) -> ControlAnswer:
        pid = os.getpid()
        match order:
            case Stop():
                self.stop()
            case Look():
                seen = [each.seen() for each in self.watched.values()]
                return ControlAnswer(is_done=True, pid=pid, processes=seen)
            case SignalProgram(number=number):
                self.signal(number)
            case ChangeReplica(replica=id, is_wanted=is_wanted):
                if id not in self.deployment.replicas:
                    known = ", ".join(self.deployment.replicas)
                    raise CoterieError(f"there is no replica {id!r}; there are {known}")
                await self._change(id, is_wanted=is_wanted)
            case _:
                raise CoterieError(f"programs do not take the order {type(order).__name__}")
        return ControlAnswer(is_done=True, pid=pid)

    async def _change(self, id: str, *, is_wanted: bool) -> None:
        """Take a replica out, or have it join as a new life."""
        others = [each for each in self.deployment.replicas if each != id]
        if not is_wanted and not any(self.watched[other].is_whole for other in others):
            raise CoterieError(f"{id} is the only replica that has the state; it stays")
        self.watched[id].want(is_wanted=is_wanted)


class _WatchedMember:
    """One process, life after life."""

    def __init__(self, supervisor: ProgramSupervisor, id: str) -> None:
        self.id = id
        self._supervisor = supervisor
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_wanted = asyncio.Event()
        self._is_wanted.set()
        self._ending = asyncio.Event()
        self._has_diverged = False
        self._lives = 0
        self._seen: dict[str, Any] = {}
        self._has_begun = False
        """Whether a life of it has taken turns, and put on record what it began with."""
        self._reason = ""
        self._was_of_use = False

    @property
    def is_whole(self) -> bool:
        """Whether it has the state."""
        return bool(self._process is not None and self._seen.get("whole"))

    def seen(self) -> ProcessSeen:
        process, seen = self._process, self._seen
        is_up = process is not None
        return ProcessSeen(
            id=self.id,
            state="running" if is_up else "waiting" if self._is_wanted.is_set() else "stopped",
            pid=process.pid if process is not None else 0,
            role=str(seen.get("standing", "edge" if self.id == EDGE_ID else "")) if is_up else "",
            restarts=max(0, self._lives - 1),
            reason=self._reason,
            more=seen if is_up else {},
        )

    def order(self, order: msgspec.Struct) -> None:
        """Give the process an order, if it is there."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode_order(order) + b"\n")

    def want(self, *, is_wanted: bool) -> None:
        """Have it run, or not."""
        if is_wanted:
            self._has_diverged = False
            self._is_wanted.set()
        else:
            self._is_wanted.clear()
            self._terminate()

    async def keep(self) -> None:
        """Keep the process running until told to end."""
        pause = PAUSE_FIRST
        while not self._ending.is_set():
            await self._is_wanted.wait()
            if self._ending.is_set():
                return
            status = await self._live()
            if self._ending.is_set():
                return
            if self._has_diverged:
                self._is_wanted.clear()
                continue
            self._reason = _why(status)
            self._supervisor.say("ended", {"process": self.id, "reason": self._reason})
            pause = PAUSE_FIRST if self._was_of_use else min(2 * pause, PAUSE_MAX)
            if self._is_wanted.is_set():
                await asyncio.sleep(pause)

    async def end(self) -> None:
        """End it, by force if need be."""
        self._ending.set()
        self._is_wanted.set()
        process = self._process
        if process is None:
            return
        self._terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    def _terminate(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
                self._process.send_signal(signal.SIGCONT)

    async def _live(self) -> int:
        supervisor = self._supervisor
        self._lives += 1
        self._seen, self._was_of_use = {}, False
        ours, theirs = socket.socketpair()
        with theirs:
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "coterie.cli", "program", "member"),
                *("--config", str(supervisor.folder / FILE), "--id", self.id),
                *("--control", str(theirs.fileno())),
                *(["--again"] if self._has_begun else []),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=None if self.id == EDGE_ID else 2,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=LINE_BYTES_MAX)
        reading = asyncio.create_task(self._read(reader))
        try:
            return await process.wait()
        finally:
            self._process = None
            await asyncio.wait([reading], timeout=1)
            reading.cancel()
            self._writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError, ValueError, msgspec.DecodeError):
            while line := await reader.readline():
                event = decode_json(line)
                assert isinstance(event, dict)
                self._on_event(str(event.pop("log")), event)

    def _on_event(self, name: str, event: dict[str, Any]) -> None:
        if name == "seen":
            self._seen, self._has_begun = event, True
            self._was_of_use = self._was_of_use or self.id == EDGE_ID or bool(event.get("whole"))
            return
        if name == "exited":
            self._supervisor.exited(int(event["status"]))
            return
        if name == "diverged" and event.get("again"):
            self._has_diverged = True
            self._reason = f"diverged: {event.get('reason')}"
            self._terminate()
        self._supervisor.say(name, {"process": self.id, **event})


def _why(status: int) -> str:
    return f"killed ({signal.Signals(-status).name})" if status < 0 else f"ended with {status}"
