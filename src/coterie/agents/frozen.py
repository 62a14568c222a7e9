"""The state of a real program: where its frozen copy is, and what the agent knows beside it.

A `ProgramState` of the engine says how far the program is; its part for the program is a
`FrozenState` here. The copy itself is a process on this machine (`coterie.program.freezing`), asked
at a socket in the folder of the agent that had it made. Another agent of the machine may ask as
well: so a replica that joins begins with the primary's copy, and not with the founding.
"""

from __future__ import annotations

import array
import contextlib
import os
import re
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.decoding import Decoder, Int64
from coterie.program.freezing import LEASH, PID, QUIT, THAW, path_in

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "frozen"
"""Where an agent has its copies, in its folder."""
_PATIENCE = 5.0
"""Seconds within which a copy answers; it does nothing else."""
_NAME = re.compile("[0-9]+-[0-9]+")
"""As `coterie.program.freezing` names them."""
_CREDENTIALS = struct.Struct("=iII")  # process, user, group

encode_frozen = msgspec.msgpack.Encoder().encode


class NoCopy(Exception):
    """A frozen copy does not answer: its machine was started anew, or somebody ended it."""


class HeldInput(msgspec.Struct, frozen=True, array_like=True):
    """Input of a connection that the copy has and its program has not read."""

    base: Int64
    data: bytes
    is_ended: bool
    is_reset: bool


class FrozenState(msgspec.Struct, frozen=True, array_like=True):
    """A copy, and what it has met."""

    folder: str
    name: str
    number: Int64
    """The order behind which it stands."""
    inputs: Int64
    """All inputs up to this one are in it."""
    names: dict[int, str]
    """Of connections, by the numbers by which the program knows them."""
    there: dict[str, Int64]
    """Connections that the program asked for, and the input that said that they are there."""
    held: dict[str, HeldInput]


decode_frozen = Decoder(FrozenState).decode


class ThawedProcess:
    """A process that was made by a copy: somebody else's child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self, timeout: float | None = None) -> int:
        """Give no status: only its parent could."""
        del timeout
        return 0


def _is_name(name: str) -> bool:
    """Say whether a copy can have this name.

    Another replica says it, or a journal does: it must be no path of anything else.
    """
    return _NAME.fullmatch(name) is not None


def _owner_of(asked: socket.socket) -> int:
    """Give the user whose process is at the other end."""
    data = asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, owner, _ = _CREDENTIALS.unpack(data)
    return int(owner)


@contextlib.contextmanager
def _asking(folder: str, name: str) -> Iterator[socket.socket]:
    """Connect to a copy; raises `NoCopy`."""
    if not _is_name(name):
        raise NoCopy("no copy has such a name")
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.settimeout(_PATIENCE)
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            asking.connect(path_in(at, name))
        finally:
            os.close(at)
        if _owner_of(asking) != os.geteuid():
            raise NoCopy("the copy is a process of another user")
        yield asking
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise NoCopy(f"the copy of the state is gone ({reason})") from None
    finally:
        asking.close()


def thaw(state: FrozenState, stream: socket.socket, folder: int) -> ThawedProcess:
    """Have a copy become a program again, at the other end of a stream; raises `NoCopy`.

    Its own copies go into the folder.
    """
    with _asking(state.folder, state.name) as asking:
        rights = array.array("i", [stream.fileno(), folder])
        asking.sendmsg([THAW], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        answer = asking.recv(PID.size)
    if len(answer) != PID.size:
        raise NoCopy("the copy of the state has ended")
    return ThawedProcess(PID.unpack(answer)[0])


def is_there(state: FrozenState) -> bool:
    """Say whether a copy answers."""
    try:
        with _asking(state.folder, state.name):
            return True
    except NoCopy:
        return False


def end_copy(folder: str, name: str) -> None:
    """Have a copy end, if it is there."""
    if not _is_name(name):
        return
    with contextlib.suppress(NoCopy), _asking(folder, name) as asking:
        asking.send(QUIT)
    Path(folder, name).unlink(missing_ok=True)


class Leash:
    """What keeps a copy there, and tells when it is gone."""

    def __init__(self, folder: str, name: str) -> None:
        """Take it; raises `NoCopy`."""
        self.folder, self.name = folder, name
        with _asking(folder, name) as asking:
            asking.send(LEASH)
            self._socket = asking.dup()
        self._socket.settimeout(0)

    @property
    def is_cut(self) -> bool:
        """Whether the copy is gone."""
        try:
            return not self._socket.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def let_go(self) -> None:
        """Have the copy end."""
        self._socket.close()
        end_copy(self.folder, self.name)
