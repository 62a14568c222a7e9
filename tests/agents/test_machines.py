"""A program on several machines: its edge and three replicas in network namespaces of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.agents.test_running import KEEPING, TIMED
from tests.patience import PATIENCE
from tests.service.test_multicast import COTERIE, Network

if TYPE_CHECKING:
    from pathlib import Path

ASKING = """
import http.client, sys
kept = http.client.HTTPConnection("127.0.0.1", 8000)
while True:
    kept.request("GET", "/")
    print(kept.getresponse().read().decode(), flush=True)
"""
EDGE_HOST = "client"


class Machines:
    """Processes of a program, each on a host of its own."""

    def __init__(self, network: Network, folder: Path) -> None:
        self._network, self._folder = network, folder
        self.members: dict[str, asyncio.subprocess.Process] = {}
        self.leader = ""
        self.replies: list[str] = []
        self.changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, host: str, *options: str) -> None:
        """Start the process of a host."""
        id = "edge" if host == EDGE_HOST else host
        command = [*COTERIE, "program", "member", "--config", str(self._folder / "plan.json")]
        process = self.members[host] = await asyncio.create_subprocess_exec(
            *self._network.inside(host, *command, "--id", id, *options),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        self._tasks.append(asyncio.create_task(self._hear(host, process)))

    async def _hear(self, host: str, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            with contextlib.suppress(ValueError):
                if json.loads(line).get("role") == "primary":
                    self.leader = host
                    self.changed.set()

    async def ask(self) -> None:
        """Have a client ask, at the edge's host, on one connection."""
        script = self._folder / "asking.py"
        script.write_text(ASKING, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *self._network.inside(EDGE_HOST, sys.executable, str(script)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:  # nobody listens yet
            await process.wait()
            return
        self.members["asking"] = process
        self._tasks.append(asyncio.create_task(self._count(line, process.stdout)))

    async def _count(self, line: bytes, replies: asyncio.StreamReader) -> None:
        while line:
            self.replies.append(line.decode())
            self.changed.set()
            line = await replies.readline()

    async def more(self, count: int) -> None:
        """Wait for so many more replies."""
        goal = len(self.replies) + count
        while len(self.replies) < goal:
            await self._change()

    async def another_leads(self, before: str) -> None:
        """Wait until another host leads, perhaps already."""
        while self.leader == before:
            await self._change()

    async def _change(self) -> None:
        self.changed.clear()
        await asyncio.wait_for(self.changed.wait(), PATIENCE)

    def cut(self, host: str, *, is_cut: bool) -> None:
        """Cut a host off, or join it again."""
        port, home = f"p{host}"[:8], self._network.name("net")
        state = "down" if is_cut else "up"
        subprocess.run(["ip", "-n", home, "link", "set", port, state], check=True)  # noqa: S607

    async def end(self) -> None:
        """End everything."""
        for process in self.members.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*(process.wait() for process in self.members.values()))
        await asyncio.gather(*self._tasks)


@pytest.mark.long  # real processes in namespaces of their own
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
def test_hosts_are_cut_off_and_die_and_one_client_keeps_its_connection(tmp_path: Path) -> None:
    code = (TIMED + KEEPING["threaded HTTP"]).replace('("127.0.0.1", 0)', '("127.0.0.1", 8000)')
    (tmp_path / "app.py").write_text(code, encoding="utf-8")
    with Network() as network:
        plan = [*COTERIE, "program", "plan", "--name", "shop", "--dir", str(tmp_path / "journals")]
        plan += ["--edge", f"{network.address(EDGE_HOST)}:7000"]
        for host in "abc":
            plan += ["--replica", f"{host}={network.address(host)}:7000"]
        plan += ["--", sys.executable, str(tmp_path / "app.py")]
        printed = subprocess.run(plan, check=True, capture_output=True).stdout
        (tmp_path / "plan.json").write_bytes(printed)
        (tmp_path / "plan.json").chmod(0o600)
        asyncio.run(_use(Machines(network, tmp_path)))


async def _use(machines: Machines) -> None:
    try:
        for host in ("a", "b", "c", EDGE_HOST):
            await machines.start(host, "--found")
        async with asyncio.timeout(PATIENCE):
            while "asking" not in machines.members:
                await machines.ask()
        await machines.more(50)
        cut_off = machines.leader
        machines.cut(cut_off, is_cut=True)
        await machines.another_leads(cut_off)
        await machines.more(50)
        machines.cut(cut_off, is_cut=False)
        await machines.more(50)
        machines.cut(EDGE_HOST, is_cut=True)
        count = len(machines.replies)
        machines.cut(EDGE_HOST, is_cut=False)
        await machines.more(50)
        killed = machines.leader
        machines.members[killed].kill()
        await machines.another_leads(killed)
        await machines.start(killed)
        await machines.more(50)
        assert len(machines.replies) > count
        numbers = [int(each.split()[0]) for each in machines.replies]
        assert numbers == list(range(1, len(numbers) + 1))
        clocks = [float(each.split()[-1]) for each in machines.replies]
        assert clocks == sorted(clocks)
    finally:
        await machines.end()
