"""The simplest object over a partitioned network: what it says of itself, it says of green only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.colours.states import GREEN
from coterie.kernel.records import StateDigest
from coterie.simulation.engines.stack.ledger import DIGEST_EVERY, Ledger

if TYPE_CHECKING:
    from coterie.kernel.engine import Run


class ColoursLedger(Ledger):
    """A ledger with a dirty and an authoritative state."""

    answers_as = GREEN

    def _execute(self, run: Run) -> None:
        assert run.position == self.state.position + 1, "entries must follow each other"
        for payload in run.payloads:
            self.state = self.state.after(payload)

    def settle(self, position: int) -> None:
        before = self.settled.position
        runs = [run.up_to(position) for run in self._unsettled if run.position <= position]
        state = self.settled
        super().settle(position)
        for run in runs:
            for payload in run.payloads:
                state = state.after(payload)
                if state.position % DIGEST_EVERY == 0:
                    self._report(StateDigest, position=state.position, digest=state.chain)
        assert state == self.settled, f"{before} to {position}"
