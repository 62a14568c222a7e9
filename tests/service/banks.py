"""Three banks that are served together, and what their clients do."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from tests.patience import PATIENCE
from tests.service.served import Served

if TYPE_CHECKING:
    from pathlib import Path

BANKS = ("eu", "us", "asia")
ACCOUNTS = 12
"""In each bank."""
FUNDS = 100
"""In each account, at the beginning."""
TOTAL = len(BANKS) * ACCOUNTS * FUNDS

BANK = '''
from coterie import query, update
from coterie.transactional import Table, other


class Bank:
    """Accounts, and how many transfers each client has made here."""

    accounts: Table[str, int] = {}
    transfers: Table[str, int] = {}

    @update
    def found(self, accounts: int, funds: int) -> None:
        for number in range(accounts):
            self.accounts[str(number)] = funds

    @update
    def deposit(self, account: str, amount: int, client: str = "") -> int:
        """Give an amount to an account; a negative one takes it."""
        balance = self.accounts.get(account, 0) + amount
        if balance < 0:
            raise ValueError(f"{account} has too little")
        self.accounts[account] = balance
        if client:
            self.transfers[client] = self.transfers.get(client, 0) + 1
        return balance

    @update
    async def send(self, account: str, amount: int, bank: str, to: str) -> int:
        """Send an amount to an account of another bank."""
        balance = self.deposit(account, -amount)
        await other(bank, Bank).deposit(to, amount)
        return balance

    @query
    def balance(self, account: str) -> int:
        return self.accounts.get(account, 0)

    @query
    def total(self) -> int:
        return sum(self.accounts.values())

    @query
    def made(self, client: str) -> int:
        """Say how many transfers of a client this bank had a part in."""
        return self.transfers.get(client, 0)
'''


def load_bank(folder: Path) -> Any:  # noqa: ANN401 -- a class from a file
    """Import the class as clients have it: a copy of the same file."""
    spec = importlib.util.spec_from_file_location("bank", folder / "bank.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bank"] = module
    spec.loader.exec_module(module)
    return module.Bank


class ServedBanks(Served):
    """The banks; their primaries are on different replicas."""

    name = "bank"
    words = (*(f"{bank}=bank.py:Bank" for bank in BANKS), "--engine=vsr", "--name=bank")

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder, *options, source=BANK)

    def primary(self, bank: str) -> str:
        """Give who leads a bank, as far as it has been told."""
        for event in reversed(self.events):
            is_role = event["event"] == "role" and event["group"] == bank
            if is_role and event["role"] == "primary":
                return str(event["replica"])
        return "a"

    async def until_all_lead(self) -> None:
        """Wait until every bank has a primary and two backups."""

        def is_so() -> bool:
            roles = {
                (event["group"], event["replica"]): event["role"]
                for event in self.events
                if event["event"] == "role"
            }
            return all(
                sorted(role for (group, _), role in roles.items() if group == bank)
                == ["backup", "backup", "primary"]
                for bank in BANKS
            )

        await self.until(is_so)


class TransferProcess:
    """A client in a process of its own, which makes transfers and audits until it is told to end.

    What it says is in `lines`: one for each transaction, and the last with its counts.
    """

    def __init__(self, served: ServedBanks, name: str, seed: int) -> None:
        self.name = name
        self.lines: list[dict[str, Any]] = []
        self._served = served
        self._seed = seed
        self._process: asyncio.subprocess.Process
        self._reading: asyncio.Task[None]

    async def start(self) -> None:
        """Start the process."""
        words = [self.name, str(self._seed), str(self._served.folder), *self._served.addresses]
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.service.transfer_client", *words),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(json.loads(line))

    async def stop(self) -> None:
        """Have it end, and say its counts."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(PATIENCE):
            await self._reading
            status = await self._process.wait()
        assert status == 0, status

    @property
    def counts(self) -> dict[str, Any]:
        """What it said at the end."""
        return self.lines[-1]
