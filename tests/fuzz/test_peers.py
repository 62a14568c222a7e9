"""Whatever bytes a peer sends, no turn raises and the group becomes whole again."""

import msgspec
import pytest
from tests.fuzz.peers import COLOURS, STACKS, fuzz, is_whole, orders_differ, servers

from coterie.colours.messages import decode_action, encode_actions
from coterie.kernel.clock import seconds
from coterie.kernel.components import Action
from coterie.kernel.decoding import COUNT_MAX
from coterie.kernel.errors import BadMessage
from coterie.kernel.views import Member
from coterie.ordering.token import RotatingToken, Token
from coterie.simulation import Simulation


@pytest.mark.parametrize("stack", [*STACKS, *COLOURS])
def test_wrong_frames_of_peers(stack: str) -> None:
    fuzz(stack, seed=7, inputs=300)


def test_made_up_numbers_of_actions_are_left_out() -> None:
    """In a primary component a hole in the numbers of a creator was an assertion in a turn."""
    fuzz("COLOURS:TOKEN:VSYNC", seed=2, inputs=400)


def test_green_orders_that_differ_end_the_exchange() -> None:
    """A lie made one of three replicas put another action into the global order.

    What it lacked was green elsewhere, so nobody had it to give, and all waited for ever.
    """
    simulation = Simulation(seed=1, stack="COLOURS:DYNSEQ:VSYNC")
    group = simulation.group("a", "b", "c")
    simulation.run(seconds(1))
    for host in group:
        host.propose(b"said")
    simulation.run(seconds(1))
    engines = servers(group)
    assert [engine.green_end for engine in engines] == [3, 3, 3]
    liar = engines[2].queue
    del liar.log.contained[Member("a", 1)]
    liar.red_cut[Member("a", 1)] = 0
    group.partition("ab", "c")
    simulation.run(seconds(2))
    group.heal()
    simulation.run(seconds(5))
    assert not is_whole(group)
    assert orders_differ(group)
    for engine in engines:
        assert engine.why.startswith("c has made other actions green than the others: start it")


@pytest.mark.parametrize("number", [COUNT_MAX + 1, 2**63, 2**64 - 1])
def test_a_time_that_cannot_be_counted_on_from_is_no_time(number: int) -> None:
    """Whoever believed it could not write down its own next action, and died of the next update."""
    action = Action(Member("a", 1), 1, number, b"said")
    assert decode_action(action.creator, encode_actions([action])[0]) is None
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(action), type=Action)


def test_a_group_whose_time_has_come_to_its_end_goes_on() -> None:
    simulation = Simulation(seed=1, stack="COLOURS:DYNSEQ:VSYNC")
    group = simulation.group("a", "b", "c")
    simulation.run(seconds(1))
    for engine in servers(group):
        engine.queue.time = COUNT_MAX
    for _ in range(3):
        for host in group:
            host.propose(b"said", b"again")
        simulation.run(seconds(1))
    assert [engine.green_end for engine in servers(group)] == [18, 18, 18]
    group.partition("ab", "c")
    simulation.run(seconds(2))
    group.heal()
    simulation.run(seconds(2))
    assert is_whole(group)


def test_a_token_that_was_idle_for_ever_is_none() -> None:
    """The next hop could not be encoded: the turn raised (`peers stack`, seed 2000402)."""
    simulation = Simulation(seed=1, stack="TOKEN:VSYNC")
    group = simulation.group("a", "b", "c")
    simulation.run(seconds(1))
    host = group["b"]
    assert host.replica is not None
    layer = host.replica.layers[-2]
    assert isinstance(layer, RotatingToken)
    for idle in (2**64 - 1, -1):
        token = Token(10**6, 0, [0] * 3, [0] * 3, [], idle)
        with pytest.raises(BadMessage, match="no view of ours"):
            layer.receive_direct(Member("a", 1), msgspec.msgpack.encode(token))


@pytest.mark.long
def test_a_group_over_a_partitioned_network_comes_together_after_lies() -> None:
    """Of these seeds the one at 600 frames, and the one at 1200, left an exchange without end."""
    fuzz("COLOURS:DYNSEQ:VSYNC", 107)
    fuzz("COLOURS:DYNSEQ:VSYNC", 3266, 1200)


@pytest.mark.long
@pytest.mark.parametrize("stack", [*STACKS, *COLOURS])
def test_many_wrong_frames_of_peers(stack: str) -> None:
    for seed in range(100, 108):
        fuzz(stack, seed)


@pytest.mark.parametrize("seed", [100, 124])
def test_newcomers_find_a_group_whose_view_numbers_are_high(seed: int) -> None:
    """Wrong frames had made them so high that nobody who began with nothing believed them."""
    fuzz("DYNSEQ:PVSYNC", seed, inputs=300, has_changes=True)


@pytest.mark.parametrize("stack", ["SAFE:TOKEN:PVSYNC", "COLOURS:DYNSEQ:VSYNC"])
def test_wrong_frames_while_members_change(stack: str) -> None:
    fuzz(stack, 101, inputs=200, has_changes=True)
