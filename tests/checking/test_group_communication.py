"""Every check on a history in which it is silent and on one in which it fires.

In the bad history nothing else fires, unless the one rule implies the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.checking.stories import A, Author, D, history_of, view

from coterie.checking import extended_virtual_synchrony as evs
from coterie.checking import total_order
from coterie.checking import virtual_synchrony as vs
from coterie.checking.group_communication import (
    ORDER_CHECKS,
    VIEW_CHECKS,
    check_group_communication,
)
from coterie.kernel.records import Delivery

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coterie.checking.history import GroupHistory, Violation

TRANSITIONAL, AFTER_HOLE = Delivery.TRANSITIONAL, Delivery.AFTER_HOLE


def fired(history: GroupHistory, stack: str = "TOKEN:VSYNC") -> set[str]:
    return {violation.check for violation in check_group_communication(history, stack)}


# ---- silence


def three() -> tuple[Author, Author, Author]:
    """Members a, b and c, which met in view 2.a."""
    a, b, c = (Author(name).starts() for name in "abc")
    a.proposes("2.a", "abc")
    for author in (a, b, c):
        author.goes("2.a", "abc", along=author.me.id)
    return a, b, c


def a_whole_story() -> GroupHistory:
    """They talk, c is cut off while both sides have something on the way, and all meet again."""
    a, b, c = three()
    a.sends(1, count=2)
    b.sends(1, safe=True)
    for author in (a, b, c):
        author.delivers("a1", 1, count=2).delivers("b1", 3, safe=True)
    a.sends(3, safe=True)
    c.sends(1)
    a.proposes("3.a", "ab")
    for author in (a, b):
        author.ends("ab").delivers("a3", 4, safe=True, part=TRANSITIONAL)
        author.installs("3.a", "ab", along="ab")
    c.proposes("3.c", "c").ends("c").delivers("c1", part=AFTER_HOLE).installs("3.c", "c", along="c")
    a.proposes("4.a", "abc")
    for author in (a, b):
        author.goes("4.a", "abc", along="ab")
    c.goes("4.a", "abc", along="c").sends(2)
    for author in (a, b, c):
        author.delivers("c2", 1)
    return history_of(a, b, c)


@pytest.mark.parametrize("check", [*VIEW_CHECKS, *ORDER_CHECKS], ids=lambda check: check.__name__)
def test_a_good_history_passes(check: Callable[[GroupHistory], Iterator[Violation]]) -> None:
    assert list(check(a_whole_story())) == []


# ---- noise


@dataclass(frozen=True)
class Case:
    """A broken promise, told as a story, and the checks that are to find it."""

    check: Callable[[GroupHistory], Iterator[Violation]]
    story: Callable[[], GroupHistory]
    words: str
    """What the evidence says."""
    implied: set[str] = field(default_factory=set)
    """Other rules that cannot be kept where this one is broken."""


def proposed_by_no_one() -> GroupHistory:
    return history_of(Author("a").installs("1.a", "a", along="a"))


def with_members_not_proposed() -> GroupHistory:
    a, b = Author("a").starts(), Author("b").starts()
    a.proposes("2.a", "ab").goes("2.a", "ab", along="a")
    b.goes("2.a", "ba", along="b")
    return history_of(a, b)


def proposed_without_itself() -> GroupHistory:
    return history_of(Author("a").starts().proposes("2.a", "b"))


def installed_without_itself() -> GroupHistory:
    a = Author("a").starts().proposes("2.a", "a").goes("2.a", "a", along="a")
    return history_of(a, Author("d").installs("2.a", "a", along=""))


def proposed_below_its_own_view() -> GroupHistory:
    a = Author("a").starts().proposes("3.a", "a").goes("3.a", "a", along="a")
    return history_of(a.proposes("2.a", "a"))


def installed_a_lower_view() -> GroupHistory:
    a = Author("a").starts().proposes("3.a", "a").goes("3.a", "a", along="a")
    return history_of(a.proposes("2.a", "a", after="1.a").goes("2.a", "a", along="a"))


def two_views_in_two_orders() -> GroupHistory:
    """With a view of its own in between at each, so that no two views follow each other at both."""
    a, b = Author("a").starts(), Author("b").starts()
    a.proposes("2.a", "ab").proposes("4.a", "ab").proposes("3.a", "a")
    b.proposes("5.b", "b")
    a.goes("2.a", "ab", along="a").goes("3.a", "a", along="a").goes("4.a", "ab", along="a")
    b.goes("4.a", "ab", along="b").goes("5.b", "b", along="b").goes("2.a", "ab", along="b")
    return history_of(a, b)


def a_view_in_between() -> GroupHistory:
    a, b, _ = three()
    a.proposes("4.a", "ab").goes("4.a", "ab", along="a")
    b.proposes("3.b", "b").goes("3.b", "b", along="b").goes("4.a", "ab", along="b")
    return history_of(a, b)


def different_sets() -> GroupHistory:
    a, b, _ = three()
    a.sends(1).delivers("a1", 1)
    a.proposes("3.a", "ab")
    for author in (a, b):
        author.goes("3.a", "ab", along="ab")
    return history_of(a, b)


def never_sent() -> GroupHistory:
    a, _, _ = three()
    return history_of(a.delivers("b1", 1))


def with_other_content() -> GroupHistory:
    a, b, _ = three()
    return history_of(a.sends(1), b.delivers("a1", 1, count=2))


def sent_in_another_view() -> GroupHistory:
    a, b = Author("a").starts(), Author("b").starts()
    a.sends(1).delivers("a1", 1).proposes("2.a", "ab").goes("2.a", "ab", along="a")
    return history_of(a, b.goes("2.a", "ab", along="b").delivers("a1", 1))


def twice() -> GroupHistory:
    a, _, _ = three()
    a.sends(1).delivers("a1", 1).proposes("3.a", "a").goes("3.a", "a", along="a")
    return history_of(a.sends(1).delivers("a1", 1))


def outside_of_its_view() -> GroupHistory:
    a, b, _ = three()
    a.sends(1).delivers("a1", 1)
    b.current = view("1.b")
    return history_of(a, b.delivers("b1", 1))


def its_own_message_left_behind() -> GroupHistory:
    a, _, _ = three()
    return history_of(a.sends(1).proposes("3.a", "a").goes("3.a", "a", along="a"))


def late() -> GroupHistory:
    a, b, _ = three()
    a.sends(1).sends(2)
    for author in (a, b):
        author.delivers("a2", 1).delivers("a1", 2)
    return history_of(a, b)


def late_by_a_view() -> GroupHistory:
    """Numbers go on from view to view, so the order does too."""
    a, b, _ = three()
    a.sends(2).proposes("3.a", "ab")
    for author in (a, b):
        author.delivers("a2", 1).goes("3.a", "ab", along="ab")
    return history_of(a.sends(1), b.delivers("a1", 1))


def a_message_left_out() -> GroupHistory:
    a, b, _ = three()
    a.sends(1).sends(2)
    return history_of(a, b.delivers("a2", 1))


def two_messages_at_one_place() -> GroupHistory:
    a, b, c = three()
    a.sends(1).delivers("a1", 1)
    b.sends(1).delivers("b1", 1)
    return history_of(a, b, c)


def a_place_left_out() -> GroupHistory:
    a, b, c = three()
    a.sends(1).delivers("a1", 1)
    b.sends(1)
    return history_of(a.delivers("b1", 2), b, c.delivers("b1", 2))


def two_orders() -> GroupHistory:
    a, b, _ = three()
    a.sends(1).delivers("a1", 1)
    b.sends(1).delivers("b1", 1).delivers("a1", 2)
    a.delivers("b1", 2).proposes("3.a", "ab")
    for author in (a, b):
        author.goes("3.a", "ab", along="ab")
    return history_of(a, b)


def safe_and_left_behind() -> GroupHistory:
    """A has delivered it in the regular part, and c goes on without it."""
    a, b, c = three()
    a.sends(1, safe=True)
    for author in (a, b):
        author.delivers("a1", 1, safe=True)
    c.proposes("3.c", "c").goes("3.c", "c", along="c")
    return history_of(a, b, c)


def safe_and_left_behind_by_one_who_was_to_come_along() -> GroupHistory:
    a, b, _ = three()
    a.sends(1, safe=True).proposes("3.a", "ab").ends("ab")
    a.delivers("a1", 1, safe=True, part=TRANSITIONAL).installs("3.a", "ab", along="ab")
    b.proposes("3.b", "b").goes("3.b", "b", along="b")
    return history_of(a, b)


def safe_with_one_who_was_never_there() -> GroupHistory:
    a, d = Author("a").starts(), Author("d").starts()
    a.proposes("2.a", "ad").goes("2.a", "ad", along="a")
    return history_of(a.sends(1, safe=True).delivers("a1", 1, safe=True), d)


def safe_at_two_places() -> GroupHistory:
    """Both count it as delivered, b behind a hole: it is not the same place."""
    a, b, c = three()
    a.sends(1, safe=True).delivers("a1", 1, safe=True)
    b.proposes("3.b", "ba").ends("ba").delivers("a1", safe=True, part=AFTER_HOLE)
    b.installs("3.b", "ba", along="ba")
    return history_of(a, b, c)


def sent_safe_and_delivered_agreed() -> GroupHistory:
    a, b, _ = three()
    a.sends(1, safe=True).delivers("a1", 1, safe=True)
    return history_of(a, b.delivers("a1", 1))


def one_who_came_along_is_not_named() -> GroupHistory:
    a, b, _ = three()
    a.proposes("3.a", "ab").goes("3.a", "ab", along="a")
    return history_of(a, b.goes("3.a", "ab", along="ab"))


def one_is_named_who_is_not_in_the_view() -> GroupHistory:
    a, b, _ = three()
    a.proposes("3.a", "ab").goes("3.a", "ab", along="abc")
    return history_of(a, b.goes("3.a", "ab", along="ab"))


def one_is_named_who_came_from_elsewhere() -> GroupHistory:
    """A believes b to be in its view 2.a, but b comes to 3.a from a view of its own."""
    a, b = Author("a").starts(), Author("b").starts()
    a.proposes("2.a", "ab").goes("2.a", "ab", along="a")
    a.proposes("3.a", "ab").goes("3.a", "ab", along="ab")
    return history_of(a, b.goes("3.a", "ab", along="b"))


def no_transitional_view() -> GroupHistory:
    a, _, _ = three()
    return history_of(a.proposes("3.a", "a").installs("3.a", "a", along="a"))


def two_transitional_views() -> GroupHistory:
    a, _, _ = three()
    return history_of(a.proposes("3.a", "a").ends("a").goes("3.a", "a", along="a"))


def a_transitional_view_of_others() -> GroupHistory:
    a, _, _ = three()
    return history_of(a.proposes("3.a", "a").ends("ab").installs("3.a", "a", along="a"))


def regular_after_the_transitional_view() -> GroupHistory:
    a, _, _ = three()
    a.sends(1).proposes("3.a", "a").ends("a").delivers("a1", 1)
    return history_of(a.installs("3.a", "a", along="a"))


def transitional_before_the_transitional_view() -> GroupHistory:
    a, _, _ = three()
    a.sends(1).proposes("3.a", "a").delivers("a1", 1, part=TRANSITIONAL)
    return history_of(a.goes("3.a", "a", along="a"))


def after_a_hole_from_one_who_did_not_come_along() -> GroupHistory:
    a, b, _ = three()
    b.sends(1).proposes("3.b", "b")
    a.proposes("3.a", "a").ends("a").delivers("b1", part=AFTER_HOLE)
    return history_of(a.installs("3.a", "a", along="a"), b.delivers("b1", 1))


def the_transitional_view_at_two_places() -> GroupHistory:
    a, b, _ = three()
    a.sends(1).proposes("3.a", "ab").delivers("a1", 1).goes("3.a", "ab", along="ab")
    b.ends("ab").delivers("a1", 1, part=TRANSITIONAL).installs("3.a", "ab", along="ab")
    return history_of(a, b)


CASES = [
    Case(vs.validity, proposed_by_no_one, "a installed 1.a, proposed by no one"),
    Case(vs.validity, with_members_not_proposed, "b installed 2.a with members not proposed"),
    Case(vs.self_inclusion, proposed_without_itself, "a proposed 2.a, not in"),
    Case(vs.self_inclusion, installed_without_itself, "d installed 2.a, not in it"),
    Case(vs.view_causality, proposed_below_its_own_view, "a proposed 2.a while in 3.a"),
    Case(vs.view_causality, installed_a_lower_view, "a installed 2.a after 3.a"),
    Case(
        vs.agreement_on_view_ordering,
        two_views_in_two_orders,
        "a and b installed ['2.a', '4.a'] differently",
        implied={"view causality"},
    ),
    Case(
        vs.agreement_on_successors,
        a_view_in_between,
        "a went from 2.a to 4.a, b from 2.a to 3.b and to 4.a later",
    ),
    Case(
        vs.view_atomicity,
        different_sets,
        "a and b went from 2.a to 3.a together, but only one of them delivered "
        "[('a', 1, 1, 1, 97001)]",
        implied={"agreed delivery"},
    ),
    Case(vs.integrity, never_sent, "a delivered ('b', 1, 1, 1, 98001) in 2.a, not sent"),
    Case(
        vs.integrity,
        with_other_content,
        "b delivered ('a', 1, 1, 2, 97001) in 2.a, not sent",
    ),
    Case(
        vs.integrity,
        sent_in_another_view,
        "b delivered ('a', 1, 1, 1, 97001) in 2.a, not sent",
        implied={"first in, first out"},
    ),
    Case(
        vs.integrity,
        twice,
        "a delivered ('a', 1, 1, 1, 97001) twice",
    ),
    Case(vs.integrity, outside_of_its_view, "outside of the view its member is in"),
    Case(vs.self_delivery, its_own_message_left_behind, "a left 2.a without its own message 1"),
    Case(vs.fifo, late, "a delivered a:1 late in 2.a"),
    Case(vs.fifo, late_by_a_view, "b delivered a:1 late in 3.a"),
    Case(vs.fifo, a_message_left_out, "b left out messages of a in 2.a"),
    Case(
        total_order.strong_prefix,
        two_messages_at_one_place,
        "at 1 of 2.a a delivered ('a', 1, 1, 1, 97001) and b delivered ('b', 1, 1, 1, 98001)",
    ),
    Case(
        total_order.strong_prefix,
        a_place_left_out,
        "c delivered ('b', 1, 1, 1, 98001) at 2 of 2.a where 1 comes next",
    ),
    Case(
        total_order.agreed_delivery,
        two_orders,
        "a and b went from 2.a to 3.a together, but delivered in different orders",
        implied={"strong prefix"},
    ),
    Case(
        evs.safe_delivery,
        safe_and_left_behind,
        "a delivered a:1 as safe in 2.a (regular), and c went on without it",
    ),
    Case(
        evs.safe_delivery,
        safe_and_left_behind_by_one_who_was_to_come_along,
        "a delivered a:1 as safe in 2.a (transitional), and b went on without it",
    ),
    Case(
        evs.safe_delivery,
        safe_with_one_who_was_never_there,
        "a delivered a:1 as safe in 2.a, which d never installed",
    ),
    Case(
        evs.safe_delivery,
        safe_at_two_places,
        "a delivered a:1 as safe in 2.a (regular), and b went on with it in another place",
    ),
    Case(
        evs.safe_delivery,
        sent_safe_and_delivered_agreed,
        "b delivered a:1 in 2.a as if it had been sent agreed",
    ),
    Case(
        evs.transitional_set,
        one_who_came_along_is_not_named,
        "a went from 2.a to 3.a with ['a']; ['a', 'b'] did",
    ),
    Case(
        evs.transitional_set,
        one_is_named_who_is_not_in_the_view,
        "a went from 2.a to 3.a with ['a', 'b', 'c']; ['a', 'b'] did",
    ),
    Case(
        evs.transitional_set,
        one_is_named_who_came_from_elsewhere,
        "b is said to come to 3.a with a, but came from 1.b",
    ),
    Case(evs.transitional_view, no_transitional_view, "a left 2.a with 0 transitional views"),
    Case(evs.transitional_view, two_transitional_views, "a left 2.a with 2 transitional views"),
    Case(
        evs.transitional_view,
        a_transitional_view_of_others,
        "a left 2.a with 2 members, but 1 came along",
    ),
    Case(
        evs.transitional_view,
        regular_after_the_transitional_view,
        "a delivered a:1 in 2.a as regular on the wrong side",
    ),
    Case(
        evs.transitional_view,
        transitional_before_the_transitional_view,
        "a delivered a:1 in 2.a as transitional on the wrong side",
    ),
    Case(
        evs.transitional_view,
        after_a_hole_from_one_who_did_not_come_along,
        "a delivered b:1 in 2.a after a hole, though its sender did not come along",
    ),
    Case(
        evs.transitional_agreement,
        the_transitional_view_at_two_places,
        "a and b went from 2.a to 3.a but placed the transitional view differently",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story.__name__)
def test_a_broken_promise_is_found_and_nothing_else(case: Case) -> None:
    history = case.story()
    found = list(case.check(history))
    assert any(case.words in violation.evidence for violation in found), found
    assert fired(history) == {found[0].check} | case.implied


def test_every_check_has_a_case() -> None:
    assert {case.check for case in CASES} == {*VIEW_CHECKS, *ORDER_CHECKS}


def test_what_a_stack_without_order_does_not_promise_is_not_asked_of_it() -> None:
    assert fired(two_messages_at_one_place(), "VSYNC") == set()
    assert fired(safe_and_left_behind(), "VSYNC") == set()
    assert fired(different_sets(), "VSYNC") == {"view atomicity"}


# ---- what is excused


def test_who_crashed_is_excused_from_its_own_messages_and_from_safe_ones() -> None:
    a, b, c = three()
    a.sends(1, safe=True)
    for author in (a, b):
        author.delivers("a1", 1, safe=True)
    a.proposes("3.a", "ab")
    c.sends(1)
    for author in (a, b):
        author.goes("3.a", "ab", along="ab")
    history = history_of(a, b, c)
    history.crashed(c.me)
    assert fired(history) == set()


def test_one_of_whom_nothing_is_left_is_excused_from_what_is_safe() -> None:
    a = Author("a").starts().proposes("2.a", "ad").goes("2.a", "ad", along="a")
    assert fired(history_of(a.sends(1, safe=True).delivers("a1", 1, safe=True))) == set()


def test_one_whose_records_end_before_the_view_is_not_excused() -> None:
    """Its acknowledgement left after its record of the view was written, so there must be one."""
    history = safe_with_one_who_was_never_there()
    history.crashed(D)
    assert fired(history) == {"safe delivery"}


def test_what_came_after_a_hole_needs_no_place_and_binds_nobody() -> None:
    a, b, _ = three()
    a.sends(1, safe=True).proposes("3.a", "a").ends("a")
    a.delivers("a1", safe=True, part=AFTER_HOLE).installs("3.a", "a", along="a")
    b.proposes("3.b", "b").goes("3.b", "b", along="b")
    assert fired(history_of(a, b)) == set()


def test_who_stays_in_a_view_may_deliver_the_rest_later() -> None:
    a, _, c = three()
    a.sends(1, safe=True).delivers("a1", 1, safe=True)
    assert fired(history_of(a, c)) == set()


def test_a_violation_reads_as_a_sentence() -> None:
    [violation] = vs.self_delivery(its_own_message_left_behind())
    assert str(violation) == "self-delivery: a left 2.a without its own message 1"
    assert str(A) in str(violation)
