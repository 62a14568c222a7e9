"""Two modules for transactions: a bank, whose money stays the same, and an airline.

Written against `coterie.vsr.executor` directly: objects are names, values are encoded.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.vsr.executor import Completion, Nested

if TYPE_CHECKING:
    from coterie.vsr.executor import Access, Running

START = 100
"""What every account holds at the beginning."""

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode

Steps = Generator[Nested, Completion, Any]


class Failed(Exception):
    """A method failed; its transaction may go on, but nothing was written."""


class Methods:
    """Runs `do_…` methods: plain ones, and generators that call other groups."""

    def run(self, method: str, arguments: bytes, access: Access) -> Running:
        """Run a method."""
        do = getattr(self, f"do_{method}", None)
        if do is None:
            return Completion(encode(f"there is no method {method!r}"), is_failure=True)
        try:
            result = do(access, *decode(arguments))
            if isinstance(result, Generator):
                result = yield from result
        except Failed as error:
            return Completion(encode(str(error)), is_failure=True)
        return Completion(encode(result))


class Bank(Methods):
    """Accounts by name; every one exists."""

    def do_balance(self, access: Access, *accounts: str) -> int:
        """Give what is in some accounts together."""
        return sum(self._get(access, account) for account in accounts)

    def do_deposit(self, access: Access, account: str, amount: int) -> int:
        """Put money into an account."""
        balance = self._get(access, account) + amount
        access.write(account, encode(balance))
        return balance

    def do_withdraw(self, access: Access, account: str, amount: int) -> int:
        """Take money out of an account."""
        balance = self._get(access, account) - amount
        if balance < 0:
            raise Failed(f"{account} is overdrawn")
        access.write(account, encode(balance))
        return balance

    def do_send(self, access: Access, account: str, amount: int, group: str, to: str) -> Steps:
        """Take money out of an account and have another group put it into one of its own."""
        balance = self.do_withdraw(access, account, amount)
        answer = yield Nested(group, "deposit", encode([to, amount]))
        assert not answer.is_failure, "a deposit never fails"
        return balance

    def _get(self, access: Access, account: str) -> int:
        value = access.read(account)
        return START if value is None else int(decode(value))


class Airline(Methods):
    """Seats by name; each is sold once."""

    def do_book(self, access: Access, seat: str, customer: str) -> str:
        """Sell a seat."""
        holder = access.read(seat)
        if holder is not None:
            raise Failed(f"{seat} is taken by {decode(holder)}")
        access.write(seat, encode(customer))
        return customer

    def do_holder(self, access: Access, seat: str) -> str | None:
        """Say who has a seat."""
        holder = access.read(seat)
        return None if holder is None else str(decode(holder))
