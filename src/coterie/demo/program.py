"""The demo of a replicated program: Python's own web server, killed while a client stays connected.

The server is `python -m http.server`, as it comes. Its leader is killed three times, the app and
agent in turn, while one client asks on one connection.
"""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from coterie.kernel.errors import CoterieError
from coterie.service.operate.control import Look, Stop, give_order

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coterie.service.operate.control import ProcessSeen

PATIENCE = 120.0
PAGE = "The page is still here.\n"
REQUESTS = 200
_LAST_LINES = 5


class ProgramDemoFailed(CoterieError):
    """Something that must not happen has happened."""


def show_program(folder: Path, port: int, say: Callable[[str], None]) -> None:
    """Run the server, kill it, and look after its client; raises `ProgramDemoFailed`."""
    pages = folder / "pages"
    pages.mkdir()
    (pages / "page.txt").write_text(PAGE, encoding="utf-8")
    server = [sys.executable, "-m", "http.server", "--protocol", "HTTP/1.1", "--bind", "127.0.0.1"]
    say(f"$ coterie program run -- python {' '.join(server[1:])} {port}")
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 -- ourselves
            [
                *(sys.executable, "-m", "coterie.cli", "program", "run", "--name", "web"),
                *("--", *server, str(port)),
            ],
            cwd=pages,
            env={**os.environ, "XDG_STATE_HOME": str(folder)},
            stderr=log,
        )
    state = folder / "coterie" / "web"
    try:
        _watch(state, port, say, process)
    except ProgramDemoFailed as failed:
        raise ProgramDemoFailed(f"{failed}{_last_words(folder / 'run.log')}") from None
    finally:
        try:
            give_order(state, Stop())
            process.wait(PATIENCE)
        except CoterieError:
            process.kill()
            process.wait()


def _last_words(log: Path) -> str:
    """Give what the server said last, if it said anything."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
    return "".join(f"\n  {line}" for line in ("it said:", *lines)) if lines else ""


def _watch(
    state: Path, port: int, say: Callable[[str], None], server: subprocess.Popen[bytes]
) -> None:
    leader = _leader(state, server)
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    _ask(client)
    mine = client.sock
    say(f"one client has connected to port {port}; {leader.id} leads, with two others behind it")
    for what in ("app", "agent", "app"):
        leader = _leader(state, server)
        victim = int(leader.more["app"]) if what == "app" else leader.pid
        say(f"$ kill -9 {victim}    # the {what} of {leader.id}, which leads")
        os.kill(victim, signal.SIGKILL)
        longest = max(_ask(client) for _ in range(REQUESTS))
        say(f"  {REQUESTS} more pages on the same connection; the longest took {longest:.0f} ms")
        if client.sock is not mine:
            raise ProgramDemoFailed("the client had to connect again")
    client.close()


def _ask(client: http.client.HTTPConnection) -> float:
    """Ask for the page; give how long it took, in milliseconds."""
    begun = time.perf_counter()
    client.request("GET", "/page.txt")
    answer = client.getresponse()
    if answer.status != http.client.OK or answer.read().decode() != PAGE:
        raise ProgramDemoFailed(f"the page was another one: {answer.status} {answer.reason}")
    return (time.perf_counter() - begun) * 1000


def _leader(state: Path, server: subprocess.Popen[bytes]) -> ProcessSeen:
    """Wait until the port is open and all replicas have the state; give the one that leads."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if server.poll() is not None:
            raise ProgramDemoFailed(f"`coterie program run` ended with status {server.returncode}")
        try:
            edge, *seen = give_order(state, Look()).processes
        except CoterieError:
            time.sleep(0.1)
            continue
        leaders = [each for each in seen if each.role == "primary"]
        is_whole = all(each.more.get("whole") and each.more.get("app") for each in seen)
        if len(leaders) == 1 and is_whole and edge.more.get("ports"):
            return leaders[0]
        time.sleep(0.1)
    raise ProgramDemoFailed("the replicas do not come together")
