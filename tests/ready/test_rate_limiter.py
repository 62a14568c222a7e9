"""The rate limiter, as the plain object it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ready.clocks import SECOND, at, make

from coterie.ready import Full, RateLimiter, Verdict


class FewKeys(RateLimiter):
    keys_max = 2


def limiter(rate: int = 2, burst: int = 4) -> RateLimiter:
    made = make(RateLimiter)
    at(0, lambda: made.configure(rate, burst))
    return made


def test_a_full_bucket_is_spent_and_flows_in_again() -> None:
    limits = limiter()
    assert at(0, lambda: limits.acquire("ada", 3)) == Verdict(is_allowed=True, left=1, retry_in=0)
    assert at(0, lambda: limits.acquire("ada", 2)) == Verdict(
        is_allowed=False, left=1, retry_in=SECOND // 2
    )
    assert not at(0.4999, lambda: limits.acquire("ada", 2)).is_allowed
    assert at(0.5, lambda: limits.acquire("ada", 2)).is_allowed
    assert at(0.5, lambda: limits.left("ada")) == 0
    assert at(99, lambda: limits.left("ada")) == 4
    assert at(0, lambda: limits.left("bob")) == 4


def test_what_no_bucket_could_pay_is_an_error() -> None:
    limits = limiter()
    with pytest.raises(ValueError, match="5 tokens are more than a bucket holds, which is 4"):
        at(0, lambda: limits.acquire("ada", 5))


def test_full_buckets_are_forgotten() -> None:
    limits = limiter()
    at(0, lambda: limits.acquire("ada", 4))
    at(0, lambda: limits.acquire("bob", 1))
    at(0, lambda: limits.acquire("cy", 1))
    at(0, lambda: limits.acquire("bob", 1))
    # Those not used for longest are looked at first.
    assert list(limits.buckets) == ["ada", "cy", "bob"]
    at(1, limits.on_tick)
    assert limits.busy() == 1
    at(2, limits.on_tick)
    assert limits.busy() == 0


def test_too_many_busy_keys_are_refused() -> None:
    limits = make(FewKeys)
    at(0, lambda: limits.acquire("a"))
    at(0, lambda: limits.acquire("b"))
    with pytest.raises(Full, match=r"2 keys are busy \(keys_max\)"):
        at(0, lambda: limits.acquire("c"))
    assert at(0, lambda: limits.acquire("a")).is_allowed


def test_new_limits_keep_what_was_saved_as_far_as_it_fits() -> None:
    limits = limiter(rate=2, burst=4)
    at(0, lambda: limits.acquire("ada", 4))
    at(1, lambda: limits.configure(100, 3))
    assert at(1, lambda: limits.left("ada")) == 2
    assert at(2, lambda: limits.left("ada")) == 3


@given(
    rate=st.integers(1, 50),
    burst=st.integers(1, 50),
    calls=st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(1, 5)), max_size=40),
)
def test_in_no_time_is_more_allowed_than_flowed_in(
    rate: int, burst: int, calls: list[tuple[int, int]]
) -> None:
    limits = limiter(rate, burst)
    time, paid = 0, [(0, 0)]
    for wait, cost in calls:
        time += wait
        if cost > burst:
            continue
        verdict = at(time / SECOND, lambda: limits.acquire("ada", cost))  # noqa: B023 -- at once
        if verdict.is_allowed:
            paid.append((time, cost))
            for index in range(len(paid)):
                spent = sum(cost for _, cost in paid[index:])
                assert spent * SECOND <= burst * SECOND + (time - paid[index][0]) * rate
        else:
            retry = time + verdict.retry_in
            assert at(retry / SECOND, lambda: limits.left("ada")) >= cost
            assert at((retry - 1) / SECOND, lambda: limits.left("ada")) < cost
