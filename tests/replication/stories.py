"""What stories about engines have in common: a group on a network that obeys, and short words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from tests.simulation.scripted import ScriptedNetwork

from coterie.kernel.clock import seconds
from coterie.membership.messages import Direct
from coterie.replication.forming import FormingViews
from coterie.replication.messages import Entries, Missing, PrimaryMessage, StateChunk, StateOffer
from coterie.simulation import Simulation
from coterie.simulation.world.settings import SIMULATED_SETTINGS
from coterie.stacks import LAYERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.scripted import Rule

    from coterie.kernel.layers import Layer
    from coterie.membership.messages import VsyncMessage
    from coterie.simulation import Group

ALL = 1 << 20
HARDLY_ANY = 200
"""So few bytes of history are kept that a replica that was away needs the state."""

GIVEN = (Entries, Missing, StateOffer, StateChunk)
"""What a donor sends."""

_decoder: msgspec.msgpack.Decoder[PrimaryMessage] = msgspec.msgpack.Decoder(PrimaryMessage)


def group_on_script(
    stack: str,
    names: str = "abc",
    *,
    history_bytes: int = ALL,
    backlog_bytes: int = SIMULATED_SETTINGS.backlog_bytes,
    layers: Mapping[str, type[Layer]] = LAYERS,
) -> tuple[Group, ScriptedNetwork]:
    """A whole group on a network that obeys."""
    settings = replace(SIMULATED_SETTINGS, history_bytes=history_bytes, backlog_bytes=backlog_bytes)
    simulation = Simulation(seed=1, stack=stack, settings=settings, layers=layers)
    network = ScriptedNetwork()
    simulation.network = network
    group = simulation.group(*names)
    group.run_until_whole()
    return group, network


def direct(*kinds: type, to: str = "") -> Rule:
    """A rule that means direct messages of an engine."""

    def rule(sender: str, destination: str, message: VsyncMessage) -> bool:
        if not isinstance(message, Direct) or (to and destination not in to):
            return False
        del sender
        try:
            return isinstance(_decoder.decode(message.body), kinds)
        except msgspec.DecodeError:
            return False  # of another layer

    return rule


def write(group: Group, id: str, count: int = 20) -> None:
    """Have a replica propose, one after the other, and let a second pass."""
    for number in range(count):
        group[id].propose(b"%s/%d/%d" % (id.encode(), group.simulation.now, number))
    group.run(seconds(1))


def engine(group: Group, id: str) -> FormingViews[Any]:
    replica = group[id].replica
    assert replica is not None
    return next(layer for layer in replica.layers if isinstance(layer, FormingViews))


def settled(group: Group, id: str) -> int:
    ledger = group[id].ledger
    assert ledger is not None
    return ledger.settled.position


def everywhere(group: Group) -> set[int]:
    """How much is settled, at the replicas that are up."""
    return {settled(group, host.id) for host in group if host.is_up}


def is_learning(group: Group, id: str) -> bool:
    return engine(group, id)._transfer is not None


def come_together(group: Group) -> None:
    """Heal, wait until all are in one primary view, and check every promise."""
    group.heal()
    group.run_until_whole()
    group.run(seconds(1))
    assert len(everywhere(group)) == 1
    group.check()
