"""The benchmark of server groups measures what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.bench.suites.servers import ServersPlan, measure, setting, tables, write_files


@pytest.mark.slow  # real processes
def test_requests_and_retrieve_are_measured(tmp_path: Path) -> None:
    said: list[str] = []
    report = measure(ServersPlan(servers=(2,), requests=20, kills=0, changes=1), said.append)
    assert [figure.what for figure in report.figures] == [
        "request p50",
        "request p99",
        "retrieve p50",
        "add",
        "remove",
    ]
    assert all(figure.value > 0 for figure in report.figures)
    assert all(figure.echoes for figure in report.figures[:3])
    assert len(said) == 5
    assert "cores" in setting(report)
    assert "request p50" in tables(report)
    files = write_files(report, tmp_path)
    assert {file.suffix for file in files} == {".json", ".csv", ".md"}
    assert json.loads((tmp_path / "servers.json").read_text(encoding="utf-8"))["figures"]
