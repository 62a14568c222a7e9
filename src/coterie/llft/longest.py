"""Getting the longest orders of those who answered, where no edge can tell what there is.

Whose last order has the highest claim is ahead, and of equals who has more: a leader begins behind
everything that it could learn of, so a higher claim's orders stand on all that came before. What is
missing, orders and the inputs that they consume, is handed over by whoever has it; if that has been
freed, with a state in front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.llft.messages import AskOrders, Handed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coterie.kernel.claims import PrimaryClaim
    from coterie.llft.following import Following
    from coterie.llft.messages import Promised

STILL_MAX = 6
"""So often a question brings nothing new before the asker goes on with what it has."""


def is_ahead(promised: Promised, replica: Following) -> bool:
    """Say whether who answered has orders that are missing here."""
    spans, log = promised.spans, replica.log
    return bool(spans) and (spans[-1][1], promised.last) > (log.last_claim, log.end)


class LongestOrders:
    """One proposer's way to the longest orders."""

    def __init__(
        self, replica: Following, claim: PrimaryClaim, answers: Mapping[str, Promised]
    ) -> None:
        self._replica = replica
        self._claim = claim
        self._still = 0
        ahead = [(p.spans[-1][1], p.last, id) for id, p in answers.items() if is_ahead(p, replica)]
        self.source = max(ahead)[2] if ahead else ""
        """Who has the longest; nobody if that is the asker."""
        self._answer = answers.get(self.source)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to get."""
        answer = self._answer
        if answer is None or self._still > STILL_MAX:
            return True
        return not is_ahead(answer, self._replica) and self._replica.has_executed

    def ask(self) -> None:
        """Ask for what is missing, again if nothing came."""
        answer, replica = self._answer, self._replica
        assert answer is not None, "somebody is ahead"
        self._still += 1
        common = replica.log.common(answer.last, answer.spans)
        message = AskOrders(self._claim, common, replica.buffer.received + 1)
        replica.context.send([self.source], message)

    def take(self, sender: str, message: Handed) -> None:
        """Take what was handed over, and ask on."""
        answer, replica = self._answer, self._replica
        if sender != self.source or message.claim != self._claim or answer is None:
            return
        before = replica.log.end, replica.buffer.received
        replica.take_handed(message, replica.log.common(answer.last, answer.spans))
        if before != (replica.log.end, replica.buffer.received):
            self._still = 0
        if not self.is_over and not self._still:
            self.ask()


def hand_over(replica: Following, message: AskOrders) -> Handed:
    """Give what follows behind an order, with a state in front if that is needed."""
    batch, log = replica.settings.batch, replica.log
    needs_state = message.after < log.base
    after = log.base if needs_state else message.after
    last = replica.kept.back if needs_state else message.inputs - 1
    return Handed(
        claim=message.claim,
        state=replica.kept if needs_state else None,
        runs=log.runs(after + 1, batch),
        inputs=replica.buffer.behind(last)[:batch],
    )
