"""A worker's ear and mouth: orders come in on standard input, answers leave on standard output."""

from __future__ import annotations

import asyncio
import sys
from typing import Self

import msgspec

from coterie.bench.harness.protocol import WorkerAnswer, WorkerOrder


class Orders:
    """The orders of the controller, one after the other, until there are no more."""

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

    async def __anext__(self) -> WorkerOrder:
        line = await self._reader.readline()
        if not line:
            raise StopAsyncIteration
        order: WorkerOrder = msgspec.json.decode(line, type=WorkerOrder)
        return order


def answer(answer: WorkerAnswer) -> None:
    """Answer the last order."""
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()
