"""What engine layers pass to each other above group communication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.engine import Chunks
from coterie.kernel.layers import Layer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coterie.kernel.engine import EngineHost, Run, Standing, Status
    from coterie.kernel.layers import Context


class EngineLayer(Layer):
    """A layer that speaks of histories; the defaults pass everything through."""

    above: EngineLayer

    # ---- upwards

    def deliver_runs(self, runs: list[Run], standing: Standing) -> None:
        """See `EngineHost.deliver`."""
        self.above.deliver_runs(runs, standing)

    def settle(self, position: int) -> None:
        """See `EngineHost.settle`."""
        self.above.settle(position)

    def roll_back(self, position: int) -> None:
        """See `EngineHost.roll_back`."""
        self.above.roll_back(position)

    def status(self, status: Status) -> None:
        """See `EngineHost.status`."""
        self.above.status(status)

    def snapshot(self) -> Chunks:
        """See `EngineHost.snapshot`."""
        return self.above.snapshot()

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        """See `EngineHost.restore`."""
        self.above.restore(chunks, position)

    # ---- downwards

    def propose(self, payloads: Sequence[bytes]) -> None:
        """See `Engine.propose`."""
        below = self.below
        assert isinstance(below, EngineLayer)
        below.propose(payloads)

    def hurry(self) -> None:
        """Have acknowledgements sent at once: someone waits for them."""
        below = self.below
        assert isinstance(below, EngineLayer)
        below.hurry()


class EngineTop(EngineLayer):
    """The end of an engine's stack: the host."""

    name = "HOST"

    def __init__(self, context: Context, host: EngineHost) -> None:
        super().__init__(context)
        self.host = host

    def deliver_runs(self, runs: list[Run], standing: Standing) -> None:
        self.host.deliver(runs, standing)

    def settle(self, position: int) -> None:
        self.host.settle(position)

    def roll_back(self, position: int) -> None:
        self.host.roll_back(position)

    def status(self, status: Status) -> None:
        self.host.status(status)

    def snapshot(self) -> Chunks:
        chunks = self.host.snapshot()
        return chunks if isinstance(chunks, Chunks) else Chunks(chunks)

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        self.host.restore(chunks, position)

    def finish_turn(self) -> None:
        self.host.finish_turn()

    @property
    def has_waiting_casts(self) -> bool:
        return False
