"""A simulated network on which single messages can be lost or held back, by what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from tests.seeded import seeded

from coterie.kernel.settings import Settings
from coterie.kernel.wire import Envelope, Frame, decode_frame, encode_frame
from coterie.membership.messages import Data, Repair, VsyncMessage
from coterie.simulation import Simulation, seconds
from coterie.simulation.world.network import SimulatedNetwork
from coterie.simulation.world.settings import SIMULATED_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from coterie.simulation import Group

    Rule = Callable[[str, str, VsyncMessage], bool]
    """Says of a message from one replica to another whether it is meant."""

_decoder: msgspec.msgpack.Decoder[VsyncMessage] = msgspec.msgpack.Decoder(VsyncMessage)


class ScriptedNetwork(SimulatedNetwork):
    """Loses the messages that a rule names; the rest of their frame arrives.

    Every message is shown to all rules, so that a rule may also just watch.
    """

    def __init__(self) -> None:
        super().__init__(seeded("scripted"))
        self._rules: list[Rule] = []
        self.lost: list[tuple[str, str, VsyncMessage]] = []

    def lose(self, rule: Rule) -> None:
        """Lose every message that *rule* names, from now on."""
        self._rules.append(rule)

    def lose_no_more(self) -> None:
        """Forget all rules."""
        self._rules.clear()

    def carry(
        self,
        source: str,
        destination: str,
        frame: bytes,
        arrive: Callable[[str, str, bytes, int], None],
    ) -> None:
        if self._rules:
            frame = self._filtered(source, destination, frame)
        super().carry(source, destination, frame, arrive)

    def _filtered(self, source: str, destination: str, data: bytes) -> bytes:
        frame = decode_frame(data, frame_bytes_max=1 << 23)
        envelopes = [
            Envelope(
                envelope.group,
                envelope.incarnation,
                [raw for raw in envelope.messages if self._passes(source, destination, raw)],
            )
            for envelope in frame.envelopes
        ]
        return encode_frame(Frame(frame.process, frame.incarnation, frame.heartbeat, envelopes))

    def _passes(self, source: str, destination: str, raw: msgspec.Raw) -> bool:
        message = _decoder.decode(raw)
        verdicts = [rule(source, destination, message) for rule in self._rules]
        if any(verdicts):
            self.lost.append((source, destination, message))
            return False
        return True


def scripted_group(
    stack: str, names: str, *, alone: str = "", settings: Settings = SIMULATED_SETTINGS
) -> tuple[Group, ScriptedNetwork]:
    """A group on a network that obeys: all in one view, with ranks in the order of *names*.

    Those in *alone* are up too, but cut off from the others and from each other.
    """
    simulation = Simulation(seed=1, stack=stack, settings=settings)
    network = ScriptedNetwork()
    simulation.network = network
    group = simulation.group(*names, *alone)
    group.partition(*names, *alone)
    for place in range(1, len(names)):
        # One at a time: a newcomer gets the last rank.
        network.mend(group.links_between(names[:place], names[place]))
        _run_until_together(group, names[: place + 1])
    current = group[names[0]].inbox.current
    assert current is not None
    assert [member.id for member in current.members] == list(names)
    group.run(seconds(1))
    return group, network


def _run_until_together(group: Group, names: str) -> None:
    wanted = "".join(sorted(names))

    def together() -> bool:
        return all(group[name].view == wanted for name in names)

    assert group.simulation.run_until(together, within=seconds(5))


def carries(message: VsyncMessage, payload: bytes) -> bool:
    """Say whether a message is a packet with this payload in it, first sent or repeated."""
    return isinstance(message, Data | Repair) and payload in message.payloads
