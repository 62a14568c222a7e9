"""Deliberately broken variants of reads that take no place in the order; see `variants.py`.

What they break only clients see, so their runs have an object and clients that read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace
from tests.broken.variants import Broken

from coterie.replication.confirming import _Answered
from coterie.replication.primary import PrimaryViews
from coterie.simulation import RunOptions, seconds
from coterie.simulation.campaign import run_trial
from coterie.simulation.engines.stack.trial import StackTrial

if TYPE_CHECKING:
    from coterie.kernel.views import Member
    from coterie.replication.messages import Confirmed


class ReadsOwnEnd(PrimaryViews):
    """Has a majority confirm the view, and answers with what it has settled itself."""

    def _on_confirmed(self, sender: Member, message: Confirmed) -> None:
        super()._on_confirmed(sender, replace(message, position=0))

    def _look_at_answered(self) -> None:
        self._answered = [_reaching(each, 0) for each in self._answered]
        super()._look_at_answered()


class ReadsUnconfirmed(PrimaryViews):
    """Answers with what it has settled, without a word from anybody."""

    def _go_on_with_reads(self) -> None:
        if self._wanted > self._asked:
            self._asked = self._done = self._wanted
            self._confirmed(self._done)


def _reaching(answered: _Answered, position: int) -> _Answered:
    return answered._replace(position=position)


@dataclass(frozen=True)
class BrokenForReaders(Broken):
    """A variant that clients find out."""

    def fires(self, seed: int) -> set[str]:
        options = RunOptions(
            stack=self.stack, duration=seconds(20), object="dictionary", faults=self.faults
        )
        run = run_trial(StackTrial(seed, options, layers=self.layers, keeper=self.keeper))
        return {violation.partition(":")[0] for violation in run.violations}


_STACK = "SAFE:DYNSEQ:PVSYNC"

READING_BROKEN = (
    BrokenForReaders(ReadsOwnEnd, _STACK, ("linearizability",)),
    BrokenForReaders(ReadsUnconfirmed, _STACK, ("linearizability",)),
)
