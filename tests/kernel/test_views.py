"""Members, view ids, views and majorities."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.kernel.views import NO_VIEW, Configuration, Member, View, ViewId, Viewstamp

A, B, C, D = (Member(name, 1) for name in "abcd")
OLD, OTHER, NEW = ViewId(1, "a", 1), ViewId(2, "c", 1), ViewId(3, "a", 1)


def subsets(members: str) -> list[frozenset[str]]:
    return [
        frozenset(chosen)
        for size in range(len(members) + 1)
        for chosen in combinations(members, size)
    ]


@pytest.mark.parametrize("members", ["abcdefg"[:size] for size in range(1, 8)])
def test_any_two_majorities_share_a_replica(members: str) -> None:
    configuration = Configuration(1, tuple(members))
    majorities = [chosen for chosen in subsets(members) if configuration.is_quorum(chosen)]
    assert all(one & other for one in majorities for other in majorities)


@pytest.mark.parametrize("members", ["abcdefg"[:size] for size in range(1, 8)])
def test_a_majority_is_no_larger_than_it_must_be(members: str) -> None:
    """With one replica fewer, two sets without a common replica would both count."""
    configuration = Configuration(1, tuple(members))
    for size in range(len(members) + 1):
        chosen = frozenset(members[:size])
        assert configuration.is_quorum(chosen) == (size >= configuration.majority)
        if size == configuration.majority - 1 and 2 * size <= len(members):
            assert not chosen & frozenset(members[size : 2 * size])


@given(st.sets(st.sampled_from("abcde")), st.sets(st.sampled_from("vwxyz")))
def test_strangers_do_not_count_for_a_majority(inside: set[str], outside: set[str]) -> None:
    configuration = Configuration(1, tuple("abcde"))
    assert configuration.is_quorum(inside | outside) == (len(inside) >= 3)


def test_view_ids_are_ordered_by_number_then_proposer_then_life() -> None:
    ordered = [
        NO_VIEW,
        ViewId(1, "a", 1),
        ViewId(1, "a", 2),
        ViewId(1, "b", 1),
        ViewId(2, "a", 1),
        ViewId(10, "a", 1),
    ]
    assert all(one < other for one, other in pairwise(ordered))
    assert Viewstamp(ordered[1], 99) < Viewstamp(ordered[2], 1) < Viewstamp(ordered[2], 2)


def test_names_are_short_for_first_lives() -> None:
    assert [str(A), str(Member("a", 3))] == ["a", "a#3"]
    assert [str(ViewId(7, "b", 1)), str(ViewId(7, "b", 2))] == ["7.b", "7.b#2"]
    assert str(Viewstamp(ViewId(7, "b", 1), 12)) == "7.b:12"


def view(**previous: ViewId) -> View:
    members = tuple(Member(name, 1) for name in previous)
    values = tuple(b"" for _ in members)
    return View(NEW, members, tuple(previous.values()), values, Configuration(1, tuple("abcd")))


def test_members_that_came_along_share_the_previous_view() -> None:
    merged = view(c=OTHER, a=OLD, d=OTHER, b=OLD)
    assert merged.came_along(A) == merged.came_along(B) == (A, B)
    assert merged.came_along(C) == merged.came_along(D) == (C, D)


def test_a_rank_is_the_place_among_the_members() -> None:
    merged = view(c=OTHER, a=OLD)
    assert [merged.rank(C), merged.rank(A)] == [0, 1]
    assert str(merged) == "3.a{c,a}"
