"""Kinds of programs that others wrote, each with its own client where it has one, through kills.

None of them is named in what runs them. All are long: real processes, killed for real.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import urllib.request
from typing import TYPE_CHECKING
from xmlrpc.client import ServerProxy

import pytest
from tests.agents.killing import KINDS, Killing
from tests.agents.running import RunningProgram
from tests.agents.test_running import KEEPING, TIMED, UNTIL_TOLD

from coterie.service.operate.control import SignalProgram

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.long

FLASK = """
import flask
app = flask.Flask("here")
@app.get("/")
def root():
    return page()
app.run(host="127.0.0.1", port=0, threaded=True)
"""

XMLRPC = """
import socketserver, threading
from xmlrpc.server import SimpleXMLRPCServer
class Server(socketserver.ThreadingMixIn, SimpleXMLRPCServer):
    pass
kept, lock = {}, threading.Lock()
class Store:
    def add(self, key, amount):
        with lock:
            kept[key] = kept.get(key, 0) + amount
            return kept[key]
    def everything(self):
        return kept
server = Server(("127.0.0.1", 0), logRequests=False)
server.register_instance(Store())
server.serve_forever()
"""

TIMERS = (
    UNTIL_TOLD
    + """
import asyncio, sched, threading, time
def tell(what, n):
    print(what, n, int(10 * (time.monotonic() - begun)), flush=True)
async def later():
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for n in range(20):
        loop.call_later(n / 5, tell, "asyncio", n)
    loop.call_later(4, over.set)
    await over.wait()
while not is_over:
    begun = time.monotonic()
    threads = [threading.Thread(target=lambda: asyncio.run(later()))]
    threads += [threading.Timer(n / 5, tell, ("timer", n)) for n in range(20)]
    for each in threads:
        each.start()
    plan = sched.scheduler()
    for n in range(20):
        plan.enter(n / 5, 1, tell, ("sched", n))
    plan.run()
    for each in threads:
        each.join()
"""
)

CALLING = (
    UNTIL_TOLD
    + """
import http.client, sys, time
kept = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
while not is_over:
    kept.request("GET", "/")
    print(kept.getresponse().read().split()[0].decode(), flush=True)
    time.sleep(0.02)
"""
)


async def kill_leader(program: RunningProgram, what: str) -> None:
    """Kill who leads, as soon as all is whole."""
    seen = await program.when_whole()
    [leader] = [each for each in seen.values() if each.role == "primary"]
    program.kill(leader.pid if what == "agent" else leader.more["app"])


async def use_through_kills(
    program: RunningProgram, use: Callable[[int, threading.Event], None]
) -> None:
    """Have a blocking client at work while leaders die, until all is whole again."""
    port, is_over = await program.port(), threading.Event()
    working = asyncio.create_task(asyncio.to_thread(use, port, is_over))
    try:
        for what in ("app", "agent"):
            await kill_leader(program, what)
        await program.when_whole()
    finally:
        is_over.set()
        await working


def test_a_framework_under_its_own_threaded_server(tmp_path: Path) -> None:
    """It closes each connection: a client of one request after the other."""

    def use(port: int, is_over: threading.Event) -> None:
        n = 0
        while not is_over.is_set():
            n += 1
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                assert int(answer.read().split()[0]) == n

    async def run() -> None:
        async with RunningProgram(tmp_path, TIMED + FLASK) as program:
            await use_through_kills(program, use)

    asyncio.run(run())


def test_a_store_in_memory_and_its_own_client(tmp_path: Path) -> None:
    """The library's XML-RPC server and client, on one connection that is kept."""

    def use(port: int, is_over: threading.Event) -> None:
        n = 0
        with ServerProxy(f"http://127.0.0.1:{port}") as server:
            while not is_over.is_set():
                n += 1
                assert server.add("seats", 2) == 2 * n
                assert server.add(f"key {n}", n) == n
            everything = {f"key {each}": each for each in range(1, n + 1)}
            assert server.everything() == {"seats": 2 * n} | everything

    async def run() -> None:
        async with RunningProgram(tmp_path, XMLRPC) as program:
            await use_through_kills(program, use)

    asyncio.run(run())


def test_timers_of_three_kinds_fire_once_and_in_order(tmp_path: Path) -> None:
    async def run() -> None:
        async with RunningProgram(tmp_path, TIMERS) as program:
            for what in ("app", "agent"):
                await kill_leader(program, what)
            await program.give(SignalProgram(signal.SIGHUP))
            assert await program.ended() == 0
            lines = [line.split() for line in program.output.decode().splitlines()]
            rounds = len(lines) // (3 * 20)
            for kind in ("asyncio", "timer", "sched"):
                mine = [(int(n), int(at)) for what, n, at in lines if what == kind]
                assert [n for n, _ in mine] == rounds * list(range(20))
                assert all(at >= 2 * n for n, at in mine)

    asyncio.run(run())


def test_a_client_program_of_a_server_program_both_killed(tmp_path: Path) -> None:
    """Each request of the client's program counts once at the server's, whoever leads either."""
    for name in ("server", "client"):
        (tmp_path / name).mkdir()

    async def run() -> None:
        async with RunningProgram(tmp_path / "server", TIMED + KEEPING["threaded HTTP"]) as server:
            port = await server.port()
            async with RunningProgram(
                tmp_path / "client",
                CALLING,
                *("--allow-connect", f"127.0.0.1:{port}"),
                words=[str(port)],
            ) as client:
                for what in ("app", "agent"):
                    await kill_leader(server, what)
                    await kill_leader(client, what)
                await client.give(SignalProgram(signal.SIGHUP))
                assert await client.ended() == 0
                numbers = [int(each) for each in client.output.split()]
                assert numbers == list(range(1, len(numbers) + 1))

    asyncio.run(run())


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="programs run under 3.11 and 3.12")
def test_a_short_campaign_of_kills(tmp_path: Path) -> None:
    """`python -m tests.agents.killing` is the long one."""
    killing = Killing(tmp_path, kinds=KINDS, seed=2, clients=16)
    asyncio.run(killing.run(len(KINDS)))
    assert not killing.problems, killing.outcome()
    assert killing.replies > 300
