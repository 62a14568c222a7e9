"""`coterie pipeline state` and `diff`: the object as it was at a place in the history."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.here import history_here
from tests.pipeline.journals import COUNTER

from coterie.cli import exits
from coterie.cli.commands.pipeline_state import differences
from coterie.cli.main import main
from coterie.kernel.views import ViewId, Viewstamp
from coterie.pipeline.history import gathering
from coterie.pipeline.history.states import position_at, read_place, state_at

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from coterie.pipeline.lake.lake import Lake

CLASS = ["--class", "coterie.ready:Counter"]


@pytest.fixture
def out(counter_lake: Lake, tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "lake").symlink_to(counter_lake.root)
    return tmp_path / "results"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["pipeline", *words, *CLASS, "--json"]) == exits.DONE
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_state_by_position_viewstamp_and_time(
    counter_lake: Lake, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["state", "group", "--out", str(out)]
    state = told(capsys, *place, "--at", "42")
    assert state["position"] == 42
    assert set(state["state"]) == {"value"}
    assert told(capsys, *place, "--at", state["viewstamp"]) == state
    by_time = told(capsys, *place, "--at", state["executed_at"])
    assert by_time["executed_at"] == state["executed_at"]
    assert by_time["position"] >= 42, "the last one of that moment"
    end = told(capsys, *place)
    rows = history_here(counter_lake)
    known = max(row["position"] for row in rows if row["standing"] == "authoritative")
    assert end["position"] == known
    assert main(["pipeline", *place, *CLASS, "--at", "42"]) == exits.DONE
    assert f"digest {state['digest']}" in capsys.readouterr().out


def test_before_everything_and_after(counter_lake: Lake) -> None:
    testimony = gathering.testimony_of(counter_lake, "group")

    def at(text: str) -> int:
        time: datetime = read_place(text)  # type: ignore[assignment]
        return position_at(counter_lake, testimony, COUNTER, time)

    assert at("1960-01-01") == 0
    assert state_at(counter_lake, testimony, COUNTER, at("2999-01-01")).position > 42


def test_what_changed_between_two_places(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["diff", "group", "--out", str(out), "--from", "42"]
    found = told(capsys, *words)
    [change] = found["changes"]
    assert change["where"] == "value"
    assert change["before"] == found["from"]["state"]["value"] < change["after"]
    assert told(capsys, *words, "--to", "42")["changes"] == []
    assert main(["pipeline", *words, *CLASS, "--to", "42"]) == exits.DONE
    assert "the states are equal" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["group", "--at", "nowhere"], "is no place in a history: give a position"),
        (["group", "--at", "1000000"], "the history at hand ends at"),
        (["nobody"], "there is no group 'nobody'"),
    ],
)
def test_what_cannot_be_is_said(
    words: list[str], said: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "state", *words, "--out", str(out), *CLASS]) == exits.MISUSE
    assert said in capsys.readouterr().err


def test_places() -> None:
    assert read_place("7") == 7
    assert read_place("3.a:7") == Viewstamp(ViewId(3, "a", 1), 7)
    assert read_place("12.some.name#4:9") == Viewstamp(ViewId(12, "some.name", 4), 9)
    for stamp in (Viewstamp(ViewId(3, "a", 1), 7), Viewstamp(ViewId(3, "b", 2), 1)):
        assert read_place(str(stamp)) == stamp


def test_differences_of_values() -> None:
    old = {"a": 1, "b": {"x": [1, 2]}, "gone": None}
    new = {"a": 1, "b": {"x": [1, 3, 4]}, "new": 5}
    assert list(differences(old, new)) == [
        {"where": "b.x[1]", "before": 2, "after": 3},
        {"where": "b.x[2]", "after": 4},
        {"where": "gone", "before": None},
        {"where": "new", "after": 5},
    ]
