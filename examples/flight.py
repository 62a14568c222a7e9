"""A flight that goes on selling on both sides of a cut, with a stated rule for overbooking.

    coterie serve flight=examples/flight.py:Flight --stack COLOURS:DYNSEQ:VSYNC

The rule: who is among the first `SEATS` of the one merged order has a seat. The next `SPARE` wait,
because some passengers never come. Everybody else is told that the flight is full. On which side of
a cut a seat was sold does not matter; when it was sold does, as far as the two sides could know.
`docs/use/partitions.md` explains it.
"""
# ruff: noqa: INP001 -- an example, not a package

from __future__ import annotations

import coterie

SEATS = 4
SPARE = 2


class FlightFull(Exception):
    """Neither a seat nor a place on the waiting list is left."""


class Flight:
    """Who flies, in the order in which they booked."""

    passengers: list[str]
    errors = (FlightFull,)

    def __init__(self) -> None:
        self.passengers = []

    @coterie.update
    def book(self, name: str) -> str:
        """Book a place; say which one it is."""
        if name not in self.passengers:
            if len(self.passengers) == SEATS + SPARE:
                raise FlightFull
            self.passengers.append(name)
        return self._place(name)

    @coterie.update
    def cancel(self, name: str) -> bool:
        """Give a place back; all behind it move up."""
        if name not in self.passengers:
            return False
        self.passengers.remove(name)
        return True

    @coterie.query
    def place(self, name: str) -> str:
        """Say which place somebody has."""
        return self._place(name) if name in self.passengers else "none"

    @coterie.query
    def booked(self) -> list[str]:
        """Give all who have a place, in their order."""
        return self.passengers

    def _place(self, name: str) -> str:
        number = self.passengers.index(name) + 1
        return f"seat {number}" if number <= SEATS else f"waiting {number - SEATS}"
