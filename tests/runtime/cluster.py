"""Members as real processes of the operating system, with a proxy between each two of them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from contextlib import AsyncExitStack
from itertools import permutations
from typing import TYPE_CHECKING, Any, Self

from tests.patience import PATIENCE
from tests.runtime.proxy import Proxy

from coterie.checking.group_communication import check_group_communication
from coterie.checking.history import GroupHistory
from coterie.journal import FileDisk, Finding, JournalReader, list_journals
from coterie.kernel.records import Record, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

COTERIE = [sys.executable, "-c", "import sys; from coterie.cli.main import main; sys.exit(main())"]
LINE_BYTES_MAX = 4 << 20


def read_journals(folder: Path) -> tuple[list[Record], list[Finding]]:
    """Read all journals in a folder: their records, and what is wrong with them."""
    disk = FileDisk(folder)
    records: list[Record] = []
    findings: list[Finding] = []
    for group, id in list_journals(disk):
        reader = JournalReader(disk, group, id)
        records += reader.records()
        findings += reader.findings
    return records, findings


class MemberProcess:
    """One life of one member, as seen from outside: what it was told and what it printed."""

    def __init__(self, id: str, process: asyncio.subprocess.Process) -> None:
        self.id = id
        self.process = process
        self.life = 0
        self.port = 0
        self.cast_texts: list[str] = []
        self.delivered: list[str] = []
        self.view: tuple[list[Any], list[list[Any]]] = ([], [])
        self.has_left = False
        self.stderr = b""
        self._readers = [
            asyncio.create_task(self._read_events()),
            asyncio.create_task(self._read_stderr()),
        ]

    def cast(self, text: str) -> None:
        assert self.process.stdin is not None
        self.cast_texts.append(text)
        self.process.stdin.write(text.encode() + b"\n")

    async def ended(self) -> int:
        """Wait for the end of the process, and give its exit status."""
        status = await self.process.wait()
        await asyncio.gather(*self._readers)
        return status

    @property
    def names(self) -> str:
        """The members of the current view: "abc"."""
        return "".join(sorted(id for id, _ in self.view[1]))

    async def _read_events(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            event = json.loads(line)
            match event["event"]:
                case "listening":
                    self.life = event["life"]
                    self.port = int(event["address"].rpartition(":")[2])
                case "deliver":
                    self.delivered.append(event["text"])
                case "view":
                    self.view = (event["view"], event["members"])
                case "left":
                    self.has_left = True

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        self.stderr = await self.process.stderr.read()


class Cluster:
    """A group of member processes. `async with` ends whatever still runs."""

    def __init__(self, names: str, *, stack: str, folder: Path) -> None:
        self.names = names
        self.stack = stack
        self.folder = folder
        self.running: dict[str, MemberProcess] = {}
        self.killed: list[MemberProcess] = []
        self._proxies: dict[tuple[str, str], Proxy] = {}
        self._exits = AsyncExitStack()
        self._load: asyncio.Task[None] | None = None

    def __getitem__(self, id: str) -> MemberProcess:
        return self.running[id]

    async def __aenter__(self) -> Self:
        for pair in permutations(self.names, 2):
            self._proxies[pair] = await self._exits.enter_async_context(Proxy())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_load()
        for member in self.running.values():
            if member.process.returncode is None:
                member.process.kill()
            await member.ended()
        await self._exits.aclose()

    # ---- life and death

    async def start(self, names: Iterable[str]) -> None:
        """Start members, all at once, and aim the proxies at them."""
        members = [await self._spawn(id) for id in names]
        await self.until(lambda: all(member.port for member in members), "they listen")
        for member in members:
            for source in self.names:
                if source != member.id:
                    await self._proxies[source, member.id].aim(member.port)

    async def _spawn(self, id: str) -> MemberProcess:
        peers = [
            f"--peer={peer}=127.0.0.1:{self._proxies[id, peer].port}"
            for peer in self.names
            if peer != id
        ]
        process = await asyncio.create_subprocess_exec(
            *COTERIE,
            *("member", "--group=g", f"--id={id}", "--listen=127.0.0.1:0", "--json"),
            *(f"--stack={self.stack}", f"--history={self.folder}", *peers),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        member = self.running[id] = MemberProcess(id, process)
        return member

    async def kill(self, id: str) -> None:
        """End a member by kill -9; connections to it are refused from then on."""
        member = self.running.pop(id)
        self.killed.append(member)
        member.process.kill()
        await member.ended()
        for source in self.names:
            if source != id:
                await self._proxies[source, id].aim(None)

    def pause(self, id: str) -> None:
        """Stop a process where it stands; nothing is closed, nothing is lost."""
        self.running[id].process.send_signal(signal.SIGSTOP)

    def resume(self, id: str) -> None:
        self.running[id].process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """Have all members leave in good order, one after the other."""
        for member in list(self.running.values()):
            member.process.send_signal(signal.SIGTERM)
            status = await asyncio.wait_for(member.ended(), PATIENCE)
            assert (status, member.has_left) == (0, True), member.stderr.decode()

    # ---- links

    def cut(self, *sides: str) -> None:
        """Close all links between different sides."""
        for proxy in self._between(*sides):
            proxy.cut()

    def hold(self, *sides: str) -> None:
        """Have the links between different sides carry nothing, and say nothing."""
        for proxy in self._between(*sides):
            proxy.hold()

    def mend(self) -> None:
        for proxy in self._proxies.values():
            proxy.mend()

    def _between(self, *sides: str) -> list[Proxy]:
        side_of = {id: side for side in sides for id in side}
        return [
            proxy
            for (source, destination), proxy in self._proxies.items()
            if side_of[source] != side_of[destination]
        ]

    # ---- use

    def start_load(self, *, interval: float = 0.01) -> None:
        """Have every running member cast a line every so often."""

        async def load() -> None:
            number = 0
            while True:
                number += 1
                for id, member in self.running.items():
                    safe = "!" if number % 7 == 0 else ""
                    if member.life:
                        member.cast(f"{safe}{id}.{member.life}.{number}")
                await asyncio.sleep(interval)

        self._load = asyncio.create_task(load())

    async def stop_load(self) -> None:
        if self._load is not None:
            self._load.cancel()
            await asyncio.wait([self._load])
            self._load = None

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until *condition* holds; fail with the state of everyone if it never does."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"never: {what}\n{self._describe()}"
            await asyncio.sleep(0.005)

    async def until_views(self, *sides: str) -> None:
        """Wait until the members of each side have one view, of exactly them."""

        def agree(side: str) -> bool:
            members = [self.running[id] for id in side]
            lives = sorted([member.id, member.life] for member in members)
            views = [member.view for member in members]
            return all(view == views[0] for view in views) and sorted(views[0][1]) == lives

        await self.until(lambda: all(map(agree, sides)), f"views {' | '.join(sides)}")

    async def until_more_delivered(self, count: int) -> None:
        """Wait until every running member has delivered so many messages more."""
        goals = {member: len(member.delivered) + count for member in self.running.values()}
        await self.until(
            lambda: all(len(member.delivered) >= goal for member, goal in goals.items()),
            f"{count} messages more",
        )

    def history(self) -> GroupHistory:
        """All that the members have recorded; a life that just ends has crashed."""
        records, findings = read_journals(self.folder)
        assert findings == [], "\n".join(map(str, findings))
        history = GroupHistory()
        stopped = set()
        for record in records:
            history.add(record)
            if isinstance(record, Stopped):
                stopped.add(record.member)
        for member in list(history.lives):
            if member not in stopped:
                history.crashed(member)
        return history

    def check(self) -> GroupHistory:
        """Fail if any promise of the stack was broken."""
        history = self.history()
        violations = check_group_communication(history, self.stack)
        assert not violations, "\n".join(map(str, violations[:10]))
        return history

    def _describe(self) -> str:
        return "\n".join(
            f"{id}: life {member.life}, view {member.view}, {len(member.delivered)} delivered, "
            f"exit status {member.process.returncode}"
            for id, member in self.running.items()
        )
