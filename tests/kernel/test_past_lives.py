"""Lives that are over, as one entry of a vector for each replica."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coterie.kernel.past_lives import (
    ALL,
    PastLives,
    covers,
    encode_past_lives,
    fold,
    is_past_lives,
    latest,
    number_of,
    over,
    past_lives_in,
)
from coterie.kernel.views import Member

A1, A2, A3, B1, B2 = (Member(*each) for each in (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)))
VECTORS = st.dictionaries(
    st.builds(Member, st.sampled_from("ab"), st.integers(1, 4)), st.integers(1, 9)
)


def test_the_entry_is_known_by_its_first_bytes_and_others_are_not_it() -> None:
    payload = encode_past_lives([A2, B1])
    assert is_past_lives(payload)
    assert past_lives_in(payload) == (A2, B1)
    assert past_lives_in(b"anything else") == ()
    assert past_lives_in(payload[:-1]) == ()
    assert PastLives(-1, (A2,)).clock == -1


def test_one_entry_stands_for_a_life_and_all_before_it() -> None:
    vector = {A1: 4, A2: 7, A3: 1, B1: 2}
    fold(vector, [A2])
    assert vector == {A2: ALL, A3: 1, B1: 2}
    assert [number_of(vector, each) for each in (A1, A2, A3, B1, B2)] == [ALL, ALL, 1, 2, 0]
    fold(vector, [A1])  # known already
    assert vector == {A2: ALL, A3: 1, B1: 2}
    fold(vector, [A3, B1])
    assert vector == {A3: ALL, B1: ALL}


def test_who_is_over_is_said_of_lives_that_another_followed_and_of_replicas_that_are_gone() -> None:
    vector = {A1: 4, A2: 7, A3: 1, B1: ALL, B2: 3, Member("gone", 5): 1}
    lives = over(vector, [A3, B2])
    assert lives == [A1, A2, Member("gone", 5)]
    assert latest(lives) == [A2, Member("gone", 5)]


@given(VECTORS, VECTORS, st.integers(1, 4))
def test_folding_takes_nothing_out_of_a_vector(
    vector: dict[Member, int], other: dict[Member, int], incarnation: int
) -> None:
    before = dict(vector)
    fold(vector, [Member("a", incarnation)])
    assert covers(vector, before)
    assert all(number_of(vector, each) >= number for each, number in before.items())
    is_more = any(
        each.id == "b" or each.incarnation > incarnation
        for each in other
        if other[each] > before.get(each, 0)
    )
    assert covers(vector, other) == (not is_more)
