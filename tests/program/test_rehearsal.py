"""Programs of others, run as they are: two processes do the same, or it is said where they do not.

All are slow: each rehearsal starts two interpreters.
"""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import textwrap
from multiprocessing.managers import BaseManager, DictProxy
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE

from coterie.cli.main import main
from coterie.program.command_words import ProgramCommand
from coterie.program.rehearsal import Rehearsal, RehearsalOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

HANDLER = """
import datetime, random, socketserver, threading, time, uuid
count, lock = 0, threading.Lock()
def page():
    global count
    with lock:
        count += 1
        mine = count
    time.sleep(random.random() / 100)
    words = (mine, uuid.uuid4(), uuid.uuid1(), datetime.datetime.now(), random.random())
    return " ".join(map(str, words)).encode()
"""

SERVERS = {
    "WSGI of the library": """
from wsgiref.simple_server import make_server
def app(environ, start):
    body = page()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
make_server("127.0.0.1", 0, app).serve_forever()
""",
    "threaded TCP": """
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            if line == b"\\r\\n":
                body = page()
                self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body))
                self.wfile.write(body)
socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler).serve_forever()
""",
    "threaded HTTP": """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = page()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
ThreadingHTTPServer(("127.0.0.1", 0), Handler).serve_forever()
""",
    "asyncio and a pool": """
import asyncio
async def handle(reader, writer):
    while line := await reader.readline():
        if line == b"\\r\\n":
            body = await asyncio.get_running_loop().run_in_executor(None, page)
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
            await writer.drain()
async def main():
    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        await server.serve_forever()
asyncio.run(main())
""",
    "WSGI, threads, sqlite": """
import sqlite3, waitress
base = sqlite3.connect(":memory:", check_same_thread=False)
base.execute("create table seen (at text, number integer)")
def app(environ, start):
    with lock:
        base.execute("insert into seen values (datetime('now'), random())")
        row = base.execute("select count(*), max(at), sum(number % 1000) from seen").fetchone()
    body = page() + repr(row).encode()
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]
waitress.serve(app, host="127.0.0.1", port=0, threads=4)
""",
    "ASGI": """
import asyncio, uvicorn
async def app(scope, receive, send):
    body = page()
    await asyncio.sleep(random.random() / 100)
    head = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})
uvicorn.run(app, host="127.0.0.1", port=0, lifespan="off")
""",
}


def rehearse(
    path: Path, code: str, drive: Callable[[Rehearsal], Awaitable[None]] | None = None
) -> tuple[RehearsalOutcome, str]:
    """Rehearse a program; give what came of it, and what it printed."""
    script = path / "app.py"
    script.write_text(textwrap.dedent(code), encoding="utf-8")
    printed = io.BytesIO()

    async def run() -> RehearsalOutcome:
        command = ProgramCommand(sys.executable, [], [str(script)])
        rehearsal = Rehearsal(command, say=lambda _: None, stdout=printed, stderr=printed)
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            running = group.create_task(rehearsal.run())
            if drive is not None:
                await drive(rehearsal)
        return running.result()

    return asyncio.run(run()), printed.getvalue().decode()


async def ask(port: int, times: int) -> list[bytes]:
    """Ask on one connection that is kept."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []
    for _ in range(times):
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        [length] = [
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        ]
        found.append(await reader.readexactly(length))
        if head.startswith(b"HTTP/1.0"):  # such a server keeps no connection
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    return found


@pytest.mark.parametrize("server", SERVERS)
def test_servers_of_others_do_the_same_twice(server: str, tmp_path: Path) -> None:
    async def drive(rehearsal: Rehearsal) -> None:
        port = await rehearsal.ports.get()
        answers = await asyncio.gather(*(ask(port, 5) for _ in range(4)))
        flat = [answer for each in answers for answer in each]
        assert sorted(int(answer.split()[0]) for answer in flat) == list(range(1, 21))
        rehearsal.signal(signal.SIGINT)

    outcome, printed = rehearse(tmp_path, HANDLER + SERVERS[server], drive)
    assert outcome.is_well, (outcome.diverged, outcome.broken, outcome.refused, printed)
    assert outcome.clients >= 4
    assert outcome.followed is not None
    assert outcome.followed > 100


LARGE = """
import socketserver
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            for number in range(50):
                self.wfile.write(bytes([number]) * 100_000)
            print("all taken", self.rfile.readline())
        except OSError as error:
            print("gone", type(error).__name__)
socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler).serve_forever()
"""


def test_a_slow_client_and_one_that_goes_away_do_the_same_twice(tmp_path: Path) -> None:
    async def drive(rehearsal: Rehearsal) -> None:
        port = await rehearsal.ports.get()
        _, leaving = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        leaving.transport.abort()
        for number in range(50):
            assert await reader.readexactly(100_000) == bytes([number]) * 100_000
        writer.write(b"thanks\n")
        assert await reader.read() == b""
        writer.close()
        rehearsal.signal(signal.SIGTERM)

    outcome, printed = rehearse(tmp_path, LARGE, drive)
    assert outcome.is_well, (outcome.diverged, outcome.broken, outcome.refused, printed)
    assert "all taken b'thanks" in printed
    assert "gone" in printed
    assert outcome.status == 128 + signal.SIGTERM


THREADS = """
import atexit, os, queue, random, sched, secrets, sys, threading, time
found = queue.SimpleQueue()
def work(number):
    for _ in range(5):
        time.sleep(random.random() / 500)
        found.put((number, time.time(), secrets.token_hex(4)))
threads = [threading.Thread(target=work, args=(each,)) for each in range(5)]
for each in threads: each.start()
for each in threads: each.join()
while not found.empty(): print(found.get())
plan = sched.scheduler(time.monotonic, time.sleep)
for each in range(5): plan.enter(random.random() / 100, 1, print, (each,))
plan.run()
local = threading.local(); local.x = 1
threading.Thread(target=lambda: print(hasattr(local, "x"))).start()
print(len({threading.Lock() for _ in range(50)}), os.getpid(), os.cpu_count(), list(os.environ)[:1])
print([each for each in {threading.Thread() for _ in range(20)}][0].name)
total = 0
for _ in range(5000): total += time.perf_counter_ns()
made = []
for number in range(60000):
    made = [made]
    if number % 100 == 0: made = []; time.time()
condition = threading.Condition()
with condition: print(condition.wait(0.01), total)
atexit.register(print, "the end")
threading.Timer(0.01, print, ("timer",)).start()
sys.exit(3)
"""


def test_threads_timers_chance_and_the_end_do_the_same_twice(tmp_path: Path) -> None:
    outcome, printed = rehearse(tmp_path, THREADS)
    assert outcome.is_well, (outcome.diverged, outcome.broken, outcome.refused, printed)
    assert outcome.status == 3
    assert printed.endswith("timer\nthe end\n")
    assert "False" in printed
    assert outcome.followed is not None
    assert outcome.followed > 5 * 1024, "digests were compared"


def test_an_address_in_the_output_is_a_divergence_with_both_sides_and_the_place(
    tmp_path: Path,
) -> None:
    outcome, _ = rehearse(tmp_path, "print('first')\ndef tell(): print(object())\ntell()\n")
    assert not outcome.is_well
    assert "the program that led did: write" in outcome.diverged
    assert "the one that follows: write" in outcome.diverged
    assert "<object object at 0x" in outcome.diverged
    assert "app.py, line 2, in tell" in outcome.diverged


def test_the_order_of_a_set_of_plain_objects_is_a_divergence(tmp_path: Path) -> None:
    code = """
    class Plain:
        pass
    made = {Plain(): number for number in range(500)}
    print([made[each] for each in set(made)])
    """
    outcome, _ = rehearse(tmp_path, code)
    assert outcome.diverged


REFUSED = """
import os, select, signal, socket, sqlite3, ssl, subprocess, sys
def unix():
    socket.socket(socket.AF_UNIX).bind("/tmp/x")
def poll():
    pair = socket.socketpair()
    select.epoll().register(pair[0], select.EPOLLIN | select.EPOLLET)
def real():
    from coterie.program.standins.sockets import _socket
    _socket.socket()
for each in (
    lambda: os.fork(),
    lambda: subprocess.run(["true"]),
    lambda: socket.create_connection(("127.0.0.1", 9)),
    lambda: socket.socket(type=socket.SOCK_DGRAM),
    unix,
    lambda: open("written.txt", "w"),
    lambda: sqlite3.connect("written.db"),
    lambda: ssl.create_default_context().wrap_socket(socket.socket()),
    lambda: signal.setitimer(signal.ITIMER_REAL, 1),
    lambda: os.kill(1, 15),
    poll,
    lambda: select.select([77], [], []),
    real,
):
    try:
        each()
    except OSError as error:
        print(error)
    else:
        print("NOT REFUSED")
"""


def test_each_refusal_says_what_to_do(tmp_path: Path) -> None:
    outcome, printed = rehearse(tmp_path, REFUSED)
    assert "NOT REFUSED" not in printed
    for sentence in (
        "starts another process (os.fork); a group replicates one process: run it with one worker",
        "starts another process (subprocess.Popen)",
        "connects to ('127.0.0.1', 9); a rehearsal connects to nobody",
        "only TCP is replicated",
        "listens at the Unix socket /tmp/x; let it listen at a TCP port",
        "writes to the file written.txt; a replica has no files of its own yet",
        "opens the database written.db; only sqlite in memory",
        "speaks TLS itself; give it a plain port, and TLS ends at the edge",
        "asks the system for signal.setitimer; use threading.Timer, sched or asyncio",
        "sends a signal to process 1; it can only send one to itself",
        "polls edge-triggered; use level-triggered polling",
        "polls the descriptor 77, which is no socket or pipe of its own",
        "a real socket was opened (socket.__new__) past the replicated ones",
    ):
        assert any(sentence in each for each in outcome.refused), (sentence, printed)
        assert sentence in printed
    assert not outcome.is_well
    assert not outcome.diverged
    assert outcome.status == 0
    assert not (tmp_path / "written.txt").exists()


PRINTING = """
import sys, threading
def tell(who):
    for n in range(400):
        sys.stderr.write(f"{who} says {n} {sum(range(2000))}\\n")
everybody = [threading.Thread(target=tell, args=(n,)) for n in range(8)]
for each in everybody:
    each.start()
for each in everybody:
    each.join()
"""


def test_threads_that_print_at_once_do_not_meet_inside_a_write(tmp_path: Path) -> None:
    """Found by killing a server that logs each request: a stream is one of a thread at a time."""
    outcome, printed = rehearse(tmp_path, PRINTING)
    assert outcome.is_well, printed
    assert "reentrant" not in printed
    assert len(printed.splitlines()) == 8 * 400


def test_the_command_tells_the_verdict(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "app.py"
    script.write_text("import time\nprint(time.time())\n", encoding="utf-8")
    assert main(["program", "rehearse", "--", sys.executable, str(script)]) == 0
    assert "rehearsal: the same twice:" in capfd.readouterr().err
    script.write_text("print(object())\n", encoding="utf-8")
    assert main(["program", "rehearse", "--", sys.executable, str(script)]) == 1
    said = capfd.readouterr().err
    assert "rehearsal: DIVERGED: at entry" in said
    assert "this program cannot be replicated as it is" in said


MANAGER = """
from multiprocessing.managers import BaseManager, DictProxy
kept = {}
class Store(BaseManager):
    pass
Store.register("kept", callable=lambda: kept, proxytype=DictProxy)
Store(("127.0.0.1", 0), authkey=b"known to both").get_server().serve_forever()
"""


def test_a_server_that_tells_its_clients_addresses_is_named_with_its_place(tmp_path: Path) -> None:
    """The library's managers call an object by its address, in their first answer."""

    class Store(BaseManager):
        pass

    Store.register("kept", proxytype=DictProxy)

    def use(port: int) -> None:
        store = Store(("127.0.0.1", port), authkey=b"known to both")
        store.connect()
        store.kept()["key"] = 1  # type: ignore[attr-defined]

    async def drive(rehearsal: Rehearsal) -> None:
        await asyncio.to_thread(use, await rehearsal.ports.get())
        rehearsal.signal(signal.SIGINT)

    outcome, _ = rehearse(tmp_path, MANAGER, drive)
    assert "the program that led did: write" in outcome.diverged
    assert "and the one that follows: write" in outcome.diverged
    assert "managers.py" in outcome.diverged
