"""Packets that the token asks for though nobody can send them any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace
from tests.ordering.watching import token_in
from tests.papers.scenes import until_delivered
from tests.regressions.wire_tap import first, hold_back
from tests.simulation.scripted import ScriptedNetwork, scripted_group

from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.wire import Envelope, Frame, encode_frame
from coterie.membership.messages import Data, Direct
from coterie.ordering.token import Token
from coterie.simulation import Simulation
from coterie.simulation.world.settings import SIMULATED_SETTINGS

if TYPE_CHECKING:
    from coterie.membership.messages import VsyncMessage
    from coterie.simulation import Group

encode = msgspec.msgpack.encode


def want_what_arrives_soon(group: Group, network: ScriptedNetwork, ranks: str, wants: int) -> None:
    """Have the last member put a packet on the token that is there, and stable, before it comes.

    The packet, of the first member, is late; the token that asks for it is lost until then.
    *wants* is how many wants the token carries that are not to be lost.
    """

    def packet(source: str, destination: str, message: VsyncMessage) -> bool:
        return isinstance(message, Data) and (source, destination) == (ranks[0], ranks[-1])

    def want(source: str, _: str, message: VsyncMessage) -> bool:
        token = token_in(message)
        return source == ranks[-1] and isinstance(token, Token) and len(token.wanted) > wants

    hold_back(group, network, first(1, packet), milliseconds(6))
    network.lose(first(2, want))
    group[ranks[0]].cast(b"late")
    group.run(seconds(1))
    network.lose_no_more()


def test_the_token_rests_though_a_want_came_too_late() -> None:
    """A want for packets that all had received, and forgotten, was never taken off the token.

    So it never came to rest, and an idle group sent thousands of frames a second.
    """
    group, network = scripted_group("TOKEN:VSYNC", "abc")
    want_what_arrives_soon(group, network, "abc", 0)
    group.run(seconds(1))
    before = network.frames
    group.run(seconds(5))
    assert network.frames - before < 5 * 200
    group.check()


def test_wants_that_nobody_can_answer_leave_room_for_others() -> None:
    """Such wants stayed until they filled the token, and then no gap was ever repaired again."""
    settings = replace(SIMULATED_SETTINGS, repair_packets_max=2)
    simulation = Simulation(seed=1, stack="TOKEN:VSYNC", settings=settings)
    simulation.network = network = ScriptedNetwork()
    group = simulation.group("a", "b", "c")
    group.run_until_whole()
    current = group["a"].inbox.current
    assert current is not None
    ranks = "".join(member.id for member in current.members)
    for wants in range(2):
        want_what_arrives_soon(group, network, ranks, wants)
    network.lose(
        first(
            1,
            lambda source, destination, message: (
                isinstance(message, Data) and (source, destination) == (ranks[0], ranks[-1])
            ),
        )
    )
    group[ranks[0]].cast(b"lost once")
    until_delivered(group, b"lost once", at="abc")
    group.check()


def test_the_token_rests_though_it_was_asked_for_what_never_was() -> None:
    """A want for packets that nobody ever sent went round with the token for good."""
    group, network = scripted_group("TOKEN:VSYNC", "abc")
    group["a"].cast(b"first")
    group.run(seconds(1))
    view = group["a"].inbox.current
    assert view is not None
    ranks = [member.id for member in view.members]
    size = len(ranks)
    wants = [(rank, 1, 2**60) for rank in range(size)] * 20
    token = Token(10**6, 1, [1] * size, [100] * size, wants, 0)
    sender = view.members[0]
    said = msgspec.Raw(encode(Direct(view.id, encode(token))))
    envelope = Envelope(group.name, sender.incarnation, [said])
    frame = encode_frame(Frame(sender.id, sender.incarnation, None, [envelope]))
    group[ranks[1]].take(frame)
    group.run(seconds(1))
    before = network.frames
    group.run(seconds(5))
    assert network.frames - before < 5 * 200
    group["c"].cast(b"still works")
    until_delivered(group, b"still works", at="abc")
