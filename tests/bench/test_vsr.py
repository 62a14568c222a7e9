"""The benchmark of viewstamped replication measures what it says."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from coterie.bench.harness.figures import Figure, rate
from coterie.bench.harness.protocol import Latencies, ServeAccounts
from coterie.bench.suites import vsr_report
from coterie.bench.suites.vsr import (
    CLAIM_WAYS,
    LATENCY_WAYS,
    PARTS,
    VsrPlan,
    VsrReport,
    latencies,
    measure,
    named,
)
from coterie.bench.workloads.measuring import Timing
from coterie.bench.workloads.transfer_workload import config_of
from coterie.cli import main as cli

if TYPE_CHECKING:
    from pathlib import Path

FIGURES = [
    *latencies("one client", "one call", "replicated", Latencies(300.0, 900.0, 50.0), 3, 0.05),
    rate(section="many clients", what="calls", replicas=3, rates=[9000.0], echo_ms=0.05),
    Figure(section="claim", what="prepares that waited", replicas=3, value=2.0, unit="%"),
]
REPORT = VsrReport(
    machine={
        "cores": 2,
        "processor": "Abacus",
        "system": "Linux 9",
        "python": "CPython 3.11.7",
        "loop": "asyncio",
        "coterie": "0.1.0",
        "load_average": "0.1",
        "loop_ns": 25,
    },
    disk="ext4",
    sync_ms=3.96,
    busy_cores=0.0,
    plan=VsrPlan(),
    echo_ms=0.05,
    echo_ms_repeats=[0.05],
    echoes="Raw TCP round trip in the same run: 50 us between two cores, 20 us on one.",
    figures=FIGURES,
)


def test_all_groups_are_in_one_deployment_and_their_primaries_apart() -> None:
    ports = {id: (7000 + place, 7100 + place) for place, id in enumerate("abc")}
    config = config_of(ServeAccounts(id="a", ports=ports, stack="SAFE:DYNSEQ:PVSYNC", folder="x"))
    assert {name: config.members(name) for name in config.groups} == {
        "one": ("a", "b", "c"),
        "two": ("b", "c", "a"),
        "solo": ("a",),
        "duo": ("b",),
        "ordered": ("a", "b", "c"),
    }
    assert config.groups["ordered"].engine == "stack"


def test_a_client_is_measured_against_the_raw_round_trip() -> None:
    p50, p99 = FIGURES[:2]
    assert p50.echoes == pytest.approx(6.0)
    assert p99.shown == "900 us"
    [alone, _] = latencies("x", "end", "unreplicated", Latencies(1.0, 1.0, 1.0), 3, 0.05)
    assert (alone.what, alone.replicas) == ("the end of a transaction, one cohort, p50", 1)


def test_everything_that_is_measured_has_a_name_of_its_own() -> None:
    kinds = ("replicated", "unreplicated")
    ways = [*LATENCY_WAYS, *((way, kind) for way in CLAIM_WAYS for kind in kinds)]
    assert len({named(way, kind) for way, kind in ways}) == len(ways)


def test_all_files_are_written(tmp_path: Path) -> None:
    files = vsr_report.write_files(REPORT, tmp_path, plot=False)
    assert [file.name for file in files] == ["vsr.json", "vsr.csv", "vsr.md"]
    assert json.loads(files[0].read_text())["figures"][0]["value"] == 300
    page = files[2].read_text()
    assert "# Viewstamped replication" in page
    assert "a call that is a transaction, p50" in page
    assert "Compared with SAFE:DYNSEQ:PVSYNC" in page


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--parts lunch", "--parts names no part 'lunch'"),
        ("--replicas 1", "--replicas '1' cannot be"),
        ("--stack DYNSEQ:VSYNC", "keeps no history"),
    ],
)
def test_a_wrong_command_line_is_refused(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "vsr", "--no-plot", *words.split()]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.slow  # four processes, and real time passes until a dead primary is noticed
def test_every_part_is_measured() -> None:
    plan = VsrPlan(
        replicas=(3,),
        timing=Timing(seconds=0.2, warm_up=0.1, repeats=1),
        alone=20,
        alone_warm_up=2,
        together=4,
        fail_over=(3,),
        kills=1,
    )
    report = asyncio.run(measure(plan, lambda _: None))
    assert report.troubles == []
    sections = {figure.section for figure in report.figures}
    assert sections == {"one client", "many clients", "claim", "fail-over"}
    assert len(PARTS) == 3
    measured = [figure for figure in report.figures if figure.unit != "%"]
    assert all(figure.value > 0 for figure in measured)
