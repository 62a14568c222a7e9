"""What entries of object groups ask for: whose request they are, and when it was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from coterie.objects.commands import Call, Calls, Effects, Read, decode_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from coterie.objects.commands import Command

    Numbers = NDArray[np.int64]

NO_SESSION = -1
"""Of entries that are no request of a client's session, and no read."""
_TRIED = 16
_count = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


@dataclass(slots=True)
class Requests:
    """Parallel columns, one value for each entry."""

    session: Numbers
    first: Numbers
    last: Numbers
    """The numbers of the requests it carries."""
    asked_at: Numbers
    are_commands: bool
    """Whether the entries are those of an object group at all."""


class _Other(NamedTuple):
    """What is no plain call, with the names of one."""

    session: int
    request: int
    last: int
    asked_at: int


_NOBODY = _Other(NO_SESSION, 0, 0, 0)


def requests_of(payloads: Sequence[bytes]) -> Requests:
    """Read the payloads of entries."""
    size = len(payloads)
    if not any(_is_command(payload) for payload in payloads[:_TRIED]):
        nothing = np.zeros(size, np.int64)
        return Requests(nothing - 1, nothing, nothing, nothing, are_commands=False)
    commands = [_read(payload) for payload in payloads]
    first = np.fromiter((each.request for each in commands), np.int64, size)
    last = first.copy()
    for index, each in enumerate(commands):
        if type(each) is _Other:
            last[index] = each.last
    return Requests(
        session=np.fromiter((each.session for each in commands), np.int64, size),
        first=first,
        last=last,
        asked_at=np.fromiter((each.asked_at for each in commands), np.int64, size),
        are_commands=True,
    )


def _is_command(payload: bytes) -> bool:
    try:
        decode_command(payload)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _read(payload: bytes) -> Call | _Other:
    try:
        command = decode_command(payload)
    except (msgspec.DecodeError, RecursionError):
        return _NOBODY
    return command if type(command) is Call else _other(command)


def _other(command: Command) -> _Other:
    match command:
        case Calls(session=session, first=first, arguments=arguments, asked_at=asked_at):
            return _Other(session, first, first + len(_count(arguments)) - 1, asked_at)
        case Read(token=token, asked_at=asked_at):
            return _Other(0, token, token, asked_at)
        case Effects(session=session, request=request):
            return _Other(session, request, request, 0)
        case _:
            return _NOBODY
