"""`coterie program`: the plan for several machines, what it warns of, and what no guard means."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from coterie.cli.commands import program_session, program_status
from coterie.cli.main import main
from coterie.service.operate.control import ProcessSeen


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


def test_what_no_guard_means_is_said_where_it_is_chosen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["program", "run", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "its claim may erase what the others have done and clients have seen" in said
    assert "may erase what the others have done" in program_session.UNGUARDED


@pytest.mark.parametrize(("guard", "is_said"), [("quorum", False), ("none", True)])
def test_status_says_that_there_is_no_guard(guard: str, *, is_said: bool) -> None:
    edge = ProcessSeen(id="edge", state="running", more={"guard": guard, "orders": 3})
    shown = "\n".join(program_status.draw("shop", "", [edge]))
    assert ("no guard: who was cut off may erase" in shown) == is_said
