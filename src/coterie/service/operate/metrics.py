"""What a replica process shows to those who watch it: figures for Prometheus, and its health.

`/metrics` gives every counter of the process, its transport, its layers and its clients' port, and
the gauges below, in the text format of Prometheus: one prefix a layer. `/healthz` answers 200 while
every group's replica does its part, as primary or backup, and 503 with the reasons otherwise.

The server speaks as much HTTP as that takes: one small request a connection, within a second.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import msgspec

from coterie.kernel.engine import Role
from coterie.runtime.network import TCP
from coterie.runtime.transport import ListenError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from coterie.runtime.address import Address
    from coterie.runtime.network import Listener
    from coterie.service.engines.hosted import HostedReplica
    from coterie.service.process import ReplicaProcess

REQUEST_BYTES_MAX = 4096
REQUEST_SECONDS_MAX = 1.0
CONNECTIONS_MAX = 32

GAUGES: dict[str, str] = {
    "primary_role": "1 for the role of this replica: primary, backup, learner, forming, minority.",
    "primary_is_zombie": "1 if this replica has lost what it knew and does not count.",
    "journal_records": "Records written in this life.",
    "journal_synced_records": "Records of this life that survive the loss of the machine.",
    "port_callers": "Clients connected.",
    "driver_turns_total": "Turns taken.",
    "process_memory_bytes": "The most memory this process has used.",
    "process_cpu_seconds_total": "Processor time used.",
}


class Sample(NamedTuple):
    """One figure as Prometheus takes it."""

    name: str
    labels: dict[str, str]
    value: float


def samples(process: ReplicaProcess) -> Iterator[Sample]:
    """Give all figures of a process."""
    live = process.live
    own = {"replica": process.id}
    yield Sample("driver_turns_total", own, live.driver.turns)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024
    yield Sample("process_memory_bytes", own, usage.ru_maxrss * unit)
    yield Sample("process_cpu_seconds_total", own, usage.ru_utime + usage.ru_stime)
    counters = live.process.counters | live.transport.counters | process.port.counters
    for name, value in sorted(counters.items()):
        if name == "port.callers":
            yield Sample("port_callers", own, value)
        else:
            yield Sample(_counter(name), own, value)
    for group, hosted in process.hosted.items():
        yield from _of_group(process, hosted, own | {"group": group})


def _of_group(
    process: ReplicaProcess, hosted: HostedReplica, labels: dict[str, str]
) -> Iterator[Sample]:
    for name, value in sorted(hosted.replica.context.counters.items()):
        yield Sample(_counter(name), labels, value)
    status = hosted.status
    if status is not None:
        for role in Role:
            is_role = float(role is status.role)
            yield Sample("primary_role", labels | {"role": role.value}, is_role)
        yield Sample("primary_is_zombie", labels, float(status.is_zombie))
    for name, figure in hosted.figures().items():
        yield Sample(name, labels, figure)
    writer = process.keepers[hosted.group].writer
    yield Sample("journal_records", labels, writer.sequence)
    yield Sample("journal_synced_records", labels, writer.synced)


def _counter(name: str) -> str:
    layer, _, rest = name.partition(".")
    return f"{layer}_{rest.replace('.', '_')}_total"


def exposition(process: ReplicaProcess) -> str:
    """Give all figures in the text format of Prometheus."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples(process):
        by_name.setdefault(sample.name, []).append(sample)
    known = dict(GAUGES)
    for hosted in process.hosted.values():
        known |= hosted.figures_help
    lines: list[str] = []
    for name, of_name in by_name.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        words = name.removesuffix("_total").split("_", maxsplit=1)
        about = known.get(name) or f"{words[-1].replace('_', ' ').capitalize()}."
        lines += [f"# HELP coterie_{name} {about}", f"# TYPE coterie_{name} {kind}"]
        for sample in of_name:
            labels = ",".join(f'{key}="{_escape(text)}"' for key, text in sample.labels.items())
            lines.append(f"coterie_{name}{{{labels}}} {sample.value:.17g}")
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Health(NamedTuple):
    """Whether a process does its work, and why not."""

    is_well: bool
    reasons: dict[str, str]


def health(process: ReplicaProcess) -> Health:
    """Look at all groups of a process."""
    reasons: dict[str, str] = {}
    for group, hosted in process.hosted.items():
        status = hosted.status
        if status is None:
            reasons[group] = "starting"
        elif status.is_zombie:
            reasons[group] = f"{status.role.value}; it has lost its memory and fetches the state"
        elif not status.role.is_in_service:
            reasons[group] = status.role.value
    return Health(not reasons, reasons)


class MetricsPort:
    """The HTTP server; `async with` opens and closes it."""

    def __init__(self, process: ReplicaProcess, listen: Address | socket.socket) -> None:
        self._process = process
        self._listen = listen
        self._listener: Listener | None = None
        self.open_connections = 0

    @property
    def port(self) -> int:
        """Where it listens, with the number that the system chose if it was 0."""
        assert self._listener is not None
        return self._listener.address.port

    async def __aenter__(self) -> Self:
        try:
            self._listener = await TCP.listen(self._accept, self._listen)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ListenError(f"cannot show metrics at {self._listen}: {reason}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            await self._listener.close()

    def _accept(self) -> _Visit:
        return _Visit(self)

    def answer(self, method: str, path: str) -> tuple[int, str, str]:
        """Give status, type and body for a request."""
        routes: dict[str, Callable[[], tuple[int, str, str]]] = {
            "/metrics": lambda: (
                200,
                "text/plain; version=0.0.4; charset=utf-8",
                exposition(self._process),
            ),
            "/healthz": self._healthz,
        }
        route = routes.get(path.partition("?")[0])
        if route is None:
            return 404, "text/plain", "there are /metrics and /healthz here\n"
        if method not in {"GET", "HEAD"}:
            return 405, "text/plain", "only GET\n"
        return route()

    def _healthz(self) -> tuple[int, str, str]:
        found = health(self._process)
        body = {"status": "ok" if found.is_well else "not ok", "reasons": found.reasons}
        text = msgspec.json.encode(body).decode() + "\n"
        return (200 if found.is_well else 503), "application/json", text


_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class _Visit(asyncio.Protocol):
    """One connection: one request, one answer."""

    def __init__(self, port: MetricsPort) -> None:
        self._port = port
        self._buffer = bytearray()
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None
        self._is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._port.open_connections += 1
        if self._port.open_connections > CONNECTIONS_MAX:
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(REQUEST_SECONDS_MAX, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._port.open_connections -= 1
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._buffer += data
        if b"\r\n\r\n" in self._buffer:
            words = bytes(self._buffer).split(b"\r\n", maxsplit=1)[0].split(b" ")
            if len(words) == 3 and words[2].startswith(b"HTTP/1."):  # noqa: PLR2004
                method, path = words[0].decode("latin-1"), words[1].decode("latin-1")
                self._answer(*self._port.answer(method, path), is_head=method == "HEAD")
            else:
                self._answer(400, "text/plain", "that is no HTTP request\n")
        elif len(self._buffer) > REQUEST_BYTES_MAX:
            self._answer(431, "text/plain", "that is too long\n")

    def _answer(self, status: int, kind: str, text: str, *, is_head: bool = False) -> None:
        self._is_answered = True
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + (b"" if is_head else body))
        self._transport.close()
