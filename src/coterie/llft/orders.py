"""The one sequence of orders of a group, as far as it is held somewhere."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.claims import NO_CLAIM, Order, OrderKind, OrderRun, PrimaryClaim, Roster
from coterie.kernel.decoding import Decoder
from coterie.kernel.errors import BadMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

decode_roster = Decoder(Roster).decode


class OrderLog:
    """Orders without gaps, from behind `base` on; each with the claim that it was made under."""

    def __init__(self, base: int = 0, base_claim: PrimaryClaim = NO_CLAIM) -> None:
        self.base = base
        self.base_claim = base_claim
        self._entries: list[tuple[PrimaryClaim, Order]] = []
        self._spans = [(base, base_claim)]

    def copy(self) -> OrderLog:
        """Give one like this."""
        other = OrderLog(self.base, self.base_claim)
        other._entries, other._spans = self._entries.copy(), self._spans.copy()
        return other

    @property
    def end(self) -> int:
        """The number of the last order."""
        return self.base + len(self._entries)

    @property
    def last_claim(self) -> PrimaryClaim:
        """The claim of the last order."""
        return self._entries[-1][0] if self._entries else self.base_claim

    def claim_at(self, number: int) -> PrimaryClaim | None:
        """Give the claim of an order; nothing if it is not here."""
        if number == self.base:
            return self.base_claim
        if self.base < number <= self.end:
            return self._entries[number - self.base - 1][0]
        return None

    def order(self, number: int) -> Order:
        """Give an order that is here."""
        return self._entries[number - self.base - 1][1]

    def append(self, claim: PrimaryClaim, order: Order) -> int:
        """Add the next order, and give its number."""
        self._entries.append((claim, order))
        if claim != self._spans[-1][1]:
            self._spans.append((self.end, claim))
        return self.end

    def extend(self, runs: Iterable[OrderRun]) -> list[OrderRun]:
        """Add orders that continue this log; give those that were added, as runs.

        An order fits if the one before it is the last one here, by number and by claim: then all
        before it are the same, too.
        """
        added: list[OrderRun] = []
        for number, before, claim, order in each_order(runs):
            if number == self.end + 1 and before == self.last_claim:
                self.append(claim, order)
                if added and added[-1].claim == claim:
                    added[-1].orders.append(order)
                else:
                    added.append(OrderRun(claim, number, [order], before))
        return added

    def cut(self, number: int) -> int:
        """Give up all orders above a number; say how many."""
        count = max(0, self.end - number)
        assert number >= self.base, "what is freed cannot be given up"
        del self._entries[number - self.base :]
        while len(self._spans) > 1 and self._spans[-1][0] > number:
            self._spans.pop()
        return count

    def free(self, number: int) -> None:
        """Forget orders up to a number: everybody who may need them has their effect."""
        claim = self.claim_at(number)
        if claim is not None and number > self.base:
            del self._entries[: number - self.base]
            self.base, self.base_claim = number, claim
            self._spans = [(number, claim), *(each for each in self._spans if each[0] > number)]

    def runs(self, first: int, count: int) -> list[OrderRun]:
        """Give up to *count* orders from *first* on, as runs."""
        first = max(first, self.base + 1)
        part = self._entries[first - self.base - 1 : first - self.base - 1 + count]
        found: list[OrderRun] = []
        for claim, entries in groupby(part, key=lambda entry: entry[0]):
            orders = [order for _, order in entries]
            after = self.claim_at(first - 1)
            assert after is not None, "the order before one that is here is known"
            found.append(OrderRun(claim, first, orders, after))
            first += len(orders)
        return found

    @property
    def spans(self) -> list[tuple[int, PrimaryClaim]]:
        """Where each claim's orders begin, from the base on."""
        return self._spans.copy()

    def common(self, last: int, spans: Iterable[tuple[int, PrimaryClaim]]) -> int:
        """Give the last number up to which another log, in spans, is the same as this one.

        An order's claim and number name everything before it, so the last place at which both
        have the same claim is where they part.
        """
        spans = list(spans)
        if not spans:
            return -1
        ends = [first - 1 for first, _ in spans[1:]] + [last]
        best = -1
        for (_, claim), end in zip(spans, ends, strict=True):
            for mine_first, mine_end, mine in self._my_spans():
                if mine == claim:
                    common = min(end, mine_end)
                    if common >= mine_first:
                        best = max(best, common)
        return best

    def _my_spans(self) -> list[tuple[int, int, PrimaryClaim]]:
        spans = self.spans
        ends = [first - 1 for first, _ in spans[1:]] + [self.end]
        return [(first, end, claim) for (first, claim), end in zip(spans, ends, strict=True)]


def each_order(
    runs: Iterable[OrderRun],
) -> list[tuple[int, PrimaryClaim, PrimaryClaim, Order]]:
    """Give the orders of runs with their numbers, the claims before them, and their claims."""
    found = []
    for run in runs:
        if run.first < 1:
            raise BadMessage("orders are numbered from 1")
        before = run.after
        for number, order in enumerate(run.orders, run.first):
            if order.kind is OrderKind.ROSTER:
                _check_roster(order)  # or whoever has stored it would meet it at every start
            found.append((number, before, run.claim, order))
            before = run.claim
    return found


def _check_roster(order: Order) -> None:
    try:
        decode_roster(order.data)
    except msgspec.DecodeError as error:
        raise BadMessage(f"an order with a roster that is none: {error}") from None


def count_orders(runs: Iterable[OrderRun]) -> int:
    """Give how many orders runs have."""
    return sum(len(run.orders) for run in runs)
