"""How long clients that know nothing of replication wait: `coterie bench servers`.

Servers are processes on this machine, one group of 2, 3 and 4 of them after the other; the client
is a socket of this process that sends one datagram after the other, each to the next server, and
waits for the reply. *Retrieve* is the paper's retrieve_membership, which needs no order. *Kill* is
the longest wait of the client around the death of a server, which is mostly the time to detect it;
the paper leaves that out, and so it stands apart. *Add* is from asking a server to admit another
one, whose process is there already, until that one is in the primary view with the state; *remove*
until the others are in one without it. An echo of the same size by UDP is the yardstick.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import string
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Self

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
from coterie.protocol.datagrams import (
    HEAD,
    Message,
    MessageKind,
    ReplyStatus,
    decode_message,
    encode_message,
)
from coterie.service.operate.control import Admit, Dismiss, NobodyThere, give_order

if TYPE_CHECKING:
    from collections.abc import Callable

STACK = "ONUS:SAFE:DYNSEQ:PVSYNC"
AGAIN_SECONDS = 0.1
SETTLING_SECONDS = 1.0
"""How long processes get to be in touch, and a change to come to its end."""
PATIENCE = 60.0
LEGEND = (
    "*request*: one client, one datagram after the other, each to another server. *retrieve*: "
    "which servers there are. *kill*: the longest wait of a client while a server is killed, "
    "detection included. *add*, *remove*: of a server whose process is there, until the view is "
    "another one. *x echo*: in round trips of a datagram, measured right before. The paper "
    "(Sun SPARC IPX, Ethernet, 1996) has about 2.5 ms for a message to the service and back, "
    "12, 21 and 36 ms for adding and 8, 17 and 32 ms for removing one of 2, 3 and 4 servers, "
    "detection apart.\n"
)


class ServersPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured."""

    servers: tuple[int, ...] = (2, 3, 4)
    requests: int = 2000
    kills: int = 5
    changes: int = 3
    """How many servers are added and removed again; no id is used twice."""


QUICK = ServersPlan(servers=(3,), requests=200, kills=1, changes=1)


class ServersReport(msgspec.Struct, kw_only=True):
    """What came of it."""

    plan: ServersPlan
    machine: dict[str, str | int]
    figures: list[Figure] = []


class _Asking:
    """A client: one request after the other."""

    def __init__(self, addresses: list[tuple[str, int]]) -> None:
        self._addresses = addresses
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._client = int.from_bytes(os.urandom(7)) + 1
        self._number = 0
        self._body = b""

    def ask(self, kind: MessageKind, body: bytes) -> float:
        """Ask until there is an answer; give how long it took, in milliseconds."""
        self._number += 1
        data = encode_message(Message(kind, 0, self._client, self._number, body))
        begun = time.perf_counter()
        turn = self._number
        while time.perf_counter() - begun < PATIENCE:
            self._socket.sendto(data, self._addresses[turn % len(self._addresses)])
            turn += 1
            end = time.perf_counter() + AGAIN_SECONDS
            while (left := end - time.perf_counter()) > 0:
                self._socket.settimeout(left)
                try:
                    reply = decode_message(self._socket.recv(65536))
                except TimeoutError:
                    break
                except ConnectionError:
                    time.sleep(left)  # nobody is there
                    break
                if reply.number == self._number and reply.status == ReplyStatus.DONE:
                    self._body = reply.body
                    return (time.perf_counter() - begun) * 1000
        raise BenchError("the servers do not answer: run again")

    def members(self) -> tuple[str, list[str]]:
        """Ask which servers there are; give the role of who answers, and whom it names."""
        self.ask(MessageKind.MEMBERS, b"")
        found = json.loads(self._body)
        return found["role"], sorted(found["members"])

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class _Servers:
    """Servers as processes; `with` starts and ends them."""

    def __init__(self, size: int, folder: Path, *, newcomers: int = 0) -> None:
        self.ids = string.ascii_lowercase[:size]
        self.newcomers = [f"n{number}" for number in range(newcomers)]
        self.peers: dict[str, tuple[str, str]] = {}
        """Where others, and clients, reach each."""
        self._folder = folder
        ports = free_ports(3 * (size + newcomers))
        lines = ['cluster = "bench"', "[groups.counter]", 'class = "coterie.ready:Counter"']
        lines.append(f'stack = "{STACK}"')
        self.addresses: list[tuple[str, int]] = []
        for id in (*self.ids, *self.newcomers):
            listen, clients, datagrams = (ports.pop() for _ in range(3))
            self.peers[id] = f"127.0.0.1:{listen}", f"127.0.0.1:{clients}"
            self.addresses.append(("127.0.0.1", datagrams))
            lines += [
                f"[replicas.{id}]",
                f'listen = "127.0.0.1:{listen}"',
                f'clients = "127.0.0.1:{clients}"',
                f'datagrams = "127.0.0.1:{datagrams}"',
                f"dir = {json.dumps(str(folder / id))}",
                *(['joins = ["counter"]'] if id in self.newcomers else []),
            ]
        self._config = folder / "group.toml"
        self._config.write_text("\n".join(lines), encoding="utf-8")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for id in self.ids:
            self.start(id, "--found")
        return self

    def start(self, id: str, *options: str) -> None:
        """Start a server."""
        self._processes[id] = subprocess.Popen(  # noqa: S603 -- ourselves
            [
                *(sys.executable, "-m", "coterie.cli", "replica"),
                *("--config", str(self._config), "--id", id, *options),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def address_of(self, id: str) -> tuple[str, int]:
        """Give where a server takes datagrams."""
        return self.addresses[[*self.ids, *self.newcomers].index(id)]

    def order(self, order: Admit | Dismiss) -> None:
        """Have the first server take a change of the members."""
        answer = give_order(self._folder / self.ids[0], order)
        if not answer.is_done:
            raise BenchError(f"the servers do not take the change: {answer.text}")

    def wait_for(self, id: str) -> None:
        """Wait until the process of a server is there."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(NobodyThere):
                give_order(self._folder / id, Dismiss("nothing", ""))
                return
            time.sleep(AGAIN_SECONDS)
        raise BenchError(f"server {id} did not start: run again")

    def kill(self, id: str) -> None:
        """Kill a server."""
        self._processes[id].send_signal(signal.SIGKILL)
        self._processes[id].wait()

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def measure(plan: ServersPlan, progress: Callable[[str], None]) -> ServersReport:
    """Measure all that is planned."""
    report = ServersReport(plan=plan, machine=describe_machine())
    for size in plan.servers:
        before = len(report.figures)
        with (
            tempfile.TemporaryDirectory() as folder,
            _Servers(size, Path(folder), newcomers=plan.changes) as servers,
        ):
            asking = _Asking(servers.addresses[:size])
            try:
                _measure_group(plan, asking, servers, report)
            finally:
                asking.close()
        for figure in report.figures[before:]:
            progress(str(figure))
    return report


def _measure_group(
    plan: ServersPlan, asking: _Asking, servers: _Servers, report: ServersReport
) -> None:
    size = len(servers.ids)
    echo = _echo_ms(min(500, plan.requests))
    for _ in range(20):
        asking.ask(MessageKind.REQUEST, b'["add",1]')
    waits = [asking.ask(MessageKind.REQUEST, b'["add",1]') for _ in range(plan.requests)]
    asked = [asking.ask(MessageKind.MEMBERS, b"") for _ in range(plan.requests)]
    report.figures += [
        _figure("request p50", size, median(waits), echo),
        _figure("request p99", size, quantiles(waits, n=100)[-1], echo),
        _figure("retrieve p50", size, median(asked), echo),
    ]
    changes = [_change(servers, id) for id in servers.newcomers]
    for what, took in zip(("add", "remove"), zip(*changes, strict=True), strict=True):
        report.figures.append(
            Figure(
                section="servers",
                what=what,
                replicas=size,
                value=median(took),
                unit="ms",
                repeats=list(took),
            )
        )
    if size > 2 and plan.kills:  # noqa: PLR2004 -- of two, both are a majority
        gaps = [_gap(asking, servers, servers.ids[turn % size]) for turn in range(plan.kills)]
        report.figures.append(
            Figure(
                section="servers",
                what="kill, longest wait",
                replicas=size,
                value=median(gaps),
                unit="ms",
                repeats=gaps,
            )
        )


def _figure(what: str, size: int, value: float, echo: float) -> Figure:
    return Figure(
        section="servers", what=what, replicas=size, value=value, unit="ms", echoes=value / echo
    )


def _change(servers: _Servers, id: str) -> tuple[float, float]:
    """Add a server and remove it again; give how long each took."""
    servers.start(id)
    servers.wait_for(id)
    time.sleep(SETTLING_SECONDS)  # what the paper calls detection is over
    itself, first = (_Asking([servers.address_of(each)]) for each in (id, servers.ids[0]))
    try:
        begun = time.perf_counter()
        servers.order(Admit("counter", id, *servers.peers[id]))
        _until(lambda: itself.members() == ("primary", sorted((*servers.ids, id))))
        added = time.perf_counter() - begun
        for _ in range(20):
            first.ask(MessageKind.REQUEST, b'["add",1]')
        time.sleep(SETTLING_SECONDS)
        begun = time.perf_counter()
        servers.order(Dismiss("counter", id))
        _until(lambda: first.members() == ("primary", sorted(servers.ids)))
        return added * 1000, (time.perf_counter() - begun) * 1000
    finally:
        itself.close()
        first.close()


def _until(is_so: Callable[[], bool]) -> None:
    """Ask on until something is so."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise BenchError("the servers do not change: run again")


def _gap(asking: _Asking, servers: _Servers, id: str) -> float:
    """Kill a server while a client asks; give the client's longest wait, and start it again."""
    servers.kill(id)
    longest = max(asking.ask(MessageKind.REQUEST, b'["add",1]') for _ in range(200))
    servers.start(id)
    end = time.monotonic() + PATIENCE
    alone = _Asking([servers.addresses[servers.ids.index(id)]])
    try:
        while time.monotonic() < end:
            try:
                alone.ask(MessageKind.REQUEST, b'["add",1]')
            except BenchError:
                continue
            return longest
    finally:
        alone.close()
    raise BenchError(f"server {id} did not come back: run again")


def _echo_ms(count: int) -> float:
    """Give the round trip of a datagram between two threads of this process."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
    ):
        there.bind(("127.0.0.1", 0))
        here.settimeout(PATIENCE)

        def answer() -> None:
            for _ in range(count):
                data, source = there.recvfrom(2048)
                there.sendto(data, source)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        waits = []
        for _ in range(count):
            begun = time.perf_counter()
            here.sendto(bytes(HEAD.size + 9), there.getsockname())
            here.recv(2048)
            waits.append((time.perf_counter() - begun) * 1000)
        thread.join()
    return median(waits)


# ---- the report


def setting(report: ServersReport) -> str:
    """Say on what and how it was measured, in one paragraph."""
    return (
        f"{machine_words(report.machine)}. Servers are processes on loopback under {STACK}, "
        f"journals are left to the system; {report.plan.requests} requests a figure."
        f"{busy_note(report.machine)}"
    )


def tables(report: ServersReport) -> str:
    """Give all results as text, for a terminal and as Markdown."""
    return figures_table(report.figures)


def write_files(report: ServersReport, folder: Path) -> list[Path]:
    """Write all forms of the report into a folder, and give the files."""
    page = f"# Server groups\n\n{setting(report)}\n\n{tables(report)}\n\n{LEGEND}"
    return write_forms(
        "servers", report, folder, rows=comma_separated(report.figures), page=page, draw=None
    )
