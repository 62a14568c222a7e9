"""The program's process as its agent sees it: an `OrderedProgram` that runs elsewhere.

Orders are *fed* to the app as soon as they are sure, and *performed* here once the app has said
that it executed them. So the engine's numbers say what the program has really done, while the agent
goes on taking turns however long the program computes.

| Order | At whoever leads | At whoever follows |
|---|---|---|
| RAN | the app's entries, as they came | fed, behind all input that the leader's app had |
| SENT | output, behind the entries it rests on | the same bytes |
| TOOK | so much input was read; opens the window | as much |
| CLOSED | a connection is closed | the same one |
| TOLD | to the edge: listen, connect, shut, exit | the same, but for LISTEN and remarks |

What an app that follows says behind an order is the order's, or the program has diverged. What it
has said and nobody ordered, because whoever led died in between, is ordered when it leads itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import signal
import socket
import subprocess
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from coterie.agents.frozen import NoCopy, ThawedProcess, decode_frozen, thaw
from coterie.kernel.claims import OrderKind
from coterie.llft.programs import DivergedError
from coterie.program.wire import BadWire, WireFrame, WireKind, WireReader, frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.agents.deployment import ProgramDeployment
    from coterie.agents.frozen import FrozenState
    from coterie.kernel.claims import Input, Order
    from coterie.llft.programs import Want

SIGNALS = "signals"
"""The connection on which signals come, a byte each."""
LISTENING = "listening "
"""What begins the name of the connection on which the edge answers: the port, or an error."""
ANSWER_BYTES = 4
ORDERED = {
    *(WireKind.OUTPUT, WireKind.CONSUMED, WireKind.SHUT, WireKind.CLOSED),
    *(WireKind.CONNECT, WireKind.EXITED),
}
"""What every app of a program says in the same order, whether it leads or follows."""
_SAID = {
    OrderKind.SENT: WireKind.OUTPUT,
    OrderKind.TOOK: WireKind.CONSUMED,
    OrderKind.CLOSED: WireKind.CLOSED,
}
HUNG_SECONDS = 5.0
"""An app that neither answers nor computes for so long is hung: it is killed."""
_FEED_MAX = 1 << 20
"""So many bytes may wait for an app that is behind."""


_NUMBER_MAX = (1 << 32) - 1
"""The highest number that a frame to the program has room for."""


def _number(word: str) -> int | None:
    """Read the number of a connection, a listener or a port; nothing if a peer made it up."""
    if not (word.isascii() and word.isdigit() and len(word) <= len(str(_NUMBER_MAX))):
        return None
    return number if (number := int(word)) <= _NUMBER_MAX else None


class ClientName(NamedTuple):
    """What the name of a client's connection says: all that `accept` needs."""

    number: int
    listener: int
    peer: str

    def __str__(self) -> str:
        return f"{self.number}@{self.listener} {self.peer}"

    @classmethod
    def parse(cls, conn: str) -> ClientName | None:
        """Read a name; nothing if it is not one of a client."""
        word, _, rest = conn.partition("@")
        listener, _, peer = rest.partition(" ")
        number, at = _number(word), _number(listener)
        return None if number is None or at is None else cls(number, at, peer)


class DialledName(NamedTuple):
    """The name of a connection that the program asked its edge for."""

    number: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.number}>{self.host} {self.port}"

    @classmethod
    def parse(cls, conn: str) -> DialledName | None:
        """Read a name; nothing if it is not one of these."""
        word, _, rest = conn.partition(">")
        host, _, at = rest.rpartition(" ")
        number, port = _number(word), _number(at)
        return None if number is None or port is None else cls(number, host, port)


def number_of(conn: str) -> int | None:
    """Give the number by which the app knows a connection; nothing if it knows none like that."""
    return _number(re.split("[@>]", conn, maxsplit=1)[0])


class AppProcess(asyncio.Protocol):
    """One process of the program, and the stream to it."""

    def __init__(
        self,
        deployment: ProgramDeployment,
        took: Callable[[AppProcess, list[WireFrame]], None],
        ended: Callable[[AppProcess, str], None],
        folder: int | None,
        frozen: FrozenState | None,
    ) -> None:
        self._took, self._ended = took, ended
        self._reader = WireReader()
        self._transport: asyncio.Transport | None = None
        self._unsent = bytearray()
        self.waits = False
        """Whether the app takes no more at present."""
        self.is_gone = False
        self._asked_at: float | None = None
        self._spent = b""
        self._unmade = ""
        self.process: subprocess.Popen[bytes] | ThawedProcess
        ours, theirs = socket.socketpair()
        with theirs:
            if frozen is not None:
                assert folder is not None, "who takes copies makes copies"
                try:
                    self.process = thaw(frozen, theirs, folder)
                except NoCopy as error:
                    self.process = ThawedProcess(0)
                    self._unmade = str(error)
            else:
                self.process = _start(deployment, theirs.fileno(), folder)
        ours.settimeout(0)
        self._making = asyncio.ensure_future(
            asyncio.get_running_loop().create_connection(lambda: self, sock=ours)
        )

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what was to be sent before."""
        made = self._transport = cast("asyncio.Transport", transport)
        made.set_write_buffer_limits(high=_FEED_MAX)
        made.write(bytes(self._unsent))
        self._unsent.clear()
        if self.is_gone:
            made.abort()

    def data_received(self, data: bytes) -> None:
        """Take frames."""
        if self.is_gone:
            return
        try:
            found = self._reader.feed(data)
        except BadWire as error:
            self.end()
            self._ended(self, f"sent {error}")
            return
        if any(each[0] == WireKind.PONG for each in found):
            self.answered()
        if found:
            self._took(self, found)

    def pause_writing(self) -> None:
        """Learn that the app is behind."""
        self.waits = True

    def resume_writing(self) -> None:
        """Learn that it goes on."""
        self.waits = False
        self._took(self, [])

    def connection_lost(self, error: Exception | None) -> None:
        """Learn that the app has ended."""
        del error
        if not self.is_gone:
            self.is_gone = True
            self._ended(self, self._unmade or f"ended{self._how()}")
        self._reap()

    # ---- use

    def is_hung(self) -> bool:
        """Ask the app whether it is there; say whether it has neither answered nor computed.

        Called now and then. One that computes is watched by itself (`coterie.program.starting`).
        """
        now, spent = time.monotonic(), self._time_spent()
        if self._asked_at is None:
            self._asked_at, self._spent = now, spent
            self.send(WireKind.PING)
        elif spent != self._spent:
            self._asked_at, self._spent = now, spent
        return now - self._asked_at > HUNG_SECONDS

    def answered(self) -> None:
        """Learn that it is there."""
        self._asked_at = None

    def _time_spent(self) -> bytes:
        """Give the processor time that it has used, as the system writes it."""
        try:
            return b" ".join(Path(f"/proc/{self.process.pid}/stat").read_bytes().split()[-39:-37])
        except OSError:
            return b""

    def send(self, kind: WireKind, number: int = 0, value: int = 0, payload: bytes = b"") -> None:
        """Send a frame."""
        data = frame(kind, number, value, payload)
        if self._transport is None:
            self._unsent += data
        elif not self._transport.is_closing():
            self._transport.write(data)

    def hold(self, *, is_held: bool) -> None:
        """Read nothing from the app for a while, or go on."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if is_held:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def end(self) -> None:
        """See to it that the app is gone."""
        self.is_gone = True
        if self.process.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        if self._transport is not None:
            self._transport.abort()
        self._reap()

    def _reap(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, self.process.wait)

    def _how(self) -> str:
        if isinstance(self.process, ThawedProcess):
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self.process.wait(0.1)
            if status < 0:
                return f", killed by {signal.Signals(-status).name}"
            return f" with status {status}"
        return ""


def _start(deployment: ProgramDeployment, wire: int, folder: int | None) -> subprocess.Popen[bytes]:
    """Start the program at its beginning."""
    command = deployment.command
    role = str(deployment.founded) if folder is None else f"{deployment.founded}:{folder}"
    return subprocess.Popen(  # noqa: S603 -- the user's own program
        [
            command.interpreter,
            *command.options,
            *("-P", "-m", "coterie.program.starting", str(wire)),
            role,
            *command.words,
        ],
        env=deployment.environment,
        cwd=deployment.folder,
        stdin=subprocess.DEVNULL,
        pass_fds=(wire,) if folder is None else (wire, folder),
        start_new_session=True,
    )


class RemoteProgram:
    """A program in its own process, from before its first order on."""

    mark = 0

    def __init__(self, start: Callable[[FrozenState | None], AppProcess], folder: str = "") -> None:
        self._start = start
        self.folder = folder
        """Where copies of it are found; nothing if none are made."""
        self._begins_with: FrozenState | None = None
        self._app: AppProcess | None = None
        self.fed = 0
        """The app was given all orders up to this one."""
        self.fed_inputs = 0
        """And all inputs up to this one."""
        self.is_leading = False
        self.diverged = ""
        self.made: bytes = b""
        """What the app that leads has just written."""
        self._frames = 0
        """How many frames of entries the app has executed."""
        self._performed = 0
        """How many of them were performed here."""
        self.effects: deque[WireFrame] = deque()
        """What the app that follows has done outside, and no order has said yet."""
        self.is_retired = False
        self.credit: dict[str, int] = {}
        """How much of each connection's output the app that leads knows to be taken."""
        self.has_exited = False
        self._names: dict[int, str] = {}
        self._there: dict[str, int] = {}
        """Connections that the app asked for, and knows to be there, or not."""

    def knows(self, number: int) -> bool:
        """Say whether a number is that of a client's connection."""
        return number in self._names

    def name(self, number: int) -> str:
        """Give the name of a connection by its number."""
        return self._names.get(number, str(number))

    @property
    def app(self) -> AppProcess:
        """The process, which is started when it is needed first."""
        if self._app is None:
            self._app = self._start(self._begins_with)
        return self._app

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._app is not None and not self._app.is_gone

    def is_from(self, app: AppProcess) -> bool:
        """Say whether frames of a process are for this program."""
        return app is self._app and not self.is_retired

    def retire(self) -> None:
        """End it: another one takes its place."""
        self.is_retired = True
        if self._app is not None:
            self._app.end()

    # ---- what the agent feeds

    def feed(self, number: int, order: Order) -> None:
        """Give the app the next order that it is to follow."""
        self.fed = number
        if order.kind is OrderKind.RAN:
            self.app.send(WireKind.ENTRIES, payload=order.data)

    def feed_input(self, each: Input) -> None:
        """Give the app the next input."""
        self.fed_inputs = each.number
        app, conn = self.app, each.conn
        # One frame for each: an app knows by their number which ones its copy has.
        if conn == SIGNALS and len(each.data) == 1:
            app.send(WireKind.SIGNALLED, each.data[0])
            return
        if conn.startswith(LISTENING):
            listener = number_of(conn.removeprefix(LISTENING))
            if listener is not None and len(each.data) == ANSWER_BYTES:
                app.send(WireKind.LISTENING, listener, int.from_bytes(each.data, signed=True))
                return
        number = number_of(conn)
        if number is None:
            app.send(WireKind.DATA)  # which is for nobody
            return
        is_first = not (each.offset or each.data or each.is_end)
        if is_first or (DialledName.parse(conn) and conn not in self._there):
            self._begin(conn, number, each)
        elif each.is_end:
            app.send(WireKind.END, number, errno.ECONNRESET if each.is_reset else 0)
        else:
            app.send(WireKind.DATA, number, 0, each.data)

    def _begin(self, conn: str, number: int, each: Input) -> None:
        """Tell the app that a client is there, or whether what it asked for is."""
        name = ClientName.parse(conn)
        self._names[number] = conn
        if name is None:
            self._there[conn] = each.number
            failed = errno.ECONNREFUSED if each.is_end else 0
            self.app.send(WireKind.CONNECTED, number, failed)
        else:
            self.app.send(WireKind.ARRIVED, number, name.listener, name.peer.encode())

    def took(self, each: WireFrame) -> None:
        """Take a frame of an app that follows."""
        kind, _, value, payload = each
        match kind:
            case WireKind.EXECUTED:
                self._frames = value
            case WireKind.DIVERGED:
                self.diverged = payload.decode(errors="replace") or "the program has diverged"
            case WireKind.EXITED:
                self.has_exited = True
                self.effects.append(each)
            case _ if kind in ORDERED or kind == WireKind.FROZEN:
                self.effects.append(each)
            case _:
                pass

    # ---- what the engine asks

    def wants(self) -> Sequence[Want]:
        """Say nothing: a real program chooses for itself."""
        return ()

    def may_take(self, thread: int, conn: str) -> bool:
        """Say no: see `wants`."""
        del thread, conn
        return False

    def can_perform(self, order: Order) -> bool:
        """Say whether the app has executed what an order says."""
        if self.is_leading or self.diverged or order.kind is not OrderKind.RAN:
            return True
        return self._performed < self._frames

    def perform(self, order: Order, taken: bytes) -> bytes:
        """Note that an order was executed; give what the app wrote. Raises `DivergedError`."""
        del taken
        said = _SAID.get(order.kind)
        if order.kind is OrderKind.TOLD and order.value in ORDERED:
            said = WireKind(order.value)
        written = self.made
        if not self.is_leading:
            if order.kind is OrderKind.RAN:
                if self._performed >= self._frames:
                    raise DivergedError(self.diverged)
                self._performed += 1
            elif said is not None:
                written = self._effect(order, said)
        if said is WireKind.CLOSED:
            self._forget(order.conn)
        elif said is WireKind.CONNECT:
            self._name(order.conn)
        return written if order.kind is OrderKind.SENT else b""

    def _effect(self, order: Order, kind: WireKind) -> bytes:
        """Take what the app has done outside; it must be what the order says."""
        if not self.effects:
            raise DivergedError(self.diverged or f"the program did not {kind.name.lower()} here")
        found, number, _, payload = self.effects.popleft()
        if found != kind or number != number_of(order.conn):
            raise DivergedError(f"the program did {WireKind(found).name} {number} instead")
        return payload

    def _name(self, conn: str) -> None:
        number = number_of(conn)
        if number is not None:
            self._names[number] = conn

    def _forget(self, conn: str) -> None:
        number = number_of(conn)
        if number is not None:
            self._names.pop(number, None)
        self._there.pop(conn, None)
        self.credit.pop(conn, None)

    # ---- the state

    def take_frozen(self) -> WireFrame | None:
        """Give what was said of a copy, if everything before it is performed."""
        if self.effects and self.effects[0][0] == WireKind.FROZEN and not self.is_leading:
            return self.effects.popleft()
        return None

    def describe(self, inputs: int) -> tuple[dict[int, str], dict[str, int]]:
        """Give what belongs to a copy that has inputs up to one: names, and who is there."""
        there = {conn: number for conn, number in self._there.items() if number <= inputs}
        return dict(self._names), there

    def snapshot(self) -> bytes:
        """Give nothing: whoever keeps a state adds where the copy is (`coterie.agents.frozen`)."""
        return b""

    def restore(self, state: bytes) -> None:
        """Begin with a copy, or at the beginning."""
        if state:
            found = decode_frozen(state)
            self._begins_with = found
            self.fed, self.fed_inputs = found.number, found.inputs
            self._names, self._there = dict(found.names), dict(found.there)
