"""The benchmark of takeovers measures what it says, and the same each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.bench.suites.takeover import TakeoverPlan, measure, setting, tables, write_files

if TYPE_CHECKING:
    from pathlib import Path

PLAN = TakeoverPlan(replicas=(2, 3), deaths=2, requests=10)


def test_takeovers_and_frames_are_counted_in_simulated_time(tmp_path: Path) -> None:
    report = measure(PLAN, lambda _line: None)
    assert measure(PLAN, lambda _line: None).figures == report.figures
    values = {(each.what, each.replicas): each.value for each in report.figures}
    for size in PLAN.replicas:
        # Suspected after 400 ms at most, and a beat; then the next leader answers.
        assert 200 <= values["detection p50", size] <= 600
        assert 0 < values["takeover p50", size] < 5
        assert values["answer p50", size] > values["detection p50", size]
        assert 1 < values["frames a request", size] < 60
    assert "suspected after 400 ms" in setting(report)
    assert "takeover p50" in tables(report)
    assert {file.suffix for file in write_files(report, tmp_path)} == {".json", ".csv", ".md"}
