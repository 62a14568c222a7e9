"""Plain classes under viewstamped replication, as parts of transactions.

    from coterie.objects import define, update
    from coterie.transactional import Table, other

    class Bank:
        accounts: Table[str, int] = {}        # each key has its own lock; elsewhere it is a dict

        @update
        def deposit(self, account: str, amount: int) -> int:
            self.accounts[account] = self.accounts.get(account, 0) + amount
            return self.accounts[account]

        @update
        def withdraw(self, account: str, amount: int) -> int:
            return self.deposit(account, -amount)

        @update
        async def send(self, account: str, amount: int, group: str, to: str) -> int:
            self.accounts[account] -= amount
            await other(group, Bank).deposit(to, amount)    # the same transaction
            return self.accounts[account]

    async with coterie.local_groups(eu=Bank, us=Bank) as groups:
        async with groups.transaction() as t:
            await t.eu.withdraw("alice", 10)
            await t.us.deposit("bob", 10)

A class written for the other stacks runs here unchanged: its fields together are then one object,
with one lock. `docs/internals/vsr.md` says what a transaction promises.
"""

from coterie.transactional.executor import ObjectExecutor
from coterie.transactional.face import PartAborted, TransactionAborted, TransactionUnknown
from coterie.transactional.nested import other
from coterie.transactional.tables import Table

__all__ = [
    "ObjectExecutor",
    "PartAborted",
    "Table",
    "TransactionAborted",
    "TransactionUnknown",
    "other",
]
