"""The benchmark of replicated programs measures what it says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from coterie.bench.suites.program import ProgramPlan, measure, setting, tables, write_files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow  # real processes
def test_a_program_is_measured_beside_itself(tmp_path: Path) -> None:
    said: list[str] = []
    plan = ProgramPlan(
        replicas=(2,), sizes=(64,), operations=(0,), requests=20, seconds=0.1, kills=1
    )
    report = measure(plan, said.append)
    assert [figure.section for figure in report.figures] == (
        ["plain"] * 3 + ["proxy"] * 3 + ["replicas"] * 3 + ["takeover"] * 4
    )
    assert all(figure.value > 0 for figure in report.figures)
    assert len(said) == len(report.figures)
    assert "cores" in setting(report)
    assert "x proxy" in tables(report)
    files = write_files(report, tmp_path)
    assert json.loads((tmp_path / "program.json").read_text(encoding="utf-8"))["figures"]
    assert {file.suffix for file in files} == {".json", ".csv", ".md"}
