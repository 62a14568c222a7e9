"""A supervisor starts again what dies, and does not hammer at what cannot be cured.

The processes here are small scripts in place of replicas; real ones are in `test_served.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE

from coterie.journal.format import Sync
from coterie.service.config import GroupConfig
from coterie.service.folder import FolderTaken, lock_folder
from coterie.service.operate import supervisor as module
from coterie.service.operate.control import Look, Recover, Stop, give_order
from coterie.service.operate.founding import make_config
from coterie.service.operate.supervisor import Supervisor, pause_after

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

# Each line with one write, so that those of two processes are not mixed up.
SAY = "import os, sys; say = lambda line: os.write(2, (line + '\\n').encode())\n"
PRIMARY = """say('{"log": "started"}'); say('{"log": "role", "role": "primary"}')\n"""
UNTIL_EOF = "sys.stdin.read()\n"
GOOD = SAY + PRIMARY + UNTIL_EOF


class Watching(Supervisor):
    """A supervisor of scripts, with what it said."""

    def __init__(self, folder: Path, **scripts: str) -> None:
        self.scripts = scripts
        self.said: list[tuple[str, dict[str, object]]] = []
        self._news = asyncio.Event()
        config = make_config(
            folder,
            "g",
            groups={"g": GroupConfig(class_="m:C", stack="SAFE:DYNSEQ:PVSYNC", sync=Sync.NONE)},
            replicas=len(scripts),
        )
        super().__init__(folder, config, self.hear)

    def command(self, id: str) -> list[str]:
        return [sys.executable, "-S", "-c", self.scripts[id]]

    def hear(self, name: str, fields: dict[str, object]) -> None:
        self.said.append((name, fields))
        self._news.set()

    def names(self, id: str) -> list[str]:
        return [name for name, fields in self.said if fields.get("replica") == id]

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                self._news.clear()
                await self._news.wait()

    async def until_primary(self, id: str, lives: int) -> None:
        await self.until(lambda: self.names(id).count("role") == lives)

    def pid(self, id: str) -> int:
        return self.watched[id].seen().pid


def supervise(
    folder: Path, check: Callable[[Watching], Awaitable[None]], **scripts: str
) -> Watching:
    """Run a supervisor until the check has passed; then stop it."""

    async def run() -> Watching:
        watching = Watching(folder, **scripts)
        running = asyncio.create_task(watching.run())
        await check(watching)
        watching.stop()
        assert await running
        return watching

    return asyncio.run(run())


def test_what_is_killed_is_started_again(tmp_path: Path) -> None:
    async def check(watching: Watching) -> None:
        for lives in (1, 2, 3):
            await watching.until_primary("a", lives)
            os.kill(watching.pid("a"), signal.SIGKILL)
        await watching.until_primary("a", 4)
        seen = (await asyncio.to_thread(give_order, tmp_path, Look())).processes
        assert [(each.id, each.state, each.role, each.restarts) for each in seen] == [
            ("a", "running", "primary", 3),
            ("b", "running", "primary", 0),
        ]
        assert seen[0].reason == "killed (SIGKILL)"

    watching = supervise(tmp_path, check, a=GOOD, b=GOOD)
    # Its lives were of use, so the pause does not grow.
    pauses = [fields["pause"] for name, fields in watching.said if name == "ended"]
    assert pauses == [module.PAUSE_FIRST] * 3
    assert watching.names("b").count("started") == 1


def test_what_refuses_its_configuration_is_given_up(tmp_path: Path) -> None:
    async def check(watching: Watching) -> None:
        await watching.until(lambda: "given up" in watching.names("a"))
        await watching.until(lambda: "role" in watching.names("b"))
        [a, b] = (await asyncio.to_thread(give_order, tmp_path, Look())).processes
        assert (a.state, a.reason) == ("given up", "the class is not there")
        assert b.state == "running"

    misuse = SAY + "say('coterie: the class is not there'); sys.exit(2)"
    watching = supervise(tmp_path, check, a=misuse, b=GOOD)
    assert "ended" not in watching.names("a")


def test_without_anyone_left_it_ends(tmp_path: Path) -> None:
    async def run() -> bool:
        return await Watching(tmp_path, a="raise SystemExit(2)", b="raise SystemExit(2)").run()

    assert asyncio.run(run()) is False


def test_a_full_disk_is_tried_at_long_intervals(tmp_path: Path) -> None:
    async def check(watching: Watching) -> None:
        await watching.until(lambda: "ended" in watching.names("a"))
        [(_, fields)] = [said for said in watching.said if said[0] == "ended"]
        assert fields["pause"] == module.PAUSE_STORAGE
        assert fields["reason"] == "no room for the journal"

    supervise(tmp_path, check, a=SAY + "say('coterie: no room for the journal'); sys.exit(74)")


def test_a_bug_that_always_comes_back_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_FIRST", 0.001)

    async def check(watching: Watching) -> None:
        await watching.until(lambda: "given up" in watching.names("a"))
        assert watching.names("a").count("ended") == module.USELESS_MAX - 1

    supervise(tmp_path, check, a="raise SystemExit(70)", b=GOOD)


def test_a_process_that_does_not_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.2)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SAY + PRIMARY
    deaf += "signal.pause()\n" * 3

    async def check(watching: Watching) -> None:
        await watching.until(lambda: "role" in watching.names("a"))

    watching = supervise(tmp_path, check, a=deaf)
    assert "killed" in watching.names("a")
    assert watching.said[-1] == ("stopped", {})


def test_a_paused_process_is_stopped_too(tmp_path: Path) -> None:
    async def check(watching: Watching) -> None:
        await watching.until(lambda: "role" in watching.names("a"))
        os.kill(watching.pid("a"), signal.SIGSTOP)

    watching = supervise(tmp_path, check, a=GOOD)
    assert "killed" not in watching.names("a")


def test_a_process_that_is_being_started_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ended it found no process, and the one that came then was nobody's."""

    async def run() -> None:
        watching = Watching(tmp_path, a=GOOD)
        watched = module.WatchedProcess(watching, "a")
        made, start = asyncio.Event(), asyncio.create_subprocess_exec

        async def slowly(*args: object, **parts: object) -> object:
            process = await start(*args, **parts)  # type: ignore[arg-type]
            made.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return process

        monkeypatch.setattr(asyncio, "create_subprocess_exec", slowly)
        keeping = asyncio.ensure_future(watched.keep())
        await made.wait()
        await watched.end()
        async with asyncio.timeout(PATIENCE):
            await keeping
        assert watched.seen().state == "stopped"

    asyncio.run(run())


def test_it_can_be_told_to_stop_and_nothing_else(tmp_path: Path) -> None:
    async def run() -> None:
        watching = Watching(tmp_path, a=GOOD)
        running = asyncio.create_task(watching.run())
        await watching.until(lambda: "role" in watching.names("a"))
        with pytest.raises(FolderTaken, match="is being served already"):
            await Watching(tmp_path, a=GOOD).run()
        refused = await asyncio.to_thread(give_order, tmp_path, Recover("g"))
        assert "does not take the order Recover" in refused.text
        stopped = await asyncio.to_thread(give_order, tmp_path, Stop())
        assert stopped.pid == os.getpid()
        assert await running
        with lock_folder(tmp_path, ""):
            pass

    asyncio.run(run())


def test_lines_that_are_no_log_are_handed_on_however_long(tmp_path: Path) -> None:
    talk = SAY + f"say('x' * {module.LINE_BYTES_MAX + 10}); say('Traceback: [1]'); say('[1]')\n"

    async def check(watching: Watching) -> None:
        await watching.until(lambda: "role" in watching.names("a"))

    watching = supervise(tmp_path, check, a=talk + PRIMARY + UNTIL_EOF)
    lines = [fields["text"] for name, fields in watching.said if name == "line"]
    assert lines[-2:] == ["Traceback: [1]", "[1]"]


def test_a_child_of_a_dead_process_does_not_hide_its_death(tmp_path: Path) -> None:
    """A replica forks to encode large states, and what it forked may live a little longer."""
    forking = SAY + "import time\n"
    forking += "if os.fork() == 0: say(f'child {os.getpid()}'); time.sleep(60); os._exit(0)\n"

    async def check(watching: Watching) -> None:
        await watching.until_primary("a", 1)
        await watching.until(lambda: "line" in watching.names("a"))
        [child] = [fields["text"] for name, fields in watching.said if name == "line"]
        os.kill(watching.pid("a"), signal.SIGKILL)
        await watching.until(lambda: "ended" in watching.names("a"))
        os.kill(int(str(child).split()[1]), signal.SIGKILL)

    supervise(tmp_path, check, a=forking + PRIMARY + UNTIL_EOF)


@pytest.mark.parametrize(
    ("status", "useless", "pause"),
    [
        (0, 1, 0.1),
        (-9, 0, 0.1),
        (-9, 1, 0.1),
        (-9, 2, 0.2),
        (-9, 5, 1.6),
        (-9, 100, 5.0),
        (69, 100, 5.0),
        (70, 7, 5.0),
        (70, 8, None),
        (2, 1, None),
        (74, 1, 30.0),
    ],
)
def test_how_long_it_waits(status: int, useless: int, pause: float | None) -> None:
    assert pause_after(status, useless) == pause
