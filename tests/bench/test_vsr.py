"""The benchmark of viewstamped replication measures what it says."""

import asyncio

import pytest

from coterie.bench.vsr import WAYS, Plan, measure


@pytest.mark.slow  # real time passes until a dead primary is noticed
def test_every_way_is_measured_with_and_without_replicas() -> None:
    lines = asyncio.run(measure(Plan(cohorts=(1, 3), transactions=8, together=2, kills=1)))
    assert {(line.what, line.cohorts) for line in lines} == {
        *((what, cohorts) for what in WAYS for cohorts in (1, 3)),
        ("kill to next commit", 3),
    }
    assert all(line.median_us > 0 for line in lines)
