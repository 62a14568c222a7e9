"""Reliable multicast in one view, against what everybody can see from outside.

A few members on a network that loses, doubles and reorders. After every step the members' own
knowledge is compared with the truth.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernel.surroundings import Bare, bare_context
from tests.seeded import seeded

from coterie.kernel.clock import Instant
from coterie.kernel.settings import Settings
from coterie.kernel.views import Member, ViewId
from coterie.membership.messages import Ack, Data, Nak, Repair
from coterie.membership.multicast import Multicast

if TYPE_CHECKING:
    from random import Random

    import msgspec

    from coterie.kernel.layers import Batch

VIEW = ViewId(1, "a", 1)
SMALL = Settings(window_packets=4, window_bytes=60, repair_packets_max=3)


class Node:
    """One member, doing with its multicast what VSYNC does."""

    def __init__(self, name: str, members: str, config: Settings) -> None:
        self.name = name
        context, surroundings = bare_context(name, members=members, settings=config)
        self.surroundings: Bare = surroundings
        self.counters = context.counters
        lives = tuple(Member(member, 1) for member in members)
        self.multicast = Multicast(context, VIEW, lives, repairs_itself=True)
        self.sent: list[bytes] = []
        self.passed: dict[str, list[bytes]] = {member: [] for member in members}

    def cast(self, payload: bytes) -> bool:
        """Send one packet, if the window has room."""
        multicast = self.multicast
        if multicast.is_frozen or not multicast.has_room:
            return False
        batch = multicast.send(len(self.sent) + 1, b"", None, [payload], urgent=False)
        self.sent.append(payload)
        assert batch.packet == len(self.sent)
        self.passed[self.name].append(payload)
        return True

    def receive(self, sender: str, message: msgspec.Struct) -> None:
        multicast = self.multicast
        ranks = {member.id: rank for rank, member in enumerate(multicast.members)}
        match message:
            case Data():
                self._take(ranks[sender], message)
                multicast.on_received_vector(ranks[sender], message.received)
            case Repair():
                self._take(message.rank, message)
            case Ack():
                multicast.on_received_vector(ranks[sender], message.received)
                if message.wants_answer:
                    multicast.answer(sender)
            case Nak():
                for rank, first, last in message.wanted:
                    multicast.repair([sender], rank, first, last)
            case _:
                raise AssertionError(message)

    def _take(self, rank: int, packet: Data | Repair) -> None:
        multicast = self.multicast
        if rank == multicast.rank:
            return
        multicast.take(rank, packet.number, packet.first, b"", None, packet.payloads)
        if not multicast.is_frozen:
            self._passed(multicast.pass_up(rank))

    def pass_up_rest(self, limit: list[int]) -> None:
        self._passed(self.multicast.pass_up_rest(limit))

    def _passed(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.passed[batch.sender.id].extend(batch.payloads)


class Net:
    """Members and the messages on the way between them."""

    def __init__(
        self, members: str, random: Random, *, loss: float, config: Settings = SMALL
    ) -> None:
        self.nodes = {name: Node(name, members, config) for name in members}
        self.random = random
        self.loss = loss
        self.doubling = loss
        self.on_the_way: list[tuple[int, int, str, str, msgspec.Struct]] = []
        self.now = 0
        self.serial = 0

    def step(self, casters: str = "") -> None:
        """Let a few milliseconds pass; each of *casters* sends something new in them."""
        self.now += 3_000
        due = sorted(item for item in self.on_the_way if item[0] <= self.now)
        self.on_the_way = [item for item in self.on_the_way if item[0] > self.now]
        for _, _, source, destination, message in due:
            self.nodes[destination].receive(source, message)
        for node in self.nodes.values():
            node.surroundings.now = Instant(self.now)
            node.surroundings.timers.fire_due(Instant(self.now))
            if node.name in casters:
                node.cast(f"{node.name}{len(node.sent) + 1}".encode())
            node.multicast.send_acks()
            self._collect(node)
        self.check()

    def _collect(self, node: Node) -> None:
        random = self.random
        for destinations, message in node.surroundings.sent:
            for destination in destinations:
                copies = 1 + (random.random() < self.doubling)
                for _ in range(copies):
                    if random.random() >= self.loss:
                        self.serial += 1
                        delay = random.choice([0, 0, 0, 2_000, 9_000, 40_000])
                        item = (self.now + delay, self.serial, node.name, destination, message)
                        self.on_the_way.append(item)
        node.surroundings.sent.clear()

    def check(self) -> None:
        """Compare what each member believes with what is so."""
        names = list(self.nodes)
        received = {name: node.multicast.received for name, node in self.nodes.items()}
        for node in self.nodes.values():
            multicast = node.multicast
            for rank, name in enumerate(names):
                sent = self.nodes[name].sent
                at_all = min(vector[rank] for vector in received.values())
                has = multicast.received[rank]
                # First in, first out, nothing twice, nothing made up, nothing behind a gap.
                assert node.passed[name] == sent[: len(node.passed[name])]
                assert len(node.passed[name]) <= has <= len(sent)
                # Stable is what all have, or less.
                assert multicast.stable[rank] <= at_all
                # What not all have is still here, to repair others with.
                kept = multicast._packets[rank]
                assert all(number in kept for number in range(at_all + 1, has + 1))
                assert all(kept[number].payloads == [sent[number - 1]] for number in kept)
            in_flight = multicast.received[multicast.rank] - multicast.stable[multicast.rank]
            assert in_flight <= SMALL.window_packets

    def quiet_down(self) -> None:
        """End all faults and let everything arrive."""
        self.loss = self.doubling = 0.0
        for _ in range(400):
            self.step()
            if self._is_settled():
                return
        raise AssertionError("packets are still missing or unstable")

    def _is_settled(self) -> bool:
        return all(
            node.multicast.stable == [len(other.sent) for other in self.nodes.values()]
            and not any(node.multicast._packets)
            for node in self.nodes.values()
        )


@given(
    members=st.sampled_from(["ab", "abc", "abcde"]),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    seed=st.integers(0, 10**6),
    plan=st.lists(st.sets(st.sampled_from("abcde")).map("".join), min_size=5, max_size=40),
)
@settings(max_examples=80)
def test_members_deliver_all_in_order_and_know_the_truth_about_stability(
    members: str, loss: float, seed: int, plan: list[str]
) -> None:
    net = Net(members, seeded(seed), loss=loss)
    for casters in plan:
        net.step(casters)
    net.quiet_down()
    for node in net.nodes.values():
        assert {name: node.passed[name] for name in members} == {
            name: net.nodes[name].sent for name in members
        }


def test_the_window_stops_a_sender_until_the_slowest_has_acknowledged() -> None:
    net = Net("abc", seeded("window"), loss=0.0)
    net.step()
    net.on_the_way.clear()
    node = net.nodes["a"]
    assert [node.cast(b"x") for _ in range(6)] == [True] * 4 + [False] * 2
    vectors = {"b": [4, 0, 0], "c": [1, 0, 0]}
    for name, vector in vectors.items():
        node.receive(name, Ack(VIEW, vector, wants_answer=False))
    assert [node.cast(b"x") for _ in range(3)] == [True, False, False]


def test_the_window_counts_bytes_too() -> None:
    node = Node("a", "ab", SMALL)
    assert node.cast(bytes(40))
    assert node.cast(bytes(40)), "the limit is on what is on the way already"
    assert not node.cast(b"x")
    node.receive("b", Ack(VIEW, [1, 0], wants_answer=False))
    assert node.cast(b"x")


def test_alone_in_a_view_everything_is_stable_at_once() -> None:
    node = Node("a", "a", SMALL)
    for _ in range(10):
        assert node.cast(b"x")
    assert node.multicast.stable == [10]
    assert node.multicast._packets == [{}]
    assert node.surroundings.sent == []


def three(number: int) -> Data:
    """A packet of a, in a view of three."""
    return Data(
        VIEW,
        number,
        first=number,
        received=[number, 0, 0],
        is_urgent=False,
        header=b"",
        payloads=[b"%d" % number],
    )


def test_a_gap_is_asked_for_after_a_while_its_sender_first() -> None:
    node = Node("b", "abc", SMALL)
    node.receive("a", three(1))
    node.receive("a", three(3))
    assert node.passed["a"] == [b"1"]
    node.surroundings.sent.clear()
    node.surroundings.now = Instant(SMALL.repair_delay)
    node.surroundings.timers.fire_due(node.surroundings.now)
    assert node.surroundings.sent == [(("a",), Nak(VIEW, [(0, 2, 2)]))]
    node.receive("c", Repair(VIEW, 0, 2, 2, b"", [b"2"]))
    assert node.passed["a"] == [b"1", b"2", b"3"]


def test_a_frozen_member_keeps_packets_but_passes_up_and_acknowledges_nothing() -> None:
    node = Node("b", "abc", SMALL)
    node.receive("a", three(1))
    node.surroundings.sent.clear()
    node.multicast.is_frozen = True
    node.receive("a", three(2))
    node.receive("c", Ack(VIEW, [2, 0, 0], wants_answer=True))
    node.multicast.send_acks()
    node.surroundings.now = Instant(10**9)
    node.surroundings.timers.fire_due(node.surroundings.now)
    assert node.passed["a"] == [b"1"]
    assert node.multicast.received == [2, 0, 0]
    assert node.multicast.stable == [0, 0, 0]
    assert node.surroundings.sent == []
    node.pass_up_rest([2, 0, 0])
    assert node.passed["a"] == [b"1", b"2"]


def test_nothing_beyond_the_cut_is_passed_up() -> None:
    node = Node("b", "abc", SMALL)
    node.multicast.is_frozen = True
    for number in (1, 2, 3):
        node.receive("a", three(number))
    node.pass_up_rest([2, 0, 0])
    assert node.passed["a"] == [b"1", b"2"]


def test_a_repeated_packet_is_acknowledged_again() -> None:
    """Its sender repeats it because the acknowledgement was lost."""
    node = Node("b", "abc", SMALL)
    for _ in range(2):
        node.surroundings.sent.clear()
        node.receive("a", three(1))
        node.multicast.is_urgent = True
        node.multicast.send_acks()
        assert node.surroundings.sent == [(("a", "c"), Ack(VIEW, [1, 0, 0], wants_answer=False))]
    assert node.counters["vsync.duplicates"] == 1
    assert node.passed["a"] == [b"1"]


def test_a_packet_repeated_while_it_waits_behind_a_gap_is_kept_once() -> None:
    node = Node("b", "abc", SMALL)
    for _ in range(3):
        node.receive("a", three(2))
    assert node.counters["vsync.duplicates"] == 2
    node.receive("a", three(1))
    assert node.passed["a"] == [b"1", b"2"]


def test_what_nobody_is_in_a_hurry_for_is_acknowledged_late_and_once() -> None:
    node = Node("b", "abc", Settings())
    for number in (1, 2, 3):
        node.receive("a", three(number))
        node.multicast.send_acks()
    assert node.surroundings.sent == []
    node.surroundings.now = Instant(Settings().ack_delay)
    node.surroundings.timers.fire_due(node.surroundings.now)
    assert node.surroundings.sent == [(("a", "c"), Ack(VIEW, [3, 0, 0], wants_answer=False))]


def test_a_request_for_many_packets_is_answered_in_part() -> None:
    node = Node("a", "ab", SMALL)
    for _ in range(4):
        node.cast(b"x")
    node.surroundings.sent.clear()
    node.receive("b", Nak(VIEW, [(0, 1, 4)]))
    repaired = [m.number for _, m in node.surroundings.sent if isinstance(m, Repair)]
    assert repaired == [1, 2, 3], "repair_packets_max"


def test_one_turn_sends_only_so_much_again_however_often_it_is_asked_for() -> None:
    """A frame of a few kilobytes had 65,536 packets sent again, and as many numbers looked up."""
    node = Node("a", "ab", SMALL)
    for _ in range(4):
        node.cast(b"x")
    node.surroundings.sent.clear()
    node.receive("b", Nak(VIEW, [(0, 1, 3)] * 50))
    assert len(node.surroundings.sent) == 4 * SMALL.repair_packets_max
    node.multicast.send_acks()
    node.surroundings.sent.clear()
    node.receive("b", Nak(VIEW, [(0, 1, 3)]))
    assert len(node.surroundings.sent) == 3, "the next turn goes on"


def test_who_learns_how_much_was_sent_asks_for_no_more() -> None:
    """A packet that never was stayed known for as long as the view, and was asked for."""
    node = Node("b", "abc", SMALL)
    node.multicast.learn_sent([5, 0, 0])
    assert node.multicast.missing() == [(0, 1, 5)]
    node.multicast.learn_sent([1, 0, 0])
    assert node.multicast.missing() == [(0, 1, 1)]


def silent_member(*, answers: bool) -> tuple[Node, list[Member]]:
    """Two members of whom the second never acknowledges, for as long as anyone is patient."""
    node = Node("a", "abc", Settings())
    given_up: list[Member] = []
    node.multicast._give_up_on = given_up.append
    node.cast(b"x")
    for number in range(40):
        node.surroundings.now = Instant(number * Settings().advertise_interval)
        node.surroundings.timers.fire_due(node.surroundings.now)
        node.receive("b", Ack(VIEW, [1, 0, 0], wants_answer=False))
        if answers:
            node.receive("c", Ack(VIEW, [0, 0, 0], wants_answer=False))
    return node, given_up


def test_a_member_that_answers_no_question_is_given_up() -> None:
    """Its process may live and send heartbeats, while the replica in it is dead."""
    node, given_up = silent_member(answers=False)
    assert set(given_up) == {Member("c", 1)}
    assert node.counters["vsync.given_up_silent"] >= 1


def test_a_member_that_answers_is_not_given_up_however_far_behind_it_is() -> None:
    _, given_up = silent_member(answers=True)
    assert given_up == []


def test_what_is_missing_is_asked_for_less_and_less_often() -> None:
    node = Node("b", "abc", SMALL)
    node.receive("a", three(2))
    asked: list[int] = []
    for moment in range(0, 500_000, 1000):
        node.surroundings.now = Instant(moment)
        node.surroundings.sent.clear()
        node.surroundings.timers.fire_due(node.surroundings.now)
        asked += [moment for _, m in node.surroundings.sent if isinstance(m, Nak)]
    waits = [later - earlier for earlier, later in pairwise(asked)]
    assert waits[0] >= SMALL.repair_delay
    assert waits == sorted(waits)
    assert waits[-1] <= 16 * SMALL.repair_delay
