"""What is gone is remembered as ranges, however it went."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.seeded import seeded

from coterie.llft.gone import GoneConnections, count_of


@pytest.mark.parametrize("seed", range(20))
def test_ranges_are_a_set(seed: int) -> None:
    random = seeded("gone", seed)
    gone, naive = GoneConnections(), set[str]()
    everything = [f"{name}/{n}" for name in ("x:0", "x:1") for n in range(40)]
    for _ in range(random.randrange(1, 120)):
        conn = random.choice(everything)
        gone.add(conn)
        naive.add(conn)
        assert {each for each in everything if each in gone} == naive
    again = GoneConnections(gone.ranges)
    assert {each for each in everything if each in again} == naive
    for each in gone.ranges.values():
        assert all(b[0] > a[1] + 1 for a, b in pairwise(each))


def test_what_goes_in_turn_is_one_range() -> None:
    gone = GoneConnections()
    for n in (1, 0, 3, 2, 4):
        gone.add(f"relay:0/{n}")
    assert gone.ranges == {"relay:0": [(0, 4)]}


@pytest.mark.parametrize(
    "conn", ["c0.1", "x/", "/1", "x/-1", "x/01", "x/1e3", "x/\u0663", "x/" + "9" * 40]
)
def test_what_nobody_has_counted_is_never_gone(conn: str) -> None:
    assert count_of(conn) is None
    assert conn not in GoneConnections({"x": [(0, 1 << 62)]})
