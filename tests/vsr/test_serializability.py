"""The search for circles: histories that are serializable, and histories that are not."""

from __future__ import annotations

from coterie.checking.serializability import CommittedTransaction, check_serializable


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
