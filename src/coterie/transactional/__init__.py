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
        async def send(self, account: str, amount: int, group: str, to: str) -> int:
            self.accounts[account] -= amount
            await other(group, Bank).deposit(to, amount)    # the same transaction
            return self.accounts[account]

A class written for the other stacks runs here unchanged: its fields together are then one object,
with one lock. `docs/vsr.md` says what a transaction promises.
"""

from coterie.transactional.executor import ObjectExecutor
from coterie.transactional.nested import NestedFailed, other
from coterie.transactional.tables import Table

__all__ = ["NestedFailed", "ObjectExecutor", "Table", "other"]
