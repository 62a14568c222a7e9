"""Group time: monotone, at the pace of the clocks, and not dragged along by one of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.seeded import seeded

from coterie.kernel.clock import seconds
from coterie.objects.execution.group_time import CLOCKS_MAX, GroupTime

LEAP = seconds(5)
START = seconds(1_700_000_000)
SECOND = seconds(1)
HOUR = seconds(3600)


def group(majority: int = 2) -> GroupTime:
    return GroupTime(LEAP, majority)


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 1 << 53)), min_size=1, max_size=50),
    st.integers(0, 50),
)
def test_it_never_goes_back_whatever_the_clocks_say_and_copies_agree(
    readings: list[tuple[str, int]], copied_at: int
) -> None:
    time = group(3)
    twin = time.copy()
    before = 0
    for index, (replica, reading) in enumerate(readings):
        if index == copied_at:
            twin = time.copy()
        time.observe(replica, reading)
        if index >= copied_at:
            twin.observe(replica, reading)
        assert time.value >= before
        # Whatever was said, the state can be encoded.
        assert all(abs(part) < 1 << 62 for clock in time.to_clocks() for part in clock[1:])
        before = time.value
    if copied_at < len(readings):
        assert (twin.value, twin.to_clocks()) == (time.value, time.to_clocks())


def test_it_runs_with_the_clock_of_whoever_speaks() -> None:
    time = group()
    for moment in range(0, 100_000, 333):
        time.observe("abc"[moment % 3], START + moment)
        assert time.value == START + moment


def test_late_commands_do_not_slow_or_hasten_it() -> None:
    """Commands of different replicas are up to 300 ms on their way; an hour stays an hour."""
    time = group()
    random = seeded("late commands")
    for moment in range(0, HOUR, SECOND // 5):
        time.observe(random.choice("abc"), START + moment - random.randrange(300_000))
    assert START + HOUR - SECOND <= time.value <= START + HOUR


def test_clocks_minutes_apart_make_one_smooth_time() -> None:
    time = group()
    apart = {"a": 0, "b": 400 * SECOND, "c": -900 * SECOND}
    for tick in range(600):
        truth = START + tick * SECOND // 10
        time.observe("abc"[tick % 3], truth + apart["abc"[tick % 3]])
        assert truth - 3 * SECOND // 10 <= time.value <= truth


faults = st.lists(st.integers(-3 * HOUR, 3 * HOUR), min_size=1, max_size=8)


@given(faults, st.integers(0, 10**6))
@pytest.mark.parametrize("clocks", ["abc", "abcde"])
def test_one_clock_that_jumps_moves_it_by_the_leap_at_most(
    clocks: str, jumps: list[int], seed: int
) -> None:
    """Two restarts, jumps of hours, back and forth: all of one replica's clock."""
    time = group(len(clocks) // 2 + 1)
    random = seeded("jumps", seed)
    fault = 0
    waiting = list(jumps)
    for tick in range(30 * (len(jumps) + 1)):
        truth = START + tick * SECOND // 3
        if tick % 30 == 29 and waiting:
            fault += waiting.pop()
        replica = clocks[tick % len(clocks)]
        error = fault if replica == "b" else 0
        # The others' clocks are right to a second.
        time.observe(replica, max(0, truth + error + random.randrange(SECOND)))
        assert truth - 2 * SECOND <= time.value <= truth + LEAP + 2 * SECOND


def test_one_fast_clock_does_not_set_the_pace() -> None:
    time = group()
    for tick in range(3600):
        truth = START + tick * SECOND
        for replica in "abc":
            reading = START + 2 * tick * SECOND if replica == "b" else truth
            time.observe(replica, reading)
        assert truth <= time.value <= truth + LEAP + SECOND


def test_one_slow_or_stopped_clock_does_not_hold_it() -> None:
    time = group()
    for tick in range(3600):
        truth = START + tick * SECOND
        for replica in "abc":
            time.observe(replica, START if replica == "b" else truth)
        assert time.value == truth


def test_after_a_night_off_the_second_witness_sets_it_right() -> None:
    time = group()
    for replica in "abc":
        time.observe(replica, START)
    morning = START + 8 * HOUR
    time.observe("a", morning)
    assert time.value == START
    wanted = [time.wants_witnesses]
    assert time.would_lead("b", morning + SECOND)
    time.observe("b", morning + SECOND)
    assert morning <= time.value <= morning + SECOND
    wanted.append(time.wants_witnesses)
    assert wanted == [True, False]
    assert not time.would_lead("c", morning + SECOND)
    time.observe("c", morning + 2 * SECOND)
    assert time.value == morning + 2 * SECOND


def test_two_clocks_that_jump_to_different_times_are_no_majority() -> None:
    time = group()
    for replica in "abc":
        time.observe(replica, START)
    time.observe("a", START + HOUR)
    time.observe("b", START + 2 * HOUR)
    assert time.value == START


def test_the_first_clock_may_be_behind_and_is_outvoted() -> None:
    time = group()
    time.observe("a", START - HOUR)
    time.observe("b", START)
    assert time.value == START - HOUR
    time.observe("c", START + 1)
    assert time.value == START


def test_clocks_set_back_leave_it_running_at_its_pace() -> None:
    time = group()
    for replica in "abc":
        time.observe(replica, START)
    for tick in range(1, 20):
        for replica in "abc":
            time.observe(replica, START - HOUR + tick * SECOND)
    assert time.value == START + 18 * SECOND


def test_clocks_are_remembered_up_to_a_limit() -> None:
    time = group()
    for number in range(3 * CLOCKS_MAX):
        time.observe(f"r{number}", START + number)
    assert len(time.clocks) == CLOCKS_MAX
    assert "r0" not in time.clocks


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40)), min_size=1, max_size=30))
def test_a_reading_that_changed_nothing_changes_nothing_when_it_is_given_again(
    readings: list[tuple[str, int]],
) -> None:
    time = group()
    for replica, quarters in readings:
        reading = START + quarters * LEAP // 4
        is_changed = True
        for _ in range(10):
            before = (time.value, time.to_clocks())
            is_changed = time.observe(replica, reading)
            assert is_changed or (time.value, time.to_clocks()) == before
            if not is_changed:
                break
        assert not is_changed
