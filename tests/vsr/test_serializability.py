"""The search for circles: histories that are serializable, and histories that are not."""

from __future__ import annotations

from itertools import permutations

import pytest
from tests.seeded import seeded

from coterie.checking.serializability import (
    CommittedTransaction,
    check_serializable,
    shortest_circle,
)


def ran(
    name: str,
    *,
    reads: dict[str, str | None] | None = None,
    writes: dict[str, str] | None = None,
) -> CommittedTransaction:
    return CommittedTransaction(name, list((reads or {}).items()), list((writes or {}).items()))


def test_one_after_the_other_is_serializable() -> None:
    one = ran("one", reads={"x": None}, writes={"x": "x1"})
    two = ran("two", reads={"x": "x1"}, writes={"x": "x2", "y": "y1"})
    assert check_serializable([two, one], {"x": ["x1", "x2"], "y": ["y1"]}) == []


def test_a_lost_update_is_a_circle() -> None:
    one = ran("one", reads={"x": None}, writes={"x": "x1"})
    two = ran("two", reads={"x": None}, writes={"x": "x2"})
    [violation] = check_serializable([one, two], {"x": ["x1", "x2"]})
    assert violation.check == "serializable"
    assert "a circle" in violation.evidence


def test_write_skew_is_a_circle() -> None:
    one = ran("one", reads={"x": None}, writes={"y": "y1"})
    two = ran("two", reads={"y": None}, writes={"x": "x1"})
    assert len(check_serializable([one, two], {"x": ["x1"], "y": ["y1"]})) == 1


def test_a_read_of_two_moments_is_a_circle() -> None:
    transfer = ran("transfer", writes={"x": "x1", "y": "y1"})
    audit = ran("audit", reads={"x": None, "y": "y1"})
    assert len(check_serializable([transfer, audit], {"x": ["x1"], "y": ["y1"]})) == 1


def test_a_read_of_what_nobody_committed_is_told() -> None:
    [violation] = check_serializable([ran("one", reads={"x": "dirty"})], {})
    assert "which nobody committed" in violation.evidence


def test_a_long_circle_is_found() -> None:
    count = 500
    transactions = [
        ran(f"t{n}", reads={f"o{n}": None}, writes={f"o{(n + 1) % count}": f"v{n}"})
        for n in range(count)
    ]
    orders = {f"o{(n + 1) % count}": [f"v{n}"] for n in range(count)}
    assert len(check_serializable(transactions, orders)) == 1
    del orders["o0"]
    assert check_serializable(transactions[:-1], orders) == []


def test_the_circle_that_is_shown_is_a_shortest_one() -> None:
    random = seeded("circles")
    for _ in range(400):
        nodes = [str(node) for node in range(random.randrange(2, 7))]
        edges = {
            one: {other: "" for other in nodes if one != other and random.random() < 0.3}
            for one in nodes
        }
        circles = [
            order
            for length in range(2, len(nodes) + 1)
            for order in permutations(nodes, length)
            if all(b in edges[a] for a, b in zip(order, (*order[1:], order[0]), strict=True))
        ]
        found = shortest_circle(edges)
        assert len(found) == (len(circles[0]) if circles else 0)
        assert not found or tuple(found) in circles


def test_an_order_that_misses_a_version_is_told() -> None:
    one = ran("one", writes={"x": "x1"})
    two = ran("two", reads={"x": "x1"}, writes={"x": "x2"})
    [violation] = check_serializable([one, two], {"x": ["x1"]})
    assert violation.evidence == "two wrote x as of x2, which has no place in its order"
    assert violation.about == ("two",)


def test_an_order_with_a_version_that_nobody_committed_is_told() -> None:
    one = ran("one", writes={"x": "x1"})
    [violation] = check_serializable([one], {"x": ["x1", "aborted"]})
    assert violation.evidence == "the order of x has aborted, which nobody committed"
    [violation] = check_serializable([one], {"x": ["x1", "x1"]})
    assert violation.evidence == "the order of x has x1 2 times"


def test_two_transactions_that_wrote_the_same_version_are_told() -> None:
    one, two = ran("one", writes={"x": "x1"}), ran("two", writes={"x": "x1"})
    [violation] = check_serializable([one, two], {"x": ["x1"]})
    assert violation.about == ("one", "two")


def test_two_transactions_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two transactions have the name one"):
        check_serializable([ran("one"), ran("one")], {})


def test_a_circle_names_who_is_in_it() -> None:
    """Not by a search in the words: one name may begin another."""
    one = ran("bank/3.a/1", reads={"x": None}, writes={"x": "x1"})
    ten = ran("bank/3.a/10", reads={"x": None}, writes={"x": "x2"})
    [violation] = check_serializable([one, ten], {"x": ["x1", "x2"]})
    assert sorted(violation.about) == ["bank/3.a/1", "bank/3.a/10"]
    [violation] = check_serializable([ran("bank/3.a/10", reads={"x": "lost"})], {})
    assert violation.about == ("bank/3.a/10",)
