"""What the two ordering layers share: the end of a view, as extended virtual synchrony has it.

**transis** slides 20-23. While a view lasts, batches are delivered in its one order; a *safe* one
(and all behind it) waits until all members are known to have it and everything before it. When
the view ends, those who go on together have the same batches, the same order as far as any of
them knew it, and the same knowledge of stability. So each of them, alone, comes to the same end:

1. what can still be delivered in the regular view, by their joint knowledge of stability;
2. the transitional view;
3. the rest of the order up to the first hole: a batch that was ordered but is lost to them;
4. behind a hole, or never ordered: only what those who go on sent themselves (whatever those
   depended on is there, because they had it), marked, because elsewhere it may have another
   place. Layers that need a prefix drop what is marked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.backlog import Backlog
from coterie.kernel.layers import Layer, Service
from coterie.kernel.records import Delivery

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coterie.kernel.layers import Batch, Context, Ending
    from coterie.kernel.views import Member, View


class OrderLayer(Layer):
    """A layer that gives total order; subclasses say what comes next and what is left."""

    needs = frozenset({Service.VIEWS, Service.RELIABLE_FIFO, Service.STABILITY})
    gives = frozenset(
        {Service.VIEWS, Service.STABILITY, Service.TOTAL_ORDER, Service.SAFE_DELIVERY}
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.members: tuple[Member, ...] = (context.me,)
        self.rank = 0
        self.backlog = Backlog(context)
        self._numbered = 0
        self._tells_receipt = False

    def assembled(self) -> None:
        # Most layers hear of what is delivered only, and are not asked.
        self._tells_receipt = type(self.above).received_batches is not Layer.received_batches

    def cast(self, payloads: Sequence[bytes], *, safe: bool = False, mark: int = 0) -> int:
        return self.backlog.add(payloads, safe=safe, mark=mark)

    @property
    def has_waiting_casts(self) -> bool:
        return bool(self.backlog) or self.above.has_waiting_casts

    def view(self, view: View) -> None:
        self.members = view.members
        self.rank = view.rank(self.context.me)
        self._numbered = 0
        self.begin_order()
        self.above.view(view)

    # ---- for subclasses

    def begin_order(self) -> None:
        """Forget the old view's order."""
        raise NotImplementedError

    def next_in_order(self, *, ignore_stability: bool) -> Iterator[Batch]:
        """Give the batches that can be delivered now, in order, up to what is missing."""
        raise NotImplementedError

    def left_over(self) -> Iterator[Batch]:
        """Give what is here but behind a hole or not ordered, in an order all can derive."""
        raise NotImplementedError

    def adopt_stability(self, ending: Ending) -> None:
        """Take over what those who go on know together about stability."""
        raise NotImplementedError

    def deliver_in_order(self) -> None:
        """Deliver what has become deliverable."""
        self._hand_up(self.next_in_order(ignore_stability=False), Delivery.REGULAR)

    def hand_up_next(self, batch: Batch) -> None:
        """Hand up the one batch that is next in the order of a view that goes on."""
        batch.number = self._numbered + 1
        self._numbered += len(batch.payloads)
        self.above.deliver([batch])

    # ---- the end of a view

    def end_view(self, ending: Ending) -> None:
        self.adopt_stability(ending)
        self.deliver_in_order()
        self.above.transitional(ending.view, ending.transitional)
        self._hand_up(self.next_in_order(ignore_stability=True), Delivery.TRANSITIONAL)
        together = frozenset(ending.transitional)
        self._hand_up(
            (batch for batch in self.left_over() if batch.sender in together),
            Delivery.AFTER_HOLE,
        )

    def _hand_up(self, batches: Iterable[Batch], delivery: Delivery) -> None:
        ready: list[Batch] = []
        for batch in batches:
            batch.delivery = delivery
            if delivery is not Delivery.AFTER_HOLE:
                batch.number = self._numbered + 1
                self._numbered += len(batch.payloads)
            ready.append(batch)
        if ready:
            self.above.deliver(ready)
