"""What the object is shown: green actions for good, yellow and red ones until they are ordered.

The host keeps two copies where it must: the *authoritative* one has the green actions, the *dirty*
one the yellow and the red ones as well, at positions that are provisional and this replica's own.
When actions turn green while others are shown, the host goes back to the last green one, executes
the green ones in their order, and then what is left. In a primary component nothing is shown before
it is green, so there one copy is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.colours.states import GREEN, RED
from coterie.kernel.engine import Run

if TYPE_CHECKING:
    from coterie.colours.queue import ActionsQueue
    from coterie.kernel.views import ViewId
    from coterie.replication.layer import EngineLayer


class Showing:
    """Keeps the host in step with the queue."""

    def __init__(self, queue: ActionsQueue) -> None:
        self._queue = queue
        self._fresh: list[Run] = []
        self._end = 0
        """Up to where the host knows the global order."""
        self._shown = 0
        """How many actions above that it has been shown."""
        self._epoch = -1

    def add_green(self, runs: list[Run]) -> None:
        """Have the host be shown green actions, with the next call of `show`."""
        self._fresh += runs

    def restored(self, position: int) -> None:
        """Learn that the host took over a state whole."""
        self._fresh = []
        self._end = position
        self._shown = 0

    def show(self, above: EngineLayer, *, view: ViewId, shows_red: bool) -> None:
        """Show the host what has changed since it was called last."""
        queue = self._queue
        if self._shown and (self._fresh or self._epoch != queue.epoch):
            above.roll_back(self._end)
            self._shown = 0
        if self._fresh:
            runs, self._fresh = self._fresh, []
            self._end = runs[-1].last_position
            above.deliver_runs(runs, GREEN)
            above.settle(self._end)
        if shows_red:
            actions = queue.shown()
            if len(actions) > self._shown:
                position = self._end + self._shown
                runs = [
                    Run(
                        *(view, position + offset - self._end, position + offset),
                        *(action.creator, action.index, [action.command]),
                    )
                    for offset, action in enumerate(actions[self._shown :], start=1)
                ]
                self._shown = len(actions)
                above.deliver_runs(runs, RED)
            self._epoch = queue.epoch
