"""The sequence of orders: what two logs have in common, what is given up, what is freed."""

from __future__ import annotations

from coterie.kernel.claims import (
    NO_CLAIM,
    Input,
    Order,
    OrderKind,
    PrimaryClaim,
    Roster,
    RosterLine,
)
from coterie.kernel.views import Member
from coterie.llft.execution import InputBuffer
from coterie.llft.orders import OrderLog

A, B, C = (Member(id, 1) for id in "abc")
FIRST, SECOND, OTHER = PrimaryClaim(1, 1, A), PrimaryClaim(2, 2, B), PrimaryClaim(2, 3, C)


def log_of(*claims: PrimaryClaim) -> OrderLog:
    log = OrderLog()
    for claim in claims:
        log.append(claim, Order(OrderKind.CLOCK))
    return log


def test_logs_part_where_their_claims_do() -> None:
    one, other = log_of(FIRST, FIRST, SECOND), log_of(FIRST, FIRST, FIRST, OTHER)
    assert one.common(other.end, other.spans) == 2
    assert other.common(one.end, one.spans) == 2
    assert one.common(one.end, one.spans) == 3
    assert one.common(0, OrderLog().spans) == 0


def test_nothing_is_known_of_what_was_freed() -> None:
    one, behind = log_of(FIRST, FIRST, FIRST, SECOND), log_of(FIRST)
    one.free(3)
    assert one.common(behind.end, behind.spans) == -1
    assert one.common(0, []) == -1
    assert (one.base, one.base_claim, one.end) == (3, FIRST, 4)


def test_orders_travel_in_runs_of_one_claim() -> None:
    runs = log_of(FIRST, FIRST, SECOND).runs(2, 10)
    assert [(run.claim, run.first, run.last) for run in runs] == [(FIRST, 2, 2), (SECOND, 3, 3)]


def test_what_is_cut_is_gone() -> None:
    log = log_of(FIRST, FIRST, SECOND)
    assert log.cut(1) == 2
    assert (log.end, log.last_claim, log.claim_at(2)) == (1, FIRST, None)
    assert log_of().last_claim == NO_CLAIM


def test_claims_are_totally_ordered() -> None:
    assert FIRST < SECOND < OTHER < PrimaryClaim(2, 3, Member("c", 2)) < PrimaryClaim(3, 1, A)


def test_a_replica_that_comes_back_is_somebody_new() -> None:
    roster = Roster((RosterLine(A, 1, is_whole=True), RosterLine(B, 2, is_whole=True)), 3)
    again = Member("a", 2)
    joined = roster.joined(again)
    assert joined.find(A) is None
    assert joined.find(again) == RosterLine(again, 3, is_whole=False)
    assert joined.whole == [B]
    assert joined.completed(again).whole == [B, again]
    assert joined.rank("b", primary="a") == 2
    assert joined.without(B).next_precedence == 4


def test_inputs_wait_for_those_before_them() -> None:
    buffer = InputBuffer()
    late, early = Input(2, "x", 2, b"cd"), Input(1, "x", 0, b"ab")
    assert buffer.take([late]) == []
    assert (buffer.received, buffer.last) == (0, 2)
    assert buffer.take([early, early]) == [early, late]
    assert buffer.read("x", 1, 3) == b"bcd"
    assert buffer.read("x", 1, 4) is None
    assert buffer.back({"x": 3}, set()) == 1


def test_orders_fit_one_history_only() -> None:
    one, other = log_of(FIRST, FIRST, SECOND), log_of(FIRST, FIRST, OTHER)
    behind, beside = log_of(FIRST, FIRST), log_of(FIRST, FIRST, OTHER)
    assert behind.extend(one.runs(1, 9)) == one.runs(3, 9)
    assert behind.last_claim == SECOND
    other.append(OTHER, Order(OrderKind.CLOCK))
    assert behind.extend(other.runs(4, 9)) == []
    assert beside.extend(other.runs(4, 9)) == other.runs(4, 9)
