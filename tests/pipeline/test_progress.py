"""How far results are behind the journals that they follow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.pipeline.by_hand import NAMES, begin, entries, settled, write

from coterie.cli import exits
from coterie.cli.main import main
from coterie.pipeline.jobs import JobOutcome
from coterie.pipeline.progress import FIGURES, Follower, lag_of, read_batch


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    folder = tmp_path / "journals"
    write(folder, "calls", {name: begin("calls", name) for name in NAMES})
    return folder


def sizes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.segment"))


def test_what_comes_in_is_behind_until_a_batch_has_it(
    journals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    follower = Follower(out, [str(journals)])
    follower.begin()
    lag = follower.end(JobOutcome(out, segments=3))
    assert lag.behind_bytes == {"calls": 0}
    assert lag.behind_seconds == 0
    first = read_batch(out)
    assert first.read_bytes == sizes(journals)
    assert main(["pipeline", "status", str(out)]) == exits.DONE
    assert "all that the journals have" in capsys.readouterr().out

    later = [entries("calls", "a", 1, [b"x"]), settled("calls", "a", 1)]
    before = sizes(journals)
    write(journals, "calls", {"a": later}, incarnation=2)
    grown = sizes(journals) - before
    assert grown > 0
    assert lag_of(first).behind_bytes == {"calls": grown}
    assert lag_of(first).behind_seconds > 0
    assert main(["pipeline", "status", str(out), "--json"]) == exits.DONE
    told = json.loads(capsys.readouterr().out)
    assert told["behind_bytes"] == {"calls": grown}
    assert main(["pipeline", "status", str(out)]) == exits.DONE
    assert f"calls: {grown:,} bytes" in capsys.readouterr().out

    again = Follower(out, [str(journals)])  # as after a kill: it goes on from what is noted
    again.begin()
    assert again.end(JobOutcome(out)).total == 0
    assert read_batch(out).read_bytes == grown


def test_figures_are_as_prometheus_reads_them(journals: Path, tmp_path: Path) -> None:
    write(journals, 'say "calls"', {"a": begin('say "calls"', "a")})
    follower = Follower(tmp_path, [str(journals)])
    follower.begin()
    follower.end(JobOutcome(tmp_path, problems=["something is missing"]))
    lines = (tmp_path / FIGURES).read_text("utf-8").splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values["coterie_pipeline_is_damaged"] == "1"
    assert values["coterie_pipeline_is_broken"] == "0"
    assert values['coterie_pipeline_behind_bytes{group="say \\"calls\\""}'] == "0"
    named = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert named == {name.partition("{")[0] for name in values}


def test_where_nobody_follows_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "status", str(tmp_path)]) == exits.MISUSE
    assert "nobody follows journals into" in capsys.readouterr().err
