"""An unmodified program under clients that check every reply, while its processes are killed.

    python -m tests.agents.killing --kills 200 --clients 32 --seed 1

The program is a web server of Python's own. Its clients keep their connections; each reply has a
number of its own, and the group's clock. After each kill the group becomes whole again: what was
killed is added. No reply may be lost, doubled or contradicted, no clock go back, and no connection
close, unless the edge was the victim; then at most the requests under way may be unknown.

| Kind | Victim |
|---|---|
| app | the process of the program, of whoever leads (or of a backup, one time in three) |
| agent | as above, with its app: the agent's death ends it |
| two | two replicas at once, each its app or its agent |
| again | who leads, and who leads next a moment later, while it takes over or has just done so |
| copy | the copy of the state of one replica, and then its app |
| edge | the edge |
"""

# ruff: noqa: T201 -- printing is what it is for

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from tests.agents.running import CheckedClients, RunningProgram
from tests.agents.test_running import KEEPING, TIMED
from tests.patience import PATIENCE

from coterie.agents.deployment import FILE, read_deployment
from coterie.agents.frozen import FOLDER, end_copy

if TYPE_CHECKING:
    from coterie.service.operate.control import ProcessSeen

KINDS = ("app", "agent", "two", "again", "copy", "edge")
BETWEEN = 50
"""So many replies come between two kills."""


class Killing:
    """One run; `outcome` tells it to people."""

    def __init__(
        self,
        folder: Path,
        *,
        kinds: tuple[str, ...],
        seed: int,
        clients: int,
        journal_max: int = 8192,
    ) -> None:
        self._folder = folder
        self._options = ("--copy-every", "1", "--journal-max", str(journal_max))
        self._kinds = kinds
        self._chance = Random(seed)  # noqa: S311 -- reproducible on purpose
        self._count = clients
        self.longest: dict[str, list[float]] = {}
        """By kind: the longest wait for a reply from each kill until all is whole again."""
        self.problems: list[str] = []
        self.replies = self.broken = self.orders = 0
        self._program: RunningProgram
        self._clients: CheckedClients

    async def run(self, kills: int) -> None:
        """Kill so often, and judge."""
        code = TIMED + KEEPING["threaded HTTP"]
        async with RunningProgram(self._folder, code, *self._options) as self._program:
            port = await self._program.port()
            async with CheckedClients(port, self._count) as self._clients:
                for number in range(kills):
                    kind = self._kinds[number % len(self._kinds)]
                    before = len(self._clients.waits)
                    await self._kill(kind)
                    await self._clients.more(BETWEEN)
                    seen = await self._program.when_whole(self._clients)
                    waits = self._clients.waits[before:]
                    self.longest.setdefault(kind, []).append(max(waits, default=0.0))
                    self.orders = int(seen["edge"].more["orders"])
                    if self._clients.wrong:
                        break
            self.replies, self.broken = len(self._clients.numbers), self._clients.broken
            try:
                self._clients.check()
            except AssertionError as error:
                self.problems.append(str(error))
            if self.problems:
                print("\n".join(self._program.lines[-200:]), file=sys.stderr)

    async def _kill(self, kind: str) -> None:
        chance, program = self._chance, self._program
        seen = await program.when_whole(self._clients)
        replicas = [each for id, each in seen.items() if id != "edge"]
        replicas.sort(key=lambda each: each.role != "primary")
        victim = replicas[0] if chance.random() < 2 / 3 else chance.choice(replicas[1:])
        match kind:
            case "app":
                program.kill(victim.more["app"])
            case "agent":
                program.kill(victim.pid)
            case "two":
                for each in chance.sample(replicas, 2):
                    program.kill(each.pid if chance.random() < 1 / 2 else each.more["app"])
            case "again":
                await self._kill_again(replicas[0])
            case "copy":
                self._end_copies(victim.id)
                program.kill(victim.more["app"])
            case "edge":
                await self._kill_edge(seen["edge"])
            case _:
                raise ValueError(kind)

    async def _kill_again(self, leader: ProcessSeen) -> None:
        self._program.kill(leader.pid if self._chance.random() < 1 / 2 else leader.more["app"])
        end = time.monotonic() + self._chance.random() / 2
        while time.monotonic() < end:
            seen = await self._program.look()
            others = [each for id, each in seen.items() if id not in {"edge", leader.id}]
            busy = [each for each in others if each.role in {"proposing", "recovering", "primary"}]
            if busy and busy[0].pid:
                self._program.kill(busy[0].pid)
                return
            await asyncio.sleep(0.005)

    def _end_copies(self, id: str) -> None:
        place = read_deployment(self._program.state / FILE).place(id).dir
        folder = Path(place, FOLDER)
        for each in folder.iterdir():
            end_copy(str(folder), each.name)

    async def _kill_edge(self, edge: ProcessSeen) -> None:
        clients = self._clients
        clients.may_break = True
        self._program.kill(edge.pid)

        def is_back(seen: list[ProcessSeen]) -> bool:
            [now] = [each for each in seen if each.id == "edge"]
            return now.pid not in {0, edge.pid} and now.more.get("clients") == self._count

        await self._program.until(is_back)
        clients.may_break = False

    def outcome(self) -> str:
        """Say in words what came of it."""
        told = f"{self.replies} replies checked, {self.orders} orders; {self.broken} requests were"
        lines = [f"{told} under way when an edge died"]
        for kind, waits in sorted(self.longest.items()):
            ordered = sorted(waits)
            lines.append(
                f"  {kind:6} {len(ordered):4} times: longest wait {median(ordered):.2f} s (median),"
                f" {ordered[-1]:.2f} s (longest)"
            )
        lines += [f"  WRONG: {each}" for each in self.problems]
        return "\n".join(lines)


def main() -> int:
    """Do what the command line says; give the exit status."""
    parser = argparse.ArgumentParser(description="kill the processes of a replicated program")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--folder", type=Path, help="where journals stay, for the pipeline")
    parser.add_argument("--journal-max", type=int, default=8192, help="MiB of a replica's journal")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        kinds = tuple(given.kinds.split(","))
        killing = Killing(
            folder,
            kinds=kinds,
            seed=given.seed,
            clients=given.clients,
            journal_max=given.journal_max,
        )
        try:
            asyncio.run(killing.run(given.kills))
        except TimeoutError as error:
            killing.problems.append(f"after {PATIENCE} s: {error}")
        print(killing.outcome())
    return 1 if killing.problems else 0


if __name__ == "__main__":
    sys.exit(main())
