"""Lines from standard input, inside an event loop, whatever standard input is."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_CHUNK_BYTES = 1 << 16


class LineTooLong(Exception):
    """Stands in the place of a line that was longer than allowed; it is thrown away."""


async def read_lines(file: int, *, line_bytes_max: int) -> AsyncIterator[list[bytes | LineTooLong]]:
    """Give lines as they come, without their ends, in batches of what can be read at once.

    The iterator ends with the input. While nobody asks for the next batch nothing is read, so
    whoever writes the lines has to wait.
    """
    rest = b""
    too_long = False
    while chunk := await _read(file):
        *whole, rest = (rest + chunk).split(b"\n")
        batch: list[bytes | LineTooLong] = []
        for line in whole:
            if too_long or len(line) > line_bytes_max:
                batch.append(LineTooLong())
            else:
                batch.append(line.removesuffix(b"\r"))
            too_long = False
        if too_long or len(rest) > line_bytes_max:
            # Remember only that the line is too long, not the line.
            too_long, rest = True, b""
        if batch:
            yield batch
    if too_long:
        yield [LineTooLong()]
    elif rest:
        yield [rest]


async def _read(file: int) -> bytes:
    """Read what is there, or wait until something is."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(file, _set, readable)
    except PermissionError:
        await asyncio.sleep(0)  # a regular file, or /dev/null: never lets anyone wait
    except OSError:
        return b""  # there is no standard input
    else:
        try:
            await readable
        finally:
            loop.remove_reader(file)
    try:
        return os.read(file, _CHUNK_BYTES)
    except OSError:
        return b""  # a terminal that is gone


def _set(readable: asyncio.Future[None]) -> None:
    if not readable.done():  # a loop may say it twice before anyone could read
        readable.set_result(None)
