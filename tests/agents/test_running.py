"""Programs of others as replicas: killed under the eyes of clients who keep their connections.

All are slow: each starts seven interpreters, and kills real processes.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from typing import TYPE_CHECKING

import pytest
from tests.agents.running import CheckedClients, RunningProgram
from tests.patience import PATIENCE
from tests.program.test_rehearsal import HANDLER, SERVERS

from coterie.program.wire import WINDOW
from coterie.service.operate.control import ChangeReplica, SignalProgram, Stop

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.service.operate.control import ProcessSeen

pytestmark = pytest.mark.slow

TIMED = HANDLER.replace("datetime.datetime.now(), random.random())", "time.time())")
"""Its pages end with the clock."""
KEEPING = {name: code for name, code in SERVERS.items() if not name.startswith("WSGI of")}
"""Those that keep connections open."""
KEEPING["WSGI, threads, sqlite"] = KEEPING["WSGI, threads, sqlite"].replace(
    "body = page() + repr(row).encode()", 'body = repr(row[0]).encode() + b" of " + page()'
)


async def kill_on(program: RunningProgram, clients: CheckedClients, kills: int, seed: int) -> None:
    """Kill at random: apps, agents, and two at once; a second time before all is well again."""
    chance = random.Random(seed)  # noqa: S311 -- reproducible on purpose
    for _ in range(kills):
        seen = await program.when_whole(clients)
        replicas = [each for id, each in seen.items() if id != "edge"]
        replicas.sort(key=lambda each: each.role != "primary")
        victims = replicas[:1] if chance.random() < 0.6 else chance.sample(replicas, 1)
        if chance.random() < 0.3:
            victims = chance.sample(replicas, 2)
        for each in victims:
            program.kill(each.pid if chance.random() < 0.5 else each.more["app"])
        await clients.more(50)
    await program.when_whole(clients)


@pytest.mark.parametrize("name", ["threaded HTTP"])
def test_clients_keep_their_connections_through_kills(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with RunningProgram(tmp_path, TIMED + KEEPING[name]) as program:
            async with CheckedClients(await program.port(), 8) as clients:
                await kill_on(program, clients, 4, seed=1)
            clients.check()

    asyncio.run(run())


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(KEEPING))
def test_servers_of_many_kinds_outlive_kills(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with RunningProgram(tmp_path, TIMED + KEEPING[name]) as program:
            async with CheckedClients(await program.port(), 16) as clients:
                await kill_on(program, clients, 5, seed=2)
            clients.check()

    asyncio.run(run())


@pytest.mark.long
def test_without_a_guard_who_comes_back_is_not_taken_for_stuck(tmp_path: Path) -> None:
    """Found by killing: an app that starts is behind for a while, and was sent a state for ever."""

    async def run() -> None:
        code = TIMED + KEEPING["threaded TCP"]
        async with RunningProgram(tmp_path, code, "--guard", "none") as program:
            async with CheckedClients(await program.port(), 4) as clients:
                for what in ("app", "agent"):
                    seen = await program.when_whole(clients)
                    [leader] = [each for each in seen.values() if each.role == "primary"]
                    program.kill(leader.pid if what == "agent" else leader.more["app"])
                    await clients.more(50)
                await program.when_whole(clients)
            clients.check()

    asyncio.run(run())


UNTIL_TOLD = """
import signal
is_over = False
def end(number, frame):
    global is_over
    is_over = True
signal.signal(signal.SIGHUP, end)
"""
"""Begins programs that go on until they get SIGHUP, however long the test takes to get there."""

COUNTING = (
    UNTIL_TOLD
    + """
import sys, time
n = 0
while not is_over:
    print("line", n, flush=True)
    n += 1
    time.sleep(0.1)
print("to whom it may concern", file=sys.stderr)
sys.exit(7)
"""
)


def test_what_is_printed_appears_once_and_the_exit_is_the_programs(tmp_path: Path) -> None:
    async def run() -> None:
        async with RunningProgram(tmp_path, COUNTING) as program:
            seen = await program.when_whole()
            [leader] = [each for each in seen.values() if each.role == "primary"]
            program.kill(leader.more["app"])
            goal = program.output.count(b"\n") + 3
            await program.until(lambda _: program.output.count(b"\n") >= goal)
            await program.give(SignalProgram(signal.SIGHUP))
            assert await program.ended() == 7
            lines = program.output.decode().splitlines()
            assert lines == [f"line {n}" for n in range(len(lines))]
            assert program.lines.count("to whom it may concern") == 1

    asyncio.run(run())


SIGNALLED = """
import signal, socket
seen = 0
def on_hup(number, frame):
    global seen
    seen += 1
signal.signal(signal.SIGHUP, on_hup)
server = socket.create_server(("127.0.0.1", 0))
while True:
    conn, _ = server.accept()
    with conn:
        conn.sendall(b"%d\\n" % seen)
        conn.recv(1)
"""


async def hear(port: int) -> int:
    """Ask how many signals the program has seen."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = int(await reader.readline())
    writer.close()
    return found


def test_signals_and_changes_come_in_order_and_a_stop_is_no_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with RunningProgram(tmp_path, SIGNALLED) as program:
            port = await program.port()
            await program.when_whole()
            assert await hear(port) == 0
            await program.give(SignalProgram(signal.SIGHUP))
            while await hear(port) < 1:
                pass
            await program.give(ChangeReplica("r1", is_wanted=False))
            assert await hear(port) == 1
            await program.give(ChangeReplica("r1", is_wanted=True))
            await program.when_whole()
            await program.give(Stop())
            assert await program.ended() == 143
        async with RunningProgram(tmp_path, SIGNALLED) as program:
            assert await program.port() == port
            assert await hear(port) == 1
            await program.give(SignalProgram(signal.SIGTERM))
            await program.ended()

    asyncio.run(run())


LEAKING = """
import socket
class Thing: pass
server = socket.create_server(("127.0.0.1", 0))
while True:
    conn, _ = server.accept()
    with conn:
        conn.sendall(repr(Thing()).encode() + b"\\n")
        conn.recv(1)
"""


def test_who_diverges_is_named_with_both_sides_and_is_out(tmp_path: Path) -> None:
    async def run() -> None:
        async with RunningProgram(tmp_path, LEAKING) as program:
            port = await program.port()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert b"Thing object at" in await reader.readline()
            writer.close()
            # Who leads is reported now and then; that a process is out is known at once.
            seen = await program.until(
                lambda seen: (
                    [each.state for each in seen].count("stopped") == 2
                    and [each.role for each in seen].count("primary") == 1
                )
            )
            told = "\n".join(program.lines)
            assert "the program that led did: write" in told
            assert "and the one that follows: write" in told
            assert "app.py" in told
            [leader] = [each for each in seen.values() if each.role == "primary"]
            assert leader.state == "running"

    asyncio.run(run())


STORE = """
import socketserver, threading
kept, lock, sessions = {}, threading.Lock(), 0
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        global sessions
        with lock:
            sessions += 1
        for line in self.rfile:
            with lock:
                kept["n"] = kept.get("n", 0) + 1
                self.wfile.write(b"%d of %d\\n" % (kept["n"], sessions))
socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler).serve_forever()
"""

ASKING = """
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import sys, threading, time
lock = threading.Lock()
store = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
answers = store.makefile("rb")
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        with lock:
            store.sendall(b"more\\n")
            words = answers.readline().split()
        body = b" ".join([*words, str(time.time()).encode()])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
ThreadingHTTPServer(("127.0.0.1", 0), Handler).serve_forever()
"""


def test_what_is_outside_sees_one_session_whoever_leads(tmp_path: Path) -> None:
    """A store that is itself replicated, so both kinds of connections are killed away."""

    async def run() -> None:
        (tmp_path / "store").mkdir()
        async with RunningProgram(tmp_path / "store", STORE) as store:
            at = await store.port()
            allowed = ("--replicas", "2", "--allow-connect", f"127.0.0.1:{at}")
            async with RunningProgram(tmp_path, ASKING, *allowed, words=[str(at)]) as program:
                async with CheckedClients(await program.port(), 4) as clients:
                    for each in (program, store, program):
                        seen = await each.when_whole(clients)
                        [leader] = [found for found in seen.values() if found.role == "primary"]
                        each.kill(leader.more["app"])
                        await clients.more(50)
                clients.check()
                assert {words.split()[2] for words in clients.numbers.values()} == {"1"}

    asyncio.run(run())


ANSWERING = """
import socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(bytes(1000))
socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler).serve_forever()
"""


def test_a_connection_carries_many_times_its_window_in_small_answers(tmp_path: Path) -> None:
    """Found by running for long: its output stopped for good after 256 KiB under one leader."""

    async def run() -> None:
        async with RunningProgram(tmp_path, ANSWERING) as program:
            reader, writer = await asyncio.open_connection("127.0.0.1", await program.port())
            async with asyncio.timeout(PATIENCE):
                for _ in range(4 * WINDOW // 10_000):
                    writer.write(10 * b"more\n")
                    await reader.readexactly(10_000)
            writer.close()

    asyncio.run(run())


def _apps(seen: list[ProcessSeen]) -> set[int]:
    return {int(each.more.get("app", 0)) for each in seen}


def test_an_app_that_hangs_is_not_kept_alive_by_its_agent(tmp_path: Path) -> None:
    """Who leads, and a backup: that one's agent has no other reason to end it."""

    async def run() -> None:
        async with RunningProgram(tmp_path, TIMED + KEEPING["threaded HTTP"]) as program:
            async with CheckedClients(await program.port(), 2) as clients:
                seen = await program.when_whole(clients)
                replicas = [each for id, each in seen.items() if id != "edge"]
                replicas.sort(key=lambda each: each.role != "primary")
                hung = {each.more["app"] for each in replicas[:2]}
                for each in hung:
                    os.kill(each, signal.SIGSTOP)
                await program.until(lambda seen: hung.isdisjoint(_apps(seen)))
                await clients.more(50)
            clients.check()
            assert any("hung: it did nothing for 5 s" in line for line in program.lines)

    asyncio.run(run())
