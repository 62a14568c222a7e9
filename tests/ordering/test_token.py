"""TOKEN: how the token goes round, rests, gets lost and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from tests.ordering.watching import Watch, token_in
from tests.papers.scenes import until_delivered, until_views
from tests.simulation.scripted import scripted_group

from coterie.kernel.clock import Duration, milliseconds, seconds
from coterie.membership.messages import Data, Nak, Repair
from coterie.ordering.token import Token, TokenArrived, TokenWanted
from coterie.simulation.world.settings import SIMULATED_SETTINGS

if TYPE_CHECKING:
    from tests.simulation.scripted import ScriptedNetwork

    from coterie.membership.messages import VsyncMessage
    from coterie.simulation import Group


def at_work(names: str = "abc") -> tuple[Group, ScriptedNetwork, Watch]:
    group, network = scripted_group("TOKEN:VSYNC", names)
    return group, network, Watch(network)


def counter(group: Group, id: str, name: str) -> int:
    replica = group[id].replica
    assert replica is not None
    return replica.context.counters.get(name, 0)


def hops(watch: Watch) -> list[tuple[str, str]]:
    """The way of the token."""
    return [(source, to) for source, to, message in watch.tokens if isinstance(message, Token)]


def test_an_idle_token_rests_and_costs_nothing() -> None:
    group, _, watch = at_work()
    group.run(seconds(2))
    assert watch.tokens == []


def test_the_first_member_where_it_rests_sends_at_once_and_passes_it_round() -> None:
    group, _, watch = at_work()
    group["a"].cast(b"x")
    group.run(milliseconds(100))
    way = hops(watch)
    assert way[:3] == [("a", "b"), ("b", "c"), ("c", "a")]
    assert watch.packets[0].place.order == 1
    assert all(host.delivered == [b"x"] for host in group)
    watch.clear()
    group.run(seconds(1))
    assert watch.tokens == [], "and it rests again"


def test_who_wants_to_send_asks_and_the_token_comes_straight() -> None:
    group, _, watch = at_work("abcd")
    group["d"].cast(b"x")
    group.run(milliseconds(100))
    asked = [(source, to) for source, to, m in watch.tokens if isinstance(m, TokenWanted)]
    assert asked == [("d", "a")]
    assert hops(watch)[:2] == [("a", "d"), ("d", "a")]
    assert all(host.delivered == [b"x"] for host in group)


def test_a_token_that_rests_tells_its_last_sender_so() -> None:
    group, _, watch = at_work()
    group["a"].cast(b"x")
    group.run(milliseconds(200))
    arrived = [(source, to) for source, to, m in watch.tokens if isinstance(m, TokenArrived)]
    assert arrived[0] == ("a", "c")
    assert counter(group, "c", "token.resent") == 0


def test_a_request_for_the_token_that_is_lost_is_made_again() -> None:
    group, network, watch = at_work()
    lost = 0

    def loses_two_requests(_: str, __: str, message: VsyncMessage) -> bool:
        nonlocal lost
        if isinstance(token_in(message), TokenWanted) and lost < 2:
            lost += 1
            return True
        return False

    network.lose(loses_two_requests)
    group["b"].cast(b"x")
    group.run(milliseconds(300))
    assert lost == 2
    assert watch.packets
    assert all(host.delivered == [b"x"] for host in group)


def test_a_lost_token_is_sent_again_by_its_last_sender() -> None:
    group, network, _ = at_work()
    lost = 0

    def loses_three_tokens(source: str, _: str, message: VsyncMessage) -> bool:
        nonlocal lost
        if source == "b" and isinstance(token_in(message), Token) and lost < 3:
            lost += 1
            return True
        return False

    network.lose(loses_three_tokens)
    group["a"].cast(b"x", safe=True)
    group.run(milliseconds(300))
    assert lost == 3
    assert counter(group, "b", "token.resent") >= 3
    assert all(host.delivered == [b"x"] for host in group)
    group.check()


def test_a_doubled_token_is_used_once() -> None:
    group, network, _ = at_work()
    network.duplication = 1.0
    network.delay_spread = 3_000
    for number in range(30):
        for host in group:
            host.cast(b"%s%d" % (host.id.encode(), number), safe=number % 3 == 0)
        group.run(milliseconds(2))
    group.run(seconds(1))
    assert all(len(host.delivered) == 90 for host in group)
    assert len({tuple(host.delivered) for host in group}) == 1
    group.check()


def test_a_token_that_dies_with_its_holder_is_replaced_in_the_next_view() -> None:
    group, network, _ = at_work("abcd")
    has_it = False

    def sees_it_at_b(_: str, destination: str, message: VsyncMessage) -> bool:
        nonlocal has_it
        has_it |= destination == "b" and isinstance(token_in(message), Token)
        return False

    network.lose(sees_it_at_b)
    group["a"].cast(b"x")
    while not has_it:
        group.run(milliseconds(0.05))
    group["b"].crash()
    until_views(group, "acd")
    group["d"].cast(b"after")
    until_delivered(group, b"after", at="acd")
    assert [group[id].delivered for id in "acd"] == [[b"x", b"after"]] * 3
    group.check()


def test_the_first_member_may_die_with_the_token_at_rest() -> None:
    group, _, _ = at_work("abcd")
    group["a"].crash()
    group["d"].cast(b"x", safe=True)
    until_views(group, "bcd")
    until_delivered(group, b"x", at="bcd")
    group.check()


def test_a_visit_has_its_limit_so_that_others_get_their_turn() -> None:
    group, _, watch = at_work()
    limit = group.simulation.settings.turn_packets
    large = bytes(group.simulation.settings.packet_bytes_max)
    group["a"].cast(*[b"a" + large] * (limit + 4))
    group["b"].cast(b"b")
    group.run(seconds(1))
    senders = [packet.source for packet in watch.packets if packet.destination == "c"]
    assert senders.index("b") <= limit
    assert senders.count("a") == limit + 4
    assert all(host.delivered.index(b"b") <= limit for host in group)
    group.check()


def test_a_missing_packet_is_asked_for_by_the_token_and_sent_again_by_whoever_has_it() -> None:
    group, network, watch = at_work("abcd")
    network.lose(lambda _, destination, message: destination == "d" and isinstance(message, Data))
    group["a"].cast(b"x")
    until_delivered(group, b"x", at="d")
    wanted = [m.wanted for _, _, m in watch.tokens if isinstance(m, Token) and m.wanted]
    assert wanted[0] == [(0, 1, 1)]
    assert any(isinstance(message, Repair) for message in watch.others)
    assert not any(isinstance(message, Nak) for message in watch.others)
    group.check()


def test_numbers_and_safety_travel_with_the_token() -> None:
    """A safe message is delivered when the token has told that all have it, and not before."""
    group, network, watch = at_work()
    group["a"].cast(b"x", safe=True)
    group.run(milliseconds(100))
    known = [m.have for _, _, m in watch.tokens if isinstance(m, Token)]
    assert [0, 0, 0] not in known[2:]
    assert [1, 1, 1] in known
    assert network.lost == []
    assert all(host.delivered == [b"x"] for host in group)


def test_a_token_that_is_kept_packs_more_and_goes_round_less_often() -> None:
    def rounds(hold: Duration) -> tuple[int, int, list[bytes]]:
        settings = msgspec.structs.replace(SIMULATED_SETTINGS, token_hold=hold)
        group, network = scripted_group("TOKEN:VSYNC", "abc", settings=settings)
        watch = Watch(network)
        for number in range(100):
            for id in "abc":
                group[id].cast(b"%s %d" % (id.encode(), number))
            group.run(milliseconds(1))
        group.run(milliseconds(500))
        first, *others = [host.delivered for host in group]
        assert all(host == first for host in others)
        return len(hops(watch)), len(watch.packets), first

    hot, kept = rounds(milliseconds(0)), rounds(milliseconds(3))
    assert len(hot[2]) == len(kept[2]) == 300
    assert kept[0] < hot[0]
    assert kept[1] < hot[1]


def test_a_token_that_is_kept_is_asked_for_and_rests_in_the_end_as_any_other() -> None:
    settings = msgspec.structs.replace(SIMULATED_SETTINGS, token_hold=milliseconds(5))
    group, network = scripted_group("TOKEN:VSYNC", "abc", settings=settings)
    watch = Watch(network)
    group["b"].cast(b"x")
    group.run(milliseconds(4))
    assert all(host.delivered == [] for host in group), "it is kept"
    group.run(seconds(1))
    assert all(host.delivered == [b"x"] for host in group)
    assert hops(watch)[:2] == [("a", "b"), ("b", "c")]
    watch.clear()
    group.run(seconds(1))
    assert watch.tokens == []
