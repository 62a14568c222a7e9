"""What entries of object groups ask for: whose request they are, and when it was made."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec
import numpy as np

from coterie.kernel.decoding import Decoder
from coterie.kernel.requests import ServiceRequest
from coterie.objects.execution.commands import Call, CallIf, Calls, Command, Read, decode_command

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

NO_SESSION = -1
"""Of entries that are no request of a client's session, and no read."""
_TRIED = 16
_ARRAY_HEAD = struct.Struct(">BI")
_decode_all = Decoder(list[Command]).decode
_count = Decoder(list[msgspec.Raw]).decode


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


def requests_of(payloads: pa.ChunkedArray) -> Requests:
    """Read the payloads of entries."""
    size = len(payloads)
    if not any(_is_command(payload) for payload in payloads[:_TRIED].to_pylist()):
        nothing = np.zeros(size, np.int64)
        return Requests(nothing - 1, nothing, nothing, nothing, are_commands=False)
    commands = [command for chunk in payloads.chunks for command in _read_all(chunk)]
    first = _column(commands, "request")
    last = first.copy()
    if _Other in set(map(type, commands)):
        for index, each in enumerate(commands):
            if type(each) is _Other:
                last[index] = each.last
    return Requests(
        session=_column(commands, "session"),
        first=first,
        last=last,
        asked_at=_column(commands, "asked_at"),
        are_commands=True,
    )


def _column(commands: list[Call | _Other], name: str) -> Numbers:
    return np.fromiter(map(attrgetter(name), commands), np.int64, len(commands))


def _read_all(payloads: pa.BinaryArray) -> list[Call | _Other]:
    """Read payloads at once, which is several times faster, or one by one if one is no command."""
    if not len(payloads):
        return []
    # They lie one after the other in one piece of memory, so with a head they are an array.
    _, ends, data = payloads.buffers()
    bounds = np.frombuffer(ends, np.int32)[payloads.offset : payloads.offset + len(payloads) + 1]
    head = _ARRAY_HEAD.pack(0xDD, len(payloads))
    try:
        commands = _decode_all(head + memoryview(data)[bounds[0] : bounds[-1]])
    except msgspec.DecodeError:
        return [_read(payload) for payload in payloads.to_pylist()]
    if set(map(type, commands)) == {Call}:  # as nearly always
        return cast("list[Call | _Other]", commands)
    return [each if type(each) is Call else _other(each) for each in commands]


def _is_command(payload: bytes) -> bool:
    try:
        decode_command(payload)
    except msgspec.DecodeError:
        return False
    return True


def _read(payload: bytes) -> Call | _Other:
    try:
        command = decode_command(payload)
    except msgspec.DecodeError:
        return _NOBODY
    return command if type(command) is Call else _other(command)


def _other(command: Command) -> _Other:
    match command:
        case Calls(session=session, first=first, arguments=arguments, asked_at=asked_at):
            return _Other(session, first, first + len(_count(arguments)) - 1, asked_at)
        case CallIf(session=session, request=request, asked_at=asked_at):
            return _Other(session, request, request, asked_at)
        case Read(token=token, asked_at=asked_at):
            return _Other(0, token, token, asked_at)
        case ServiceRequest(client=client, number=number):
            return _Other(client, number, number, 0)
        case _:
            return _NOBODY
