"""Short cuts that forget a case: each is the product's own predicate without one condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.broken.variants import Broken

from coterie.membership.multicast import Multicast
from coterie.membership.vsync import Vsync
from coterie.ordering.dynseq import DynamicSequencer

if TYPE_CHECKING:
    from coterie.kernel.layers import Batch
    from coterie.kernel.views import View
    from coterie.ordering.dynseq import SequencerHeader

ITSELF = [(0, 1)]


class _IgnoresTheEnd(Multicast):
    def is_next(self, rank: int, number: int) -> bool:
        received = self.received[rank]
        return (
            number == received + 1
            and self._known[rank] == received == self._passed[rank]
            and number + 1 not in self._packets[rank]
        )


class NextForgetsTheEnd(Vsync):
    """Passes a packet up although the change to the next view has begun."""

    def new_multicast(self, view: View) -> Multicast:
        return _IgnoresTheEnd(
            self.context, view.id, view.members, repairs_itself=self._repairs_itself
        )


class NextForgetsTheOrder(DynamicSequencer):
    """Delivers the sequencer's batch although batches before it in the order are not here yet."""

    def is_next(self, batch: Batch, order: SequencerHeader) -> bool:
        return batch.rank == 0 and not order.safe and order.runs == ITSELF and bool(batch.payloads)


class NextForgetsSafety(DynamicSequencer):
    """Delivers a batch that asks for safe delivery before all are known to have it."""

    def is_next(self, batch: Batch, order: SequencerHeader) -> bool:
        return (
            batch.rank == 0
            and order.runs == ITSELF
            and not self._order
            and not self._waiting[0]
            and bool(batch.payloads)
        )

    def hand_up_next(self, batch: Batch) -> None:
        batch.safe = batch.header.safe  # type: ignore[attr-defined]
        super().hand_up_next(batch)


COMMON_CASE_BROKEN = (
    Broken(NextForgetsTheEnd, "VSYNC", ("view atomicity",), first_seed=19),
    Broken(NextForgetsTheOrder, "DYNSEQ:VSYNC", ("strong prefix",)),
    Broken(NextForgetsSafety, "DYNSEQ:VSYNC", ("safe delivery",), first_seed=3),
)
