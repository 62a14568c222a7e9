"""`coterie program plan`: the file for several machines, and what it warns of."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from coterie.cli.main import main


@pytest.mark.parametrize(("edge", "warned"), [("10.0.0.1", ""), ("10.0.0.2", "the edge and r1")])
def test_a_plan_whose_edge_shares_a_machine_is_warned_about(
    edge: str, warned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = tmp_path / "app.py"
    app.write_text("print(1)\n", encoding="utf-8")
    words = ["program", "plan", "--name", "shop", "--dir", str(tmp_path), "--edge", f"{edge}:7000"]
    for id, host in (("r1", "10.0.0.2"), ("r2", "10.0.0.3"), ("r3", "10.0.0.4")):
        words += ["--replica", f"{id}={host}:7001"]
    assert main([*words, "--", sys.executable, str(app)]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)
    assert ("on one machine" in printed.err) == bool(warned)
    assert warned in printed.err
