"""Programs run by `coterie program run` in tests: start, look, kill, and clients that check."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.patience import PATIENCE

from coterie.service.operate.control import ControlAnswer, Look, NobodyThere, give_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from coterie.service.operate.control import ControlOrder, ProcessSeen


class RunningProgram:
    """One program under `coterie program run`, in a state folder of its own."""

    def __init__(self, folder: Path, code: str, *options: str, words: Sequence[str] = ()) -> None:
        self._folder = folder
        script = folder / "app.py"
        script.write_text(textwrap.dedent(code), encoding="utf-8")
        self._words = [sys.executable, str(script), *words]
        self._options = options
        self.state = folder / "state" / "coterie" / "app"
        self.lines: list[str] = []
        """What the command said on standard error, and the program."""
        self.output = b""
        self._port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        env = {**os.environ, "XDG_STATE_HOME": str(self._folder / "state")}
        command = [sys.executable, "-m", "coterie.cli", "program", "run", "--name", "app"]
        self.process = await asyncio.create_subprocess_exec(
            *command,
            *self._options,
            "--",
            *self._words,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self._tasks = [
            asyncio.create_task(self._read_errors()),
            asyncio.create_task(self._read_output()),
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(NobodyThere):
                await self.give(_stop())
            try:
                await asyncio.wait_for(self.process.wait(), 30)
            except TimeoutError:
                self.process.kill()
        await asyncio.gather(*self._tasks)
        if error is not None:
            sys.stdout.write("\n".join(self.lines[-100:]))

    async def _read_errors(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            text = line.decode(errors="replace").rstrip("\n")
            self.lines.append(text)
            found = re.fullmatch(r"coterie: listens process=edge port=(\d+)", text)
            if found and not self._port.done():
                self._port.set_result(int(found[1]))

    async def _read_output(self) -> None:
        assert self.process.stdout is not None
        while data := await self.process.stdout.read(1 << 16):
            self.output += data

    async def ended(self) -> int:
        """Wait until the command has ended; give its status."""
        status = await asyncio.wait_for(self.process.wait(), PATIENCE)
        await asyncio.gather(*self._tasks)
        return status

    async def port(self) -> int:
        """Wait for the port that the program listens at."""
        return await asyncio.wait_for(asyncio.shield(self._port), PATIENCE)

    async def give(self, order: ControlOrder) -> ControlAnswer:
        """Give the supervisor an order."""
        return await asyncio.to_thread(give_order, self.state, order)

    async def look(self) -> dict[str, ProcessSeen]:
        """Give all processes, by name."""
        return {each.id: each for each in (await self.give(Look())).processes}

    async def until(self, is_so: Callable[[list[ProcessSeen]], bool]) -> dict[str, ProcessSeen]:
        """Wait until something holds of the processes; give them."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.returncode is None:
            with contextlib.suppress(NobodyThere):
                seen = await self.look()
                if is_so(list(seen.values())):
                    return seen
            await asyncio.sleep(0.1)
        raise TimeoutError(f"never: {await self.look()}")

    async def when_whole(self, clients: CheckedClients | None = None) -> dict[str, ProcessSeen]:
        """Wait until all replicas have the state and one leads; give the processes.

        The clients rest meanwhile: who comes back replays what all others did, and on a machine
        that the clients alone keep busy it would never be done.
        """

        def is_whole(seen: list[ProcessSeen]) -> bool:
            replicas = [each for each in seen if each.id != "edge"]
            leaders = [each for each in replicas if each.role == "primary"]
            return len(leaders) == 1 and all(map(_is_whole, replicas))

        if clients is None:
            return await self.until(is_whole)
        clients.may_ask.clear()
        try:
            return await self.until(is_whole)
        finally:
            clients.may_ask.set()

    @staticmethod
    def kill(pid: int) -> None:
        """Kill a process at once."""
        assert pid > 0, "others would be all of this test's"
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _is_whole(seen: ProcessSeen) -> bool:
    more = seen.more
    behind = int(more.get("orders", 0)) - int(more.get("executed", 0))
    return bool(more.get("whole") and more.get("app")) and behind < 200


def _stop() -> ControlOrder:
    from coterie.service.operate.control import Stop  # noqa: PLC0415

    return Stop()


class _Seen:
    """What one client has been told, over all its connections."""

    last, clock = 0, 0.0
    is_asking = False


class CheckedClients:
    """Clients that keep their connections, and look at everything that they are told.

    The server counts requests, and tells each its number, some chance and its clock. So a reply
    that is lost, doubled or contradicted shows in the numbers, and a clock that goes back, too.
    """

    def __init__(self, port: int, count: int) -> None:
        self._port, self._count = port, count
        self.numbers: dict[int, str] = {}
        self.wrong: list[str] = []
        self.waits: list[float] = []
        """How long each reply took."""
        self.may_ask = asyncio.Event()
        self.may_ask.set()
        self.may_break = False
        """Whether the edge dies, and connections with it; clients then connect again."""
        self.broken = 0
        """How many requests were under way when it did: nobody knows whether they count."""
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._ask_on(n)) for n in range(self._count)]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._is_over = True
        _, late = await asyncio.wait(self._tasks, timeout=PATIENCE)
        for task in late:
            task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        self.wrong += [f"never answered, or broken: {each!r}" for each in outcomes if each]

    async def more(self, count: int) -> None:
        """Wait until so many more replies have come."""
        goal = len(self.numbers) + count
        deadline = time.monotonic() + PATIENCE
        while len(self.numbers) < goal and not self.wrong:
            if any(task.done() for task in self._tasks) or time.monotonic() > deadline:
                return
            await asyncio.sleep(0.01)

    async def _ask_on(self, me: int) -> None:
        seen = _Seen()
        while not self._is_over:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except ConnectionError:
                if not self.may_break:
                    raise
                await asyncio.sleep(0.02)
                continue
            try:
                await self._ask(me, reader, writer, seen)
            except (ConnectionError, asyncio.IncompleteReadError):
                if not self.may_break:
                    raise
                self.broken += seen.is_asking
            finally:
                seen.is_asking = False
                writer.close()

    async def _ask(
        self, me: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: _Seen
    ) -> None:
        while not self._is_over:
            await self.may_ask.wait()
            begun = time.monotonic()
            seen.is_asking = True
            writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            [length] = [
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            ]
            words = (await reader.readexactly(length)).decode()
            self.waits.append(time.monotonic() - begun)
            seen.is_asking = False
            number, at = int(words.split()[0]), float(words.split()[-1])
            if number in self.numbers:
                self.wrong.append(f"{number} twice: {words} and {self.numbers[number]}")
            if number <= seen.last or at < seen.clock:
                self.wrong.append(f"client {me} was at {seen.last} and {seen.clock}: {words}")
            self.numbers[number] = words
            seen.last, seen.clock = number, at

    def check(self) -> None:
        """Fail if anything was wrong, or a number is missing."""
        assert not self.wrong, self.wrong[:5]
        missing = set(range(1, max(self.numbers) + 1)) - self.numbers.keys()
        assert len(missing) <= self.broken, f"lost replies: {sorted(missing)[:5]}"
