"""A group that `coterie serve` runs, as tests and the chaos run see it: from outside."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

from tests.patience import PATIENCE

from coterie.cli.main import main
from coterie.service.operate.control import Look, give_order
from coterie.service.state_folder import read_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from coterie.service.operate.control import ProcessSeen

COTERIE = [sys.executable, "-m", "coterie.cli"]

LEDGER = '''
from coterie import query, update


class Ledger:
    """What every client has entered, in order, and some registers."""

    entered: dict[str, int]
    registers: dict[str, int]

    def __init__(self) -> None:
        self.entered = {}
        self.registers = {}

    @update
    def enter(self, client: str, number: int) -> int:
        """Enter the number that follows the last one of a client; give that one."""
        last = self.entered.get(client, 0)
        if number != last + 1:
            raise ValueError(f"{client} entered {last} and now {number}")
        self.entered[client] = number
        return last

    @query
    def last(self, client: str) -> int:
        return self.entered.get(client, 0)

    @update
    def write(self, register: str, value: int) -> None:
        self.registers[register] = value

    @update
    def swap(self, register: str, old: int, new: int) -> bool:
        if self.registers.get(register, 0) != old:
            return False
        self.registers[register] = new
        return True

    @query
    def read(self, register: str) -> int:
        return self.registers.get(register, 0)
'''
"""A class of the tests' own, as a user would have one."""


class Served:
    """One group; `async with` starts it and stops it in good order."""

    name = "ledger"
    words: tuple[str, ...] = ("ledger.py:Ledger",)
    """What is served, from a file that has the name of the group."""

    def __init__(self, folder: Path, *options: str, source: str = LEDGER) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []
        self._options = options
        self._environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        # Clients in this process are the owner's, too: they find the secret by themselves.
        self._mine = mock.patch.dict(os.environ, self._environment)
        self._source = source
        self._news = asyncio.Event()
        self._process: asyncio.subprocess.Process
        self._reading: asyncio.Task[None]

    @property
    def place(self) -> Path:
        """The folder of the group."""
        return self.folder / "state" / "coterie" / self.name

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        (self.folder / f"{self.name}.py").write_text(self._source, encoding="utf-8")
        self._mine.stop()  # of an earlier start, if that was not ended
        self._mine.start()
        self._process = await asyncio.create_subprocess_exec(
            *(*COTERIE, "serve", *self.words, "--json", *self._options),
            cwd=self.folder,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 20,
        )
        self._reading = asyncio.create_task(self._read())

    async def stop(self) -> int:
        """Stop it as Ctrl-C would; give its exit status."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGINT)
        return await self.ended()

    async def ended(self) -> int:
        """Wait for its end; give its exit status."""
        async with asyncio.timeout(PATIENCE):
            await self._reading
            status = await self._process.wait()
        self._mine.stop()
        return status

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.events.append(json.loads(line))
            self._news.set()
        self._news.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something to become true of the events."""
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                assert not self._reading.done(), self.events[-5:]
                self._news.clear()
                await self._news.wait()

    async def until_primary(self, replicas: int, *, after: int = 0) -> None:
        """Wait until so many replicas have told of one primary view, in events from *after* on."""
        await self.until(lambda: self._told_primary(after) >= replicas)

    def _told_primary(self, after: int) -> int:
        roles = {
            event["replica"]: (event["role"], event["view"])
            for event in self.events[after:]
            if event["event"] == "role"
        }
        views = [view for role, view in roles.values() if role == "primary"]
        return max((views.count(view) for view in views), default=0)

    @property
    def addresses(self) -> list[str]:
        """Where clients are taken."""
        return [each.clients for each in read_config(self.place).replicas.values()]

    def processes(self) -> dict[str, ProcessSeen]:
        """What the supervisor says of its processes."""
        return {each.id: each for each in give_order(self.place, Look()).processes}

    def signal(self, number: int, *ids: str) -> list[str]:
        """Send a signal to replicas, all of them if none is named; give those that got it."""
        hit = []
        for id, process in self.processes().items():
            if process.pid and (not ids or id in ids):
                try:
                    os.kill(process.pid, number)
                except ProcessLookupError:
                    continue
                hit.append(id)
        return hit

    async def run(self, *words: str) -> tuple[int, str, str]:
        """Run a command of the command line; give its exit status and what it printed.

        Calls are given time, unless they say how much: what they end in is known much sooner.
        """
        if words[0] == "call" and not any(word.startswith("--deadline") for word in words):
            words = ("call", f"--deadline={PATIENCE:g}", *words[1:])
        if words[0] != "serve":
            # In a thread, because starting an interpreter takes longer than most commands do.
            return await asyncio.to_thread(self._run_here, words)
        process = await asyncio.create_subprocess_exec(
            *(*COTERIE, *words),
            cwd=self.folder,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def until_shown(self, text: str, *words: str) -> str:
        """Ask for the status until the group serves and *text* is shown; give what is."""
        async with asyncio.timeout(PATIENCE):
            while True:
                status, out, _ = await self.run("status", *words)
                if status == 0 and text in out:
                    return out

    def _run_here(self, words: Sequence[str]) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self._environment),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            status = main(words)
        return status, out.getvalue(), err.getvalue()
