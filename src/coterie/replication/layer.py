"""What engine layers pass to each other above group communication."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from coterie.kernel.engine import Chunks, Standing
from coterie.kernel.errors import BadMessage
from coterie.kernel.layers import Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coterie.kernel.engine import EngineHost, Run, Status
    from coterie.kernel.layers import Context
    from coterie.kernel.views import Member, ReplicaAddresses, ReplicaId


class EngineLayer(Layer):
    """A layer that speaks of histories; the defaults pass everything through."""

    above: EngineLayer
    members_change: ClassVar[bool] = False
    """Whether this layer changes the members of its group while it serves."""

    @property
    def fetched(self) -> int:
        """How many bytes have come of a state that is being fetched."""
        return 0

    # ---- upwards

    def deliver_runs(self, runs: list[Run], standing: Standing) -> None:
        """See `EngineHost.deliver`."""
        self.above.deliver_runs(runs, standing)

    def deliver_next(self, run: Run) -> None:
        """Take entries that are not authoritative yet, in the common case (`coterie.bypass`)."""
        self.deliver_runs([run], Standing.OPTIMISTIC)

    def settle(self, position: int) -> None:
        """See `EngineHost.settle`."""
        self.above.settle(position)

    def roll_back(self, position: int) -> None:
        """See `EngineHost.roll_back`."""
        self.above.roll_back(position)

    def status_changed(self, status: Status) -> None:
        """See `EngineHost.status`."""
        self.above.status_changed(status)

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

    def confirm(self, serial: int, confirmed: Callable[[int], None]) -> None:
        """See `Engine.confirm`."""
        below = self.below
        assert isinstance(below, EngineLayer)
        below.confirm(serial, confirmed)

    def admit(self, id: ReplicaId, at: ReplicaAddresses | None = None) -> None:
        """Have a replica join the group: as a learner first, and as a member when it knows all.

        *at* says where it is found, where that has to be said. Raises `Refused` if it cannot be;
        what comes of it is in `Status.configuration`.
        """
        below = self.below
        assert isinstance(below, EngineLayer)
        below.admit(id, at)

    def dismiss(self, id: ReplicaId) -> None:
        """Have a replica removed from the group; raises `Refused` if it cannot be."""
        below = self.below
        assert isinstance(below, EngineLayer)
        below.dismiss(id)

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

    def status_changed(self, status: Status) -> None:
        self.host.status_changed(status)

    def snapshot(self) -> Chunks:
        chunks = self.host.snapshot()
        return chunks if isinstance(chunks, Chunks) else Chunks(chunks)

    def restore(self, chunks: Iterable[bytes], position: int) -> None:
        self.host.restore(chunks, position)

    def receive_direct(self, sender: Member, body: bytes) -> None:  # noqa: ARG002
        raise BadMessage("a direct message that no layer of this stack sends")

    def alive_heard(self, value: bytes) -> None:
        pass

    def leaving(self) -> None:
        pass

    def finish_turn(self) -> None:
        self.host.finish_turn()

    @property
    def has_waiting_casts(self) -> bool:
        return False
