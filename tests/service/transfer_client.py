"""A client of the banks, in a process of its own: `python -m tests.service.transfer_client`.

It makes transfers between two banks, each a transaction, and audits of all banks, each a
transaction that only reads, several at a time, until its input ends. Then it finds out how those
ended of which nobody could tell it in time.
"""

# ruff: noqa: T201 -- printing is what it is for

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests import idle_time
from tests.patience import PATIENCE
from tests.service.banks import ACCOUNTS, BANKS, load_bank

import coterie
from coterie.cli.terminal.lines import read_lines
from coterie.client import ClientSettings
from coterie.kernel.errors import CoterieError
from coterie.objects import MethodFailed
from coterie.transactional import TransactionAborted, TransactionUnknown
from coterie.vsr.commit.client import Fate

if TYPE_CHECKING:
    from coterie.vsr.commit.psets import Aid

DEADLINE = 4.0
TASKS = 3
AUDITS = 0.1
"""How many of the transactions are audits."""
TRIES = 30
"""How often it asks how a transaction ended, before it gives up."""


def names_of(client: str) -> list[str]:
    """Give the names under which a client makes transfers, several at a time."""
    return [f"{client}.{number}" for number in range(TASKS)]


class TransferClient:
    """Makes transfers and audits, several at a time, from start to stop."""

    def __init__(self, name: str, seed: int, banks: dict[str, Any]) -> None:
        self._name = name
        self._random = Random(seed)  # noqa: S311 -- chooses accounts
        self._banks = banks
        self._clock = asyncio.get_running_loop().time
        self._stopping = asyncio.Event()
        self._committed = 0
        self._unknown: list[Aid] = []

    async def run(self) -> None:
        """Work until the input ends."""
        working = [asyncio.create_task(self._work(who)) for who in names_of(self._name)]
        async for _ in read_lines(0, line_bytes_max=4096):
            pass
        self._stopping.set()
        await asyncio.gather(*working)
        found = [await self._find_out(aid) for aid in self._unknown]
        self._say(
            kind="end",
            transfers=self._committed + found.count(Fate.COMMITTED),
            unknown=len(found),
            undecided=found.count(Fate.UNKNOWN),
        )

    async def _work(self, who: str) -> None:
        while not self._stopping.is_set():
            if self._random.random() < AUDITS:
                await self._audit()
            else:
                await self._transfer(who)

    async def _transfer(self, who: str) -> None:
        # Always in the same order, so that what is aborted is the work of faults for the most part.
        one, two = sorted(self._random.sample(BANKS, 2), key=BANKS.index)
        source, target = (str(self._random.randrange(ACCOUNTS)) for _ in range(2))
        amount = self._random.randrange(1, 30) * self._random.choice([1, -1])
        begun = self._clock()
        transaction = coterie.transaction(self._banks[one], self._banks[two], deadline=DEADLINE)
        try:
            async with transaction as t:
                await t[one].deposit(source, -amount, who)
                await t[two].deposit(target, amount, who)
        except (TransactionAborted, MethodFailed, TransactionUnknown) as error:
            if isinstance(error, TransactionUnknown) and error.aid is not None:
                self._unknown.append(error.aid)
            self._told("transfer", begun, [one, two], error)
        else:
            self._committed += 1
            self._told("transfer", begun, [one, two], None)

    async def _audit(self) -> None:
        begun = self._clock()
        total = 0
        transaction = coterie.transaction(*self._banks.values(), deadline=DEADLINE)
        try:
            async with transaction as t:
                for bank in BANKS:
                    total += await t[bank].total()
        except (TransactionAborted, TransactionUnknown) as error:
            self._told("audit", begun, [*BANKS], error)
        else:
            self._told("audit", begun, [*BANKS], None, total=total)

    def _told(
        self, kind: str, begun: float, banks: list[str], error: Exception | None, **more: object
    ) -> None:
        outcome = "committed"
        if isinstance(error, TransactionUnknown):
            outcome = "unknown"
        elif isinstance(error, MethodFailed):
            outcome = "refused"
        elif error is not None:
            outcome = "aborted"
        self._say(
            kind=kind,
            outcome=outcome,
            reason="" if error is None else str(error),
            banks=banks,
            at=time.monotonic(),
            took=self._clock() - begun,
            **more,
        )

    async def _find_out(self, aid: Aid) -> Fate:
        for _ in range(TRIES):
            outcome = await coterie.outcome_of(aid, self._banks[aid.group], deadline=DEADLINE)
            if outcome.fate is not Fate.UNKNOWN:
                return outcome.fate
        return Fate.UNKNOWN

    def _say(self, **fields: object) -> None:
        print(json.dumps(fields), flush=True)


async def main() -> None:
    """Connect to the banks, and work."""
    name, seed, folder, *addresses = sys.argv[1:]
    bank = load_bank(Path(folder))
    settings = ClientSettings(deadline=PATIENCE)
    async with AsyncExitStack() as stack:
        banks = {}
        for each in BANKS:
            connecting = coterie.connect(bank, addresses, group=each, settings=settings)
            banks[each] = await stack.enter_async_context(connecting)
        await TransferClient(name, int(seed), banks).run()


if __name__ == "__main__":
    try:
        idle_time.run(main())
    except CoterieError as error:
        sys.exit(f"transfer client: {error}")
