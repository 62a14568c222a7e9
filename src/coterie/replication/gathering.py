"""How a member of UNION gathers what others hold and it does not.

As in `transfer.py` the member that needs something asks, and everything is staged until all of it
is there. But it may take several donors, for each may hold entries that nobody else does; so a
request says what is here already, and the donor gives what it has beyond that: entries, or, where
it has forgotten some of them, its state. Only who has accepted the view gives a state, and so
holds the whole union: what is ours alone comes back with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.replication.messages import FetchMissing, Missing, StateOffer
from coterie.replication.transfer import FetchedState
from coterie.replication.vectors import Vector, beyond, covers, last_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.kernel.engine import Run
    from coterie.kernel.views import Member
    from coterie.replication.messages import FetchChunk, StateChunk


class Gathering:
    """The receiving side, until the target is covered."""

    def __init__(
        self, holds: dict[Member, Vector], ours: Vector | None, target: Vector, turn: int
    ) -> None:
        donors = list(holds)
        # Members begin with different donors.
        turn %= len(donors)
        self._donors = donors[turn:] + donors[:turn]
        self._holds = holds
        self._ours = ours
        self._target = target
        self._serial = 0
        self.runs: list[Run] = []
        self.state = FetchedState()
        self._offered_by: Member | None = None
        self._staged: Vector = dict(ours or {})
        """What we would hold with all that is here."""

    @property
    def donor(self) -> Member:
        """The member asked at present."""
        return self._donors[0]

    @property
    def source(self) -> Member:
        """The member whose state it is, or else the last one that gave entries."""
        return self.donor if self._offered_by is None else self._offered_by

    @property
    def is_complete(self) -> bool:
        """Whether everything that was to be fetched is here."""
        return self.state.is_whole and not self._needs_state and covers(self._staged, self._target)

    @property
    def fetched(self) -> int:
        """How many bytes of a state have come."""
        return self.state.size

    @property
    def keeps_own(self) -> bool:
        """Whether what we hold is of use; if not, a state takes its place."""
        return self._ours is not None

    @property
    def _needs_state(self) -> bool:
        return not self.keeps_own and self.state.offer is None

    def ask_again(self) -> None:
        """What was asked for does not come: ask for it again."""
        self.state.ask_again()

    def change_donor(self) -> None:
        """Ask another member from now on; a half-fetched state is of no use with it."""
        self._donors.append(self._donors.pop(0))
        if not self.state.is_whole:
            self._begin_with(None)

    def requests(self) -> Sequence[FetchMissing | FetchChunk]:
        """Give what to ask for now."""
        if not self.state.is_whole:
            return self.state.requests()
        donors = self._donors
        for _ in donors:
            if not covers(self._staged, self._holds[self.donor]):
                break
            # If nobody has more, what is missing came after the credentials: anyone may have it.
            donors.append(donors.pop(0))
        self._serial += 1
        return [FetchMissing(self._serial, list(self._staged.items()), self._needs_state)]

    def take(self, sender: Member, message: Missing | StateOffer | StateChunk) -> bool:
        """Stage what a donor sent; say whether it was news."""
        if sender != self.donor:
            return False
        if isinstance(message, Missing):
            return self._take_missing(message)
        if isinstance(message, StateOffer):
            offer = self.state.offer if sender == self._offered_by else None
            if offer is not None and offer.position >= message.position:
                return False
            self._begin_with(message)
            self._offered_by = sender
            return True
        return self.state.take(message)

    def _take_missing(self, message: Missing) -> bool:
        if message.serial != self._serial or not self.state.is_whole:
            return False
        before = len(self.runs)
        for run in message.runs:
            part = beyond(run, self._staged)
            if part is not None and part.payloads:
                self.runs.append(part)
                self._staged[run.origin] = last_number(part)
        return len(self.runs) > before

    def _begin_with(self, offer: StateOffer | None) -> None:
        self.state.begin(offer)
        self._offered_by = None
        self.runs = []
        self._staged = dict((self._ours or {}) if offer is None else offer.origins)
