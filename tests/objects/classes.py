"""Objects to replicate, each for what it shows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from coterie.kernel.clock import seconds
from coterie.objects import ReplicatedObject, new_id, now, query, random, update


class Counter:
    """The smallest: nothing in it can change in place."""

    value: int = 0

    @update
    def add(self, amount: int) -> int:
        self.value += amount
        return self.value

    @update
    def add_noted(self, amount: int, note: str) -> int:
        self.value += amount
        return len(note)

    @query
    def total(self) -> int:
        return self.value


class SeatTaken(Exception):
    pass


class Seats:
    """Checks first, then changes: what fails needs no undoing."""

    taken: dict[str, str] = {}  # noqa: RUF012 -- the host copies it for each object

    @update
    def book(self, seat: str, name: str) -> int:
        if seat in self.taken:
            raise SeatTaken(f"{seat} is taken by {self.taken[seat]}")
        self.taken[seat] = name
        return len(self.taken)

    @query
    def holder(self, seat: str) -> str | None:
        return self.taken.get(seat)


class Clumsy:
    """Changes first and thinks later."""

    log: list[str] = []  # noqa: RUF012
    count: int = 0
    by_name: dict[str, list[int]] = {}  # noqa: RUF012

    @update
    def push(self, name: str, amount: int) -> int:
        self.log.append(name)
        self.count += 1
        self.by_name.setdefault(name, []).append(amount)
        if amount < 0:
            self.log.clear()
            raise ValueError(f"{amount} is negative")
        return self.count

    @update
    def answer_something_odd(self) -> int:
        self.log.append("odd")
        return 1 << 70

    @query
    def names(self) -> list[str]:
        return self.log


class Shallow:
    """As clumsy, but its containers hold what cannot change, so copies are cheap."""

    amounts: dict[str, int] = {}  # noqa: RUF012
    names: list[str] = []  # noqa: RUF012
    seen: set[tuple[str, int]] = set()  # noqa: RUF012
    last: deque[int] = deque()  # noqa: RUF012
    count: int = 0

    @update
    def push(self, name: str, amount: int) -> set[tuple[str, int]]:
        self.count += 1
        self.amounts[name] = self.amounts.get(name, 0) + amount
        self.names.insert(0, name)
        self.seen.add((name, amount))
        self.last.append(amount)
        if amount < 0:
            self.seen.clear()
            raise ValueError(f"{amount} is negative")
        return self.seen


@dataclass
class Account:
    owner: str
    balance: int = 0
    notes: list[str] = field(default_factory=list)


class Money(msgspec.Struct, frozen=True):
    cents: int


class Bank:
    """Records inside containers."""

    accounts: dict[int, Account]
    fee: Money
    recent: deque[tuple[int, int]]
    owners: set[str]

    def __init__(self) -> None:
        self.accounts = {}
        self.fee = Money(1)
        self.recent = deque()
        self.owners = set()
        self.moves = 0

    @update
    def open(self, number: int, owner: str, *, balance: int = 0) -> None:
        if number in self.accounts:
            raise KeyError(number)
        self.accounts[number] = Account(owner, balance)
        self.owners.add(owner)

    @update
    def move(self, source: int, target: int, amount: Money, note: str = "") -> int:
        account = self.accounts[source]
        account.balance -= amount.cents + self.fee.cents
        account.notes.append(note)
        if account.balance < 0:
            raise ValueError("not enough")
        self.accounts[target].balance += amount.cents
        self.recent.append((source, target))
        self.moves += 1
        return account.balance

    @query
    def balance(self, number: int) -> int:
        return self.accounts[number].balance


class Lottery:
    """Time, chance and ids."""

    drawn: list[tuple[int, int, str]] = []  # noqa: RUF012

    @update
    def draw(self, highest: int) -> tuple[int, int, str]:
        ticket = (now(), random().randint(1, highest), new_id())
        self.drawn.append(ticket)
        return ticket

    @update
    def two_ids(self) -> tuple[str, str]:
        return new_id(), new_id()

    @query
    def when(self) -> int:
        return now()


class Leases(ReplicatedObject):
    """Expires without traffic."""

    until: dict[str, int] = {}  # noqa: RUF012

    @update
    def take(self, name: str) -> int:
        self.until[name] = now() + seconds(3)
        return self.until[name]

    @query
    def held(self) -> list[str]:
        return sorted(self.until)

    def on_tick(self) -> None:
        for name in [name for name, end in self.until.items() if end <= now()]:
            del self.until[name]


class Tally:
    """All updates commute."""

    commuting = True
    counts: dict[str, int] = {}  # noqa: RUF012

    @update
    def add(self, name: str, amount: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount

    @query
    def count(self, name: str) -> int:
        return self.counts.get(name, 0)


class Index:
    """Keeps what its fields could not express, and says itself how to carry it."""

    def __init__(self) -> None:
        self.words: dict[str, frozenset[int]] = {}
        self.lookups = object()

    @update
    def add(self, word: str, page: int) -> int:
        pages = self.words[word] = self.words.get(word, frozenset()) | {page}
        if page == 0:
            raise ValueError("pages begin at 1")
        return len(pages)

    @query
    def pages(self, word: str) -> list[int]:
        return sorted(self.words.get(word, ()))

    def snapshot(self) -> dict[str, list[int]]:
        return {word: sorted(pages) for word, pages in self.words.items()}

    def restore(self, state: dict[str, list[int]]) -> None:
        self.words = {word: frozenset(pages) for word, pages in state.items()}
