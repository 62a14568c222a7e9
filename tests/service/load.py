"""Clients of a `Ledger` that notice everything: what was lost, doubled, or out of order.

A *scribe* enters one number after the other and knows which of them were acknowledged. A *reader*
reads and writes registers, and keeps a history for the linearizability checker. Both note when
their calls ended, so that gaps in the service can be found.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from tests.patience import PATIENCE

from coterie.checking.linearizability import (
    At,
    CompareAndSet,
    Operation,
    PerKey,
    ReadRegister,
    Register,
    WriteRegister,
    check,
)
from coterie.client import ClientSettings, MethodFailed, NotDone, OutcomeUnknown, connect_untyped

if TYPE_CHECKING:
    from collections.abc import Hashable
    from random import Random

    from coterie.checking.linearizability import Verdict
    from coterie.checking.linearizability.models import RegisterCommand
    from coterie.client import UntypedObject

DEADLINE = 3.0
SLACK = 1.0
"""How much later than its deadline a call may end before that counts; the machine may be busy."""
EPOCH = 2.0
"""How many seconds registers are used before others are: it keeps histories short."""
PAUSE = 0.003

History = list[Operation[At["RegisterCommand"], "Hashable"]]


@dataclass
class Notes:
    """What all clients saw."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    """The last number of each scribe that was acknowledged."""
    done_at: list[float] = field(default_factory=list)
    """When updates were acknowledged."""
    history: History = field(default_factory=list)
    unknown: int = 0
    not_done: int = 0
    latest: float = 0.0
    """How much later than its deadline the latest call ended."""
    violations: list[str] = field(default_factory=list)

    def verdict(self) -> Verdict[Hashable, At[RegisterCommand], Hashable]:
        """Judge the history of the registers."""
        return check(self.history, PerKey(Register(start=0)))

    def ended(self, begun: float) -> None:
        """Note that a call has an outcome that began then, on the clock of the loop.

        In `tests.idle_time` it does not count time in which this process got no turn.
        """
        now = asyncio.get_running_loop().time()
        self.latest = max(self.latest, now - begun - DEADLINE)


class Load:
    """Some scribes and readers, each with its own connections; `async with` runs them."""

    def __init__(self, addresses: list[str], random: Random, *, scribes: int, readers: int) -> None:
        self.notes = Notes()
        self.addresses = addresses
        """Where clients begin; those that run learn the rest by themselves."""
        self._random = random
        self._names = [f"scribe {number}" for number in range(scribes)]
        self._readers = readers
        self._over = asyncio.Event()
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._value = 0
        self._begun = time.monotonic()

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._scribe(name)) for name in self._names]
        self._tasks += [
            asyncio.create_task(self._reader(f"reader {number}")) for number in range(self._readers)
        ]
        for task in self._tasks:
            task.add_done_callback(lambda _: self._news.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        await asyncio.gather(*self._tasks)

    async def until(self, acknowledged: int) -> None:
        """Wait until so many updates have been acknowledged, or something was wrong."""
        while len(self.notes.done_at) < acknowledged and not self.notes.violations:
            for task in self._tasks:
                if task.done():
                    task.result()  # what it ended in, unless it noted a violation
            self._news.clear()
            await self._news.wait()

    async def check_end(self) -> None:
        """Ask the object, once it is at rest, whether it knows all that it acknowledged."""
        settings = ClientSettings(deadline=PATIENCE)
        async with connect_untyped(self.addresses, settings=settings) as ledger:
            for name, acknowledged in self.notes.acknowledged.items():
                last = await ledger.method("last")(name)
                if last < acknowledged:
                    self.notes.violations.append(
                        f"{name}: {acknowledged} was acknowledged, and {last} is known"
                    )

    # ---- scribes

    async def _scribe(self, name: str) -> None:
        notes = self.notes
        clock = asyncio.get_running_loop().time
        number, is_unsure = 1, False
        settings = ClientSettings(deadline=DEADLINE)
        async with connect_untyped(self.addresses, settings=settings) as ledger:
            enter = ledger.method("enter")
            while not self._over.is_set():
                asked = clock()
                try:
                    before = await enter(name, number)
                except NotDone:
                    notes.not_done += 1
                    continue
                except OutcomeUnknown:
                    notes.unknown += 1
                    is_unsure = True
                    continue
                except MethodFailed as failure:
                    if not is_unsure or f"entered {number} and now" not in failure.message:
                        notes.violations.append(f"{failure} (unsure: {is_unsure})")
                        return
                    before = number - 1  # the one before was executed after all
                finally:
                    notes.ended(asked)
                    self._news.set()
                if before != number - 1:
                    notes.violations.append(f"{name}: {number} follows {before}")
                    return
                notes.acknowledged[name] = number
                notes.done_at.append(time.monotonic())
                number, is_unsure = number + 1, False
                await asyncio.sleep(PAUSE)

    # ---- readers

    async def _reader(self, name: str) -> None:
        notes = self.notes
        clock = asyncio.get_running_loop().time
        settings = ClientSettings(deadline=DEADLINE)
        seen = 0
        async with connect_untyped(self.addresses, settings=settings) as ledger:
            while not self._over.is_set():
                begun, asked = time.monotonic(), clock()
                register = f"register {int((begun - self._begun) / EPOCH)}"
                command = self._choose(seen)
                result: Hashable = None
                ended: float | None = None
                try:
                    result = await _call(ledger, register, command)
                    ended = time.monotonic()
                except NotDone:
                    notes.not_done += 1
                    continue
                except OutcomeUnknown:
                    notes.unknown += 1
                finally:
                    notes.ended(asked)
                    self._news.set()
                key = At(register, command)
                if ended is None:
                    notes.history.append(Operation(process=name, command=key, called=begun))
                else:
                    notes.history.append(
                        Operation(
                            process=name, command=key, result=result, called=begun, returned=ended
                        )
                    )
                    if not isinstance(command, ReadRegister):
                        notes.done_at.append(ended)
                    elif isinstance(result, int):
                        seen = result
                await asyncio.sleep(PAUSE)

    def _choose(self, seen: int) -> RegisterCommand:
        chance = self._random.random()
        if chance < 0.5:
            return ReadRegister()
        self._value += 1
        return WriteRegister(self._value) if chance < 0.75 else CompareAndSet(seen, self._value)


async def _call(ledger: UntypedObject, register: str, command: RegisterCommand) -> Hashable:
    result: Hashable
    match command:
        case ReadRegister():
            result = await ledger.method("read")(register)
        case WriteRegister(value):
            result = await ledger.method("write")(register, value)
        case CompareAndSet(expected, new):
            result = await ledger.method("swap")(register, expected, new)
    return result
