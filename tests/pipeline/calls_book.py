"""A class with arguments of many types, for the tables that are made of signatures."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import Enum

import msgspec

from coterie.objects import update


class Tariff(Enum):
    DAY = "day"
    NIGHT = "night"


class Leg(msgspec.Struct):
    """A part of a call."""

    trunk: str
    seconds: int


class CallsBook:
    """Call records to bill."""

    owed: dict[str, Decimal]

    def __init__(self) -> None:
        self.owed = {}

    @update
    def record(  # noqa: PLR0913, PLR0917 -- arguments of many types
        self,
        account: str,
        price: Decimal,
        at: datetime,
        legs: list[Leg],
        tariff: Tariff = Tariff.DAY,
        position: int | None = None,
    ) -> Decimal:
        """Bill a call; give what the account owes now."""
        del at, tariff, position
        if not legs:
            raise ValueError("a call has at least one leg")
        self.owed[account] = self.owed.get(account, Decimal(0)) + price
        return self.owed[account]

    @update
    def pay(self, account: str, amount: Decimal) -> None:
        """Take a payment."""
        self.owed[account] = self.owed.get(account, Decimal(0)) - amount
