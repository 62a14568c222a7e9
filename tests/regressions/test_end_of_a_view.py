"""What went wrong once where one view ends and the next begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.papers.scenes import life_of, until, until_delivered, until_views
from tests.regressions.wire_tap import hold_back, propose_view, vsync_of
from tests.simulation.scripted import scripted_group

from coterie.kernel.clock import milliseconds, seconds
from coterie.membership.messages import Cut, Data, Flush, Repair

if TYPE_CHECKING:
    from tests.simulation.scripted import ScriptedNetwork

    from coterie.membership.messages import VsyncMessage
    from coterie.simulation import Group


def last_packet_completes_the_cut(group: Group, network: ScriptedNetwork, next_view: str) -> None:
    """The packet that a, the proposer, waits for to end the view is one of b, and no repair."""
    hold_back(
        group,
        network,
        lambda source, destination, message: (
            isinstance(message, Data) and (source, destination) == ("b", "a")
        ),
        milliseconds(20),
    )
    network.lose(lambda _, destination, message: destination == "a" and isinstance(message, Repair))
    group["b"].cast(b"last of the old view")
    group.run(milliseconds(5))
    old = vsync_of(group, "a").current.id
    propose_view(group, "a", next_view)
    until(
        group,
        lambda: all(vsync_of(group, id).current.id != old for id in next_view),
        f"{next_view} are in another view",
    )
    network.lose_no_more()


def test_the_vector_of_an_old_view_acknowledges_nothing_in_the_next() -> None:
    """A packet that completed the proposer's own cut ended its view while it was being taken.

    Its vector of acknowledgements was then applied to the new view, and a message was delivered as
    safe that one member did not have.
    """
    group, network = scripted_group("DYNSEQ:VSYNC", "abc")
    for _ in range(5):
        for host in group:
            host.cast(b"makes the vector of the old view large")
        group.run(milliseconds(10))
    group.run(seconds(1))
    last_packet_completes_the_cut(group, network, "abc")
    assert vsync_of(group, "a").stable[0] == 0, "nothing has been sent in the new view"
    group.partition("b", "ac")
    group["a"].cast(b"safe?", safe=True)
    group.run(seconds(5))
    group.check()


def test_the_sender_of_the_last_packet_of_a_view_need_not_be_in_the_next() -> None:
    """The same, of a sender that did not come along: its rank was looked up in the new view.

    It had none, and the error stopped the process.
    """
    group, network = scripted_group("DYNSEQ:VSYNC", "abcd")
    last_packet_completes_the_cut(group, network, "acd")
    group.run_until_whole()
    group.check()


def test_a_member_that_leaves_during_a_view_change_is_not_kept_in_the_new_view() -> None:
    """Whoever entered a view forgot which members had left since they agreed to it.

    The view waited for one that was gone, and delivered nothing safe any more.
    """
    group, network = scripted_group("DYNSEQ:VSYNC", "abcd")
    group.partition("abc", "d")
    until_views(group, "abc", "d")

    def leave_at_once(source: str, _: str, message: VsyncMessage) -> bool:
        if isinstance(message, Flush) and source == "b" and not group["b"].is_leaving:
            group["b"].leave()
        return False

    network.lose(leave_at_once)
    hold_back(
        group,
        network,
        lambda source, _, message: isinstance(message, Flush) and source == "d",
        milliseconds(5),
    )
    group.heal()
    until(group, lambda: vsync_of(group, "b").has_left, "b has left")
    network.lose_no_more()
    until_views(group, "acd")
    group["a"].cast(b"x", safe=True)
    until_delivered(group, b"x", at="acd")
    group.check()


def test_a_member_may_fetch_a_whole_window_of_packets_during_a_view_change() -> None:
    """A proposer gave a member a fixed time, and a member fetched a few packets at a time.

    One that lacked most of a window was dropped from the view though it was busy catching up.
    """
    group, network = scripted_group("VSYNC", "abcd")
    blind = True

    def not_yet(_: str, destination: str, message: VsyncMessage) -> bool:
        nonlocal blind
        blind = blind and not isinstance(message, Cut)
        return blind and destination == "c" and isinstance(message, Data | Repair)

    network.lose(not_yet)
    for number in range(500):
        group["a"].cast(b"%d" % number)
        group.run(milliseconds(0.2))
    before = len(life_of(group, "c").eras)
    group["d"].crash()
    group.run(seconds(6))
    assert not blind, "the view has been changed"
    later = [era.installed.members for era in life_of(group, "c").eras[before:]]
    assert [[member.id for member in members] for members in later] == [["a", "b", "c"]]
    assert group["c"].delivered == [b"%d" % number for number in range(500)]
    group.check()
