"""Money between two banks, each replicated: a transaction moves it, in both or in none.

    coterie serve eu=examples/transfers.py:Bank us=examples/transfers.py:Bank \
        --engine vsr --name bank
    python examples/transfers.py ADDRESS        # any that `coterie status eu` shows

Kill a replica meanwhile (`kill -9`, its process is in `coterie status eu`), and run it again.
"""
# ruff: noqa: INP001, T201 -- a program, not a package, that prints

from __future__ import annotations

import asyncio
import sys

import coterie
from coterie import MethodFailed
from coterie.transactional import Table, TransactionAborted, TransactionUnknown


class Bank:
    """Accounts with locks of their own."""

    accounts: Table[str, int] = {}  # noqa: RUF012 -- copied for each object

    @coterie.update
    def deposit(self, account: str, amount: int) -> int:
        """Give an amount to an account."""
        self.accounts[account] = self.accounts.get(account, 0) + amount
        return self.accounts[account]

    @coterie.update
    def withdraw(self, account: str, amount: int) -> int:
        """Take an amount from an account that has it."""
        balance = self.accounts.get(account, 0) - amount
        if balance < 0:
            raise ValueError(f"{account} has too little")
        self.accounts[account] = balance
        return balance

    @coterie.query
    def balance(self, account: str) -> int:
        """Give what an account has."""
        return self.accounts.get(account, 0)


async def main(address: str) -> None:
    """Move money from one bank to the other, and look at both."""
    async with (
        coterie.connect(Bank, address, group="eu") as eu,
        coterie.connect(Bank, address, group="us") as us,
    ):
        await eu.deposit("alice", 10)  # a transaction of its own
        try:
            async with coterie.transaction(eu, us) as t:
                await t.eu.withdraw("alice", 10)
                await t.us.deposit("bob", 10)
        except MethodFailed as failed:
            print("the method raised, and nothing happened:", failed)
        except TransactionAborted as aborted:
            print("nothing happened:", aborted)
        except TransactionUnknown as unknown:
            # Nobody could say by the deadline. Whoever asks later is told, or it never happens.
            if unknown.aid is not None:
                print("it is", (await coterie.outcome_of(unknown.aid, eu)).fate.value)
        async with coterie.transaction(eu, us) as t:  # what both had at one moment
            print("alice", await t.eu.balance("alice"), "bob", await t.us.balance("bob"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
