"""DYNSEQ: who orders what, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.ordering.watching import Watch
from tests.papers.scenes import era_of_view, part_of, until_delivered, until_views
from tests.simulation.scripted import carries, scripted_group

from coterie.kernel.clock import milliseconds, seconds
from coterie.kernel.records import Delivery
from coterie.membership.messages import Ack

if TYPE_CHECKING:
    from tests.simulation.scripted import ScriptedNetwork

    from coterie.membership.messages import VsyncMessage
    from coterie.simulation import Group


def at_work(names: str = "abc") -> tuple[Group, ScriptedNetwork, Watch]:
    group, network = scripted_group("DYNSEQ:VSYNC", names)
    return group, network, Watch(network)


def test_the_sequencers_own_messages_carry_their_order_with_them() -> None:
    group, _, watch = at_work()
    group["a"].cast(b"x")
    group.run(milliseconds(50))
    assert [(packet.source, packet.destination) for packet in watch.packets] == [
        ("a", "b"),
        ("a", "c"),
    ]
    assert watch.packets[0].order.runs == [(0, 1)]
    assert all(host.delivered == [b"x"] for host in group)


def test_messages_of_others_cost_one_small_packet_of_order() -> None:
    group, _, watch = at_work()
    group["b"].cast(b"x")
    group.run(milliseconds(50))
    data, order = [packet for packet in watch.packets if packet.destination == "c"]
    assert (data.source, data.payloads, data.order.runs) == ("b", [b"x"], [])
    assert (order.source, order.payloads, order.order.runs) == ("a", [], [(1, 1)])
    assert all(host.delivered == [b"x"] for host in group)


def test_one_order_is_given_for_all_that_a_turn_brings() -> None:
    group, _, watch = at_work("abcd")
    for host in group:
        for number in range(5):
            host.cast(b"%s%d" % (host.id.encode(), number))
    group.run(milliseconds(50))
    orders = [packet for packet in watch.packets if packet.source == "a" and not packet.payloads]
    assert len(orders) <= 2 * 3, "at most two turns, to three others"
    assert all(len(host.delivered) == 20 for host in group)
    assert len({tuple(host.delivered) for host in group}) == 1


def test_a_quiet_group_sends_no_packets() -> None:
    group, _, watch = at_work()
    group["b"].cast(b"x", safe=True)
    group.run(seconds(1))
    watch.clear()
    group.run(seconds(2))
    assert watch.packets == []
    assert not any(isinstance(message, Ack) for message in watch.others), "all is stable"


def test_a_message_waits_for_its_place_not_for_its_arrival() -> None:
    """C has b's message but not where it belongs."""
    group, network, _ = at_work()
    is_cut = True

    def order_to_c(source: str, destination: str, message: VsyncMessage) -> bool:
        del message
        return is_cut and (source, destination) == ("a", "c")

    network.lose(order_to_c)
    group["b"].cast(b"x")
    until_delivered(group, b"x", at="ab")
    assert group["c"].delivered == []
    is_cut = False
    until_delivered(group, b"x", at="c")
    group.check()


def test_when_the_sequencer_dies_the_next_member_orders() -> None:
    group, _, watch = at_work("abcd")
    group["a"].crash()
    until_views(group, "bcd")
    watch.clear()
    group["d"].cast(b"x")
    group.run(milliseconds(50))
    orders = [packet for packet in watch.packets if packet.order.runs]
    assert {packet.source for packet in orders} == {"b"}
    assert [group[id].delivered for id in "bcd"] == [[b"x"]] * 3
    group.check()


def test_what_the_dead_sequencer_had_not_ordered_is_delivered_at_the_end_of_the_view() -> None:
    """Its sender goes on, so it is not lost; but it has no place, and is marked."""
    group, network, _ = at_work("abcd")
    network.lose(lambda _, destination, message: destination == "a" and carries(message, b"x"))
    group["c"].cast(b"x")
    group.run(milliseconds(20))
    assert all(host.delivered == [] for host in group)
    group["a"].crash()
    until_views(group, "bcd")
    for id in "bcd":
        era = era_of_view(group, id, "abcd")
        assert part_of(era, "c", 1) is Delivery.AFTER_HOLE
        assert [record.number for record in era.delivered] == [0]
    group.check()


def test_an_order_that_only_one_has_seen_is_kept_by_all_who_go_on() -> None:
    group, network, _ = at_work("abcd")

    def from_a_but_to_b(source: str, destination: str, message: VsyncMessage) -> bool:
        del message
        return source == "a" and destination != "b"

    network.lose(from_a_but_to_b)
    for id in "cd":
        group[id].cast(id.encode())
    until_delivered(group, b"c", at="b")
    until_delivered(group, b"d", at="b")
    order = list(group["b"].delivered)
    group["a"].crash()
    until_views(group, "bcd")
    assert [group[id].delivered for id in "bcd"] == [order] * 3
    assert all(
        record.delivery is not Delivery.AFTER_HOLE
        for id in "bcd"
        for record in era_of_view(group, id, "abcd").delivered
    )
    group.check()


def test_a_burst_larger_than_the_window_arrives_whole_and_in_order() -> None:
    group, _, _ = at_work()
    burst = [b"%d" % number + bytes(100_000) for number in range(100)]
    group["b"].cast(*burst)
    group.run(seconds(2))
    assert all(host.delivered == burst for host in group)
    group.check()
