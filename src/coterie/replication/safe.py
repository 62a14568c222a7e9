"""SAFE: the object sees an entry only when it is authoritative (**objects** 5.3, 5.4, appendix B).

PRIMARY below keeps the history, acknowledges entries and knows when a majority has them; this
layer keeps the *non-authoritative suffix* from the object. So what the object has seen is never
rolled back (property 5.4.1), and one copy of its state is enough. The suffix is part of the
history that PRIMARY transfers; here it is only held back.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from coterie.kernel.engine import Standing
from coterie.kernel.layers import Service
from coterie.replication.layer import EngineLayer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coterie.kernel.engine import Run
    from coterie.kernel.layers import Context


class GlobalSafety(EngineLayer):
    """Holds the non-authoritative suffix of the history back from the object."""

    name = "SAFE"
    needs = frozenset({Service.PRIMARY_VIEWS, Service.TOTAL_ORDER})
    gives = frozenset({Service.PRIMARY_VIEWS, Service.TOTAL_ORDER, Service.GLOBAL_SAFETY})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._suffix: deque[Run] = deque()
        self._delivered = 0

    def assembled(self) -> None:
        self.hurry()

    def deliver_runs(self, runs: list[Run], standing: Standing) -> None:
        if standing is Standing.OPTIMISTIC:
            self._suffix.extend(runs)
        else:
            self.above.deliver_runs(runs, standing)

    def deliver_next(self, run: Run) -> None:
        self._suffix.append(run)

    def settle(self, position: int) -> None:
        ready: list[Run] = []
        suffix = self._suffix
        while suffix and suffix[0].position <= position:
            run = suffix.popleft()
            if run.position + len(run.payloads) - 1 <= position:
                ready.append(run)  # nearly always
                continue
            ready.append(run.up_to(position))
            suffix.appendleft(run.after(position))
        self._delivered = position
        if ready:
            self.above.deliver_runs(ready, Standing.AUTHORITATIVE)
        self.above.settle(position)

    def roll_back(self, position: int) -> None:
        assert position >= self._delivered, "what the object has seen is authoritative"
        kept = [run.up_to(position) for run in self._suffix if run.position <= position]
        self._suffix = deque(kept)

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        self._suffix.clear()
        self._delivered = position
        self.above.restore(chunks, position)
