"""Updates that raise, in the shapes users write; see test_bytecode.

Kept apart from the tests, because pytest rewrites the code of assertions in test modules.
"""

from __future__ import annotations

import math
import secrets
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar
from zlib import crc32

from coterie.objects import now, query, update

LIMIT = 10
SHELF: list[str] = []


def code() -> str:
    """Differs from call to call, out of sight of whoever calls it."""
    return secrets.token_hex(4)


class Refusal(Exception):
    def __init__(self, seat: str, owner: str) -> None:
        super().__init__(f"{seat}: {owner}")
        self.seat = seat


@dataclass
class Seat:
    owner: str = ""
    tags: list[str] = field(default_factory=list)

    def helper(self, owner: str) -> bool:
        self.owner = owner
        return True


def weigh(names: list[str]) -> int:
    return sum(crc32(name.encode()) for name in names)


def note(names: list[str]) -> None:
    names.append("noted")


class Theatre:
    seats: dict[str, Seat]
    queue: deque[str]
    names: list[str]
    total: int = 0

    def __init__(self) -> None:
        self.seats = {"1A": Seat("Ada", ["x"])}
        self.queue = deque()
        self.names = ["Ada"]

    @query
    def count(self) -> int:
        return len(self.seats)

    most: ClassVar[int] = 3

    def _helper(self, name: str) -> bool:
        return name in self.names

    def helper(self, name: str) -> bool:
        return self._helper(name)

    def _check(self, name: str) -> None:
        if self.helper(name):
            raise Refusal(name, "somebody")

    def _change(self, name: str) -> bool:
        self.names.append(name)
        return True

    def _down(self, number: int) -> int:
        return self._down(number - 1) if number else 0

    @update
    def clean_membership(self) -> None:
        if "1A" in self.seats:
            raise Refusal("1A", self.seats["1A"].owner)
        self.total += 1

    @update
    def clean_lookup(self) -> None:
        seat = self.seats["9Z"]
        seat.owner = "Bob"

    @update
    def clean_get_and_compare(self) -> None:
        seat = self.seats.get("1A")
        if seat is not None and seat.owner != "Bob" and len(self.names) < LIMIT:
            message = f"{seat.owner} has {seat.tags!r} of {self.count()} at {now()}"
            raise ValueError(message)
        self.names.append("Bob")

    @update
    def clean_loop(self) -> None:
        for name in self.names:
            if name.startswith("A"):
                raise KeyError(name)
        self.names.clear()

    @update
    def clean_comprehension(self) -> None:
        owned = [name for name, seat in self.seats.items() if seat.owner == "Ada"]
        if owned:
            raise KeyError(sorted(owned))
        self.names.clear()

    @update
    def clean_assertion(self) -> None:
        assert not self.names, "names are left"
        self.names.append("x")

    @update
    def dirty_append(self) -> None:
        self.names.append("Bob")
        raise ValueError

    @update
    def dirty_item(self) -> None:
        self.seats["1B"] = Seat()
        raise ValueError

    @update
    def dirty_attribute_of_record(self) -> None:
        self.seats["1A"].owner = "Bob"
        raise ValueError

    @update
    def dirty_alias(self) -> None:
        names = self.names
        names += ["Bob"]
        raise ValueError

    @update
    def dirty_in_loop(self) -> None:
        for number in range(3):
            if number == 1:
                raise ValueError(number)
            self.names.append("Bob")

    @update
    def dirty_in_while(self) -> None:
        while True:
            if len(self.names) > 1:
                raise ValueError
            self.names += ["Bob"]

    @update
    def dirty_in_comprehension(self) -> None:
        if [self.names.pop() for _ in range(1)]:
            raise ValueError

    @update
    def dirty_in_handler(self) -> None:
        try:
            self.names.append("Bob")
            self.seats["9Z"]
        except KeyError:
            raise ValueError from None

    @update
    def clean_in_try(self) -> None:
        try:
            seat = self.seats["9Z"]
        except KeyError:
            raise Refusal("9Z", "nobody") from None
        seat.owner = "Bob"

    @update
    def dirty_in_finally(self) -> None:
        try:
            self.seats["9Z"]
        finally:
            self.names.append("Bob")

    @update
    def dirty_by_sorting(self) -> None:
        self.names.sort(key=self.queue.append)  # type: ignore[arg-type]
        raise ValueError

    @update
    def dirty_with(self) -> None:
        with suppress(KeyError):
            self.names.append("Bob")
        raise ValueError

    @update
    def dirty_by_deleting(self) -> None:
        del self.seats["1A"]
        raise ValueError

    @update
    def dirty_by_closure(self) -> None:
        names = self.names

        def change() -> None:
            names.append("Bob")

        change()
        raise ValueError

    @update
    def clean_helper(self) -> None:
        if self._helper("Ada"):
            raise ValueError
        self.names.clear()

    @update
    def clean_helper_that_raises(self) -> None:
        self._check("Ada")
        self.names.clear()

    @update
    def clean_helper_in_comprehension(self) -> None:
        if any(self._helper(name) for name in self.names):
            raise ValueError(weigh(self.names))
        self.names.clear()

    @update
    def clean_constant(self) -> None:
        if self.most < LIMIT:
            raise ValueError
        self.names.clear()

    @update
    def dirty_helper(self) -> None:
        if self._change("Bob"):
            raise ValueError

    @update
    def dirty_function(self) -> None:
        note(self.names)
        raise ValueError

    @update
    def dirty_method_of_a_record_named_as_a_helper(self) -> None:
        if self.seats["1A"].helper("Bob"):
            raise ValueError

    @update
    def unknown_recursion(self) -> None:
        if self._down(3) == 0:
            raise ValueError

    @update
    def unknown_function(self) -> None:
        if math.floor(1.5):
            raise ValueError
