"""One leader at a time, with fencing numbers."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from coterie.objects import now, query, update
from coterie.ready.limits import Full, Name, Seconds, microseconds


class Term(msgspec.Struct, frozen=True):
    """Who leads, and the number of the term: it rises with every new leader."""

    number: int
    leader: str


class Election:
    """Candidates, of whom the one that came first leads.

    A candidate stays one for a time, its *lease*, and has to come again before it ends; the leader
    does the same. When the leader resigns, or does not come in time, the next in line leads, with
    the next tick if nobody calls before; so a new leader needs no rush of candidates.

    A term's number is its fencing number. Whoever takes orders from the leader refuses those of a
    lower term than one it has seen: then a leader that does not know yet that it was replaced does
    no harm.
    """

    candidates_max: ClassVar[int] = 1000

    candidates: dict[str, int] = {}  # noqa: RUF012 -- each object has its own copy
    """Until when each stands, in the order in which they came."""
    number: int = 0
    chosen: str | None = None

    @update
    def campaign(self, candidate: Name, lease: Seconds = 10.0) -> Term:
        """Stand, or go on standing, for *lease* seconds from now; give who leads.

        Raises `Full` if there are too many candidates.
        """
        if candidate not in self.candidates and len(self.candidates) >= self.candidates_max:
            raise Full(f"there are {self.candidates_max} candidates (candidates_max)")
        self._forget_who_is_late()
        self.candidates[candidate] = now() + microseconds(lease)
        self._elect()
        return Term(self.number, self.chosen or candidate)

    @update
    def resign(self, candidate: Name) -> bool:
        """Stand no longer; say whether the candidate stood."""
        self._forget_who_is_late()
        has_stood = self.candidates.pop(candidate, None) is not None
        self._elect()
        return has_stood

    @query
    def leader(self) -> Term | None:
        """Say who leads; None if nobody does."""
        if self.chosen is None or self.candidates[self.chosen] <= now():
            return None
        return Term(self.number, self.chosen)

    @query
    def is_current(self, number: int) -> bool:
        """Say whether this term is the present one, and has not ended."""
        if self.chosen is None or self.candidates[self.chosen] <= now():
            return False
        return self.number == number

    @query
    def standing(self) -> list[str]:
        """Give the candidates, the first in line first."""
        return [candidate for candidate, until in self.candidates.items() if until > now()]

    def on_tick(self) -> None:
        """Let the next in line lead if the leader is late."""
        self._forget_who_is_late()
        self._elect()

    def _forget_who_is_late(self) -> None:
        time = now()
        for candidate in [each for each, until in self.candidates.items() if until <= time]:
            del self.candidates[candidate]
        if self.chosen not in self.candidates:
            self.chosen = None  # whoever leads now leads a new term, even if it is the same

    def _elect(self) -> None:
        """Let the first in line lead, if the leader stands no longer."""
        if self.chosen not in self.candidates:
            self.chosen = next(iter(self.candidates), None)
            self.number += self.chosen is not None
