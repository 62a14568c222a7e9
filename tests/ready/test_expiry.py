"""Agendas: what has ended comes out in order of time, swept or not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coterie.ready import expiry

ENTRIES = st.lists(st.tuples(st.integers(0, 50), st.sampled_from("abcdef")), max_size=30)


@given(ENTRIES, st.integers(0, 60), st.integers(1, 10))
def test_what_has_ended_comes_out_in_order_and_in_bounded_portions(
    entries: list[tuple[int, str]], now: int, most: int
) -> None:
    agenda: list[tuple[int, str]] = []
    for when, what in entries:
        expiry.enter(agenda, when, what)
    came: list[tuple[int, str]] = []
    while portion := list(expiry.ended(agenda, now, most)):
        assert len(portion) <= most
        came += portion
    assert came == sorted(entry for entry in entries if entry[0] <= now)
    assert sorted(agenda) == sorted(entry for entry in entries if entry[0] > now)


@given(ENTRIES)
def test_sweeping_forgets_what_is_void_and_keeps_the_order(entries: list[tuple[int, str]]) -> None:
    agenda: list[tuple[int, str]] = []
    for when, what in entries * 5:
        expiry.enter(agenda, when, what)
    expiry.sweep(agenda, 0, lambda when, what: when % 2 == 0 or what == "a")
    expected = sorted(entry for entry in entries * 5 if entry[0] % 2 == 0 or entry[1] == "a")
    if len(entries) * 5 > 64:
        assert sorted(agenda) == expected
    came = [entry for entry in expiry.ended(agenda, 60) if entry in expected]
    assert came == expected
