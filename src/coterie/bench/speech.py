"""A worker's ear and mouth: orders come in on standard input, answers leave on standard output."""

from __future__ import annotations

import asyncio
import sys
from typing import Self

import msgspec

from coterie.bench.words import Answer, Order


class Orders:
    """The orders of the conductor, one after the other, until there are no more."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    @classmethod
    async def open(cls) -> Self:
        """Begin to listen."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        return cls(reader)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Order:
        line = await self._reader.readline()
        if not line:
            raise StopAsyncIteration
        order: Order = msgspec.json.decode(line, type=Order)
        return order


def answer(answer: Answer) -> None:
    """Answer the last order."""
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()
