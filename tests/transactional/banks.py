"""Classes for transactions."""

from __future__ import annotations

from typing import ClassVar

from coterie.objects import new_id, query, update
from coterie.transactional import Table, other


class Overdrawn(Exception):
    pass


class Frozen(Exception):
    """The account takes nothing."""

    def __init__(self, account: str, since: float) -> None:
        super().__init__(f"{account} is frozen")
        self.account = account
        self.since = since


class ClassBank:
    """A bank whose accounts have locks of their own."""

    errors = (Frozen,)
    accounts: Table[str, int] = {}  # noqa: RUF012 -- copied for each object

    @update
    def deposit(self, account: str, amount: int) -> int:
        self.accounts[account] = self.accounts.get(account, 100) + amount
        return self.accounts[account]

    @update
    def withdraw(self, account: str, amount: int) -> int:
        balance = self.accounts.get(account, 100) - amount
        self.accounts[account] = balance
        if balance < 0:
            raise Overdrawn(account)
        return balance

    @update
    async def send(self, account: str, amount: int, group: str, to: str) -> int:
        balance = self.withdraw(account, amount)
        await other(group, ClassBank).deposit(to, amount)
        return balance

    @update
    def freeze(self, account: str) -> int:
        self.accounts[account] = 0
        raise Frozen(account, 1.5)

    @update
    async def send_frozen(self, group: str, account: str) -> str:
        try:
            await other(group, ClassBank).freeze(account)
        except Frozen as frozen:
            return f"{frozen.account} since {frozen.since}"
        return "not frozen"

    @update
    async def send_frozen_on(self, group: str, account: str) -> None:
        await other(group, ClassBank).freeze(account)

    @update
    def close(self, account: str) -> int:
        return self.accounts.pop(account)

    @query
    def balance(self, account: str) -> int:
        return self.accounts.get(account, 100)

    @query
    def names(self) -> list[str]:
        return sorted(self.accounts)

    @query
    def total(self) -> int:
        return sum(self.accounts.values())


class Notes:
    """Tables with keys and values of other types, beside plain fields."""

    count: int = 0
    pages: Table[int, list[str]] = {}  # noqa: RUF012 -- copied for each object
    LIMIT: ClassVar[int] = 3

    @update
    def note(self, page: int, text: str) -> int:
        self.pages.setdefault(page, []).append(text)
        self.count += 1
        return self.count

    @update
    def label(self) -> str:
        return new_id()

    @query
    def read(self, page: int) -> list[str]:
        return self.pages.get(page, [])


class Plain:
    """Written for the other stacks: one object, with one lock."""

    value: int = 0
    seen: list[int] = []  # noqa: RUF012 -- copied for each object

    @update
    def add(self, amount: int) -> int:
        self.value += amount
        self.seen.append(amount)
        return self.value

    @query
    def total(self) -> int:
        return self.value
