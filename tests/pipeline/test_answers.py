"""Answers to one request are compared wherever they lie, by tasks or by a shuffle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.pipeline.here import Row, edit

from coterie.pipeline.history import answers
from coterie.pipeline.history.answers import CHECK, answered, check_answered
from coterie.pipeline.history.verify import verify
from coterie.pipeline.read.schemas import REPLIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from coterie.pipeline.lake.lake import Lake


@pytest.fixture
def twice(counter_lake: Lake) -> str:
    """Make of two answers, the first and the last, two ways to answer one request; name it."""
    told: list[Row] = []
    for path, _ in counter_lake.files_of("replies", "group"):
        told += counter_lake.read_file(path, REPLIES).to_pylist()
    told = [row for row in told if row["session"]]
    first = min(told, key=lambda row: row["position"])
    last = max(told, key=lambda row: row["position"])
    assert first["position"] // counter_lake.width != last["position"] // counter_lake.width

    def again(row: Row) -> Row:
        same = {"session": first["session"], "request": first["request"], "count": first["count"]}
        return {**row, **same} if row == last else row

    assert edit(counter_lake, "replies", again) == 1
    return (
        f"request {first['request']} of session {first['session']} was answered in 2 ways, from "
        f"positions [{first['position']}, {last['position']}]"
    )


def compared(lake: Lake) -> list[str]:
    return [
        row["evidence"]
        for task in answered(lake, "group")
        for row in check_answered(task).violations
    ]


def test_answers_that_agree(counter_lake: Lake) -> None:
    assert len(answered(counter_lake, "group")) == 1
    assert compared(counter_lake) == []
    assert answered(counter_lake, "nothing") == []


@pytest.mark.parametrize("share", [1 << 20, 30])
def test_two_ways_to_answer_far_apart(
    counter_lake: Lake, twice: str, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "ANSWERS_PER_TASK", share)
    monkeypatch.setattr(answers, "TASKS_MAX", 100)
    assert (len(answered(counter_lake, "group")) > 1) == (share == 30)
    assert compared(counter_lake) == [twice]


def test_too_many_answers_for_a_task(
    spark: SparkSession, counter_lake: Lake, twice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "TASKS_MAX", 0)
    assert answered(counter_lake, "group") == []
    found = verify(spark, counter_lake)
    assert twice in [row["evidence"] for row in found.violations if row["check_name"] == CHECK]
    [verdict] = [row for row in found.verdicts if row["check_name"] == CHECK]
    assert verdict["verdict"] == "broken"
