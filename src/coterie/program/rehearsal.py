"""The rehearsal: a program led in one process and followed in a second one, both on this machine.

This process stands where a group's edge stands. It listens where the program wants to, and holds
the clients; the process that leads gets their input and sends entries, then output. What it is
given and what it decided go, in this order, to the process that follows, whose memory lies
elsewhere (`starting.shake`). That one makes the same output again, or says where it does not.

All that waits is bounded: input of a client by `WINDOW` until the program has read it, output by
the same window until the client has taken it, and the one who leads is not read while the one
who follows is behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import sys
from typing import TYPE_CHECKING, BinaryIO

from coterie.program.command_words import ProgramCommand, environment
from coterie.program.wire import WINDOW, BadWire, WireFrame, WireKind, WireReader, frame

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_READ = 1 << 16
_CONN_FIRST = 16
_LAST_OF_FOLLOWER = {WireKind.FOLLOWED, WireKind.DIVERGED}


class RehearsalOutcome:
    """What came of a rehearsal."""

    def __init__(self) -> None:
        self.status: int | None = None
        """What the program exited with; nothing if it was ended."""
        self.entries = 0
        self.followed: int | None = None
        """How many entries were followed, if all were."""
        self.clients = 0
        self.output = 0
        self.refused: list[str] = []
        self.diverged = ""
        self.broken = ""

    @property
    def is_well(self) -> bool:
        """Say whether nothing stands against replicating the program."""
        return not (self.refused or self.diverged or self.broken) and self.followed is not None


class _Client:
    """One client's connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.output: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.unread = 0
        self.may_read = asyncio.Event()
        self.may_read.set()


class _Process:
    """One process of the program, and the stream to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.process, self.reader, self.writer = process, reader, writer

    @classmethod
    async def start(cls, command: ProgramCommand, env: dict[str, str], role: str) -> _Process:
        """Start a process that leads or follows."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                command.interpreter,
                *command.options,
                *("-P", "-m", "coterie.program.starting", str(theirs.fileno()), role),
                *command.words,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return cls(process, *await asyncio.open_connection(sock=ours))

    def send(self, kind: WireKind, number: int = 0, value: int = 0, payload: bytes = b"") -> None:
        """Send a frame, if anybody is there."""
        if not self.writer.is_closing():
            self.writer.write(frame(kind, number, value, payload))

    async def frames(
        self,
        take: Callable[[WireFrame], None],
        last: set[WireKind],
        behind: _Process | None = None,
    ) -> None:
        """Take frames to the last one; no faster than another process can follow."""
        reader = WireReader()
        with contextlib.suppress(ConnectionError):
            while data := await self.reader.read(_READ):
                for each in reader.feed(data):
                    take(each)
                    if each[0] in last:
                        self.writer.close()  # which the process waits for
                        return
                if behind is not None:
                    with contextlib.suppress(ConnectionError):
                        await behind.writer.drain()

    async def end(self) -> int:
        """See to it that the process is gone."""
        self.writer.close()
        if self.process.returncode is None:
            try:
                await asyncio.wait_for(self.process.wait(), 10)
            except TimeoutError:
                self.process.kill()
        return await self.process.wait()


class Rehearsal:
    """One rehearsal, from the start of the program to the verdict."""

    def __init__(
        self,
        command: ProgramCommand,
        *,
        say: Callable[[str], None],
        stdout: BinaryIO | None = None,
        stderr: BinaryIO | None = None,
    ) -> None:
        self._command = command
        self._say = say
        self._streams = {1: stdout or sys.stdout.buffer, 2: stderr or sys.stderr.buffer}
        self.outcome = RehearsalOutcome()
        self.ports: asyncio.Queue[int] = asyncio.Queue()
        """The ports that the program listens at, as it comes to them."""
        self._servers: dict[int, asyncio.Server] = {}
        self._clients: dict[int, _Client] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_conn = _CONN_FIRST

    async def run(self) -> RehearsalOutcome:
        """Run the program until it ends, and follow it to the same place."""
        env = environment()
        self._leader = await _Process.start(self._command, env, "lead")
        self._follower = await _Process.start(self._command, env, "follow")
        following = asyncio.create_task(
            self._follower.frames(self._take_from_follower, _LAST_OF_FOLLOWER)
        )
        try:
            await self._leader.frames(self._take, {WireKind.EXITED}, self._follower)
        except BadWire as error:
            self.outcome.broken = f"the program's process sent {error}"
        for server in self._servers.values():
            server.close()
        self._follower.send(WireKind.ENOUGH)
        try:
            await following
        except BadWire as error:
            self.outcome.broken = f"the process that follows sent {error}"
        for client in self._clients.values():
            client.output.put_nowait(None)
        status = await self._leader.end()
        followed = await self._follower.end()
        outcome = self.outcome
        if outcome.status is None and status != -signal.SIGKILL and not outcome.refused:
            outcome.broken = outcome.broken or f"the program's process ended with status {status}"
        if outcome.followed is None and not outcome.diverged and not outcome.refused:
            outcome.broken = (
                outcome.broken or f"the process that follows ended with status {followed}"
            )
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return outcome

    def signal(self, number: int) -> None:
        """Send the program a signal, in its place in the order."""
        self._leader.send(WireKind.SIGNALLED, number)

    def kill(self) -> None:
        """End the program as a crash does."""
        with contextlib.suppress(ProcessLookupError):
            self._leader.process.kill()

    def _to_both(self, kind: WireKind, number: int, value: int = 0, payload: bytes = b"") -> None:
        # Also to the one who follows, before any entry that rests on it can come.
        self._follower.send(kind, number, value, payload)
        self._leader.send(kind, number, value, payload)

    # ---- from the processes

    def _take(self, each: WireFrame) -> None:  # noqa: C901, PLR0912 -- one case a kind
        kind, number, value, payload = each
        client = self._clients.get(number)
        match kind:
            case WireKind.ENTRIES:
                self._follower.send(WireKind.ENTRIES, payload=payload)
            case WireKind.OUTPUT:
                self.outcome.output += len(payload)
                if number in self._streams:
                    self._streams[number].write(payload)
                    self._streams[number].flush()
                elif client is not None:
                    client.output.put_nowait(payload)
            case WireKind.SHUT if client is not None:
                client.output.put_nowait(b"")
            case WireKind.CLOSED:
                server = self._servers.pop(number, None)
                if server is not None:
                    server.close()
                if client is not None:
                    client.output.put_nowait(None)
            case WireKind.CONSUMED if client is not None:
                client.unread -= value
                if client.unread < WINDOW:
                    client.may_read.set()
            case WireKind.LISTEN:
                self._later(self._listen(number, value, _words(payload)))
            case WireKind.EXITED:
                self.outcome.status = value
            case WireKind.REFUSED:
                self.outcome.refused.append(_words(payload))
            case WireKind.SAID:
                self._say(_words(payload))
            case WireKind.SHUT | WireKind.CONSUMED:
                return
            case _:
                raise BadWire(f"a frame of kind {kind} that goes the other way")

    def _take_from_follower(self, each: WireFrame) -> None:
        kind, _, value, payload = each
        match kind:
            case WireKind.DIVERGED:
                self.outcome.diverged = _words(payload)
                self._say("the process that follows has diverged; the program goes on alone")
            case WireKind.FOLLOWED:
                self.outcome.followed = value
            case WireKind.EXITED | WireKind.SAID:
                return
            case _:
                raise BadWire(f"a frame of kind {kind} that followers do not send")

    # ---- clients

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, listener: int, port: int, words: str) -> None:
        backlog, _, host = words.partition(" ")

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._later(self._serve(listener, reader, writer))

        try:
            server = await asyncio.start_server(
                accepted, host or None, port, backlog=max(1, int(backlog))
            )
        except OSError as error:
            number = error.errno if (error.errno or 0) > 0 else errno.EADDRNOTAVAIL
            self._leader.send(WireKind.LISTENING, listener, -int(number or errno.EADDRINUSE))
            return
        except (ValueError, OverflowError):  # no such host, port or backlog can be
            self._leader.send(WireKind.LISTENING, listener, -errno.EINVAL)
            return
        self._servers[listener] = server
        port = server.sockets[0].getsockname()[1]
        self._leader.send(WireKind.LISTENING, listener, port)
        self.ports.put_nowait(port)
        self._say(f"the program listens at port {port}")

    async def _serve(
        self, listener: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._last_conn += 1
        conn = self._last_conn
        client = self._clients[conn] = _Client(writer)
        self.outcome.clients += 1
        peer = writer.get_extra_info("peername") or ("", 0)
        self._to_both(WireKind.ARRIVED, conn, listener, f"{peer[0]} {peer[1]}".encode())
        self._later(self._write(conn, client))
        try:
            while True:
                await client.may_read.wait()
                data = await reader.read(_READ)
                if not data:
                    self._to_both(WireKind.END, conn)
                    return
                client.unread += len(data)
                if client.unread >= WINDOW:
                    client.may_read.clear()
                self._to_both(WireKind.DATA, conn, payload=data)
        except OSError as error:
            self._to_both(WireKind.END, conn, error.errno or errno.ECONNRESET)

    async def _write(self, conn: int, client: _Client) -> None:
        try:
            while (data := await client.output.get()) is not None:
                if data:
                    client.writer.write(data)
                    await client.writer.drain()
                    self._leader.send(WireKind.DELIVERED, conn, len(data))
                elif client.writer.can_write_eof():
                    client.writer.write_eof()
        except OSError as error:
            # Who has only heard that no more input comes must learn that nobody listens, either.
            self._to_both(WireKind.END, conn, error.errno or errno.EPIPE)
        client.writer.close()
        client.may_read.set()
        self._clients.pop(conn, None)


def _words(payload: bytes) -> str:
    """Read what a process says in words; a damaged one may say anything."""
    return payload.decode(errors="replace")
