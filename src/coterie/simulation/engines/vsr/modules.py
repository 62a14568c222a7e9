"""Two modules for transactions: a bank, whose money stays the same, and an airline.

Written against `coterie.vsr.calls.executor` directly: objects are names, values are encoded.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec

from coterie.kernel.decoding import Decoder
from coterie.vsr.calls.executor import Completion, Nested

if TYPE_CHECKING:
    from coterie.vsr.calls.executor import ObjectAccess, Running

START = 100
"""What every account holds at the beginning."""

encode = msgspec.msgpack.Encoder().encode
decode = Decoder().decode

Steps = Generator[Nested, Completion, Any]


class ModuleFailed(Exception):
    """A method failed; its transaction may go on, but nothing was written."""


class Methods:
    """Runs `do_…` methods: plain ones, and generators that call other groups."""

    @staticmethod
    def begins_with(count: int) -> dict[str, bytes]:
        """Give what old groups hold: as if it had been written, what is so before that."""
        del count
        return {}

    def run(self, method: str, arguments: bytes, access: ObjectAccess) -> Running:
        """Run a method."""
        do = getattr(self, f"do_{method}", None)
        if do is None:
            return Completion(encode(f"there is no method {method!r}"), is_failure=True)
        try:
            result = do(access, *decode(arguments))
            if isinstance(result, Generator):
                result = yield from result
            data = encode(result)
        except ModuleFailed as error:
            return Completion(encode(str(error)), is_failure=True)
        except Exception as error:  # noqa: BLE001 -- arguments that make no sense are an answer
            return Completion(encode(type(error).__name__), is_failure=True)
        return Completion(data)


class Bank(Methods):
    """Accounts by name; every one exists."""

    @staticmethod
    def begins_with(count: int) -> dict[str, bytes]:
        return {f"object{number}": encode(START) for number in range(count)}

    def do_balance(self, access: ObjectAccess, *accounts: str) -> int:
        """Give what is in some accounts together."""
        return sum(self._get(access, account) for account in accounts)

    def do_deposit(self, access: ObjectAccess, account: str, amount: int) -> int:
        """Put money into an account."""
        balance = self._get(access, account) + amount
        access.write(account, encode(balance))
        return balance

    def do_withdraw(self, access: ObjectAccess, account: str, amount: int) -> int:
        """Take money out of an account."""
        balance = self._get(access, account) - amount
        if balance < 0:
            raise ModuleFailed(f"{account} is overdrawn")
        access.write(account, encode(balance))
        return balance

    def do_send(
        self, access: ObjectAccess, account: str, amount: int, group: str, to: str
    ) -> Steps:
        """Take money out of an account and have another group put it into one of its own."""
        if not isinstance(group, str):
            raise ModuleFailed("a group has a name")
        balance = self.do_withdraw(access, account, amount)
        answer = yield Nested(group, "deposit", encode([to, amount]))
        assert not answer.is_failure, "a deposit never fails"
        return balance

    def _get(self, access: ObjectAccess, account: str) -> int:
        value = access.read(account)
        return START if value is None else int(decode(value))


class Airline(Methods):
    """Seats by name; each is sold once."""

    def do_book(self, access: ObjectAccess, seat: str, customer: str) -> str:
        """Sell a seat."""
        holder = access.read(seat)
        if holder is not None:
            raise ModuleFailed(f"{seat} is taken by {decode(holder)}")
        access.write(seat, encode(customer))
        return customer

    def do_holder(self, access: ObjectAccess, seat: str) -> str | None:
        """Say who has a seat."""
        holder = access.read(seat)
        return None if holder is None else str(decode(holder))
