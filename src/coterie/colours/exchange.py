"""The exchange of actions: who lacks something asks somebody who has it (**transis** slides 25-28).

By the *eventual path*: what a server holds it gives on, whoever created it, so that knowledge goes
through any chain of meetings, although its ends never meet.

Green actions come first, in their order, or, where the donor has discarded them, the state that
they led to (`Transfer`); then the actions that are not green, from each that has some we lack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.colours.messages import Actions, FetchActions
from coterie.kernel.past_lives import covers
from coterie.replication.transfer import Transfer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coterie.colours.knowledge import Knowledge
    from coterie.colours.messages import Direct, State
    from coterie.colours.queue import ActionsQueue
    from coterie.kernel.views import Member

PATIENCE = 5
"""How many times a donor is asked again before another one is asked."""


class ActionExchange:
    """What one member still lacks of what the members of its configuration hold together."""

    def __init__(
        self,
        me: Member,
        queue: ActionsQueue,
        states: Mapping[Member, State],
        known: Knowledge,
    ) -> None:
        self._queue = queue
        self._green_end = known.green_end
        self._target = known.red_cut
        others = [member for member in states if member != me]
        # Members begin with different donors.
        turn = list(states).index(me)
        self._donors = _turned(others, turn)
        self._cuts = {member: dict(states[member].red_cut) for member in others}
        self._serial = 0
        self._stalls = 0
        self.transfer: Transfer | None = None
        """Green actions on their way."""
        log = queue.log
        if log.end < known.green_end:
            donors = _turned([member for member in known.holders if member != me], turn)
            # Whoever keeps what we lack gives less than a whole state.
            donors.sort(key=lambda member: states[member].start > log.end)
            self.transfer = Transfer(donors, log.end, known.green_end, log.mark(log.end))

    @property
    def has_greens(self) -> bool:
        """Whether all green actions are here."""
        return self._queue.log.end >= self._green_end

    @property
    def is_complete(self) -> bool:
        """Whether the union of what the members hold is held here."""
        return self.has_greens and covers(self._queue.red_cut, self._target)

    def requests(self) -> tuple[Member | None, Sequence[Direct]]:
        """Give whom to ask for what now."""
        if self.transfer is not None:
            return self.transfer.donor, self.transfer.requests()
        for _ in self._donors:
            if not covers(self._queue.red_cut, self._cuts[self._donors[0]]):
                self._serial += 1
                cut = list(self._queue.red_cut.items())
                return self._donors[0], [FetchActions(self._serial, cut)]
            self._donors.append(self._donors.pop(0))
        return None, []

    def is_answer(self, sender: Member, message: Actions) -> bool:
        """Say whether actions are those that were asked for last."""
        return sender == self._donors[0] and message.serial == self._serial

    def ask_again(self) -> None:
        """What was asked for does not come: ask again, and after a while somebody else."""
        self._stalls += 1
        if self.transfer is not None:
            self.transfer.ask_again()
        if self._stalls % PATIENCE == 0:
            if self.transfer is not None:
                self.transfer.change_donor()
            elif self._donors:
                self._donors.append(self._donors.pop(0))

    def went_on(self) -> None:
        """Learn that something came."""
        self._stalls = 0


def _turned(members: Sequence[Member], turn: int) -> list[Member]:
    turn %= max(len(members), 1)
    return [*members[turn:], *members[:turn]]
