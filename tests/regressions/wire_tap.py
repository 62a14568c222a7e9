"""Single messages on the simulated wire: held back for a while, or named a limited number of times.

`ScriptedNetwork` can lose messages by a rule; here is what else it takes to replay, step by step,
the schedules that once went wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coterie.kernel.wire import Envelope, Frame, encode_frame
from coterie.membership.vsync import Vsync
from coterie.simulation.world.network import SimulatedNetwork

if TYPE_CHECKING:
    from tests.simulation.scripted import Rule, ScriptedNetwork

    from coterie.kernel.clock import Duration
    from coterie.membership.messages import VsyncMessage
    from coterie.simulation import Group

_encoder = msgspec.msgpack.Encoder()


def first(times: int, rule: Rule) -> Rule:
    """A rule that means only the first messages that *rule* means."""
    left = times

    def limited(source: str, destination: str, message: VsyncMessage) -> bool:
        nonlocal left
        if left == 0 or not rule(source, destination, message):
            return False
        left -= 1
        return True

    return limited


def hold_back(group: Group, network: ScriptedNetwork, rule: Rule, wait: Duration) -> None:
    """Have every message that *rule* means arrive later, in a frame of its own.

    To the network it counts as lost, so the rest of its frame arrives in time.
    """

    def hold(source: str, destination: str, message: VsyncMessage) -> bool:
        if not rule(source, destination, message):
            return False
        incarnation = group[source].incarnation
        envelope = Envelope(group.name, incarnation, [msgspec.Raw(_encoder.encode(message))])
        frame = encode_frame(Frame(source, incarnation, None, [envelope]))

        def let_go() -> None:
            # Past the rules: it has been held back once already.
            SimulatedNetwork.carry(network, source, destination, frame, group.arrive)

        group.simulation.at(wait, let_go)
        return True

    network.lose(hold)


def vsync_of(group: Group, id: str) -> Vsync:
    """The lowest layer of a replica."""
    replica = group[id].replica
    assert replica is not None
    assert isinstance(replica.bottom, Vsync)
    return replica.bottom


def propose_view(group: Group, proposer: str, names: str) -> None:
    """Have a view of these members proposed, for no reason that matters."""
    change = vsync_of(group, proposer).change
    members = [vsync_of(group, name).me for name in names]
    group[proposer].call(lambda: change._propose(members))
