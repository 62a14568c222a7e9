"""What becomes of frames on the simulated network."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.seeded import seeded

from coterie.simulation.world.network import SimulatedNetwork

AB, BA = ("a", "b"), ("b", "a")


class Wire:
    """A network, and what arrives from it."""

    def __init__(self) -> None:
        self.network = SimulatedNetwork(seeded("network"))
        self.arrivals: list[tuple[str, str, bytes, int]] = []

    def arrive(self, source: str, destination: str, frame: bytes, delay: int) -> None:
        self.arrivals.append((source, destination, frame, delay))

    def carry(self, *frames: bytes, link: tuple[str, str] = AB) -> list[bytes]:
        """Send frames and give those that arrive."""
        self.arrivals.clear()
        for frame in frames:
            self.network.carry(*link, frame, self.arrive)
        return [frame for _, _, frame, _ in self.arrivals]


def test_a_frame_arrives_once_after_a_short_while() -> None:
    wire = Wire()
    frames = [b"%d" % number for number in range(200)]
    assert wire.carry(*frames) == frames
    delays = [delay for _, _, _, delay in wire.arrivals]
    assert min(delays) >= wire.network.delay_min
    assert max(delays) < wire.network.delay_min + wire.network.delay_spread
    assert len(set(delays)) > 20
    assert wire.network.frames == 200
    assert wire.network.frames_lost == 0


def test_a_cut_is_in_one_direction() -> None:
    wire = Wire()
    wire.network.cut([AB])
    assert wire.network.is_cut(*AB)
    assert not wire.network.is_cut(*BA)
    assert wire.carry(b"x") == []
    assert wire.carry(b"y", link=BA) == [b"y"]
    assert wire.network.frames_lost == 1


def test_cuts_are_counted_so_that_faults_may_overlap() -> None:
    wire = Wire()
    wire.network.cut([AB, BA])
    wire.network.cut([AB])
    wire.network.mend([AB, BA])
    assert wire.carry(b"x") == []
    assert wire.carry(b"x", link=BA) == [b"x"]
    wire.network.mend([AB])
    assert wire.carry(b"x") == [b"x"]
    wire.network.mend([AB])
    wire.network.cut([AB])
    assert wire.carry(b"x") == [], "to mend what is whole is no credit for the next cut"


def test_a_clogged_link_holds_frames_back_and_lets_them_go_in_order() -> None:
    wire = Wire()
    wire.network.clog([AB])
    wire.network.clog([AB])
    assert wire.carry(b"1", b"2", b"3") == []
    wire.network.unclog([AB], wire.arrive)
    assert wire.arrivals == []
    wire.network.unclog([AB], wire.arrive)
    assert [frame for _, _, frame, _ in wire.arrivals] == [b"1", b"2", b"3"]
    assert wire.carry(b"4") == [b"4"]


def test_a_clogged_link_does_not_hold_without_limit() -> None:
    wire = Wire()
    wire.network.clog([AB])
    wire.carry(*[b"x"] * 5000)
    wire.network.unclog([AB], wire.arrive)
    assert len(wire.arrivals) == 1000


def test_what_was_held_on_a_link_that_is_cut_meanwhile_is_lost() -> None:
    wire = Wire()
    wire.network.clog([AB])
    wire.carry(b"x")
    wire.network.cut([AB])
    wire.network.unclog([AB], wire.arrive)
    assert wire.arrivals == []


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_loss_and_duplication_take_their_share(share: float) -> None:
    wire = Wire()
    wire.network.loss = share
    assert 0.8 * share < 1 - len(wire.carry(*[b"x"] * 3000)) / 3000 < 1.2 * share
    wire.network.loss = 0.0
    wire.network.duplication = share
    assert 0.8 * share < len(wire.carry(*[b"x"] * 3000)) / 3000 - 1 < 1.2 * share


def test_damage_flips_one_bit() -> None:
    wire = Wire()
    wire.network.damage = 1.0
    frame = bytes(20)
    places: Counter[int] = Counter()
    for damaged in wire.carry(*[frame] * 500):
        assert len(damaged) == len(frame)
        assert int.from_bytes(damaged).bit_count() == 1
        places[int.from_bytes(damaged).bit_length()] += 1
    assert len(places) > 100


def test_reordering_is_a_matter_of_spread() -> None:
    wire = Wire()
    wire.network.delay_min, wire.network.delay_spread = 1_000, 20_000
    wire.carry(*[b"x"] * 100)
    delays = [delay for _, _, _, delay in wire.arrivals]
    assert delays != sorted(delays)
    assert min(delays) >= 1_000
    assert max(delays) > 10_000


def test_healing_ends_every_fault() -> None:
    wire = Wire()
    network = wire.network
    for _ in range(2):
        network.cut([AB])
        network.clog([BA])
    network.loss = network.duplication = network.damage = 1.0
    network.delay_min = network.delay_spread = 10**6
    network.heal(wire.arrive)
    for link in (AB, BA):
        assert wire.carry(b"x", b"y", link=link) == [b"x", b"y"]
        assert max(delay for _, _, _, delay in wire.arrivals) < 1000


def test_what_was_held_is_let_go_by_healing() -> None:
    wire = Wire()
    wire.network.clog([BA, AB])
    wire.carry(b"from a")
    wire.carry(b"from b", link=BA)
    wire.network.heal(wire.arrive)
    assert [(source, frame) for source, _, frame, _ in wire.arrivals] == [
        ("a", b"from a"),
        ("b", b"from b"),
    ]


def test_what_healing_lets_go_is_not_lost_to_a_fault_that_is_over() -> None:
    wire = Wire()
    wire.network.clog([AB])
    wire.carry(b"held")
    wire.network.loss = 1.0
    wire.network.heal(wire.arrive)
    assert [frame for _, _, frame, _ in wire.arrivals] == [b"held"]
