"""How an operator speaks to a process on the same machine: a socket in the process's folder.

Only who may write into the folder can connect, so nothing more is asked of them, and nothing here
can be reached over a network. A connection carries one order, a line of JSON, and its answer.

| Order | To | Does |
|---|---|---|
| `Look` | a supervisor | tells how its processes are |
| `Stop` | a supervisor | stops all its processes, then itself; answered at once |
| `PutUp` | a supervisor | starts a replica that is to join a group, and writes it into the file |
| `TakeDown` | a supervisor | ends a replica that was removed from a group, or never joined it |
| `Recover` | a replica | lets a replica that has lost its memory count again |
| `Admit` | a replica | has its group admit a newcomer |
| `TakeBackup` | a replica | writes the state of its group into a file |
| `Dismiss` | a replica | has its group go on without a member |
| `SignalProgram` | the supervisor of a program | sends the program a signal |
| `ChangeReplica` | the supervisor of a program | takes a replica out, or has it join again |
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.decoding import JsonDecoder
from coterie.kernel.errors import CoterieError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

SOCKET = "control"
LINE_BYTES_MAX = 1 << 20
TIMEOUT_SECONDS = 10.0


class NobodyThere(CoterieError):
    """No process listens in the folder."""


class Look(msgspec.Struct, frozen=True, tag=True, tag_field="order"):
    """Tell how the processes are."""


class Stop(msgspec.Struct, frozen=True, tag=True, tag_field="order"):
    """End everything in good order."""


class Recover(msgspec.Struct, frozen=True, tag=True, tag_field="order"):
    """Count again although entries may have been lost."""

    group: str


class PutUp(msgspec.Struct, frozen=True, tag=True, tag_field="order"):
    """Start a replica that is to join a group; the answer says its id."""

    group: str
    id: str = ""
    """How it is to be called; if nothing is said, the supervisor chooses."""


class TakeDown(msgspec.Struct, frozen=True, tag=True, tag_field="order"):
    """End a replica that does not belong to a group any more."""

    group: str
    id: str


class Admit(msgspec.Struct, frozen=True, tag=True, tag_field="order"):
    """Have a newcomer join."""

    group: str
    id: str
    peers: str
    """Where other replicas reach it."""
    clients: str
    expected: int = 0
    """Only while the group has the configuration of this number; 0: whichever it has."""


class Dismiss(msgspec.Struct, frozen=True, tag=True, tag_field="order"):
    """Have a member go."""

    group: str
    id: str
    expected: int = 0
    """As in `Admit`."""


class SignalProgram(msgspec.Struct, frozen=True, tag=True, tag_field="order"):
    """Send a replicated program a signal, in its place in the order."""

    number: int


class ChangeReplica(msgspec.Struct, frozen=True, tag=True, tag_field="order"):
    """Take a replica of a program out, or have it join again."""

    replica: str
    is_wanted: bool


class TakeBackup(msgspec.Struct, frozen=True, tag=True, tag_field="order"):
    """Write the state of a group into a file; the answer comes when writing has begun."""

    group: str
    path: str


ControlOrder = (
    Look
    | Stop
    | PutUp
    | TakeDown
    | Recover
    | Admit
    | Dismiss
    | TakeBackup
    | SignalProgram
    | ChangeReplica
)


class ProcessSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A process as its supervisor sees it."""

    id: str
    state: str
    """starting, running, waiting (to be started again), given up, removed, or stopped."""
    pid: int = 0
    role: str = ""
    """In the group of which it said something last."""
    roles: dict[str, str] = {}
    """In each of its groups, as it said last."""
    restarts: int = 0
    reason: str = ""
    """Why it is not running, or why it was started again last."""
    more: dict[str, Any] = {}
    """What a process of a replicated program says of itself."""


class ControlAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order."""

    is_done: bool
    text: str = ""
    pid: int = 0
    processes: list[ProcessSeen] = []


_order_decoder: JsonDecoder[ControlOrder] = JsonDecoder(ControlOrder)
_decode_order = _order_decoder.decode
_decode_answer = JsonDecoder(ControlAnswer).decode
_encode = msgspec.json.Encoder().encode


@contextlib.contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """Give a path of the socket that fits into an address, however deep the folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = f"/proc/self/fd/{descriptor}/{SOCKET}"
        yield short if os.path.isdir("/proc/self/fd") else str(folder / SOCKET)  # noqa: PTH112
    finally:
        os.close(descriptor)


@contextlib.asynccontextmanager
async def listening(
    folder: Path, obey: Callable[[ControlOrder], Awaitable[ControlAnswer]]
) -> AsyncIterator[None]:
    """Take orders as long as the block lasts; the folder must be locked by the caller."""
    place = folder / SOCKET
    place.unlink(missing_ok=True)  # left by a process that was killed
    listener = socket.socket(socket.AF_UNIX)
    try:
        with _short_path(folder) as path:
            listener.bind(path)
        place.chmod(0o600)
    except OSError as error:
        listener.close()
        raise CoterieError(f"no control socket in {folder}: {error.strerror or error}") from None

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(TIMEOUT_SECONDS):
                answer = await _obey(await reader.readline(), obey)
                writer.write(_encode(answer) + b"\n")
                await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(converse, sock=listener, limit=LINE_BYTES_MAX)
    try:
        yield
    finally:
        server.close()
        place.unlink(missing_ok=True)


async def _obey(
    line: bytes, obey: Callable[[ControlOrder], Awaitable[ControlAnswer]]
) -> ControlAnswer:
    try:
        order = _decode_order(line)
    except msgspec.DecodeError as error:
        return ControlAnswer(is_done=False, text=f"the order cannot be understood: {error}")
    try:
        return await obey(order)
    except CoterieError as error:
        return ControlAnswer(is_done=False, text=str(error))


def give_order(folder: Path, order: ControlOrder) -> ControlAnswer:
    """Give an order to the process of a folder; raises `NobodyThere`."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT_SECONDS)
    with connection:
        try:
            with _short_path(folder) as path:
                connection.connect(path)
            connection.sendall(_encode(order) + b"\n")
            line = connection.makefile("rb").readline(LINE_BYTES_MAX)
            return _decode_answer(line)
        except TimeoutError:
            raise CoterieError(
                f"the process in {folder} does not answer; it may be paused, or very busy"
            ) from None
        except (OSError, msgspec.DecodeError):
            raise NobodyThere(f"no process listens in {folder}") from None
