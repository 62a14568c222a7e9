"""What it costs an unmodified program to be replicated: `coterie bench program`.

A server written with nothing but the standard library runs three times in turn: as it is, as it is
behind a plain proxy in Python, and as replicas under `coterie program run`. The proxy says what it
costs that anybody stands between; the edge is such a one. Clients are blocking sockets of this
process (*request*, one after the other) and 16 connections of one event loop (*served*, all the
time). *Operations* are locks taken and clocks read inside a request, as in the paper's figures.
*Takeover* is the longest wait of a client that asks all the time, while the app or the agent that
leads is killed: detection, the new leader's proposal, and its first answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

import msgspec

from coterie.bench.harness.controller import BenchError, free_ports
from coterie.bench.harness.figures import Figure
from coterie.bench.harness.machine import describe_machine
from coterie.bench.harness.tables import (
    busy_note,
    comma_separated,
    figures_table,
    machine_words,
    write_forms,
)
from coterie.kernel.errors import CoterieError
from coterie.service.operate.control import Look, Stop, give_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coterie.service.operate.control import ProcessSeen

PATIENCE = 60.0
CONNECTIONS = 16
KIB = 1024

SERVER = """
import socketserver, sys, threading, time
lock = threading.Lock()
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while head := self.rfile.readline():
            size, operations = map(int, head.split())
            body = self.rfile.read(size)
            for _ in range(operations):
                with lock:
                    time.time()
            self.wfile.write(body)
socketserver.ThreadingTCPServer.request_queue_size = 100
socketserver.ThreadingTCPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

PROXY = """
import asyncio, sys, uvloop
class Side(asyncio.Protocol):
    other, waiting = None, b""
    def __init__(self, to=None):
        self.to = to
    def connection_made(self, transport):
        self.transport = transport
        if self.to is not None:
            asyncio.ensure_future(self.connect())
    async def connect(self):
        loop = asyncio.get_running_loop()
        _, other = await loop.create_connection(Side, "127.0.0.1", self.to)
        self.other, other.other = other, self
        other.transport.write(self.waiting)
    def data_received(self, data):
        if self.other is None:
            self.waiting += data
        else:
            self.other.transport.write(data)
    def connection_lost(self, error):
        if self.other is not None:
            self.other.transport.close()
async def main(port, to):
    server = await asyncio.get_running_loop().create_server(lambda: Side(to), "127.0.0.1", port)
    await server.serve_forever()
uvloop.run(main(*map(int, sys.argv[1:])))
"""

LEGEND = (
    "*request*: one connection, one request after the other; *served*: by 16 connections together. "
    "*x proxy*: in requests through a plain proxy of the same run. The paper (III-B to III-D, its "
    "figures 12 to 17, as its text reports them) has 15 to 55 % over the plain program, in C++ on "
    "a local network, with the gateway inside the client's and the server's process; here the "
    "edge is a process of its own and everything is Python. *takeover*: the longest wait of a "
    "client, detection included.\n"
)


class ProgramPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured."""

    replicas: tuple[int, ...] = (1, 2, 3)
    sizes: tuple[int, ...] = (64, KIB, 16 * KIB)
    operations: tuple[int, ...] = (0, 100)
    requests: int = 1000
    seconds: float = 3.0
    kills: int = 10


QUICK = ProgramPlan(
    replicas=(3,), sizes=(KIB,), operations=(0,), requests=200, seconds=1.0, kills=1
)


class ProgramReport(msgspec.Struct, kw_only=True):
    """What came of it."""

    plan: ProgramPlan
    machine: dict[str, str | int]
    figures: list[Figure] = []


class _Asking:
    """A client on one connection."""

    def __init__(self, port: int) -> None:
        self._socket = _connect(port)

    def ask(self, size: int, operations: int) -> float:
        """Ask once; give how long it took, in milliseconds."""
        begun = time.perf_counter()
        self._socket.sendall(_request(size, operations))
        left = size
        while left:
            data = self._socket.recv(min(left, 1 << 16))
            if not data:
                raise BenchError("the connection is closed: that must not be")
            left -= len(data)
        return (time.perf_counter() - begun) * 1000

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _request(size: int, operations: int) -> bytes:
    return f"{size} {operations}\n".encode() + bytes(size)


def _connect(port: int) -> socket.socket:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            found = socket.create_connection(("127.0.0.1", port), PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise BenchError("the program does not listen: run again") from None
            time.sleep(0.05)
        else:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return found


def measure(plan: ProgramPlan, progress: Callable[[str], None]) -> ProgramReport:
    """Measure all that is planned."""
    report = ProgramReport(plan=plan, machine=describe_machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "server.py").write_text(SERVER, encoding="utf-8")
        (folder / "proxy.py").write_text(PROXY, encoding="utf-8")
        proxied: dict[tuple[int, int], float] = {}
        with _plain(folder) as (plain, proxy):
            _measure(plan, report, "plain", plain, 0, {}, progress)
            proxied = _measure(plan, report, "proxy", proxy, 0, {}, progress)
        for count in plan.replicas:
            with _replicated(folder, count) as (port, state):
                _measure(plan, report, "replicas", port, count, proxied, progress)
                if count > 1 and plan.kills:
                    _take_over(plan, report, port, state, count, progress)
    return report


@contextmanager
def _plain(folder: Path) -> Iterator[tuple[int, int]]:
    plain, proxy = free_ports(2)
    commands = (["server.py", str(plain)], ["proxy.py", str(proxy), str(plain)])
    processes = [
        subprocess.Popen([sys.executable, str(folder / words[0]), *words[1:]])  # noqa: S603
        for words in commands
    ]
    try:
        yield plain, proxy
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def _replicated(folder: Path, count: int) -> Iterator[tuple[int, Path]]:
    [port] = free_ports(1)
    home = folder / f"state{count}"
    process = subprocess.Popen(  # noqa: S603 -- ourselves
        [
            *(sys.executable, "-m", "coterie.cli", "program", "run", "--name", "bench"),
            *("--replicas", str(count), "--", sys.executable, str(folder / "server.py"), str(port)),
        ],
        env={**os.environ, "XDG_STATE_HOME": str(home)},
        stderr=subprocess.DEVNULL,
    )
    state = home / "coterie" / "bench"
    try:
        yield port, state
    finally:
        try:
            give_order(state, Stop())
            process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()


def _measure(  # noqa: PLR0913, PLR0917 -- called three times
    plan: ProgramPlan,
    report: ProgramReport,
    section: str,
    port: int,
    count: int,
    proxied: dict[tuple[int, int], float],
    progress: Callable[[str], None],
) -> dict[tuple[int, int], float]:
    """Measure one way to run the program; give the medians by size and operations."""
    found: dict[tuple[int, int], float] = {}
    asking = _Asking(port)
    try:
        for size in plan.sizes:
            for operations in plan.operations:
                for _ in range(plan.requests // 10):
                    asking.ask(size, operations)
                waits = [asking.ask(size, operations) for _ in range(plan.requests)]
                found[size, operations] = median(waits)
                what = f"request, {operations} operations" if operations else "request"
                for words, value in (("p50", median(waits)), ("p99", quantiles(waits, n=100)[-1])):
                    report.figures.append(
                        Figure(
                            section=section,
                            what=f"{what} {words}",
                            replicas=count,
                            message_bytes=size,
                            value=value,
                            unit="ms",
                            echoes=value / proxied.get((size, operations), value)
                            if proxied and words == "p50"
                            else 0.0,
                        )
                    )
                    progress(str(report.figures[-1]))
    finally:
        asking.close()
    size = plan.sizes[len(plan.sizes) // 2]
    rate = asyncio.run(_served(port, size, plan.seconds))
    figure = Figure(
        section=section,
        what="served",
        replicas=count,
        message_bytes=size,
        value=rate,
        unit="/s",
    )
    report.figures.append(figure)
    progress(str(figure))
    return found


async def _served(port: int, size: int, seconds: float) -> float:
    """Give how many requests of many connections are answered in a second."""
    answered = 0
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS)]
    begun = time.monotonic()

    async def ask_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        while answered < CONNECTIONS or time.monotonic() - begun < seconds:
            writer.write(_request(size, 0))
            await reader.readexactly(size)
            answered += 1
        writer.close()

    await asyncio.gather(*(ask_on(*each) for each in opened))
    return answered / (time.monotonic() - begun)


def _take_over(  # noqa: PLR0913, PLR0917 -- called once
    plan: ProgramPlan,
    report: ProgramReport,
    port: int,
    state: Path,
    count: int,
    progress: Callable[[str], None],
) -> None:
    """Kill whoever leads, again and again, under a client that asks all the time."""
    for what in ("app", "agent"):
        gaps = []
        for _ in range(plan.kills):
            leader = _when_whole(state)
            asking = _Asking(port)
            asking.ask(KIB, 0)
            victim = int(leader.more["app"]) if what == "app" else leader.pid
            os.kill(victim, signal.SIGKILL)
            gaps.append(max(asking.ask(KIB, 0) for _ in range(100)))
            asking.close()
        for words, value in (("p50", median(gaps)), ("longest", max(gaps))):
            figure = Figure(
                section="takeover",
                what=f"{what} killed, {words}",
                replicas=count,
                message_bytes=KIB,
                value=value,
                unit="ms",
                repeats=gaps,
            )
            report.figures.append(figure)
            progress(str(figure))


def _when_whole(state: Path) -> ProcessSeen:
    """Wait until every replica has the state; give the one that leads."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            seen = [each for each in give_order(state, Look()).processes if each.id != "edge"]
        except CoterieError:
            seen = []
        leaders = [each for each in seen if each.role == "primary"]
        if len(leaders) == 1 and all(
            each.more.get("whole")
            and each.more.get("app")
            and int(each.more["orders"]) - int(each.more["executed"]) < CONNECTIONS
            for each in seen
        ):
            return leaders[0]
        time.sleep(0.1)
    raise BenchError("the program does not become whole: run again")


# ---- the report


def setting(report: ProgramReport) -> str:
    """Say on what and how it was measured, in one paragraph."""
    return (
        f"{machine_words(report.machine)}. Everything is a process on loopback, journals are left "
        f"to the system; {report.plan.requests} requests a figure.{busy_note(report.machine)}"
    )


def tables(report: ProgramReport) -> str:
    """Give all results as text, for a terminal and as Markdown."""
    return figures_table(report.figures).replace("x echo", "x proxy")


def write_files(report: ProgramReport, folder: Path) -> list[Path]:
    """Write all forms of the report into a folder, and give the files."""
    page = f"# Programs\n\n{setting(report)}\n\n{tables(report)}\n\n{LEGEND}"
    return write_forms(
        "program", report, folder, rows=comma_separated(report.figures), page=page, draw=None
    )
