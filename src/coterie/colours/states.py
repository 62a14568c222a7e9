"""The eight states of a replication server (**transis** slides 30-32), and its colours."""

from __future__ import annotations

import enum

from coterie.kernel.components import GREEN, RED, WHITE, YELLOW

__all__ = ["GREEN", "RED", "WHITE", "YELLOW", "ServerState"]


class ServerState(enum.Enum):
    """Where a replica stands between one configuration and the next."""

    NON_PRIM = "NonPrim"
    """In a component that is not primary: actions are marked red."""
    REG_PRIM = "RegPrim"
    """In the primary component: actions are marked green as they are delivered."""
    TRANS_PRIM = "TransPrim"
    """The primary component ends: actions are marked yellow."""
    EXCHANGE_STATES = "ExchangeStates"
    """A new configuration: each tells what it knows."""
    EXCHANGE_ACTIONS = "ExchangeActions"
    """All is told: what some know and others do not is sent."""
    CONSTRUCT = "Construct"
    """Ready to be primary, and said so: once all have said so, they are."""
    NO = "No"
    """The configuration ends, and not all have said that they are ready."""
    UN = "Un"
    """All had said so as it ended: somebody may have installed the component, or nobody."""

    @property
    def takes_actions(self) -> bool:
        """Whether actions are created here; elsewhere requests wait."""
        return self in {ServerState.NON_PRIM, ServerState.REG_PRIM}
