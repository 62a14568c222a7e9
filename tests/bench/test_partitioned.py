"""The benchmark of partitioned networks measures what it says."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tests.patience import PATIENCE

from coterie.bench.harness import wire
from coterie.bench.suites.partitioned import QUICK, measure
from coterie.bench.suites.partitioned_report import SLIDE_19, markdown, tables, write_files
from coterie.bench.workloads.measuring import Timing
from coterie.cli import main as cli
from coterie.stacks import COLOURS_STACKS

if TYPE_CHECKING:
    from pathlib import Path

    from coterie.bench.suites.partitioned import PartitionedReport

SMALL = replace(
    QUICK,
    stacks=COLOURS_STACKS[:1],
    timing=Timing(seconds=0.1, warm_up=0.05, repeats=1),
    alone=10,
    alone_warm_up=2,
    sessions=4,
    packed=4,
    members=(3,),
    rates=(60,),
    pace_seconds=0.3,
    rounds=2,
    groups=(3,),
    idle_seconds=0.1,
    reds=(3,),
)


@pytest.fixture(autouse=True)
def _is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no trouble of the benchmark's."""
    monkeypatch.setattr("coterie.bench.harness.controller.WAIT_SECONDS", PATIENCE)


def measured(*parts: str) -> PartitionedReport:
    return asyncio.run(measure(replace(SMALL, parts=parts), lambda _: None))


def test_merges_and_the_second_copy_are_measured(tmp_path: Path) -> None:
    report = measured("merge")
    assert [figure.section for figure in report.figures] == ["merge", *["second copy"] * 4]
    assert not report.troubles
    assert {file.suffix for file in write_files(report, tmp_path, plot=False)} == {
        ".json",
        ".csv",
        ".md",
    }
    assert json.loads((tmp_path / "partitioned.json").read_text(encoding="utf-8"))["figures"]


@pytest.mark.slow  # real processes
def test_groups_in_one_process_are_measured() -> None:
    report = measured("groups")
    assert not report.troubles
    assert [figure.what.partition(": ")[0] for figure in report.figures] == ["3"] * 4
    assert report.figures[0].value > 1


@pytest.mark.slow  # real processes
def test_delivery_is_measured_beside_the_slide() -> None:
    report = measured("slides")
    assert [figure.section for figure in report.figures] == [
        *["slide 19", "slide 19", "slide 19, saturated"] * 2
    ]
    assert all(figure.value > 0 for figure in report.figures)
    shown = tables(report)
    assert "TOKEN:VSYNC, 60 messages/s, safe" in shown
    # The slide's figures stand beside ours where there are any.
    assert SLIDE_19[6, 100, "safe"] == 16
    six = replace(report.figures[1], replicas=6, what="TOKEN:VSYNC, 100 messages/s, safe")
    assert "16 ms" in markdown(replace(report, figures=[six]))


@pytest.mark.long  # real processes, several times
def test_calls_forced_writes_and_transactions_are_measured() -> None:
    report = measured("green", "syncs", "two-phase")
    troubles = [each for each in report.troubles if "strace" not in each]
    assert not troubles
    green = [figure for figure in report.figures if figure.section == "green, one client"]
    # p50 and p99, with two ways of syncing.
    assert len(green) == 2 * 2
    assert len([each for each in report.figures if each.section == "two-phase"]) == 6
    syncs = {
        (figure.what.partition(",")[0], figure.journal): figure.value
        for figure in report.figures
        if figure.section == "syncs"
    }
    if shutil.which("strace") and not report.troubles:
        # The slides' claim: no forced write in the path of an action.
        assert not syncs[COLOURS_STACKS[0], "sync none"]
        assert syncs[COLOURS_STACKS[0], "sync turn"]


@pytest.mark.long  # real processes in namespaces
@pytest.mark.skipif(bool(wire.why_not()), reason=wire.why_not())
def test_replicas_far_apart_are_measured() -> None:
    report = measured("distance")
    assert not report.troubles
    [ordered, *_] = [figure.value for figure in report.figures if "client at the 2" in figure.what]
    # Nobody can be told sooner than a packet takes there and back.
    assert ordered >= 2 * SMALL.delay_ms
    assert any("red" in figure.what for figure in report.figures)


def test_what_cannot_be_measured_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "partitioned", "--parts", "colours"]) == 2
    assert "the parts are green, syncs" in capsys.readouterr().err
