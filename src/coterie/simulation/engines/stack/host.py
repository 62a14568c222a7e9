"""A simulated machine with one replica of a stack, as stories and clients use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.kernel.errors import Refused
from coterie.replication.layer import EngineLayer
from coterie.simulation.engines.stack.clients import SimulatedObject
from coterie.simulation.world.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coterie.journal.engines.colours import ColoursKeeper
    from coterie.journal.engines.stack_keeper import JournalKeeper
    from coterie.kernel.engine import Version
    from coterie.kernel.replica import Replica
    from coterie.kernel.views import Configuration
    from coterie.objects import ObjectHost
    from coterie.simulation.engines.stack.group import Group
    from coterie.simulation.engines.stack.ledger import Ledger
    from coterie.simulation.engines.stack.replica import Inbox, Place


class Host(Machine):
    """One machine of a group, and the replica that lives there."""

    def __init__(self, group: Group, id: str, seeds: Configuration | None = None) -> None:
        super().__init__(group, id)
        self.group = group
        self.seeds = seeds
        """Whom it knows to begin with, if it joins the group later."""
        self.resident = group.make_replica(self)
        self.put(self.resident)

    # ---- the replica

    @property
    def replica(self) -> Replica | None:
        """The replica, while its process lives."""
        return self.resident.replica

    @property
    def keeper(self) -> JournalKeeper | ColoursKeeper | None:
        """The journal of the present life, where the stack has an engine."""
        return self.resident.keeper

    @property
    def inbox(self) -> Inbox:
        """What was delivered in this life, where the stack has no engine."""
        return self.resident.inbox

    @property
    def ledger(self) -> Ledger | SimulatedObject | None:
        """The object, where the stack has an engine."""
        return self.resident.ledger

    @property
    def lacks_memory(self) -> bool:
        """Whether the replica is a zombie, or would be one if its process began anew now."""
        return self.resident.lacks_memory

    @property
    def version(self) -> Version:
        """How advanced the history is that the running replica knows."""
        return self.resident.version

    def accept_loss(self) -> None:
        """Have the operator say that the history known here is to count: `recover --from`."""
        self.resident.accept_loss()

    @property
    def configuration(self) -> Configuration:
        """The last configuration that has settled, as far as the replica knows."""
        replica = self.replica
        return self.resident.configuration if replica is None else replica.context.configuration

    # ---- use

    def cast(self, *payloads: bytes, safe: bool = False) -> None:
        """Multicast messages from this replica, if it is up; a full backlog refuses them."""
        replica = self.replica
        if replica is not None:
            self.call(lambda: _cast(replica, payloads, safe=safe))

    def ask(self, request: Callable[[ObjectHost], None]) -> None:
        """Have a client's request made of the object here, unless the replica is down or gone."""
        found, replica = self.ledger, self.replica
        if replica is None or replica.bottom.has_left:
            return
        if isinstance(found, SimulatedObject):
            host = found.engine_host
            self.call(lambda: request(host))

    def propose(self, *payloads: bytes) -> None:
        """Propose commands to the engine at this replica, if it is up."""
        replica = self.replica
        if replica is not None:
            self.call(lambda: _propose(replica, payloads))

    @property
    def place(self) -> Place | None:
        """The view this replica is in, with its members; with an engine, once it is primary."""
        if not self.is_up:
            return None
        if self.ledger is None:
            return self.inbox.place
        status = self.ledger.status
        if status is None or not self.ledger.is_primary:
            return None
        return (status.view, status.members)

    @property
    def view(self) -> str:
        """The names in the current view, in alphabetical order: "abc"."""
        place = self.place
        return "" if place is None else "".join(sorted(member.id for member in place[1]))

    @property
    def delivered(self) -> list[bytes]:
        """All messages delivered in this life."""
        return self.inbox.delivered


def _cast(replica: Replica, payloads: Sequence[bytes], *, safe: bool) -> None:
    try:
        replica.cast(payloads, safe=safe)
    except Refused:
        replica.context.count("casts_refused")


def _propose(replica: Replica, payloads: Sequence[bytes]) -> None:
    engine = replica.layers[0]
    assert isinstance(engine, EngineLayer)
    try:
        engine.propose(payloads)
    except Refused:
        replica.context.count("proposals_refused")
