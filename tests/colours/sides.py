"""Callers on every side of a cut: a ledger that they enter names into, and what they are told.

    python -m tests.colours.sides --call NAME RATE NOTES ADDRESS ...

runs one caller: it enters NAME-1, NAME-2 … red, RATE a second, and follows each until it is green;
and as many one after the other plain, waiting for green. When its input ends it makes no more
calls, waits for all outcomes, and writes what it was told to the file NOTES.

    python -m tests.colours.sides ADDRESS ...

prints what the replica at each address has in the ledger.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from tests.patience import PATIENCE

import coterie
from coterie.client import ClientSettings, NotDone, OutcomeUnknown
from coterie.client.connecting import connect_object, open_client
from coterie.objects.classes.faces import MethodResult
from coterie.runtime.loop import run as run_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable

PLAIN_DEADLINE = 2.0
PAGE = 10_000


class Ledger:
    """Names, in the order in which they were entered."""

    names: list[str]

    def __init__(self) -> None:
        self.names = []

    @coterie.update
    def enter(self, name: str) -> int:
        """Enter a name; give its place."""
        self.names.append(name)
        return len(self.names)

    @coterie.query
    def page(self, start: int, count: int) -> list[str]:
        return self.names[start : start + count]


class Told(msgspec.Struct):
    """What a caller was told of one name; a place is 0 where it was told none."""

    name: str
    red: int = 0
    green: int = 0
    has_changed: bool = False
    error: str = ""
    """Why there is no green place, by the kind of the error."""


class Caller:
    """Calls until told to stop."""

    def __init__(self, ledger: type[Ledger], name: str) -> None:
        self._ledger = ledger
        self._name = name
        self._count = 0
        self.told: list[Told] = []
        self.is_stopping = asyncio.Event()

    def _next(self) -> Told:
        self._count += 1
        told = Told(f"{self._name}-{self._count}")
        self.told.append(told)
        return told

    async def enter_red(self, rate: float) -> None:
        """Enter names red, so many a second."""
        async with asyncio.TaskGroup() as following:
            while not self.is_stopping.is_set():
                following.create_task(self._enter_red(self._next()))
                await self._pause(1 / rate)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.is_stopping.wait()
        except TimeoutError:
            return

    async def _enter_red(self, told: Told) -> None:
        red = self._ledger.enter.options(colour="red", deadline=PATIENCE).detailed(told.name)
        result = await _outcome(red, told)
        if result is None:
            return
        told.red = result.value
        green = await _outcome(result.settled(), told)
        if green is not None:
            told.green, told.has_changed = green.value, green.has_changed

    async def enter_plain(self, rate: float) -> None:
        """Enter one name after the other, waiting for green."""
        enter = self._ledger.enter.options(deadline=PLAIN_DEADLINE)
        while not self.is_stopping.is_set():
            told = self._next()
            green = await _outcome(enter.detailed(told.name), told)
            if green is not None:
                told.green = green.value
            await self._pause(1 / rate)


async def _outcome(asked: Awaitable[MethodResult[int]], told: Told) -> MethodResult[int] | None:
    try:
        return await asked
    except (NotDone, OutcomeUnknown) as error:
        told.error = type(error).__name__
        return None


async def call(name: str, rate: float, notes: Path, addresses: list[str]) -> None:
    """Be one caller, until the input ends."""
    settings = ClientSettings(deadline=PATIENCE)
    async with coterie.connect(Ledger, addresses, settings=settings) as ledger:
        caller = Caller(ledger, name)
        async with asyncio.TaskGroup() as calls:
            calls.create_task(caller.enter_red(rate))
            calls.create_task(caller.enter_plain(rate))
            await asyncio.to_thread(sys.stdin.read)
            caller.is_stopping.set()
    await asyncio.to_thread(notes.write_bytes, msgspec.json.encode(caller.told))


async def read(address: str) -> list[str]:
    """Read the ledger of one replica, what is green there."""
    settings = ClientSettings(deadline=PATIENCE)
    opening = open_client(address, settings=settings, spread=False)
    names: list[str] = []
    async with connect_object(Ledger, opening) as connected:
        ledger = cast("type[Ledger]", connected)
        page = ledger.page.options(level="weak")
        while more := await page(len(names), PAGE):
            names += more
    return names


async def _read_all(addresses: list[str]) -> list[list[str]]:
    return [await read(address) for address in addresses]


if __name__ == "__main__":
    if sys.argv[1] == "--call":
        name, rate, notes = sys.argv[2:5]
        run_loop(call(name, float(rate), Path(notes), sys.argv[5:]))
    else:
        sys.stdout.write(json.dumps(run_loop(_read_all(sys.argv[1:]))))
