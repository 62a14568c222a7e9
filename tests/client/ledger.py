"""A class that shows what clients can do."""

from __future__ import annotations

from coterie import query, update


class TooMuch(Exception):
    """More than the ledger takes."""

    def __init__(self, amount: int, limit: int) -> None:
        super().__init__(f"{amount} is more than {limit}")
        self.amount = amount
        self.limit = limit


class Ledger:
    """Keeps amounts, in their order."""

    errors = (TooMuch, LookupError)
    amounts: list[int] = []  # noqa: RUF012 -- copied for each object

    @update
    def add(self, amount: int) -> int:
        self.amounts.append(amount)
        return sum(self.amounts)

    @update
    def add_some(self, amount: int) -> int:
        self.amounts.append(amount)
        if amount > 10:
            raise TooMuch(amount, 10)
        return amount

    @update
    def refuse(self, why: str) -> int:
        self.amounts.append(0)
        raise ValueError(why)

    @query
    def at(self, place: int) -> int:
        if place >= len(self.amounts):
            raise LookupError(place)
        return self.amounts[place]

    @query
    def total(self) -> int:
        return sum(self.amounts)

    @query
    def count(self) -> int:
        return len(self.amounts)
